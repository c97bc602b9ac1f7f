//! `auto`: for each region of 64 MiB the prefetcher that its requests ask for, streams or runs.
//!
//! * **Streams** ([`Streams`]) follow walks of any step, many pages long. They wait for two or three faults, and their windows double:
//!   of objects of a few pages at random places they fetch too late and too much.
//! * **Runs** are such objects. How long they are is learnt: `ended` counts the runs of each length that have ended, and after a fault
//!   on the `n`th page of one, as many pages are fetched as at least a quarter of the runs that came so far went on (a page that comes for
//!   nothing costs its part of the bandwidth, one that does not come costs a whole delay):
//!
//! ```text
//!   S(n) = runs of at least n pages        window = the most w with S(n + w) ≥ S(n) / 4
//!   objects of 8 pages:  S(1) = … = S(8), S(9) = 0        7 pages at the first fault
//!   random pages:        S(2) ≪ S(1)                      none
//! ```
//!
//! * Three quarters instead of one, where a load is quick and the program has few processors (`be_sparing`): an unused
//!   page then takes processor time of the program, and a page that was not prefetched costs little more than one that
//!   was.
//!
//! A region is for runs while those of 2 to 63 pages make a quarter of the pages that are seen in it, and more than
//! longer ones do. Of every fourth run all pages stay unmapped, so that its length is seen, however often it asks; of
//! the others the last one of a window does, and their lengths do not count. A run of 64 pages is handed to the
//! streams. Where nothing is regular neither fetches anything.
//!
//! Unused pages are charged to the part that requested them: the streams, or the runs of a region. While its lengths
//! are right, at least a quarter of the pages that its runs request is used; where it is less than half of that, the
//! lengths are forgotten, and the region begins anew with streams.

mod lengths;
#[cfg(test)]
mod tests;

use crate::{Bounded, Choice, PrefetchWindow, Prefetcher, Request, Streams, Thread, Unmapped};
use hinterland_units::PageNo;
use lengths::{LONG_PAGES, Lengths};
use std::collections::VecDeque;
use std::ops::Range;

/// Pages of a region: 64 MiB.
pub const REGION_PAGES: u32 = 16_384;
/// Regions that are known at once; those that are so many regions apart share a place.
const REGIONS: usize = 64;
/// Of so many runs the length of one is seen page by page.
const RUNS_WATCHED: u32 = 4;
/// Runs that are followed at once in a region.
const RUNS: usize = 16;
/// Windows of runs that are remembered, to tell whose pages came for nothing: about as many as may have pages that wait.
const WINDOWS: usize = 256;
/// Quarters of the runs that must go on where a load is a delay: a page that comes for nothing costs its part of the bandwidth.
const QUARTERS: u32 = 1;
/// The same where it is work. A page that comes for nothing costs 9 µs of processor time, one that is used 3 µs instead of the 7 of its fault
/// (decision 0081): 9 parts in 13 must be used.
const QUARTERS_SPARING: u32 = 3;
/// Waste of runs is judged after so many pages asked for.
const JUDGED_PAGES_MIN: u32 = 1024;
/// Older windows of runs count half after so many pages asked for.
const JUDGED_PAGES_MAX: u32 = 2048;

/// See the module.
pub struct Auto {
    streams: Streams,
    /// By region number modulo their number.
    regions: Vec<Region>,
    /// The last windows of runs, oldest first.
    windows: VecDeque<Range<u32>>,
    limit: u32,
    /// Quarters of the runs that must go on, for as many pages as are fetched.
    quarters: u32,
}

/// What is known of one region.
#[derive(Clone)]
struct Region {
    number: u32,
    /// The one that was met last comes last.
    runs: [Run; RUNS],
    lengths: Lengths,
    choice: Choice,
    /// Runs that began.
    begun: u32,
    /// Pages that its runs asked for, and those of them that came for nothing.
    asked_pages: u32,
    wasted_pages: u32,
}

/// Pages requested one after the other. It may leave out what was asked for ahead: mapped pages make no request.
#[derive(Clone, Copy, Default)]
struct Run {
    first: u32,
    last: u32,
    /// The first page behind `last` that was not asked for ahead; 0: there is no run here.
    end: u32,
    /// Its pages stay unmapped when they come ahead.
    watched: bool,
    /// Some of its pages were mapped ahead: where it ended is not known.
    hidden: bool,
}

impl Run {
    fn pages(&self) -> u32 {
        self.last - self.first + 1
    }

    fn goes_on_at(&self, page: u32) -> bool {
        (self.last..=self.end).contains(&page) && self.end > 0
    }
}

impl Region {
    fn new(number: u32) -> Region {
        Region {
            number,
            runs: [Run::default(); RUNS],
            lengths: Lengths::default(),
            choice: Choice::Streams,
            begun: 0,
            asked_pages: 0,
            wasted_pages: 0,
        }
    }

    /// The run that a request belongs to, perhaps a new one.
    fn meet(&mut self, page: u32) -> &mut Run {
        let met = self.runs.iter().rposition(|run| run.goes_on_at(page));
        let oldest = self.runs[0];
        if met.is_none() && oldest.end > 0 && !oldest.hidden {
            self.choice = self.lengths.ended(oldest.pages()).unwrap_or(self.choice);
        }
        self.begun = self.begun.wrapping_add(u32::from(met.is_none()));
        self.runs[met.unwrap_or(0)..].rotate_left(1);
        let run = &mut self.runs[RUNS - 1];
        if met.is_none() {
            let watched = self.begun.is_multiple_of(RUNS_WATCHED);
            *run = Run { first: page, watched, ..Run::default() };
        }
        (run.last, run.end) = (page, run.end.max(page + 1));
        run
    }

    /// The window that the run met last asks for, up to `end`.
    fn ask(&mut self, end: u32) -> PrefetchWindow {
        let run = &mut self.runs[RUNS - 1];
        let (first, pages) = (PageNo(run.end), end - run.end);
        let unmapped = if run.watched { Unmapped::All } else { Unmapped::Key(PageNo(end - 1)) };
        (run.end, run.hidden) = (end, !run.watched);
        self.asked_pages += pages;
        if self.asked_pages > JUDGED_PAGES_MAX {
            self.asked_pages /= 2;
            self.wasted_pages /= 2;
        }
        PrefetchWindow { first, step: 1, pages, unmapped }
    }

    /// Pages that its runs asked for came for nothing.
    fn wasted(&mut self, pages: u32) {
        self.wasted_pages = self.wasted_pages.saturating_add(pages);
        if self.asked_pages >= JUDGED_PAGES_MIN && self.wasted_pages > self.asked_pages / 8 * 7 {
            *self = Region::new(self.number);
        }
    }
}

impl Auto {
    /// Windows of at most `window_pages_max`, 0 for none.
    pub fn new(window_pages_max: u32) -> Auto {
        let regions = vec![Region::new(u32::MAX); REGIONS];
        let windows = VecDeque::with_capacity(WINDOWS);
        Auto {
            streams: Streams::of_any_step(window_pages_max),
            regions,
            windows,
            limit: window_pages_max,
            quarters: QUARTERS,
        }
    }

    fn region(&mut self, page: PageNo) -> &mut Region {
        let number = page.0 / REGION_PAGES;
        let region = &mut self.regions[number as usize % REGIONS];
        if region.number != number {
            *region = Region::new(number);
        }
        region
    }
}

impl Prefetcher for Auto {
    fn requested(&mut self, page: PageNo, request: Request, thread: Thread) -> Option<PrefetchWindow> {
        if request == Request::FirstTouch || self.limit == 0 {
            return self.streams.requested(page, request, thread);
        }
        let (limit, quarters) = (self.limit, self.quarters);
        let region = self.region(page);
        let run = *region.meet(page.0);
        if run.pages() < LONG_PAGES && matches!(region.choice, Choice::Runs { .. }) {
            let is_at_end = request == Request::Major || page.0 + 1 == run.end;
            let wanted = if is_at_end { region.lengths.rest_of(run.pages(), quarters).min(limit) } else { 0 };
            let end = page.0.saturating_add(1 + wanted);
            if end > run.end {
                let window = region.ask(end);
                if self.windows.len() == WINDOWS {
                    self.windows.pop_front();
                }
                self.windows.push_back(window.first.0..end);
                return Some(window);
            }
            if run.pages() > 1 {
                return None;
            }
        }
        let window = self.streams.requested(page, request, thread)?;
        if window.step == 1 && window.first.0 <= page.0 + 1 + limit {
            let run = &mut self.region(page).runs[RUNS - 1];
            run.end = run.end.max(window.first.0.saturating_add(window.pages));
        }
        Some(window)
    }

    fn wasted(&mut self, page: PageNo, pages: u32) {
        if !self.windows.iter().any(|window| window.contains(&page.0)) {
            return self.streams.wasted(page, pages);
        }
        let number = page.0 / REGION_PAGES;
        let region = &mut self.regions[number as usize % REGIONS];
        // Otherwise its place is another region's now.
        if region.number == number {
            region.wasted(pages);
        }
    }

    fn choice(&self, page: PageNo) -> Option<Choice> {
        let number = page.0 / REGION_PAGES;
        let region = &self.regions[number as usize % REGIONS];
        Some(if region.number == number { region.choice } else { Choice::Streams })
    }

    fn follows_steps(&self) -> bool {
        self.limit > 0
    }
}

impl Bounded for Auto {
    fn limit(&mut self, window_pages_max: u32) {
        self.limit = window_pages_max;
        self.streams.limit(window_pages_max);
    }

    fn be_sparing(&mut self, sparing: bool) {
        self.quarters = if sparing { QUARTERS_SPARING } else { QUARTERS };
    }
}
