//! A private anonymous mapping that reserves address space; memory arrives page by page when it is written.
//!
//! Private, so that fork gives the child a copy-on-write duplicate. Never huge pages: what is touched must be what is
//! counted.

use hinterland_units::PAGE_BYTES;
use std::io;
use std::ptr::NonNull;

/// A reservation of address space.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Mapping is plain memory that lives as long as the value; who may touch which part is the business of the types
// built on it.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods that take `&self` change no state of the Mapping itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `bytes`, rounded up to whole pages.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let memory = hinterland_sys::Mapping::anonymous(bytes)?;
        let base = NonNull::new(memory.as_ptr()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Mapping { base, bytes })
    }

    /// The address of byte `offset`.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.bytes, "offset {offset} outside a mapping of {} bytes", self.bytes);
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts memory behind a range of whole pages with one call. Only a saving: without it, memory comes page by page.
    pub(crate) fn populate(&self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES) && offset + bytes <= self.bytes);
        // SAFETY: the range lies inside our mapping (asserted), and populating changes no content. Kernels before 5.14 do
        // not know the advice and change nothing.
        unsafe { libc::madvise(self.at(offset).cast(), bytes, libc::MADV_POPULATE_WRITE) };
    }

    /// Gives the memory behind a range of whole pages back to the kernel; it reads as zero afterwards.
    ///
    /// # Safety
    /// Nobody uses the range during the call, and nobody relies on its content afterwards.
    pub(crate) unsafe fn discard(&self, offset: usize, bytes: usize) {
        assert!(offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES) && offset + bytes <= self.bytes);
        // SAFETY: the range lies inside our mapping (asserted), and the caller vouches that it is unused.
        let result = unsafe { libc::madvise(self.at(offset).cast(), bytes, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "madvise on our own memory failed: {}", io::Error::last_os_error());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives the value that owns it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_memory_reads_as_zero() {
        let mapping = Mapping::reserve(10 * PAGE_BYTES).expect("ten pages");
        // SAFETY: offsets inside the mapping, used by this thread alone.
        unsafe {
            mapping.at(PAGE_BYTES).write(7);
            mapping.discard(PAGE_BYTES, PAGE_BYTES);
            assert_eq!(mapping.at(PAGE_BYTES).read(), 0);
        }
    }
}
