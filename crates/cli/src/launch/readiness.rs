//! Whether the kernel and the file system give what a managed run needs; if not, what to do.

use crate::error::Error;
use hinterland_abi::{DATA_BYTES_NEEDED, FaultPathName};
use hinterland_sys::{FeatureSet, Features, Privilege, seccomp};
use hinterland_units::ByteCount;
use nix::sys::resource::{Resource, getrlimit};

/// Address space that far memory reserves: 12 TiB for the far range; for each page of it 30 bytes of table (28 without a profile) and 16 that say where
/// it is stored; and room for a store.
pub const ADDRESS_SPACE_BYTES: u64 = (12 << 40) + (164 << 30);

/// Refuses a machine without the privilege to serve faults on the monitor path.
pub fn can_monitor(set: FeatureSet) -> Result<(), Error> {
    check(set, FaultPathName::Monitor)
}

/// Refuses a machine without userfaultfd, without the privilege to serve the kernel's own faults, or without address space.
pub fn check(set: FeatureSet, path: FaultPathName) -> Result<(), Error> {
    let below = |resource, needed| getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft < needed);
    if let Some(limit) = below(Resource::RLIMIT_AS, ADDRESS_SPACE_BYTES) {
        return Err(Error::AddressSpace { limit: ByteCount(limit), needed: ByteCount(ADDRESS_SPACE_BYTES) });
    }
    if let Some(limit) = below(Resource::RLIMIT_DATA, DATA_BYTES_NEEDED) {
        return Err(Error::WritableMemory { limit: ByteCount(limit), needed: ByteCount(DATA_BYTES_NEEDED) });
    }
    let features = Features::probe(set);
    let privilege = features.privilege;
    let inline = path == FaultPathName::Inline || path == FaultPathName::Auto && privilege == Privilege::UserOnly;
    if inline && !matches!(privilege, Privilege::None(_)) {
        let refuse = |what: String, remedy: &str| Err(Error::NoInline { what, remedy: remedy.into() });
        return match (features.signals, seccomp::permission()) {
            (false, _) => refuse("userfaultfd cannot send signals".into(), "use Linux 5.15 or newer"),
            (true, Err(error)) => refuse(format!("system calls cannot be trapped here ({error})"), TRAP_REMEDY),
            (true, Ok(_)) => Ok(()),
        };
    }
    match remedy(privilege, set) {
        None => Ok(()),
        Some((what, remedy)) => Err(Error::NoUserfaultfd { what, remedy }),
    }
}

/// What lets system calls be trapped.
pub const TRAP_REMEDY: &str = "allow seccomp(2) with SECCOMP_RET_TRAP: a kernel with CONFIG_SECCOMP_FILTER=y, and no sandbox that forbids filters";

/// What is wrong with userfaultfd and the remedy; `None` when all is well.
pub fn remedy(privilege: Privilege, set: FeatureSet) -> Option<(String, String)> {
    let (what, remedy) = match privilege {
        Privilege::Kernel => return None,
        Privilege::None(_) if set == FeatureSet::NoUffd => {
            ("is switched off by --features no-uffd".to_owned(), "leave that out".to_owned())
        }
        Privilege::UserOnly => (
            "may not serve the faults of system calls for this user".to_owned(),
            "as root: `sysctl -w vm.unprivileged_userfaultfd=1`, or `chmod 666 /dev/userfaultfd` (udev rule: \
             KERNEL==\"userfaultfd\", MODE=\"0666\"); in a container: `docker run --cap-add SYS_PTRACE`, or \
             `--device /dev/userfaultfd`"
                .to_owned(),
        ),
        Privilege::None(libc::ENOSYS) => (
            "is not there".to_owned(),
            "use a kernel with CONFIG_USERFAULTFD=y; in a container whose seccomp profile hides it: `docker run \
             --security-opt seccomp=unconfined --cap-add SYS_PTRACE`"
                .to_owned(),
        ),
        Privilege::None(errno) => (
            format!("is forbidden ({})", std::io::Error::from_raw_os_error(errno)),
            "a seccomp profile or security module refuses it: allow userfaultfd there (`docker run --security-opt \
             seccomp=unconfined --cap-add SYS_PTRACE`, or `--device /dev/userfaultfd`), or as root `sysctl -w \
             vm.unprivileged_userfaultfd=1`"
                .to_owned(),
        ),
    };
    Some((what, remedy))
}

/// Refuses far memory that cannot be had: a place that cannot be written or has no room, a NUMA node that is not there. `origin`: where it is
/// written.
pub fn check_far(origin: &str, urls: &[String]) -> Result<(), Error> {
    let refuse = |why: String| Error::Setting { origin: origin.into(), why };
    for url in urls {
        let parsed = hinterland_backend::parse(url).map_err(|error| refuse(error.to_string()))?;
        hinterland_backend::check(&parsed).map_err(|error| refuse(error.to_string()))?;
    }
    Ok(())
}
