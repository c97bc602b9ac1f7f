//! Files that belong to a process for as long as it lives: it holds a lock on each, which the kernel releases with its last descriptor
//! (`F_OFD_SETLK`, fcntl(2)). So a file that none holds is that of a process which has ended, whichever process has its number now, and in whatever
//! PID namespace it was. To look takes no lock: two that look at the same time do not see each other.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A lock on a whole file.
fn whole(kind: libc::c_int) -> libc::flock {
    #[allow(clippy::cast_possible_truncation, reason = "0 to 2")]
    let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Holds a file, open for writing, until it is closed.
///
/// # Errors
/// Another process holds it, or the file system has no locks.
pub fn hold(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole(libc::F_WRLCK))).map(drop).map_err(io::Error::from)
}

/// Opens a file that another process may hold, to look at it: whatever lies there, the open waits for nothing and follows no link.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Whether a process holds the file at a path, as far as can be told: one that cannot be looked at is held.
pub fn is_held(path: &Path) -> bool {
    open(path).map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |file| is_held_open(&file))
}

/// The same of an open file.
pub fn is_held_open(file: &File) -> bool {
    let mut lock = whole(libc::F_RDLCK);
    let asked: Result<_, Errno> = fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock));
    asked.is_err() || libc::c_int::from(lock.l_type) != libc::F_UNLCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_held_until_it_is_closed_and_looking_at_it_holds_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("row");
        let file = File::create(&path).unwrap();
        let looks = File::open(&path).unwrap();
        assert!(!is_held(&path) && !is_held_open(&looks));
        hold(&file).unwrap();
        assert!(is_held(&path) && is_held_open(&looks));
        let second = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(hold(&second).is_err(), "one process holds it");
        drop(file);
        assert!(!is_held(&path) && !is_held_open(&looks));
        hold(&second).unwrap();
        assert!(!is_held(&directory.path().join("none")));
    }
}
