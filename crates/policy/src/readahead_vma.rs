//! Linux's swap read-ahead by virtual address: a stretch ahead of, behind or around the fault, as its direction says.
//!
//! Source: Linux 6.12 `mm/swap_state.c`, `swap_vma_ra_win`, `swap_vma_readahead`, `swap_cache_get_folio`; the variant that the
//! kernel takes for swap on memory and SSDs. The window size is the cluster variant's (`readahead`), from hits on the same area.
//!
//! The kernel keeps this state for each of its memory areas and cuts stretches at their ends. The far range is one area here
//! (the kernel merges neighbouring anonymous areas too); pages without content are skipped by the pager, so the cut changes nothing.

use crate::readahead::{HITS_AT_FIRST, pages_max, window_pages};
use crate::{PrefetchWindow, Prefetcher, Request, Thread, Unmapped};
use hinterland_units::PageNo;

/// Pages under one page-table page (`PMD_SIZE`): a stretch stays inside.
const PMD_PAGES: i64 = 512;
/// Largest stretch (`SWAP_RA_ORDER_CEILING` is 5).
const PAGES_MAX: u32 = 32;
/// Hits are counted in six bits (`SWAP_RA_HITS_MAX`).
const HITS_MAX: u32 = 63;

/// Linux's read-ahead by virtual address. See the module.
pub struct ReadAheadVma {
    pages_max: u32,
    /// The last request, whatever came of it.
    last: u32,
    last_window: u32,
    hits: u32,
}

impl ReadAheadVma {
    /// Stretches of at most `window_pages_max` (Linux: 8), 32 at most, 0 for none.
    pub fn new(window_pages_max: u32) -> ReadAheadVma {
        let pages_max = pages_max(window_pages_max).min(PAGES_MAX);
        ReadAheadVma { pages_max, last: 0, last_window: 0, hits: HITS_AT_FIRST }
    }
}

impl Prefetcher for ReadAheadVma {
    fn requested(&mut self, page: PageNo, request: Request, _: Thread) -> Option<PrefetchWindow> {
        match request {
            Request::FirstTouch => return None,
            Request::Minor | Request::PrefetchHit => {
                self.hits = (self.hits + u32::from(request == Request::PrefetchHit)).min(HITS_MAX);
                self.last = page.0;
                return None;
            }
            Request::Major => {}
        }
        if self.pages_max <= 1 {
            return None;
        }
        let hits = std::mem::take(&mut self.hits);
        let last = std::mem::replace(&mut self.last, page.0);
        let pages = window_pages(last, page.0, hits, self.pages_max, self.last_window);
        self.last_window = pages;
        let (page, last, size) = (i64::from(page.0), i64::from(last), i64::from(pages));
        let left = match page - last {
            1 => page,
            -1 => page - size + 1,
            _ => page - (size - 1) / 2,
        };
        let pmd = page / PMD_PAGES * PMD_PAGES;
        let (start, end) = (left.max(pmd), (left + size).min(pmd + PMD_PAGES));
        let (first, pages) = (u32::try_from(start).ok()?, u32::try_from(end - start).ok()?);
        (size > 1 && pages > 0).then_some(PrefetchWindow {
            first: PageNo(first),
            step: 1,
            pages,
            unmapped: Unmapped::All,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stretch, as first page and number of pages, after a request for `last`.
    fn stretch(last: u32, page: u32) -> (u32, u32) {
        let mut ahead = ReadAheadVma::new(8);
        assert_eq!(ahead.requested(PageNo(last), Request::Minor, Thread(0)), None);
        let window = ahead.requested(PageNo(page), Request::Major, Thread(0)).unwrap();
        (window.first.0, window.pages)
    }

    #[test]
    fn looks_where_the_program_goes() {
        assert_eq!(stretch(699, 700), (700, 8), "upwards");
        assert_eq!(stretch(701, 700), (693, 8), "downwards");
        assert_eq!(stretch(10, 700), (697, 8), "around");
    }

    #[test]
    fn stays_under_one_page_table_page() {
        assert_eq!(stretch(1020, 1021), (1021, 3));
        assert_eq!(stretch(1026, 1025), (1024, 2));
        assert_eq!(stretch(500, 1), (0, 6));
    }

    #[test]
    fn hits_keep_it_going_and_their_absence_stops_it() {
        let mut ahead = ReadAheadVma::new(8);
        let mut pages =
            |page, request| ahead.requested(PageNo(page), request, Thread(0)).map_or(1, |window| window.pages);
        assert_eq!(pages(600, Request::Major), 8);
        for page in 601..604 {
            pages(page, Request::PrefetchHit);
        }
        assert_eq!(pages(604, Request::Major), 8);
        assert_eq!([9000, 100_000, 7, 3000].map(|page| pages(page, Request::Major)), [4, 2, 1, 1]);
    }
}
