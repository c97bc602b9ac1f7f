//! Shared memory of the launcher's, mapped by its path: the ledger, the profile.

use std::ffi::CString;

/// Maps the launcher's segment; `None` when it is gone or of another version, which `is_known` tells.
///
/// # Safety
/// `T` consists of atomics, for which any bits are valid.
pub unsafe fn map<T>(path: &str, is_known: impl FnOnce(&T) -> bool) -> Option<&'static T> {
    let path = CString::new(path).ok()?;
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // A launcher of another version makes a segment of another length: to read beyond its end would be a SIGBUS.
    // SAFETY: asks for the length of a file that was just opened.
    let length = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    if usize::try_from(length).is_ok_and(|length| length < size_of::<T>()) {
        // SAFETY: the descriptor was just opened.
        unsafe { libc::syscall(libc::SYS_close, fd) };
        return None;
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping; the segment is at least this long.
    let address = unsafe {
        // The offset travels on the stack: it must be a whole word.
        let address = libc::syscall(libc::SYS_mmap, 0usize, size_of::<T>(), protection, flags, fd, 0usize);
        libc::syscall(libc::SYS_close, fd);
        address
    };
    let address = usize::try_from(address).ok()?;
    // SAFETY: the mapping is as long as a `T`, page-aligned, never unmapped, and any bits are valid in its atomics.
    let segment: &'static T = unsafe { &*(address as *const T) };
    is_known(segment).then_some(segment)
}
