//! Stride prefetching: the step between the last two requests, once it has repeated.
//!
//! ```text
//!   initial ──right──► steady ◄──right── transient        right: the step was the one that was predicted
//!      ▲  └─wrong (new step)──────────────► │
//!      └────wrong──── steady                └─wrong (new step)─► no prediction ──right──► transient
//! ```
//!
//! Source: J.-L. Baer, T.-F. Chen, An effective on-chip preloading scheme to reduce data access penalty (Supercomputing 1991),
//! the reference prediction table. There it has an entry for each load instruction; a pager does not see instructions, so this is
//! one entry. How many pages come follows the last prefetch's accuracy, as Leap §5.2.3 describes its rival: twice as many
//! when at least half of them were used, else half as many.

use crate::{PrefetchWindow, Prefetcher, Request, Thread, Unmapped};
use hinterland_units::PageNo;

/// How much a step is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Belief {
    Initial,
    Transient,
    Steady,
    NoPrediction,
}

/// The stride prefetcher. See the module.
pub struct Stride {
    last: Option<PageNo>,
    step: i64,
    belief: Belief,
    window_pages: u32,
    window_pages_max: u32,
    /// Prefetched pages used since the last prefetch.
    hits: u32,
}

impl Stride {
    /// Windows of at most `window_pages_max`, 0 for none.
    pub fn new(window_pages_max: u32) -> Stride {
        Stride { last: None, step: 0, belief: Belief::Initial, window_pages: 0, window_pages_max, hits: 0 }
    }

    /// Compares a request with the prediction.
    fn learn(&mut self, page: PageNo) {
        let Some(last) = self.last.replace(page) else { return };
        let step = i64::from(page.0) - i64::from(last.0);
        let (belief, learns) = match (self.belief, step == self.step) {
            (Belief::Initial | Belief::Transient | Belief::Steady, true) => (Belief::Steady, false),
            (Belief::NoPrediction, true) => (Belief::Transient, false),
            (Belief::Steady, false) => (Belief::Initial, false),
            (Belief::Initial, false) => (Belief::Transient, true),
            (Belief::Transient | Belief::NoPrediction, false) => (Belief::NoPrediction, true),
        };
        self.belief = belief;
        if learns {
            self.step = step;
        }
    }
}

impl Prefetcher for Stride {
    fn requested(&mut self, page: PageNo, request: Request, _: Thread) -> Option<PrefetchWindow> {
        if request == Request::FirstTouch {
            return None;
        }
        self.learn(page);
        if request != Request::Major {
            self.hits += u32::from(request == Request::PrefetchHit);
            return None;
        }
        if self.belief == Belief::NoPrediction || self.step == 0 || self.window_pages_max == 0 {
            return None;
        }
        let accurate = std::mem::take(&mut self.hits) * 2 >= self.window_pages;
        let wanted = if accurate { self.window_pages * 2 } else { self.window_pages / 2 };
        self.window_pages = wanted.clamp(1, self.window_pages_max);
        let here = PrefetchWindow { first: page, step: self.step, pages: self.window_pages, unmapped: Unmapped::All };
        Some(PrefetchWindow { first: here.page(1)?, ..here })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(stride: &mut Stride, page: u32) -> Option<(u32, i64, u32)> {
        let window = stride.requested(PageNo(page), Request::Major, Thread(0))?;
        Some((window.first.0, window.step, window.pages))
    }

    #[test]
    fn a_step_is_tried_at_once_and_kept_while_it_holds() {
        let mut stride = Stride::new(8);
        assert_eq!(first(&mut stride, 100), None);
        assert_eq!(first(&mut stride, 110), Some((120, 10, 1)), "transient");
        assert_eq!(first(&mut stride, 120), Some((130, 10, 1)), "steady");
        assert_eq!(first(&mut stride, 500), Some((510, 10, 1)), "one irregular step is forgiven");
    }

    #[test]
    fn steps_that_never_repeat_fetch_nothing() {
        let mut stride = Stride::new(8);
        let pages: Vec<_> = [100, 110, 135, 20, 900, 7, 5000].map(|page| first(&mut stride, page)).into();
        assert_eq!(pages[2..], [None; 5]);
    }

    #[test]
    fn windows_grow_with_hits_and_shrink_without() {
        let mut stride = Stride::new(8);
        let (mut page, mut windows) = (0, Vec::new());
        for _ in 0..6 {
            page += 3;
            let pages = first(&mut stride, page).map_or(0, |window| window.2);
            windows.push(pages);
            for _ in 0..pages {
                page += 3;
                assert_eq!(stride.requested(PageNo(page), Request::PrefetchHit, Thread(0)), None);
            }
        }
        assert_eq!(windows, [0, 1, 2, 4, 8, 8]);
        assert_eq!(
            [1, 2, 3].map(|step| first(&mut stride, page + 3 * step).map(|window| window.2)),
            [Some(8), Some(4), Some(2)]
        );
    }

    #[test]
    fn goes_down_and_ends_with_the_page_numbers() {
        let mut stride = Stride::new(8);
        assert_eq!([900, 600].map(|page| first(&mut stride, page).is_some()), [false, true]);
        assert_eq!(first(&mut stride, 300), Some((0, -300, 1)));
        assert_eq!(first(&mut stride, 0), None);
    }
}
