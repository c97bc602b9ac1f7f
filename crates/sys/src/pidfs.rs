//! What the kernel calls a process in every PID namespace, and without `/proc`: its inode in pidfs, the file system of pidfds (Linux 6.9),
//! which no other process has as long as the machine runs.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The file system's `f_type` (<linux/magic.h>: `PID_FS_MAGIC`).
const MAGIC: i64 = 0x5049_4446;

/// The inode of a process, by its number in the caller's PID namespace; `None`: this kernel has none, or there is no such process.
pub fn inode(pid: i32) -> Option<u64> {
    let pidfd = open(pid)?;
    let fd = pidfd.as_raw_fd();
    let is_pidfs = file_system_of(fd)? == MAGIC;
    is_pidfs.then(|| inode_of(fd)).flatten()
}

/// A pidfd of a process (pidfd_open(2), Linux 5.3), which becomes readable when the process has ended; `None`: there is no such process, or
/// no descriptor is left.
pub fn open(pid: i32) -> Option<OwnedFd> {
    // SAFETY: opens a descriptor; no memory is touched.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the descriptor was just opened, and has no other owner.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn file_system_of(fd: RawFd) -> Option<i64> {
    // SAFETY: an all-zero structure is a valid value.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call, and the kernel's is libc's on x86-64.
    let rc = unsafe { libc::syscall(libc::SYS_fstatfs, fd, &raw mut about) };
    (rc >= 0).then_some(about.f_type)
}

fn inode_of(fd: RawFd) -> Option<u64> {
    // SAFETY: as above.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let rc = unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut about) };
    (rc >= 0).then_some(about.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_an_inode_of_its_own() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (inodes, again) = ((inode(own), inode(pid)), (inode(own), inode(pid)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(inodes, again);
        assert_eq!(inode(pid), None, "it has ended");
        match inodes {
            (Some(own), Some(other)) => assert_ne!(own, other),
            (None, None) => println!("skipped: this kernel has no pidfs"),
            _ => panic!("{inodes:?}"),
        }
    }
}
