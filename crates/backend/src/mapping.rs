//! A private anonymous mapping that reserves address space; memory arrives page by page when it is written.
//!
//! Private, so that fork gives the child a copy-on-write duplicate. Never huge pages: what is touched must be what is
//! counted.

use hinterland_units::{PAGE_BYTES, PageBytes};
use std::io;

/// A reservation of address space.
pub(crate) struct Mapping(hinterland_sys::Mapping);

impl Mapping {
    /// Reserves `bytes`, rounded up to whole pages.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        Ok(Mapping(hinterland_sys::Mapping::anonymous(bytes)?))
    }

    /// The same, whose memory comes from one NUMA node.
    pub(crate) fn reserve_on_node(bytes: usize, node: u32) -> io::Result<Mapping> {
        let mapping = Mapping::reserve(bytes)?;
        hinterland_sys::numa::bind(mapping.0, node)?;
        Ok(mapping)
    }

    /// The address of byte `offset`.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.bytes(), "offset {offset} outside a mapping of {} bytes", self.bytes());
        self.0.as_ptr().wrapping_add(offset)
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len
    }

    /// Puts memory behind a range of whole pages with one call. Only a saving: without it, memory comes page by page.
    pub(crate) fn populate(&self, offset: usize, bytes: usize) {
        assert!(
            offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES) && offset + bytes <= self.bytes()
        );
        // SAFETY: the range lies inside our mapping (asserted), and populating changes no content. Kernels before 5.14 do
        // not know the advice and change nothing.
        unsafe { libc::madvise(self.at(offset).cast(), bytes, libc::MADV_POPULATE_WRITE) };
    }

    /// Gives the memory behind a range of whole pages back to the kernel; it reads as zero afterwards.
    ///
    /// # Safety
    /// Nobody uses the range during the call, and nobody relies on its content afterwards.
    pub(crate) unsafe fn discard(&self, offset: usize, bytes: usize) {
        assert!(
            offset.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES) && offset + bytes <= self.bytes()
        );
        // SAFETY: the range lies inside our mapping (asserted), and the caller vouches that it is unused.
        let result = unsafe { libc::madvise(self.at(offset).cast(), bytes, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "madvise on our own memory failed: {}", io::Error::last_os_error());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives the value that owns it.
        unsafe { self.0.end() };
    }
}

/// Room for so many pages, in which layers make the bytes that they store.
pub(crate) struct PageRoom<const PAGES: usize>(Mapping);

impl<const PAGES: usize> PageRoom<PAGES> {
    /// Its memory, once it is written.
    pub(crate) const RAM_BYTES: u64 = (PAGES * PAGE_BYTES) as u64;

    /// Reserves it.
    pub(crate) fn new() -> PageRoom<PAGES> {
        PageRoom(Mapping::reserve(PAGES * PAGE_BYTES).expect("address space for some pages"))
    }

    /// All of its pages.
    pub(crate) fn pages(&mut self) -> &mut [PageBytes] {
        // SAFETY: the mapping is this long, aligned to pages, zeroed by the kernel, and borrowed exclusively through `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.0.at(0).cast::<PageBytes>(), PAGES) }
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

    #[test]
    fn what_comes_where_a_mapping_ended_is_not_taken_for_ours() {
        let other = (0..100).find_map(|_| {
            let mapping = Mapping::reserve(PAGE_BYTES).expect("a page");
            let place = mapping.at(0).addr();
            assert!(hinterland_sys::mem::is_own(place));
            drop(mapping);
            // Unless another thread was quicker.
            hinterland_sys::Mapping::reserve_at(place, PAGE_BYTES).ok()
        });
        let other = other.expect("a place that nobody else took");
        assert!(!hinterland_sys::mem::is_own(other.start));
        // SAFETY: nothing was ever there.
        unsafe { other.end() };
    }
}
