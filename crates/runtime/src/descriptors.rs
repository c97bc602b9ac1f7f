//! Hinterland's own file descriptors survive programs that close everything.
//!
//! A protected descriptor is moved to a high number and registered; to the program that number looks as if it lay
//! beyond its limit: closing it or duplicating onto it answers `EBADF`, and ranges are closed around it. Nothing is
//! recorded by a refused call, so a vfork child, which shares memory but not the table of descriptors, changes nothing
//! in its parent. Calls that libc makes inside itself (posix_spawn's in the child) are not seen; they happen in
//! processes about to call exec.

use libc::{c_int, c_uint};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// Descriptors that Hinterland may own at a time.
const SLOTS: usize = OWN_MAX.unsigned_abs() as usize;
const OWN_MAX: RawFd = 64;
/// Where ours begin, if the limit allows: high enough that few programs get there, and below 1024, because the kernel's
/// table, which every fork copies, is as large as the highest number in use.
const LOWEST: RawFd = 1024 - OWN_MAX;

static OWN: [AtomicI32; SLOTS] = [const { AtomicI32::new(-1) }; SLOTS];

/// Moves `fd` to a high number with close-on-exec and protects it; returns the number. `fd` is closed. Where no number is left it is
/// protected under its own.
///
/// # Errors
/// The kernel's; `EMFILE` when Hinterland owns too many.
pub fn protect(fd: RawFd) -> io::Result<RawFd> {
    let slot = OWN.iter().find(|slot| slot.compare_exchange(-1, fd, SeqCst, SeqCst).is_ok());
    let slot = slot.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
    match duplicate_high(fd) {
        Ok(high) => {
            slot.store(high, SeqCst);
            // SAFETY: the caller hands `fd` over; its duplicate lives on.
            unsafe { libc::syscall(libc::SYS_close, fd) };
            Ok(high)
        }
        // No number is left for a second one: it stays where it is.
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => Ok(fd),
        Err(error) => {
            slot.store(-1, SeqCst);
            Err(error)
        }
    }
}

/// Opens a file for reading and protects it; `None`: it cannot be opened, or no number is left. While the program opens nothing.
pub fn open(path: &std::ffi::CStr) -> Option<RawFd> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0usize) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    let protected = protect(fd);
    if protected.is_err() {
        // SAFETY: closes what was just opened.
        unsafe { libc::syscall(libc::SYS_close, fd) };
    }
    protected.ok()
}

/// Ends the protection of `fd` and closes it.
pub fn release(fd: RawFd) {
    if fd < 0 {
        return;
    }
    for slot in &OWN {
        if slot.compare_exchange(fd, -1, SeqCst, SeqCst).is_ok() {
            // SAFETY: the descriptor is ours, and the caller gives it up.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
}

/// Ends the protection of `fd` without closing it.
pub fn expose(fd: RawFd) {
    for slot in OWN.iter().filter(|_| fd >= 0) {
        let _ = slot.compare_exchange(fd, -1, SeqCst, SeqCst);
    }
}

/// Duplicates to a high number, or to the lowest free one if the limit leaves no other.
fn duplicate_high(fd: RawFd) -> io::Result<RawFd> {
    let limit = RawFd::try_from(limit()).unwrap_or(RawFd::MAX);
    for lowest in [LOWEST.min(limit - OWN_MAX).max(3), 3] {
        if let Ok(high) = duplicate_from(fd, lowest) {
            return Ok(high);
        }
    }
    // The last answer may be of a number that is no number under this limit.
    Err(io::Error::from_raw_os_error(libc::EMFILE))
}

/// Duplicates to the lowest free number from `lowest` on, with close-on-exec.
pub fn duplicate_from(fd: RawFd, lowest: RawFd) -> io::Result<RawFd> {
    // SAFETY: duplicates a descriptor; no memory is touched.
    let high = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, lowest) };
    RawFd::try_from(high).ok().filter(|high| *high >= 0).ok_or_else(io::Error::last_os_error)
}

/// Protects `fd` under the number that it has.
///
/// # Errors
/// `EMFILE` when Hinterland owns too many.
pub fn protect_in_place(fd: RawFd) -> io::Result<()> {
    let slot = OWN.iter().find(|slot| slot.compare_exchange(-1, fd, SeqCst, SeqCst).is_ok());
    slot.map(|_| ()).ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))
}

/// The highest number that is Hinterland's; -1: none.
pub fn highest() -> RawFd {
    OWN.iter().map(|slot| slot.load(SeqCst)).max().unwrap_or(-1)
}

/// The limit on descriptor numbers.
fn limit() -> u64 {
    crate::kernel_limit::change(libc::RLIMIT_NOFILE, None).map_or(0, |limit| limit.rlim_cur)
}

/// Whether `fd` is Hinterland's.
pub fn is_own(fd: RawFd) -> bool {
    fd >= 0 && OWN.iter().any(|slot| slot.load(SeqCst) == fd)
}

/// close_range(2) around our own descriptors.
///
/// # Errors
/// An error number: the kernel's.
pub fn close_range(first: c_uint, last: c_uint, flags: c_int) -> Result<(), i32> {
    if first > last {
        return Err(libc::EINVAL);
    }
    let mut own = [0 as c_uint; SLOTS];
    let mut count = 0;
    for fd in OWN.iter().filter_map(|slot| c_uint::try_from(slot.load(SeqCst)).ok()) {
        if (first..=last).contains(&fd) {
            own[count] = fd;
            count += 1;
        }
    }
    own[..count].sort_unstable();
    let mut next = Some(first);
    for fd in &own[..count] {
        if let Some(from) = next.filter(|from| from < fd) {
            close_range_raw(from, fd - 1, flags)?;
        }
        next = fd.checked_add(1);
    }
    match next {
        Some(from) if from <= last => close_range_raw(from, last, flags),
        _ => Ok(()),
    }
}

fn close_range_raw(first: c_uint, last: c_uint, flags: c_int) -> Result<(), i32> {
    // SAFETY: closes descriptors of the program, as it asked.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if rc < 0 { Err(crate::errno::get()) } else { Ok(()) }
}

/// closefrom(3).
pub fn close_from(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    if close_range(first, c_uint::MAX, 0) == Ok(()) {
        return;
    }
    // Kernels before 5.9 have no close_range.
    for fd in first..c_uint::try_from(limit()).unwrap_or(1 << 20) {
        if c_int::try_from(fd).is_ok_and(|fd| !is_own(fd)) {
            // SAFETY: closes a descriptor of the program, as it asked.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
}

/// Tests that own descriptors take turns: one of them looks at the numbers beside its own.
#[cfg(test)]
pub(crate) static IN_TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: asks for a flag; no memory is touched.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    fn null_at(number: RawFd) -> RawFd {
        // SAFETY: the path is a C string; the duplicate's number is free in this test.
        unsafe {
            let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            if number < 0 { fd } else { libc::dup2(fd, number) }
        }
    }

    #[test]
    fn a_protected_descriptor_survives_what_closes_its_neighbours() {
        let _turn = IN_TURN.lock();
        let fd = null_at(-1);
        let own = protect(fd).unwrap();
        assert!((256..1024).contains(&own) && is_open(own) && !is_open(fd), "moved to {own}");
        let (before, after) = (null_at(own - 1), null_at(own + 1));
        assert_eq!(close_range(c_uint::try_from(before).unwrap(), c_uint::try_from(after).unwrap(), 0), Ok(()));
        assert!(!is_open(before) && is_open(own) && !is_open(after));
        // SAFETY: these are the interposed functions: they refuse.
        unsafe {
            assert_eq!((libc::close(own), crate::errno::get()), (-1, libc::EBADF));
            assert_eq!((libc::dup2(0, own), crate::errno::get()), (-1, libc::EBADF));
            assert_eq!((libc::dup3(0, own, 0), crate::errno::get()), (-1, libc::EBADF));
        }
        assert!(is_open(own));
        release(own);
        assert!(!is_open(own) && !is_own(own));
    }
}
