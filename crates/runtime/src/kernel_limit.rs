//! Limits of this process as the kernel has them: past libc's functions, which tell the program's own (`descriptor_limit`, `memory_limit`).

use libc::{c_int, c_uint, rlimit};
use std::ptr::{from_ref, null};

/// Sets a limit, or only asks for it; returns the one before.
///
/// # Errors
/// An error number: the kernel's.
pub fn change(resource: c_uint, new: Option<&rlimit>) -> Result<rlimit, c_int> {
    let mut old = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both limits are valid for the call; 0 is this process.
    let rc = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, new.map_or(null(), from_ref), &raw mut old) };
    if rc < 0 { Err(crate::errno::get()) } else { Ok(old) }
}
