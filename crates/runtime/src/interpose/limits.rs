//! The limits that the library keeps in the kernel's place (`descriptor_limit`, `memory_limit`); all others are the kernel's business.

use crate::{descriptor_limit, errno, memory_limit};
use hinterland_sys::thread;
use libc::{c_int, pid_t, rlimit};

/// The program sets a limit of this process, or only asks for it; returns the one before. `None`: the kernel keeps it.
fn change(process: pid_t, resource: c_int, new: Option<&rlimit>) -> Option<Result<rlimit, c_int>> {
    let this = process == 0 || u32::try_from(process) == Ok(thread::process());
    if !this || crate::pager().is_none() {
        return None;
    }
    if resource == libc::RLIMIT_NOFILE.cast_signed() {
        return Some(descriptor_limit::change(new));
    }
    memory_limit::of(resource).map(|limit| memory_limit::change(limit, resource, new))
}

/// The call as the kernel has it.
fn pass(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the program's own call.
    let rc = unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, old) };
    c_int::try_from(rc).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: null or a limit, by the call's contract.
    let wanted = unsafe { new.as_ref() }.copied();
    match change(process, resource, wanted.as_ref()) {
        None => pass(process, resource, new, old),
        Some(Ok(before)) => {
            if !old.is_null() {
                // SAFETY: room for a limit, by the call's contract.
                unsafe { old.write(before) };
            }
            0
        }
        Some(Err(number)) => {
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
