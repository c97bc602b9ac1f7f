//! Files of `/proc` about this process that are looked at again and again.
//!
//! They are kept open under protected numbers: a descriptor that came and went in the middle of the program's life could get the
//! number that the program expects for its own next file, or be closed by a program that closes everything.

use crate::descriptors;
use hinterland_sys::confinement;
use std::ffi::CStr;
use std::io::{self, Read};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// One of them.
pub struct ProcFile {
    path: &'static CStr,
    /// -1: not open.
    fd: AtomicI32,
}

impl ProcFile {
    /// Not open.
    pub const fn new(path: &'static CStr) -> ProcFile {
        ProcFile { path, fd: AtomicI32::new(-1) }
    }

    /// Where it is.
    pub fn path(&self) -> &'static str {
        self.path.to_str().expect("written here")
    }

    /// Opens it, if it is not open. A process that is confined, or gave its privileges up, may not look.
    pub fn open(&self) {
        if self.fd.load(Relaxed) >= 0 {
            return;
        }
        if let Some(fd) = confinement::with_files(|| descriptors::open(self.path)).flatten() {
            self.fd.store(fd, Relaxed);
        }
    }

    /// Closes it.
    pub fn close(&self) {
        descriptors::release(self.fd.swap(-1, Relaxed));
    }

    /// Its content from the beginning, as it is now; `None`: it is not open.
    pub fn read(&self) -> Option<impl Read + use<>> {
        let fd = self.fd.load(Relaxed);
        (fd >= 0).then_some(Reading { fd, offset: 0 })
    }
}

struct Reading {
    fd: i32,
    offset: usize,
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `into` is writable for its length.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.fd, into.as_mut_ptr(), into.len(), self.offset) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        self.offset += read;
        Ok(read)
    }
}
