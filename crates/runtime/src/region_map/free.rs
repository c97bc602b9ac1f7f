//! Free address space as runs of pages: never two runs that touch.
//!
//! Kept twice, by start (to join neighbours) and by size (best fit). Every operation is O(log n) in the number of free
//! runs, unless the range is nearly full.

use std::collections::{BTreeMap, BTreeSet};

/// Free runs of pages.
#[derive(Debug)]
pub struct FreeRuns {
    by_start: BTreeMap<u32, u32>,
    by_size: BTreeSet<(u32, u32)>,
}

/// Snug runs that are looked at for one with the right alignment, before a run is taken that is large enough for any.
const SNUG_RUNS_MAX: usize = 8;

impl FreeRuns {
    /// No free pages.
    pub const fn new() -> FreeRuns {
        FreeRuns { by_start: BTreeMap::new(), by_size: BTreeSet::new() }
    }

    /// The free run that holds `page`, as start and end.
    fn around(&self, page: u32) -> Option<(u32, u32)> {
        let (&start, &count) = self.by_start.range(..=page).next_back()?;
        (page - start < count).then_some((start, start + count))
    }

    /// Whether all of `first .. first + count` is free.
    pub fn is_free(&self, first: u32, count: u32) -> bool {
        self.around(first).is_some_and(|(_, end)| end - first >= count)
    }

    /// Takes `count` pages whose first is a multiple of `alignment` (a power of two) from the smallest run that has room.
    pub fn take(&mut self, count: u32, alignment: u32) -> Option<u32> {
        let aligned = |start: u32| start.checked_next_multiple_of(alignment);
        let fits = |&(size, start): &(u32, u32)| {
            aligned(start)
                .is_some_and(|first| u64::from(first) + u64::from(count) <= u64::from(start) + u64::from(size))
        };
        let enough = count.checked_add(alignment - 1)?;
        let mut large = self.by_size.range((count, 0)..);
        let snug = large.by_ref().take(SNUG_RUNS_MAX).find(|run| fits(run));
        let any = || self.by_size.range((enough, 0)..).next();
        // Only when the range is nearly full are all of them looked at.
        let &(_, start) = snug.or_else(any).or_else(|| large.find(|run| fits(run)))?;
        let first = aligned(start)?;
        self.take_at(first, count).then_some(first)
    }

    /// Takes exactly `first .. first + count`, if all of it is free.
    pub fn take_at(&mut self, first: u32, count: u32) -> bool {
        let Some((start, end)) = self.around(first).filter(|(_, end)| end - first >= count) else { return false };
        self.forget(start, end - start);
        self.keep(start, first - start);
        self.keep(first + count, end - (first + count));
        true
    }

    /// Gives back `first .. first + count`, no page of which is free.
    pub fn give(&mut self, first: u32, count: u32) {
        let (mut start, mut end) = (first, first + count);
        if let Some((&before, &pages)) = self.by_start.range(..first).next_back() {
            assert!(before + pages <= first, "page {first:#x} is given back twice");
            if before + pages == first {
                self.forget(before, pages);
                start = before;
            }
        }
        if let Some((&after, &pages)) = self.by_start.range(first..).next() {
            assert!(after >= end, "page {after:#x} is given back twice");
            if after == end {
                self.forget(after, pages);
                end = after + pages;
            }
        }
        self.keep(start, end - start);
    }

    fn keep(&mut self, start: u32, count: u32) {
        if count > 0 {
            self.by_start.insert(start, count);
            self.by_size.insert((count, start));
        }
    }

    fn forget(&mut self, start: u32, count: u32) {
        self.by_start.remove(&start);
        self.by_size.remove(&(count, start));
    }
}
