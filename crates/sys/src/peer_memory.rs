//! Memory of another process, mapped for reading.
//!
//! A space is reserved as a whole, outside the far range, and pieces of it show files that came over a socket. What such a file
//! holds is the other process's memory: it is not counted as ours, not dumped, and never written through here. A child made by
//! fork has the same pieces at the same places.
//!
//! Only files that are sealed against shrinking are mapped, so that reading them is never SIGBUS.
//!
//! Calls go by the trampoline, and `errno` stays as it is.

use crate::mem::{self, Mapping};
use crate::{SysError, descriptor, trampoline};
use std::fs::File;
use std::os::fd::{FromRawFd, RawFd};

/// A descriptor that came over a socket, out of the program's reach. It is closed when it is dropped.
#[derive(Debug)]
pub struct ReceivedFd(RawFd);

impl ReceivedFd {
    /// Takes hold of a descriptor that no other code has; `None`: it cannot be hidden, and is closed.
    pub(crate) fn hide(fd: RawFd) -> Option<ReceivedFd> {
        let hidden = descriptor::hide(fd).ok();
        if hidden.is_none() {
            call(libc::SYS_close, [word(fd), 0, 0, 0, 0, 0]);
        }
        hidden.map(ReceivedFd)
    }

    /// It, as a file that is no more hidden.
    pub fn into_file(self) -> File {
        let fd = self.0;
        std::mem::forget(self);
        descriptor::show(fd);
        // SAFETY: the descriptor was this value's, which is no more.
        unsafe { File::from_raw_fd(fd) }
    }

    /// Its length, if it can never become shorter.
    fn fixed_len(&self) -> Option<usize> {
        let fd = word(self.0);
        let seals = call(libc::SYS_fcntl, [fd, word(libc::F_GET_SEALS), 0, 0, 0, 0]);
        let is_fixed = seals >= 0 && seals & isize::try_from(libc::F_SEAL_SHRINK).ok()? != 0;
        let len = call(libc::SYS_lseek, [fd, 0, word(libc::SEEK_END), 0, 0, 0]);
        usize::try_from(len).ok().filter(|_| is_fixed)
    }
}

impl Drop for ReceivedFd {
    fn drop(&mut self) {
        descriptor::show(self.0);
        call(libc::SYS_close, [word(self.0), 0, 0, 0, 0, 0]);
    }
}

/// Address space in which files are shown. It ends when it is dropped.
#[derive(Debug)]
pub struct PeerMemory(Mapping);

impl PeerMemory {
    /// Reserves `len` bytes, whole pages, of address space.
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub fn reserve(len: usize) -> Result<PeerMemory, SysError> {
        let start = map(0, len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        let mapping = Mapping { start, len };
        mem::own(mapping);
        Ok(PeerMemory(mapping))
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no room at all.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Shows the first `len` bytes of a file from `offset` on, in place of what was shown there. `file` may be closed afterwards.
    ///
    /// # Errors
    /// `EINVAL` for a file that is too short, or can become shorter; the kernel's, for example `ENOMEM` when the process has too
    /// many mappings.
    pub fn show(&mut self, offset: usize, len: usize, file: &ReceivedFd) -> Result<(), SysError> {
        let start = self.address(offset, len);
        if file.fixed_len().is_none_or(|file_len| file_len < len) {
            return Err(SysError { call: "mmap", errno: libc::EINVAL });
        }
        map(start, len, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED, file.0)?;
        call(libc::SYS_madvise, [start, len, word(libc::MADV_DONTDUMP), 0, 0, 0]);
        Ok(())
    }

    /// Shows nothing at `offset .. offset + len` any more.
    pub fn hide(&mut self, offset: usize, len: usize) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // When it is refused, what was shown stays, and nobody asks for it.
        let _ = map(self.address(offset, len), len, libc::PROT_NONE, flags, -1);
    }

    /// Copies the bytes at `offset` to `into`.
    ///
    /// # Safety
    /// They are shown.
    pub unsafe fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.address(offset, into.len()) as *const u8;
        // SAFETY: the caller's, and the range lies inside (`address`); files that are shown keep their length. Nobody of ours has a
        // reference into shown memory. The other process changes it only where nothing is read meanwhile, and what is
        // read is compared with its hash.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    fn address(&self, offset: usize, len: usize) -> usize {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.0.len), "{offset} + {len} in a space of {} bytes", self.0.len);
        self.0.start + offset
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        mem::disown(self.0);
        call(libc::SYS_munmap, [self.0.start, self.0.len, 0, 0, 0, 0]);
    }
}

fn map(start: usize, len: usize, protection: i32, flags: i32, fd: RawFd) -> Result<usize, SysError> {
    let result = call(libc::SYS_mmap, [start, len, word(protection), word(flags), fd.cast_unsigned() as usize, 0]);
    let failed = |_| SysError { call: "mmap", errno: i32::try_from(-result).unwrap_or(libc::ENOMEM) };
    usize::try_from(result).map_err(failed)
}

fn word(value: i32) -> usize {
    value.cast_unsigned() as usize
}

fn call(number: i64, arguments: [usize; 6]) -> isize {
    // SAFETY: calls on descriptors that `ReceivedFd` owns, and on address space that a `PeerMemory` owns or that is new; none points at
    // memory, and none returns on another stack.
    unsafe { trampoline::call(number, arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_units::PAGE_BYTES;
    use std::os::fd::IntoRawFd;
    use std::os::unix::fs::FileExt;

    /// A file of `pages` pages, and a second descriptor of it.
    fn file(pages: usize, seals: i32) -> (File, ReceivedFd) {
        // SAFETY: the name is a C string; the descriptor is new.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING)) };
        file.set_len((pages * PAGE_BYTES) as u64).unwrap();
        let received = ReceivedFd(file.try_clone().unwrap().into_raw_fd());
        // SAFETY: sets a property of a file of this test.
        assert_eq!(unsafe { libc::fcntl(received.0, libc::F_ADD_SEALS, seals) }, 0);
        (file, received)
    }

    #[test]
    fn shows_what_the_other_side_writes_until_it_is_hidden() {
        let mut space = PeerMemory::reserve(8 * PAGE_BYTES).unwrap();
        let (other, received) = file(2, libc::F_SEAL_SHRINK);
        space.show(4 * PAGE_BYTES, 2 * PAGE_BYTES, &received).unwrap();
        drop(received);
        assert!(mem::is_own(space.0.start + 5 * PAGE_BYTES));
        let mut bytes = [1; 5];
        // SAFETY: shown above.
        unsafe { space.read(5 * PAGE_BYTES, &mut bytes) };
        assert_eq!(bytes, [0; 5]);
        other.write_at(b"hello", PAGE_BYTES as u64).unwrap();
        // SAFETY: shown above.
        unsafe { space.read(5 * PAGE_BYTES, &mut bytes) };
        assert_eq!(&bytes, b"hello");
        let place = space.0.start + 5 * PAGE_BYTES;
        assert!(mem::is_in_memory(place));
        space.hide(4 * PAGE_BYTES, 2 * PAGE_BYTES);
        assert!(!mem::is_in_memory(place));
        let start = space.0.start;
        drop(space);
        assert!(!mem::is_own(start));
    }

    #[test]
    fn files_that_could_end_under_a_reader_are_refused() {
        let mut space = PeerMemory::reserve(4 * PAGE_BYTES).unwrap();
        let (_open, unsealed) = file(2, libc::F_SEAL_GROW);
        assert_eq!(space.show(0, 2 * PAGE_BYTES, &unsealed).unwrap_err().errno, libc::EINVAL);
        let (_short, short) = file(1, libc::F_SEAL_SHRINK);
        assert_eq!(space.show(0, 2 * PAGE_BYTES, &short).unwrap_err().errno, libc::EINVAL);
        assert!(space.show(0, PAGE_BYTES, &short).is_ok());
    }
}
