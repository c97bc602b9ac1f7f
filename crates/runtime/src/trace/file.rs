//! Files of traces: opened, written and closed by raw system calls.

use crate::descriptors;
use hinterland_sys::thread;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

/// Signals that the kernel sends beside the error of a write.
const OF_WRITES: u64 = 1 << (libc::SIGXFSZ - 1) | 1 << (libc::SIGPIPE - 1);

/// A file under a number that survives programs which close everything.
pub struct File(RawFd);

impl File {
    /// A file that is there no more, or not yet.
    pub const NONE: File = File(-1);

    /// The file at `path`, empty; what is there is replaced.
    pub fn create(path: &str) -> io::Result<File> {
        File::open(path, libc::O_TRUNC)
    }

    /// A new file at `path`; one that is there is refused.
    pub fn create_new(path: &str) -> io::Result<File> {
        File::open(path, libc::O_EXCL)
    }

    fn open(path: &str, how: libc::c_int) -> io::Result<File> {
        let path = CString::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC | how;
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o666) };
        match RawFd::try_from(fd) {
            Ok(fd) if fd >= 0 => descriptors::protect(fd).map(File),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes so many bytes the whole file. A refusal leaves part of a block at its end, which readers name.
    pub fn cut(&self, bytes: u64) {
        // SAFETY: changes the length of a file of ours.
        unsafe { libc::syscall(libc::SYS_ftruncate, self.0, bytes) };
    }

    /// Nothing is in it any more.
    pub fn empty(&self) -> io::Result<()> {
        // SAFETY: changes a file of ours.
        let (cut, sought) = unsafe {
            (libc::syscall(libc::SYS_ftruncate, self.0, 0), libc::syscall(libc::SYS_lseek, self.0, 0, libc::SEEK_SET))
        };
        if cut == 0 && sought == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// A forked child closes what its parent writes.
    pub fn close(&mut self) {
        descriptors::release(std::mem::replace(&mut self.0, -1));
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.close();
    }
}

impl io::Write for File {
    /// A refusal is an error alone: the signal that the kernel sends with some is not for the program, which may die of it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Not SignalsBlocked: the first bytes are written while the process starts, where it changes no mask.
        let before = thread::change_mask(libc::SIG_BLOCK, Some(OF_WRITES));
        // SAFETY: the bytes outlive the call.
        let written = unsafe { libc::syscall(libc::SYS_write, self.0, bytes.as_ptr(), bytes.len()) };
        let written = usize::try_from(written).map_err(|_| io::Error::last_os_error());
        match written.as_ref().err().and_then(io::Error::raw_os_error) {
            Some(libc::EFBIG) => thread::take_pending(libc::SIGXFSZ),
            Some(libc::EPIPE) => thread::take_pending(libc::SIGPIPE),
            _ => {}
        }
        thread::change_mask(libc::SIG_SETMASK, Some(before));
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
