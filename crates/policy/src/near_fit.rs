//! Victims of a program that nearly fits: chosen at random.
//!
//! A program that goes through a little more than local memory again and again misses every page if the oldest leave, because each leaves just
//! before its turn. Of pages that are chosen at random, about twice as many leave in a round as do not fit. A page that is older than the others
//! is not colder there: nearly all are in use.
//!
//! ```text
//! arrivals → one page of BLOCK_PAGES is marked ──► a mark, at random ──► its block of BLOCK_PAGES pages, as far as they are in the queue
//! ```
//!
//! The policy says of which queue, as it does of the oldest: pages that came only once leave first, and those that come back are protected. So a hot
//! set beside dead pages is evicted once.
//!
//! The program nearly fits while few of its pages are far, and at least half as many are fetched as are evicted: of one that grows, what is old may
//! be dead, and the oldest leave.
//!
//! Source: J. E. Smith & J. R. Goodman, "Instruction cache replacement policies and organizations" (IEEE Transactions on Computers 34(3), 1985),
//! on random replacement of loops. The conditions are ours (decision 0120).

use crate::page_lists::{ListState, PageLists, Queue};
use hinterland_units::{PageNo, Rng};
use std::ops::Range;

/// The program nearly fits while its far pages are at most such a part of local memory: a quarter of all.
const FAR_PART: usize = 3;
/// It is judged anew when such a part of local memory was evicted.
const JUDGED_PART: usize = 32;
/// That it is steady: of pages that were evicted so many were fetched at least. Of one that grows, fewer come back.
const STEADY: (usize, usize) = (1, 2);
/// Pages of such a block, which is aligned, leave together as far as they are in one queue: each by itself would interrupt the other processors.
const BLOCK_PAGES: u32 = 32;
/// Blocks that are looked at for a victim: some have no page of the queue.
const BLOCKS_MAX: u32 = 16;

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
    /// The same in each run, so that decisions can be replayed.
    random: Rng,
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
            random: Rng(0),
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

    /// A far page was fetched; the lists knew it as `was`.
    pub(crate) fn fetched(&mut self, was: ListState) {
        self.fetched += 1;
        if !was.is_far() {
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

    /// Takes a victim out of a queue; it is in the state `taken` then. `None`: nothing of the queue was found.
    pub(crate) fn pop(&mut self, lists: &mut PageLists, queue: Queue, taken: ListState) -> Option<PageNo> {
        for _ in 0..BLOCKS_MAX {
            for page in self.block.by_ref().map(PageNo) {
                // One that was just used has a part of its rounds to go: it stays.
                if lists.state(page) == queue.state() && lists.rounds(page) == 0 {
                    lists.put(page, taken);
                    self.victims += 1;
                    return Some(page);
                }
            }
            let at = self.mark()?;
            let page = self.marks[at];
            if !matches!(lists.state(page), ListState::Young | ListState::Main) {
                self.marks.swap_remove(at);
            }
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
        if self.marks.is_empty() { None } else { Some(self.random.index(self.marks.len())) }
    }
}
