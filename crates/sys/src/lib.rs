//! The system calls that paging needs: userfaultfd, mappings, kernel features.
//!
//! Raw ones live here; ARCHITECTURE.md names the exceptions. Nothing here knows of page states or budgets.

#[cfg(miri)]
mod by_miri;
pub mod confinement;
pub mod descriptor;
pub mod features;
pub mod gate;
pub mod last_thread;
pub mod mem;
pub mod numa;
pub mod parts;
pub mod peer_memory;
pub mod pidfs;
pub mod processors;
pub mod random;
pub mod seccomp;
pub mod socket;
pub mod thread;
pub mod trampoline;
pub mod uffd;
pub mod valgrind;

pub use features::{FeatureSet, Features, Privilege};
pub use mem::Mapping;
pub use parts::Parts;
pub use socket::{Address, Socket};
pub use uffd::{Fault, Uffd};

/// A system call that failed: what was tried, and the system's reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{call}: {}", std::io::Error::from_raw_os_error(*.errno))]
pub struct SysError {
    /// The call, as the manual names it.
    pub call: &'static str,
    /// The error number.
    pub errno: i32,
}

impl SysError {
    /// The error of the call that just failed in this thread.
    pub fn last(call: &'static str) -> SysError {
        SysError { call, errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0) }
    }
}

impl From<SysError> for std::io::Error {
    fn from(error: SysError) -> std::io::Error {
        std::io::Error::from_raw_os_error(error.errno)
    }
}
