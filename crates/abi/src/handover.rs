//! Handover of the launcher's files to processes that cannot open them by its path: it sends them over a UNIX socket to
//! processes of the run that connect, each with one byte for its kind, and closes the connection. The client sends no
//! request, so the launcher waits for none.

/// A file that is handed over; the byte that it comes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HandoverFile {
    /// The ledger.
    Ledger = b'l',
    /// The tapes of the run.
    Tapes = b't',
    /// The profile while it is taken.
    Profile = b'p',
}

impl HandoverFile {
    /// Kinds of files.
    pub const COUNT: usize = 3;
}

/// Bytes of an address (`sun_path` of unix(7), with a zero byte at its end or its beginning).
const ADDRESS_BYTES_MAX: usize = 107;

/// The addresses at which the launcher hands its files over, in the order in which they are tried. The socket's path: it is of one mount
/// namespace and one root directory. Its name in the abstract namespace, which begins with a zero byte: it is of one network namespace.
pub fn addresses(path: &str) -> impl Iterator<Item = String> {
    let by_path = (1..=ADDRESS_BYTES_MAX).contains(&path.len()).then(|| path.to_owned());
    // Its end tells runs apart.
    let ends = path.char_indices().map(|(at, _)| &path[at..]);
    let by_name = ends.into_iter().find(|end| end.len() < ADDRESS_BYTES_MAX).map(|end| format!("\0{end}"));
    by_path.into_iter().chain(by_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_before_the_name_that_is_made_of_its_end() {
        let all = |path: &str| addresses(path).collect::<Vec<_>>();
        assert_eq!(
            all("/run/user/7/hinterland/1.files"),
            ["/run/user/7/hinterland/1.files", "\0/run/user/7/hinterland/1.files"]
        );
        assert_eq!(all(""), Vec::<String>::new());
        let long = format!("/{}/hinterland/4711.files", "ü".repeat(100));
        let [name] = &all(&long)[..] else { panic!("a path of {} bytes has no place", long.len()) };
        assert!(name.starts_with("\0ü") && name.ends_with("ü/hinterland/4711.files") && name.len() <= 107, "{name}");
    }
}
