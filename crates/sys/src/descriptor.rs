//! Keeping descriptors out of the program's reach.
//!
//! A program may close every descriptor that it does not know. The library that lives in it knows how to hide a descriptor;
//! layers below it ask for that here, without knowing the library.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::sync::OnceLock;

type Hide = fn(RawFd) -> std::io::Result<RawFd>;

static WAY: OnceLock<(Hide, fn(RawFd))> = OnceLock::new();

/// Sets how descriptors are hidden: `hide` moves one to another number, which it returns; `show` ends that without closing.
pub fn hide_with(hide: Hide, show: fn(RawFd)) {
    // The first setting stays: there is one library in a process.
    let _ = WAY.set((hide, show));
}

/// Hides a descriptor that the caller owns and keeps until `show`, or for the life of the process; returns its number from
/// now on. Where nobody knows how to hide it, it keeps its number.
///
/// # Errors
/// When no number is left.
pub fn hide(fd: RawFd) -> std::io::Result<RawFd> {
    WAY.get().map_or(Ok(fd), |(hide, _)| hide(fd))
}

/// Ends the hiding of a descriptor, so that its owner can close it.
pub fn show(fd: RawFd) {
    if let Some((_, show)) = WAY.get() {
        show(fd);
    }
}

/// As `hide`, for a file that somebody reads and then closes by `close_file`.
///
/// # Errors
/// When no number is left; the file is closed then.
pub fn hide_file(file: File) -> std::io::Result<File> {
    let fd = file.into_raw_fd();
    match hide(fd) {
        // SAFETY: the descriptor is the file's, which nobody else has.
        Ok(hidden) => Ok(unsafe { File::from_raw_fd(hidden) }),
        Err(error) => {
            // SAFETY: it was not moved, and is still the file's.
            drop(unsafe { File::from_raw_fd(fd) });
            Err(error)
        }
    }
}

/// Closes a file that was hidden.
pub fn close_file(file: File) {
    show(file.as_raw_fd());
}
