//! Tables that are reserved read-only, and become writable in parts, as they are used.
//!
//! The kernel counts private mappings that may be written to, whether they are or not: in `VmData`, against `RLIMIT_DATA`, and with
//! `vm.overcommit_memory=2` against what it commits (`is_data_mapping`, `accountable_mapping` in its mm/). Those that may only be read it does not count.
//! What is not writable yet reads as zeros, like what was never written to: readers need no look. Writers come after
//! [`Parts::make_writable`] or [`Mapping::make_writable`].
//!
//! Sources: mprotect(2), `mm/mprotect.c` (`mprotect_fixup`), `mm/vma.c` (`may_expand_vm`). Parts that touch are one mapping of the kernel's again.

use crate::SysError;
use crate::mem::{Mapping, base_pages_only, map, own, protect};
use hinterland_units::PAGE_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Pages of the far range whose parts of the tables become writable at once: 4 GiB.
pub const PART_PAGES: u32 = 1 << 20;
/// Parts of as many pages as there are numbers.
const PARTS_MAX: usize = (1 << u32::BITS) / PART;
const PART: usize = PART_PAGES as usize;

static WRITABLE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that have become writable and have not ended.
pub fn writable_bytes() -> usize {
    WRITABLE_BYTES.load(Relaxed)
}

/// Writable bytes have ended with their mapping.
pub fn ended(bytes: usize) {
    WRITABLE_BYTES.fetch_sub(bytes, Relaxed);
}

impl Mapping {
    /// Maps `len` bytes of zeros, read-only, without reserving swap for them; base pages only.
    ///
    /// # Errors
    /// `ENOMEM` and what else mmap(2) says.
    pub fn read_only(len: usize) -> Result<Mapping, SysError> {
        let mapping = map(0, len, libc::PROT_READ, 0)?;
        base_pages_only(mapping.start, len);
        own(mapping);
        Ok(mapping)
    }

    /// Has part of a read-only mapping, by its bytes, be writable. Those of a table are counted by [`Parts`].
    ///
    /// # Errors
    /// `ENOMEM`: the limit on writable memory (`RLIMIT_DATA`), or the process has too many mappings.
    pub fn allow_writes(self, part: Range<usize>) -> Result<(), SysError> {
        assert!(part.start.is_multiple_of(PAGE_BYTES) && part.end <= self.len, "{part:?} of {} bytes", self.len);
        protect(self.start + part.start, part.len(), libc::PROT_READ | libc::PROT_WRITE)
    }

    /// The same of bytes that were not writable before, which are counted.
    ///
    /// # Errors
    /// As there.
    pub fn make_writable(self, part: Range<usize>) -> Result<(), SysError> {
        let bytes = part.len();
        WRITABLE_BYTES.fetch_add(bytes, Relaxed);
        self.allow_writes(part).inspect_err(|_| ended(bytes))
    }
}

/// Which parts of tables with words for the pages of the far range are writable. None becomes read-only again.
pub struct Parts {
    writable: [AtomicU64; PARTS_MAX / 64],
    part_bytes: usize,
}

impl Parts {
    /// None, of tables that have so many bytes for [`PART_PAGES`].
    pub const fn new(part_bytes: usize) -> Parts {
        Parts { writable: [const { AtomicU64::new(0) }; PARTS_MAX / 64], part_bytes }
    }

    /// Whether the part that a page belongs to is writable.
    #[inline]
    pub fn contain(&self, page: u32) -> bool {
        self.is_writable(page as usize / PART)
    }

    #[inline]
    fn is_writable(&self, part: usize) -> bool {
        self.writable[part / 64].load(Acquire) >> (part % 64) & 1 != 0
    }

    /// Bytes of the tables that become writable for `count` pages from `first` on.
    pub fn missing_bytes(&self, first: u32, count: u32) -> usize {
        parts_of(first, count).filter(|part| !self.is_writable(*part)).count() * self.part_bytes
    }

    /// Has the parts be writable that `count` pages from `first` on belong to: `allow_writes` is given the pages of those that are not, neighbours
    /// at once. Without a lock, so also in a signal handler: two threads may do the same, and one counts it.
    ///
    /// # Errors
    /// Of `allow_writes`; what came before it stays done.
    pub fn make_writable(
        &self,
        first: u32,
        count: u32,
        allow_writes: impl Fn(Range<usize>) -> Result<(), SysError>,
    ) -> Result<(), SysError> {
        let Range { start: mut part, end } = parts_of(first, count);
        while part < end {
            let missing = (part..end).take_while(|part| !self.is_writable(*part)).count();
            if missing > 0 {
                allow_writes(part * PART..(part + missing) * PART)?;
                (part..part + missing).for_each(|part| self.note(part));
            }
            part += missing.max(1);
        }
        Ok(())
    }

    fn note(&self, part: usize) {
        let bit = 1 << (part % 64);
        if self.writable[part / 64].fetch_or(bit, AcqRel) & bit == 0 {
            WRITABLE_BYTES.fetch_add(self.part_bytes, Relaxed);
        }
    }
}

/// The parts that `count` pages from `first` on belong to.
fn parts_of(first: u32, count: u32) -> Range<usize> {
    first as usize / PART..(first as usize + count as usize).div_ceil(PART).min(PARTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The permissions of the mappings in a range, as /proc/self/maps has them.
    fn permissions(range: Range<usize>) -> Vec<(usize, String)> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut found = Vec::new();
        for line in maps.lines() {
            let (addresses, rest) = line.split_once(' ').unwrap();
            let (start, end) = addresses.split_once('-').unwrap();
            let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).unwrap());
            if start < range.end && end > range.start {
                found.push((end.min(range.end) - start.max(range.start), rest[..2].to_owned()));
            }
        }
        found
    }

    #[test]
    fn what_is_not_writable_reads_as_zeros_and_parts_that_touch_are_one_mapping() {
        let mapping = Mapping::read_only(10 * PAGE_BYTES).unwrap();
        let bytes = |part: Range<usize>| part.start * PAGE_BYTES..part.end * PAGE_BYTES;
        for part in [6..7, 2..4, 4..6] {
            mapping.allow_writes(bytes(part)).unwrap();
        }
        // SAFETY: of ten pages those from 2 to 7 may be written to.
        unsafe {
            (2..7).for_each(|page| mapping.as_ptr().add(page * PAGE_BYTES).write(7));
            let sum: u32 = (0..10).map(|page| u32::from(mapping.as_ptr().add(page * PAGE_BYTES).read())).sum();
            assert_eq!(sum, 35);
        }
        let pages = permissions(mapping.start..mapping.start + mapping.len);
        let pages: Vec<(usize, &str)> = pages.iter().map(|(bytes, words)| (bytes / PAGE_BYTES, &words[..])).collect();
        assert_eq!(pages, [(2, "r-"), (5, "rw"), (3, "r-")]);
        // SAFETY: this test's alone.
        unsafe { mapping.end() };
    }

    #[test]
    fn parts_become_writable_once_and_neighbours_together() {
        let (parts, calls) = (Parts::new(0), RefCell::new(Vec::new()));
        let make = |first, count| {
            let noted = |pages: Range<usize>| {
                calls.borrow_mut().push((pages.start / PART, pages.end / PART));
                Ok(())
            };
            parts.make_writable(first, count, noted).unwrap();
            calls.take()
        };
        assert_eq!(make(5 * PART_PAGES + 7, 1), [(5, 6)]);
        assert_eq!(make(5 * PART_PAGES, PART_PAGES), []);
        assert_eq!(make(3 * PART_PAGES + 9, 4 * PART_PAGES), [(3, 5), (6, 8)]);
        assert_eq!(make(u32::MAX, 1), [(4095, 4096)]);
        assert_eq!(make(0, 0), []);
        let there = |part: u32| [0, PART_PAGES - 1].iter().all(|page| parts.contain(part * PART_PAGES + page));
        assert_eq!((0..10).filter(|part| there(*part)).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_part_that_is_refused_is_asked_for_again() {
        let parts = Parts::new(0);
        let refused = SysError { call: "mprotect", errno: libc::ENOMEM };
        assert_eq!(parts.make_writable(7, 1, |_| Err(refused)), Err(refused));
        assert!(!parts.contain(7));
        parts.make_writable(7, 1, |_| Ok(())).unwrap();
        assert!(parts.contain(7));
    }

    /// Threads write to the same parts at once, and a child of a fork to one more.
    #[test]
    fn threads_and_forked_children_write_where_parts_have_become_writable() {
        static PARTS: Parts = Parts::new(0);
        let mapping = Mapping::read_only(8 * PART).unwrap();
        let write = |page: u32| {
            PARTS.make_writable(page, 1, |pages| mapping.allow_writes(pages)).unwrap();
            // SAFETY: a byte for each page, in a part that is writable.
            unsafe { &*(mapping.start as *const std::sync::atomic::AtomicU8).add(page as usize) }.fetch_add(1, Relaxed)
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || (0..7).for_each(|part| _ = write(part * PART_PAGES + thread)));
            }
        });
        // SAFETY: the child writes to the mapping and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let was = write(0) + write(7 * PART_PAGES);
            // SAFETY: without the parent's handlers.
            unsafe { libc::_exit(i32::from(was)) };
        }
        let mut status = 0;
        // SAFETY: our own child, a valid pointer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1, "{status:x}");
        assert!(PARTS.contain(6 * PART_PAGES) && !PARTS.contain(7 * PART_PAGES), "the child's parts are its own");
    }

    #[test]
    fn bytes_are_counted_once_and_while_they_last() {
        // Other tests count, too: by no more than this.
        const MANY: usize = 1 << 40;
        let counted = || (writable_bytes() + MANY / 2) / MANY;
        let parts = Parts::new(MANY);
        (0..3).for_each(|_| parts.make_writable(1, PART_PAGES, |_| Ok(())).unwrap());
        assert_eq!(counted(), 2);
        let missing = |first, count| parts.missing_bytes(first * PART_PAGES, count) / MANY;
        assert_eq!([missing(0, 2 * PART_PAGES), missing(1, PART_PAGES + 1), missing(7, 3 * PART_PAGES)], [0, 1, 3]);
        assert_eq!(parts.missing_bytes(7, 0), 0);
        ended(2 * MANY);
        assert_eq!(counted(), 0);
    }
}
