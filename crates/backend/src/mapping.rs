//! A private anonymous mapping that reserves address space; memory arrives page by page when it is written.
//!
//! Private, so that fork gives the child a copy-on-write duplicate. Never huge pages: what is touched must be what is
//! counted.

use hinterland_sys::parts;
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A reservation of address space.
pub(crate) struct Mapping(hinterland_sys::Mapping);

impl Mapping {
    /// Reserves `bytes`, rounded up to whole pages.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        Ok(Mapping(hinterland_sys::Mapping::anonymous(bytes)?))
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
    /// No thread uses the range during the call, or relies on its content afterwards.
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

/// Bytes by which a mapping that grows becomes writable.
const GROWTH_BYTES: usize = 4 << 20;

/// A reservation of which only the beginning may be written to, and the more the more of it is used. The rest reads as zeros, and does not count as
/// writable memory.
pub(crate) struct Growing {
    mapping: Mapping,
    writable: AtomicUsize,
    is_refused: AtomicBool,
}

impl Growing {
    /// Reserves `bytes`, rounded up to whole pages.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Growing> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let mapping = Mapping(hinterland_sys::Mapping::read_only(bytes)?);
        Ok(Growing { mapping, writable: AtomicUsize::new(0), is_refused: AtomicBool::new(false) })
    }

    /// The same, whose memory comes from one NUMA node.
    pub(crate) fn reserve_on_node(bytes: usize, node: u32) -> io::Result<Growing> {
        let growing = Growing::reserve(bytes)?;
        hinterland_sys::numa::bind(growing.mapping.0, node)?;
        Ok(growing)
    }

    /// Has its first `bytes` be writable; false: the kernel refuses. The caller holds the lock under which it grows.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let writable = self.writable.load(Relaxed);
        if bytes <= writable {
            self.is_refused.store(false, Relaxed);
            return true;
        }
        assert!(bytes <= self.bytes(), "{bytes} bytes in a mapping of {}", self.bytes());
        let end = bytes.next_multiple_of(GROWTH_BYTES).min(self.bytes());
        let is_refused = self.mapping.0.make_writable(writable..end).is_err();
        self.is_refused.store(is_refused, Relaxed);
        if !is_refused {
            self.writable.store(end, Release);
        }
        !is_refused
    }

    /// Whether byte `offset` may be written to.
    #[inline]
    pub(crate) fn is_writable(&self, offset: usize) -> bool {
        offset < self.writable.load(Acquire)
    }

    /// Whether the kernel refused it memory when it was to grow last.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Relaxed)
    }
}

impl Deref for Growing {
    type Target = Mapping;

    #[inline]
    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        parts::ended(*self.writable.get_mut());
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
    fn a_mapping_grows_by_steps_to_its_end_and_reads_as_zeros_beyond() {
        let growing = Growing::reserve(2 * GROWTH_BYTES + PAGE_BYTES).expect("address space");
        let ends = [0, GROWTH_BYTES - 1, GROWTH_BYTES, 2 * GROWTH_BYTES, 2 * GROWTH_BYTES + PAGE_BYTES - 1];
        let writable = || ends.map(|offset| growing.is_writable(offset));
        assert_eq!(writable(), [false; 5]);
        assert!(growing.grow(1) && growing.grow(GROWTH_BYTES));
        assert_eq!(writable(), [true, true, false, false, false]);
        // SAFETY: inside the mapping; what is written to is writable.
        unsafe {
            growing.at(GROWTH_BYTES - 1).write(7);
            assert_eq!((growing.at(GROWTH_BYTES - 1).read(), growing.at(GROWTH_BYTES).read()), (7, 0));
        }
        assert!(growing.grow(2 * GROWTH_BYTES + 1));
        assert_eq!(writable(), [true; 5]);
        assert!(!growing.is_refused());
    }

    /// In a child, which the limit is for.
    #[test]
    fn a_mapping_that_a_limit_keeps_from_growing_says_so_until_it_may() {
        let growing = Growing::reserve(2 * GROWTH_BYTES).expect("address space");
        assert!(growing.grow(1));
        // SAFETY: the child makes system calls only, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: room for a limit.
            unsafe { libc::getrlimit(libc::RLIMIT_DATA, &raw mut before) };
            // SAFETY: a valid limit.
            let set = |limit: &libc::rlimit| unsafe { libc::setrlimit(libc::RLIMIT_DATA, limit) };
            // Of 0 the kernel makes the hard limit (`may_expand_vm`).
            set(&libc::rlimit { rlim_cur: 4096, ..before });
            let refused = !growing.grow(2 * GROWTH_BYTES) && growing.is_refused();
            set(&before);
            let has_grown = growing.grow(2 * GROWTH_BYTES) && !growing.is_refused();
            // SAFETY: without the parent's handlers.
            unsafe { libc::_exit(i32::from(!(refused && has_grown))) };
        }
        let mut status = 0;
        // SAFETY: our own child, a valid pointer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child's answer");
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
