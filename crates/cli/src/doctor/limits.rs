//! Resource limits that the program inherits (ulimit).

use super::Check;
use crate::launch::{ADDRESS_SPACE_BYTES, LEDGER_BYTES};
use hinterland_abi::DATA_BYTES_NEEDED;
use hinterland_units::ByteCount;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Descriptors that a managed program's library may take besides the program's own: userfaultfd, ledger, memory, files.
const DESCRIPTORS_MIN: u64 = 256;

/// All checks of this file.
pub fn checks() -> Vec<Check> {
    vec![
        address_space(soft(Resource::RLIMIT_AS)),
        writable(soft(Resource::RLIMIT_DATA)),
        locked(soft(Resource::RLIMIT_MEMLOCK)),
        descriptors(soft(Resource::RLIMIT_NOFILE)),
        file_length(soft(Resource::RLIMIT_FSIZE)),
    ]
}

/// The soft limit; `None`: unlimited.
fn soft(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft != RLIM_INFINITY)
}

/// Address space, of all kinds.
fn address_space(limit: Option<u64>) -> Check {
    match limit {
        Some(bytes) if bytes < ADDRESS_SPACE_BYTES => Check::missing(
            "ulimit -v",
            format!("{} of address space; far memory reserves {}", ByteCount(bytes), ByteCount(ADDRESS_SPACE_BYTES)),
            "ulimit -v unlimited (no memory is taken by the reservation; --local bounds what is used)",
        ),
        Some(bytes) => Check::ok("ulimit -v", format!("{} of address space", ByteCount(bytes))),
        None => Check::ok("ulimit -v", "unlimited address space"),
    }
}

/// Private mappings that may be written to: the program's, also what of them is far, and those of far memory.
fn writable(limit: Option<u64>) -> Check {
    let needed = ByteCount(DATA_BYTES_NEEDED);
    let found = |bytes| {
        format!("{} of private writable memory; far memory needs {needed} beside the program's", ByteCount(bytes))
    };
    match limit {
        Some(bytes) if bytes < DATA_BYTES_NEEDED => {
            Check::missing("ulimit -d", found(bytes), "ulimit -d unlimited, or a higher limit")
        }
        Some(bytes) => Check::ok("ulimit -d", found(bytes)),
        None => Check::ok("ulimit -d", "unlimited private writable memory"),
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
    fn limits_that_are_too_low_are_missing() {
        assert_eq!([Some(64 << 30), None].map(|limit| address_space(limit).status), [Status::Missing, Status::Ok]);
        assert_eq!(
            [Some(64 << 20), Some(64 << 30), None].map(|limit| writable(limit).status),
            [Status::Missing, Status::Ok, Status::Ok]
        );
        assert_eq!(descriptors(Some(20)).status, Status::Limited);
        assert_eq!(file_length(Some(1 << 10)).status, Status::Missing);
    }
}
