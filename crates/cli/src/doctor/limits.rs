//! Resource limits that the program inherits (ulimit).

use super::Check;
use crate::launch::{ADDRESS_SPACE_BYTES, DATA_BYTES, LEDGER_BYTES};
use hinterland_units::ByteCount;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Descriptors that a managed program's library may take besides the program's own: userfaultfd, ledger, memory, files.
const DESCRIPTORS_MIN: u64 = 256;

/// All checks of this file.
pub fn checks() -> Vec<Check> {
    vec![
        reserved("ulimit -v", "address space", ADDRESS_SPACE_BYTES, soft(Resource::RLIMIT_AS)),
        reserved("ulimit -d", "private writable memory", DATA_BYTES, soft(Resource::RLIMIT_DATA)),
        locked(soft(Resource::RLIMIT_MEMLOCK)),
        descriptors(soft(Resource::RLIMIT_NOFILE)),
        file_length(soft(Resource::RLIMIT_FSIZE)),
    ]
}

/// The soft limit; `None`: unlimited.
fn soft(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft != RLIM_INFINITY)
}

/// Address space, of all kinds or private and writable.
fn reserved(ulimit: &'static str, what: &str, needed: u64, limit: Option<u64>) -> Check {
    match limit {
        Some(bytes) if bytes < needed => Check::missing(
            ulimit,
            format!("{} of {what}; far memory reserves {}", ByteCount(bytes), ByteCount(needed)),
            format!("{ulimit} unlimited (no memory is taken by the reservation; --local bounds what is used)"),
        ),
        Some(bytes) => Check::ok(ulimit, format!("{} of {what}", ByteCount(bytes))),
        None => Check::ok(ulimit, format!("unlimited {what}")),
    }
}

/// Locked pages stay local; the limit bounds only what the program itself locks.
fn locked(limit: Option<u64>) -> Check {
    let found = limit.map_or_else(|| "unlimited".to_owned(), |bytes| ByteCount(bytes).to_string());
    Check::ok("ulimit -l", format!("{found} of locked memory; pages that the program locks stay local"))
}

fn descriptors(limit: Option<u64>) -> Check {
    match limit {
        Some(count) if count < DESCRIPTORS_MIN => Check::limited(
            "ulimit -n",
            format!("{count} open files; far memory needs a few besides the program's own"),
            format!("ulimit -n {DESCRIPTORS_MIN} or more"),
        ),
        Some(count) => Check::ok("ulimit -n", format!("{count} open files")),
        None => Check::ok("ulimit -n", "unlimited open files"),
    }
}

fn file_length(limit: Option<u64>) -> Check {
    let needed = LEDGER_BYTES as u64;
    match limit {
        Some(bytes) if bytes < needed => Check::missing(
            "ulimit -f",
            format!(
                "files of {} at most; the shared memory for a run's figures has {}",
                ByteCount(bytes),
                ByteCount(needed)
            ),
            "ulimit -f unlimited",
        ),
        Some(bytes) => Check::ok("ulimit -f", format!("files of {} at most, far files too", ByteCount(bytes))),
        None => Check::ok("ulimit -f", "unlimited length of files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn a_small_address_space_is_a_refusal() {
        for needed in [ADDRESS_SPACE_BYTES, DATA_BYTES] {
            assert_eq!(reserved("ulimit -v", "address space", needed, Some(64 << 30)).status, Status::Missing);
            assert_eq!(reserved("ulimit -v", "address space", needed, None).status, Status::Ok);
        }
        assert_eq!(descriptors(Some(20)).status, Status::Limited);
        assert_eq!(file_length(Some(1 << 10)).status, Status::Missing);
    }
}
