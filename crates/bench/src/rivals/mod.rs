//! The kernel's own swap as a rival: set up for a run, taken back after it, whatever happens.

pub mod cgroup;
pub mod swap_area;
pub mod swapfile;
pub mod sysctl;
pub mod undo;
pub mod zram;

use crate::error::BenchError;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A name for what the bench makes on the machine, another one each time: a process number alone has a namesake in each other PID namespace,
/// which may share the cgroups and the disk.
pub fn name() -> String {
    format!("hinterland-bench-{}-{:016x}", std::process::id(), RandomState::new().build_hasher().finish())
}

/// Refuses a machine on which kernel swap cannot be measured, on compressed RAM too where `compressed` says so.
///
/// # Errors
/// No root, swap that is in use, no zram.
pub fn check_machine(rivals: &str, compressed: bool) -> Result<(), BenchError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(BenchError::NeedsRoot(rivals.into()));
    }
    if let Some(area) = swap_area::active()?.first() {
        return Err(BenchError::InUse {
            what: format!("swap ({})", area.display()),
            remedy: "The rivals would swap there too. Turn it off for the time of the bench: swapoff -a".into(),
        });
    }
    if compressed {
        zram::compressors()?;
        zram::check_free()?;
    }
    Ok(())
}
