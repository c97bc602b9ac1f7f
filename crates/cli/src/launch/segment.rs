//! Memory that managed processes open through `/proc/LAUNCHER/fd/N` and fill: a memfd with one value.
//!
//! A memfd has no name, so nothing is left behind when the launcher is killed; it lives as long as a process maps it.

use crate::error::Error;
use hinterland_units::ByteCount;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::ftruncate;
use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// A value that is shared with the processes of a run.
pub struct Segment<T> {
    fd: OwnedFd,
    map: NonNull<T>,
}

impl<T> Segment<T> {
    /// One of zeros; `what` cannot be done if it fails.
    ///
    /// # Safety
    /// `T` consists of atomics, for which all bits are valid.
    ///
    /// # Errors
    /// The system's.
    pub unsafe fn create(name: &CStr, what: &'static str) -> Result<Segment<T>, Error> {
        let bytes = size_of::<T>();
        // The kernel would not only refuse what is longer, but end the launcher by a signal.
        if let Ok((limit, _)) = getrlimit(Resource::RLIMIT_FSIZE)
            && limit < bytes as u64
        {
            return Err(Error::FileLength { limit: ByteCount(limit), needed: ByteCount(bytes as u64) });
        }
        let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC).map_err(Error::system(what))?;
        ftruncate(&fd, i64::try_from(bytes).unwrap_or(i64::MAX)).map_err(Error::system(what))?;
        let size = NonZeroUsize::new(bytes).unwrap_or(NonZeroUsize::MIN);
        // SAFETY: a new shared mapping of a file of exactly this size that is not truncated (only this process and managed
        // programs have it, and neither calls ftruncate); the address is the kernel's choice, so nothing is replaced.
        let map =
            unsafe { mmap(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, &fd, 0) };
        Ok(Segment { map: map.map_err(Error::system(what))?.cast(), fd })
    }

    /// The path by which other processes open it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", nix::unistd::getpid(), self.fd.as_raw_fd())
    }

    /// Its file.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The value.
    pub fn get(&self) -> &T {
        // SAFETY: the mapping is as long as a `T`, page-aligned, and lives as long as `self`; all bits are valid.
        unsafe { self.map.as_ref() }
    }
}

impl<T> Drop for Segment<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `create` with this size, and `get` cannot lend it past `self`.
        let _ = unsafe { munmap(self.map.cast(), size_of::<T>()) };
    }
}
