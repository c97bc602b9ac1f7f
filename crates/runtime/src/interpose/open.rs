//! Opening files: `/proc/self/stat` counts this process's threads, and programs that must be alone, or warn where they are not, read it
//! (CPython after a fork, the crate `num_threads`). Threads of ours are left out.

use super::next_symbol::next;
use crate::own_stat;
use libc::{FILE, c_char, c_int, mode_t};
use std::ffi::CStr;

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
type FOpen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;

/// The descriptor as it was opened, or with another file.
///
/// # Safety
/// `path` is what libc was passed.
unsafe fn opened(path: *const c_char, descriptor: c_int) -> c_int {
    // SAFETY: libc could read it.
    if descriptor >= 0 && own_stat::may_be_named(unsafe { CStr::from_ptr(path) }) {
        own_stat::leave_ours_out(descriptor);
    }
    descriptor
}

/// The same for a stream, of which nothing was read yet.
///
/// # Safety
/// As for `opened`; `stream` is what libc returned.
unsafe fn streamed(path: *const c_char, stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: the caller's.
        unsafe { opened(path, libc::fileno(stream)) };
    }
    stream
}

// The mode is a variable argument, which lies where a third (or fourth) one of a function without such lies.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let next = next!(open: Open);
    // SAFETY: the program's own call.
    unsafe { opened(path, next(path, flags, mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let next = next!(open64: Open);
    // SAFETY: the program's own call.
    unsafe { opened(path, next(path, flags, mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let next = next!(openat: OpenAt);
    // SAFETY: the program's own call.
    unsafe { opened(path, next(directory, path, flags, mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let next = next!(openat64: OpenAt);
    // SAFETY: the program's own call.
    unsafe { opened(path, next(directory, path, flags, mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    let next = next!(fopen: FOpen);
    // SAFETY: the program's own call.
    unsafe { streamed(path, next(path, mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    let next = next!(fopen64: FOpen);
    // SAFETY: the program's own call.
    unsafe { streamed(path, next(path, mode)) }
}
