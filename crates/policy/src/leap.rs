//! Leap: prefetching along the majority of the last steps.
//!
//! Source: H. Al Maruf, M. Chowdhury, Effectively Prefetching Remote Memory with Leap (USENIX ATC 2020), §3.2 and §4.
//!
//! * The *access history* (§4.1) has the last `Hsize` steps between requests that reached the pager: major faults, swap-cache
//!   hits, prefetch hits. Resident pages are not seen.
//! * At a major fault, `FindTrend` (§3.2.1) looks for the step that the majority took, in windows that double ([`history`]).
//! * The *prefetch window* (§3.2.2) follows the hits since the last prefetch: none, and the fault is on the trend: one page;
//!   none, and it is not: no page; else the next power of two of hits + 1, at most `window_pages_max`. It never falls below half
//!   of the last one in one step.
//! * Pages come along the trend; when there is none just now, along the latest one (speculation).
//!
//! All pages of a window stay unmapped, as in the kernel's swap cache: each use is seen, and counted.
//!
//! The paper leaves the beginning open: with no hits and no trend the window is 0, and the trend is looked for only in a window
//! that is not. So the trend is looked for at every major fault here; a fault is on the trend when its own step is the majority's.

mod history;
#[cfg(test)]
mod tests;

use crate::{PrefetchWindow, Prefetcher, Request, Thread, Unmapped};
use hinterland_units::PageNo;
use history::AccessHistory;

/// `Hsize` of the paper's evaluation (§5).
const HISTORY_STEPS: usize = 32;
/// `Nsplit`: the first window is a quarter of the history, as in the authors' patch of the kernel (`find_trend`).
const SPLIT: usize = 4;

/// The Leap prefetcher. See the module.
pub struct Leap {
    history: AccessHistory,
    window_pages_max: u32,
    /// The latest trend that was found, in pages.
    trend: Option<i64>,
    /// Pages of the last window.
    window_pages: u32,
    /// Prefetched pages used since the last prefetch.
    hits: u32,
}

impl Leap {
    /// No history yet; windows of at most `window_pages_max` (the paper: 8), 0 for none.
    pub fn new(window_pages_max: u32) -> Leap {
        Leap { history: AccessHistory::new(HISTORY_STEPS), window_pages_max, trend: None, window_pages: 0, hits: 0 }
    }

    /// `GetPrefetchWindowSize` for a fault that came by `step`.
    fn next_window_pages(&mut self, step: i64) -> u32 {
        let hits = std::mem::take(&mut self.hits);
        let wanted = match hits {
            0 => u32::from(self.trend == Some(step)),
            _ => (hits + 1).next_power_of_two(),
        };
        self.window_pages = wanted.min(self.window_pages_max).max(self.window_pages / 2);
        self.window_pages
    }
}

impl Prefetcher for Leap {
    fn requested(&mut self, page: PageNo, request: Request, _: Thread) -> Option<PrefetchWindow> {
        if request == Request::FirstTouch || self.window_pages_max == 0 {
            return None;
        }
        let step = self.history.record(page);
        match request {
            Request::Major => {}
            Request::PrefetchHit => {
                self.hits = (self.hits + 1).min(self.window_pages_max);
                return None;
            }
            Request::Minor | Request::FirstTouch => return None,
        }
        self.trend = self.history.find_trend(SPLIT).or(self.trend);
        let pages = self.next_window_pages(step);
        let window = PrefetchWindow { first: page, step: self.trend?, pages, unmapped: Unmapped::All };
        let first = window.page(1)?;
        (pages > 0).then_some(PrefetchWindow { first, ..window })
    }
}
