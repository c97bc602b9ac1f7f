//! Limits of this process as the kernel has them: past libc's functions, which tell the program's own (`descriptor_limit`, `memory_limit`).

use libc::{c_int, c_uint, pid_t, rlimit};
use std::ptr::{from_ref, null};

/// Whether this process has a limit.
pub fn is_set(resource: c_uint) -> bool {
    change(resource, None).is_ok_and(|limit| limit.rlim_cur != libc::RLIM_INFINITY)
}

/// Sets a limit, or only asks for it; returns the one before.
///
/// # Errors
/// An error number: the kernel's.
pub fn change(resource: c_uint, new: Option<&rlimit>) -> Result<rlimit, c_int> {
    change_of(0, resource, new)
}

/// The same of a process; 0 is this one.
///
/// # Errors
/// An error number: the kernel's.
pub fn change_of(process: pid_t, resource: c_uint, new: Option<&rlimit>) -> Result<rlimit, c_int> {
    let mut old = rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.map_or(null(), from_ref);
    // SAFETY: both limits are valid for the call.
    let rc = unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, &raw mut old) };
    if rc < 0 { Err(crate::errno::get()) } else { Ok(old) }
}
