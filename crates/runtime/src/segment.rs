//! Shared memory of the launcher's, mapped: the ledger, the profile.

use crate::handover;
use hinterland_abi::{Handed, Settings};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Maps the launcher's segment at `path`; `None` when it is gone or of another version, which `is_known` tells.
///
/// # Safety
/// `T` consists of atomics, for which any bits are valid.
pub unsafe fn map<T>(
    settings: &Settings,
    path: &str,
    what: Handed,
    is_known: impl Fn(&T) -> bool,
) -> Option<&'static T> {
    // SAFETY: the caller's.
    handover::open(settings, path, what, |file| unsafe {
        let segment = map_file(file)?;
        if is_known(segment) {
            return Some(segment);
        }
        // Another file, which nothing of ours refers to.
        let address = std::ptr::from_ref(segment).addr();
        libc::syscall(libc::SYS_munmap, address, size_of::<T>());
        None
    })
}

/// # Safety
/// That of `map`.
unsafe fn map_file<T>(file: &File) -> Option<&'static T> {
    let fd = file.as_raw_fd();
    // What is not a segment of this version may be shorter: to read beyond its end would be a SIGBUS.
    // SAFETY: asks for the length of a file that is open.
    let length = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    if usize::try_from(length).is_ok_and(|length| length < size_of::<T>()) {
        return None;
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping; the segment is at least this long. The offset travels on the stack: it must be a whole word.
    let address = unsafe { libc::syscall(libc::SYS_mmap, 0usize, size_of::<T>(), protection, flags, fd, 0usize) };
    let address = usize::try_from(address).ok()?;
    // SAFETY: the mapping is as long as a `T`, page-aligned, never unmapped, and any bits are valid in its atomics.
    Some(unsafe { &*(address as *const T) })
}
