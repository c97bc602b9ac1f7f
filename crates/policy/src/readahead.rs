//! Linux's swap read-ahead by clusters: an aligned block around the fault, as large as the last block was useful.
//!
//! Source: Linux 6.12 `mm/swap_state.c`, `__swapin_nr_pages`, `swapin_nr_pages`, `swap_cluster_readahead`, `swap_cache_get_folio`;
//! `page_cluster` is 3 (8 pages). What Leap §5.2.3 calls "Linux Read-Ahead".
//!
//! One thing differs: the kernel's block is one of swap slots, which it fills in the order in which pages are evicted. Far memory
//! here has no such order that a policy could know; the block is one of page numbers. Pages evicted in runs have both.

use crate::{PrefetchWindow, Prefetcher, Request, Thread, Unmapped};
use hinterland_units::PageNo;

/// Hits that the kernel begins with (`swapin_readahead_hits`), as if there had been some.
pub(crate) const HITS_AT_FIRST: u32 = 4;

/// `__swapin_nr_pages`: pages of the next block, the fault included.
pub(crate) fn window_pages(last: u32, page: u32, hits: u32, pages_max: u32, last_window: u32) -> u32 {
    let wanted = match hits {
        // Nothing to judge by: go on when the fault is beside the last one.
        0 if page.abs_diff(last) == 1 => 2,
        0 => 1,
        _ => (hits + 2).next_power_of_two().max(4),
    };
    // It never shrinks below half of the last one in one step.
    wanted.min(pages_max).max(last_window / 2)
}

/// The largest block for a limit: a power of two, because blocks are aligned.
pub(crate) fn pages_max(limit: u32) -> u32 {
    limit.checked_ilog2().map_or(0, |order| 1 << order)
}

/// Linux's cluster read-ahead. See the module.
pub struct ReadAhead {
    pages_max: u32,
    /// The last fault without hits before it.
    last: u32,
    last_window: u32,
    /// Prefetched pages used since the last fault that read ahead.
    hits: u32,
}

impl ReadAhead {
    /// Blocks of at most `window_pages_max` (Linux: 8), 0 for none.
    pub fn new(window_pages_max: u32) -> ReadAhead {
        ReadAhead { pages_max: pages_max(window_pages_max), last: 0, last_window: 0, hits: HITS_AT_FIRST }
    }
}

impl Prefetcher for ReadAhead {
    fn requested(&mut self, page: PageNo, request: Request, _: Thread) -> Option<PrefetchWindow> {
        match request {
            Request::FirstTouch | Request::Minor => return None,
            Request::PrefetchHit => {
                self.hits = self.hits.saturating_add(1);
                return None;
            }
            Request::Major => {}
        }
        if self.pages_max <= 1 {
            return None;
        }
        let hits = std::mem::take(&mut self.hits).min(self.pages_max);
        let pages = window_pages(self.last, page.0, hits, self.pages_max, self.last_window);
        if hits == 0 {
            self.last = page.0;
        }
        self.last_window = pages;
        let first = PageNo(page.0 & !(pages - 1));
        (pages > 1).then_some(PrefetchWindow { first, step: 1, pages, unmapped: Unmapped::All })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_window_sizes() {
        let sizes = |hits, last_window| window_pages(100, 500, hits, 8, last_window);
        assert_eq!([0, 1, 2, 3, 6, 7, 60].map(|hits| sizes(hits, 0)), [1, 4, 4, 8, 8, 8, 8]);
        assert_eq!([8, 4, 2, 1].map(|last_window| sizes(0, last_window)), [4, 2, 1, 1], "shrinks by half");
        assert_eq!(window_pages(100, 101, 0, 8, 0), 2);
        assert_eq!(window_pages(100, 99, 0, 8, 0), 2);
        assert_eq!(window_pages(100, 100, 0, 8, 0), 1);
    }

    #[test]
    fn reads_the_aligned_block_around_the_fault() {
        let mut ahead = ReadAhead::new(8);
        let window = ahead.requested(PageNo(1003), Request::Major, Thread(0)).unwrap();
        assert_eq!((window.first, window.pages, window.unmapped), (PageNo(1000), 8, Unmapped::All));
        for page in 1004..1008 {
            assert_eq!(ahead.requested(PageNo(page), Request::PrefetchHit, Thread(0)), None);
        }
        assert_eq!(ahead.requested(PageNo(1008), Request::Major, Thread(0)).unwrap().pages, 8);
    }

    #[test]
    fn random_faults_wind_it_down_to_nothing_and_neighbours_up_again() {
        let mut ahead = ReadAhead::new(8);
        let mut pages =
            |page| ahead.requested(PageNo(page), Request::Major, Thread(0)).map_or(1, |window| window.pages);
        assert_eq!([5000, 900, 70_000, 300, 4000].map(&mut pages), [8, 4, 2, 1, 1]);
        assert_eq!(pages(4001), 2);
    }

    #[test]
    fn limits_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 8, 63, 64].map(pages_max), [0, 1, 2, 2, 8, 32, 64]);
        let mut off = ReadAhead::new(1);
        assert_eq!(off.requested(PageNo(9), Request::Major, Thread(0)), None);
    }
}
