//! Keeping descriptors out of the program's reach.
//!
//! A program may close every descriptor that it does not know. The library that lives in it knows how to hide a descriptor;
//! layers below it ask for that here, without knowing the library.

use std::os::fd::RawFd;
use std::sync::OnceLock;

static HIDE: OnceLock<fn(RawFd) -> std::io::Result<RawFd>> = OnceLock::new();

/// Sets how descriptors are hidden: `hide` moves one to another number, which it returns.
pub fn hide_with(hide: fn(RawFd) -> std::io::Result<RawFd>) {
    // The first setting stays: there is one library in a process.
    let _ = HIDE.set(hide);
}

/// Hides a descriptor that the caller owns and keeps for the life of the process; returns its number from now on. Where
/// nobody knows how to hide it, it keeps its number.
///
/// # Errors
/// When no number is left.
pub fn hide(fd: RawFd) -> std::io::Result<RawFd> {
    HIDE.get().map_or(Ok(fd), |hide| hide(fd))
}
