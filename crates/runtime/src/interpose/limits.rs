//! Limits on descriptors (`descriptor_limit`); all others are the kernel's business.

use crate::{descriptor_limit, errno};
use hinterland_sys::thread;
use libc::{c_int, pid_t, rlimit};

/// Whether a call is about this process's limit on descriptors.
fn is_ours(process: pid_t, resource: c_int) -> bool {
    let this = process == 0 || u32::try_from(process) == Ok(thread::process());
    this && resource == libc::RLIMIT_NOFILE.cast_signed() && crate::pager().is_some()
}

/// The call as the kernel has it.
fn pass(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the program's own call.
    let rc = unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, old) };
    c_int::try_from(rc).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    if !is_ours(process, resource) {
        return pass(process, resource, new, old);
    }
    // SAFETY: null or a limit, by the call's contract.
    let wanted = unsafe { new.as_ref() }.copied();
    match descriptor_limit::change(wanted.as_ref()) {
        Ok(before) => {
            if !old.is_null() {
                // SAFETY: room for a limit, by the call's contract.
                unsafe { old.write(before) };
            }
            0
        }
        Err(number) => {
            errno::set(number);
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the same call under another name.
    unsafe { prlimit(process, resource, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_int, new: *const rlimit) -> c_int {
    // SAFETY: prlimit(2) says that it does the same.
    unsafe { prlimit(0, resource, new, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_int, new: *const rlimit) -> c_int {
    // SAFETY: as above.
    unsafe { prlimit(0, resource, new, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit(resource: c_int, old: *mut rlimit) -> c_int {
    // SAFETY: as above.
    unsafe { prlimit(0, resource, std::ptr::null(), old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrlimit64(resource: c_int, old: *mut rlimit) -> c_int {
    // SAFETY: as above.
    unsafe { prlimit(0, resource, std::ptr::null(), old) }
}
