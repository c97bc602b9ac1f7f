//! Write-protected ranges of far memory: the evictor protects a range against writes while it copies victims in it out.
//!
//! Such a range holds pages that stay, too. A thread that writes to one takes a fault, which lifts the protection; but a system
//! call on the inline path would fail. So protected ranges and pins exclude each other: the thread that pins publishes its range
//! first and looks for protected ranges then; the thread that evicts publishes the range that it will protect first and looks
//! for pins then. The second one sees the first: the evictor gives its range up, a pin waits until the range is closed.
//! In the same way a thread that takes single pages out by copy excludes protected ranges meanwhile, and protected ranges exclude
//! each other: the end of one lifts the protection of all that lies in it.

use crate::backoff::Backoff;
use crate::pin::{Pins, pack, unpack};
use crate::sys::sync::IS_MODELLED;
use crate::sys::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use hinterland_units::PageNo;

/// Protected ranges at the same time: one for each thread that evicts.
const WP_RANGES_MAX: usize = if IS_MODELLED { 2 } else { 8 };

/// All write-protected ranges of a process.
#[derive(Default)]
pub(crate) struct WpRanges {
    /// Ranges in `cells`, or more for a moment.
    open: AtomicU32,
    /// First page and the page after the last; 0: none.
    cells: [AtomicU64; WP_RANGES_MAX],
    /// The same for ranges that must not be protected.
    excluded: [AtomicU64; WP_RANGES_MAX],
    /// Looks of threads that wait: tests see by them that a thread does.
    #[cfg(test)]
    pub(crate) looks: AtomicU64,
}

/// A range that no protected range overlaps until this is dropped.
pub(crate) struct Excluded<'a>(&'a AtomicU64);

impl Drop for Excluded<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// Whether a range overlaps one in `cells`.
fn overlaps<'a>(cells: impl IntoIterator<Item = &'a AtomicU64>, first: u32, end: u32) -> bool {
    cells.into_iter().any(|cell| {
        let (other_first, other_end) = unpack(cell.load(SeqCst));
        first < other_end && other_first < end
    })
}

/// One protected range; closed when it is dropped.
pub(crate) struct WpRange<'a> {
    wp_ranges: &'a WpRanges,
    cell: &'a AtomicU64,
}

impl Drop for WpRange<'_> {
    fn drop(&mut self) {
        self.cell.store(0, Release);
        self.wp_ranges.open.fetch_sub(1, Release);
    }
}

impl WpRanges {
    /// Opens a protected range from `first` to before `end`; `None` when part of it is pinned, excluded or in another protected
    /// range, or too many are open.
    pub(crate) fn open(&self, first: PageNo, end: PageNo, pins: &Pins) -> Option<WpRange<'_>> {
        self.open.fetch_add(1, SeqCst);
        let range = pack(first.0, end.0);
        let Some(cell) = self.cells.iter().find(|cell| cell.compare_exchange(0, range, SeqCst, Relaxed).is_ok()) else {
            self.open.fetch_sub(1, Relaxed);
            return None;
        };
        let range = WpRange { wp_ranges: self, cell };
        let others = self.cells.iter().filter(|other| !std::ptr::eq(*other, cell));
        let free =
            !pins.touch(first, end) && !overlaps(&self.excluded, first.0, end.0) && !overlaps(others, first.0, end.0);
        free.then_some(range)
    }

    /// Excludes protected ranges from a range; waits for those that overlap it.
    pub(crate) fn exclude(&self, first: u32, end: u32) -> Excluded<'_> {
        let (range, mut backoff) = (pack(first, end), Backoff::new());
        loop {
            let free = |cell: &&AtomicU64| cell.compare_exchange(0, range, SeqCst, Relaxed).is_ok();
            if let Some(cell) = self.excluded.iter().find(free) {
                self.wait_outside(first, end);
                return Excluded(cell);
            }
            backoff.pause();
        }
    }

    /// Whether a range that the caller has pinned overlaps a protected one.
    #[inline]
    pub(crate) fn touch(&self, first: u32, end: u32) -> bool {
        self.open.load(SeqCst) != 0 && overlaps(&self.cells, first, end)
    }

    /// Waits until no protected range overlaps a range that the caller has pinned or excluded. A thread that has one open waits for
    /// nothing.
    pub(crate) fn wait_outside(&self, first: u32, end: u32) {
        let mut backoff = Backoff::new();
        while self.touch(first, end) {
            #[cfg(test)]
            self.looks.fetch_add(1, SeqCst);
            backoff.pause();
        }
    }

    /// Forgets all of them, in the child of a fork: its one thread has none open.
    pub(crate) fn clear(&self) {
        self.cells.iter().chain(&self.excluded).for_each(|cell| cell.store(0, Relaxed));
        self.open.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin::Pin;

    #[test]
    fn protected_ranges_and_pins_exclude_each_other() {
        let (wp_ranges, pins) = (WpRanges::default(), Pins::new().unwrap());
        let range = wp_ranges.open(PageNo(10), PageNo(20), &pins);
        assert!(range.is_some() && wp_ranges.touch(19, 30) && wp_ranges.touch(0, 11));
        assert!(!wp_ranges.touch(20, 30) && !wp_ranges.touch(0, 10));
        drop(range);
        assert!(!wp_ranges.touch(0, 100));
        let pin = Pin::of(&pins, 15, 16, 0);
        assert!(wp_ranges.open(PageNo(10), PageNo(20), &pins).is_none());
        assert!(wp_ranges.open(PageNo(16), PageNo(20), &pins).is_some());
        drop(pin);
        assert!(wp_ranges.open(PageNo(10), PageNo(20), &pins).is_some() && !wp_ranges.touch(0, 100));
    }

    #[test]
    fn protected_ranges_exclude_each_other() {
        let (wp_ranges, pins) = (WpRanges::default(), Pins::new().unwrap());
        let range = wp_ranges.open(PageNo(10), PageNo(20), &pins).unwrap();
        assert!(wp_ranges.open(PageNo(15), PageNo(16), &pins).is_none());
        assert!(wp_ranges.open(PageNo(5), PageNo(11), &pins).is_none());
        assert!(wp_ranges.open(PageNo(20), PageNo(21), &pins).is_some());
        drop(range);
        assert!(wp_ranges.open(PageNo(15), PageNo(16), &pins).is_some() && !wp_ranges.touch(0, 100));
    }

    #[test]
    fn protected_ranges_stay_outside_what_is_excluded() {
        let (wp_ranges, pins) = (WpRanges::default(), Pins::new().unwrap());
        let excluded = wp_ranges.exclude(10, 20);
        assert!(wp_ranges.open(PageNo(19), PageNo(30), &pins).is_none());
        assert!(wp_ranges.open(PageNo(20), PageNo(30), &pins).is_some());
        drop(excluded);
        assert!(wp_ranges.open(PageNo(19), PageNo(30), &pins).is_some());
    }

    #[test]
    fn more_protected_ranges_than_there_is_room_for_are_refused() {
        let (wp_ranges, pins) = (WpRanges::default(), Pins::new().unwrap());
        let open: Vec<_> = (0..8).map(|n| wp_ranges.open(PageNo(n), PageNo(n + 1), &pins).unwrap()).collect();
        assert!(wp_ranges.open(PageNo(50), PageNo(51), &pins).is_none());
        drop(open);
        assert!(wp_ranges.open(PageNo(50), PageNo(51), &pins).is_some());
    }
}
