//! The limits that the library keeps in the kernel's place (`descriptor_limit`, `memory_limit`); all others are the kernel's business.
//!
//! What the program names is copied, as the kernel would: a bad address is `EFAULT`, and far memory need not be there.

use crate::{descriptor_limit, errno, kernel_limit, memory_limit, user_copy};
use hinterland_sys::thread;
use libc::{c_int, c_long, pid_t, rlimit};

/// The program sets a limit of a process, or only asks for it; returns the one before.
fn change(process: pid_t, resource: c_int, new: Option<&rlimit>) -> Result<rlimit, c_int> {
    let this = process == 0 || u32::try_from(process) == Ok(thread::process());
    match memory_limit::of(resource).filter(|_| this) {
        Some(limit) => memory_limit::change(limit, resource, new),
        None if this && resource == libc::RLIMIT_NOFILE.cast_signed() => descriptor_limit::change(new),
        None => kernel_limit::change_of(process, resource.cast_unsigned(), new),
    }
}

/// prlimit(2), in the kernel's order: where the old limit cannot be written, the new one is set all the same.
fn perform(process: pid_t, resource: c_int, new: usize, old: usize) -> Result<(), c_int> {
    let new = user_copy::read_optional::<rlimit>(new)?;
    let before = change(process, resource, new.as_ref())?;
    if old != 0 {
        user_copy::write(old, &before)?;
    }
    Ok(())
}

/// prlimit(2); its answer in C's manner. In a program that is not managed it is the kernel's alone.
fn answer(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    if crate::pager().is_none() {
        // SAFETY: the program's own call.
        let answer = unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, old) };
        return c_int::try_from(answer).unwrap_or(-1);
    }
    match perform(process, resource, new.addr(), old.addr()) {
        Ok(()) => 0,
        Err(number) => {
            errno::set(number);
            -1
        }
    }
}

/// getrlimit(2), setrlimit(2) and prlimit64(2) by `syscall`.
pub(crate) extern "C" fn by_number(number: c_long, a: usize, b: usize, c: usize, d: usize) -> c_long {
    #[allow(clippy::cast_possible_truncation, reason = "the kernel takes the lower half of the register")]
    let int = |argument: usize| (argument as u32).cast_signed();
    let answer = match number {
        libc::SYS_getrlimit => answer(0, int(a), std::ptr::null(), b as *mut rlimit),
        libc::SYS_setrlimit => answer(0, int(a), b as *const rlimit, std::ptr::null_mut()),
        _ => answer(int(a), int(b), c as *const rlimit, d as *mut rlimit),
    };
    answer.into()
}

#[unsafe(no_mangle)]
pub extern "C" fn prlimit(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    answer(process, resource, new, old)
}

#[unsafe(no_mangle)]
pub extern "C" fn prlimit64(process: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    answer(process, resource, new, old)
}

#[unsafe(no_mangle)]
pub extern "C" fn setrlimit(resource: c_int, new: *const rlimit) -> c_int {
    answer(0, resource, new, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
pub extern "C" fn setrlimit64(resource: c_int, new: *const rlimit) -> c_int {
    answer(0, resource, new, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
pub extern "C" fn getrlimit(resource: c_int, old: *mut rlimit) -> c_int {
    answer(0, resource, std::ptr::null(), old)
}

#[unsafe(no_mangle)]
pub extern "C" fn getrlimit64(resource: c_int, old: *mut rlimit) -> c_int {
    answer(0, resource, std::ptr::null(), old)
}
