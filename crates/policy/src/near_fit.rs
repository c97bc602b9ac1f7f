//! Victims of a program that nearly fits: chosen at random.
//!
//! A program that goes through a little more than local memory again and again misses every page if the oldest leave, because each leaves just
//! before its turn. Of pages that are chosen at random, about twice as many leave in a round as do not fit. A page that is older than the others
//! is not colder there: nearly all are in use.
//!
//! ```text
//! arrivals → one page of BLOCK_PAGES is marked ──► a mark, at random ──► its block of BLOCK_PAGES pages, as far as they are resident
//! ```
//!
//! The program nearly fits while few of its pages are far, and about as many are fetched as are evicted: of one that grows, or has a hot set beside
//! dead pages, what is old may be dead, and the oldest leave.
//!
//! Source: J. E. Smith & J. R. Goodman, "Instruction cache replacement policies and organizations" (IEEE Transactions on Computers 34(3), 1985),
//! on random replacement of loops. The conditions are ours (decision 0120).

use crate::page_lists::{ListState, PageLists};
use hinterland_units::PageNo;
use std::ops::Range;

/// The program nearly fits while its far pages are at most such a part of local memory: a quarter of all.
const FAR_PART: usize = 3;
/// It is judged anew when such a part of local memory was evicted.
const JUDGED_PART: usize = 32;
/// That it is steady: of pages that were evicted so many were fetched at least. Where a hot set rests on dead pages, fewer come back.
const STEADY: (usize, usize) = (7, 8);
/// Pages of such a block, which is aligned, leave together: each by itself would interrupt the other processors.
const BLOCK_PAGES: u32 = 32;
/// Blocks that are looked at for a victim: in some of them, nothing is resident any more.
const BLOCKS_MAX: u32 = 64;

/// See the module.
pub(crate) struct NearFit {
    capacity_pages: usize,
    /// Far pages that the lists do not know.
    unlisted: usize,
    /// Pages that were evicted and fetched since it was judged, and whether enough come back.
    evicted: usize,
    fetched: usize,
    is_steady: bool,
    /// Of [`BLOCK_PAGES`] pages that came, the last one; some have left since.
    marks: Vec<PageNo>,
    arrivals: usize,
    /// What is left of the block that leaves.
    block: Range<u32>,
    /// Victims that were not yet counted.
    victims: u64,
    /// Of a xorshift generator; the same in each run, so that decisions can be replayed.
    random: u64,
}

impl NearFit {
    pub(crate) fn new() -> NearFit {
        NearFit {
            capacity_pages: 0,
            unlisted: 0,
            evicted: 0,
            fetched: 0,
            is_steady: false,
            marks: Vec::new(),
            arrivals: 0,
            block: 0..0,
            victims: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    pub(crate) fn resize(&mut self, capacity_pages: usize) {
        self.capacity_pages = capacity_pages;
        self.marks.truncate(self.marks_max());
    }

    /// Whether the program nearly fits.
    pub(crate) fn applies(&self, lists: &PageLists) -> bool {
        self.is_steady && (lists.far() + self.unlisted) * FAR_PART <= self.capacity_pages
    }

    /// A far page was fetched; the lists still know it as it was.
    pub(crate) fn fetched(&mut self, page: PageNo, lists: &PageLists) {
        self.fetched += 1;
        if !lists.state(page).is_far() {
            self.unlisted = self.unlisted.saturating_sub(1);
        }
    }

    /// Remembers a far page that is no ghost, or no longer. The lists know as many far pages as local memory has pages.
    pub(crate) fn put_far(&mut self, page: PageNo, lists: &mut PageLists) {
        if lists.far() < self.capacity_pages {
            lists.put(page, ListState::Far);
        } else {
            lists.put(page, ListState::Unknown);
            self.unlisted += 1;
        }
    }

    /// A page was evicted.
    pub(crate) fn evicted(&mut self) {
        self.evicted += 1;
        if self.evicted * JUDGED_PART > self.capacity_pages {
            self.is_steady = self.fetched * STEADY.1 >= self.evicted * STEADY.0;
            (self.evicted, self.fetched) = (0, 0);
        }
    }

    /// A page has come to a queue whose pages are chosen at random.
    pub(crate) fn arrived(&mut self, page: PageNo) {
        self.arrivals += 1;
        if !self.arrivals.is_multiple_of(BLOCK_PAGES as usize) {
            return;
        }
        if self.marks.len() < self.marks_max() {
            self.marks.push(page);
        } else if let Some(at) = self.mark() {
            self.marks[at] = page;
        }
    }

    /// Takes a victim out of its queue. `None`: no marked page is resident.
    pub(crate) fn pop(&mut self, lists: &mut PageLists) -> Option<PageNo> {
        for _ in 0..BLOCKS_MAX {
            for page in self.block.by_ref().map(PageNo) {
                // One that was just used has a part of its rounds to go: it stays.
                if matches!(lists.state(page), ListState::Young | ListState::Main) && lists.rounds(page) == 0 {
                    lists.put(page, ListState::TakenMain);
                    self.victims += 1;
                    return Some(page);
                }
            }
            let at = self.mark()?;
            let page = self.marks.swap_remove(at);
            let first = page.0 - page.0 % BLOCK_PAGES;
            self.block = first..first.saturating_add(BLOCK_PAGES);
        }
        None
    }

    /// Takes the number of victims since the last call.
    pub(crate) fn take_victims(&mut self) -> u64 {
        std::mem::take(&mut self.victims)
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.marks.capacity() * size_of::<PageNo>()
    }

    /// Twice as many as there are blocks: some are of pages that have left.
    fn marks_max(&self) -> usize {
        2 * self.capacity_pages / BLOCK_PAGES as usize
    }

    /// The index of a mark, at random.
    fn mark(&mut self) -> Option<usize> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random.checked_rem(self.marks.len() as u64)?).ok()
    }
}
