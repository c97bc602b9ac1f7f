//! System calls under Miri, which interprets Rust: it knows neither the processor's instructions nor most calls of the kernel. Memory is
//! its own, and signals there are none. What is missing fails as on a kernel that lacks it.

use std::ptr;

/// Makes a system call; returns what the kernel would.
///
/// # Safety
/// That of the call.
pub(crate) unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [first, second, third, ..] = arguments;
    match number {
        libc::SYS_mmap if first == 0 && arguments[3] & anonymous() != 0 => {
            let read_write = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping, which replaces nothing.
            let made = unsafe { libc::mmap(ptr::null_mut(), second, read_write, flags, -1, 0) };
            if made == libc::MAP_FAILED { -(libc::ENOMEM as isize) } else { made.expose_provenance().cast_signed() }
        }
        // SAFETY: the caller's.
        libc::SYS_munmap => unsafe { libc::munmap(ptr::with_exposed_provenance_mut(first), second) as isize },
        libc::SYS_madvise if third == libc::MADV_DONTNEED.unsigned_abs() as usize => {
            // SAFETY: the caller's: the range is mapped, and its content is given up.
            unsafe { ptr::with_exposed_provenance_mut::<u8>(first).write_bytes(0, second) };
            0
        }
        // Advice; and all memory is readable and writable.
        libc::SYS_madvise | libc::SYS_mprotect => 0,
        libc::SYS_getpid => std::process::id() as isize,
        _ => -(libc::ENOSYS as isize),
    }
}

fn anonymous() -> usize {
    libc::MAP_ANONYMOUS.unsigned_abs() as usize
}
