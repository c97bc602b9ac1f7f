//! Calls that could close Hinterland's own descriptors.

use crate::{descriptors, errno};
use libc::{c_int, c_uint};

unsafe extern "C" {
    fn __close(fd: c_int) -> c_int;
    fn __dup2(from: c_int, to: c_int) -> c_int;
}

/// Answers as for a descriptor that is not open, or beyond the limit.
fn bad_descriptor() -> c_int {
    errno::set(libc::EBADF);
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if descriptors::is_own(fd) {
        return bad_descriptor();
    }
    // SAFETY: the program's own call.
    unsafe { __close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if descriptors::is_own(to) || descriptors::is_own(from) {
        return bad_descriptor();
    }
    // SAFETY: the program's own call.
    unsafe { __dup2(from, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if descriptors::is_own(to) || descriptors::is_own(from) {
        return bad_descriptor();
    }
    // SAFETY: the program's own call. The result is a descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_dup3, from, to, flags) };
    c_int::try_from(fd).unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    match descriptors::close_range(first, last, flags) {
        Ok(()) => 0,
        Err(number) => {
            errno::set(number);
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    descriptors::close_from(first);
}
