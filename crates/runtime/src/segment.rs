//! Shared memory of the launcher's, mapped: the ledger, the profile.

use crate::handover;
use hinterland_abi::{HandoverFile, Settings};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Maps the launcher's segment at `path`; `None` when it is gone or of another version, which `is_known` tells.
///
/// # Safety
/// `T` consists of atomics, for which any bits are valid.
pub unsafe fn map<T>(
    settings: &Settings,
    path: &str,
    what: HandoverFile,
    is_known: impl Fn(&T) -> bool,
) -> Option<&'static T> {
    // SAFETY: the caller's.
    handover::open(settings, path, what, |file| unsafe { map_file(file, &is_known) })
}

/// # Safety
/// That of `map`.
unsafe fn map_file<T>(file: &File, is_known: &impl Fn(&T) -> bool) -> Option<&'static T> {
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
    let segment = address as *const T;
    // SAFETY: the mapping is as long as a `T`, page-aligned, and any bits are valid in its atomics.
    if !is_known(unsafe { &*segment }) {
        // SAFETY: another file's mapping, made above, to which nothing refers any more.
        unsafe { libc::syscall(libc::SYS_munmap, address, size_of::<T>()) };
        return None;
    }
    // SAFETY: as above; it is never unmapped.
    Some(unsafe { &*segment })
}
