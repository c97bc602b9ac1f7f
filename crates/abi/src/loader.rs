//! What the dynamic loader is asked for, rtld-audit(7): with auditors (`LD_AUDIT`) it lays out thread-local storage before it knows what is
//! preloaded, and leaves 2 KiB for that. The library has 7 KiB, so it asks for more where auditors are: for the program of a run in the
//! launcher, for those that it starts in the library.

/// The tunable for it, as it stands in `GLIBC_TUNABLES`.
pub const STATIC_TLS: &str = "glibc.rtld.optional_static_tls=16384";

/// Whether a value of `GLIBC_TUNABLES` has it, with whatever size.
pub fn asks_for_static_tls(tunables: &[u8]) -> bool {
    let name = STATIC_TLS.split_inclusive('=').next().unwrap_or_default().as_bytes();
    tunables.split(|byte| *byte == b':').any(|tunable| tunable.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_asked_for_already_is_found_by_its_whole_name() {
        let asks = |tunables: &str| asks_for_static_tls(tunables.as_bytes());
        assert!(asks(STATIC_TLS) && asks("a=1:glibc.rtld.optional_static_tls=1"));
        assert!(!asks("") && !asks("glibc.rtld.optional_static_tls") && !asks("xglibc.rtld.optional_static_tls=1"));
    }
}
