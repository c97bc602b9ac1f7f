//! Windows that follow the link: their bound is eight times bandwidth × delay, as the pager's own loads measure it.
//! Where a load takes processor time instead of a delay, and the program has few processors, the prefetcher becomes
//! sparing.
//!
//! `one_ns / page_ns` pages are on their way while one is waited for ([`LinkEstimate`]).
//!
//! With windows of eight times as much, waiting takes at most an eighth of the time in which the pages come. Linux and Leap have a
//! fixed bound (8 pages), which is right for links that are never slower than those that it was chosen on.
//!
//! The bound never falls below what is usual for the prefetcher, nor does a window take more than a 32nd of local
//! memory, as much as prefetched pages may wait in. The bound limits the size of windows; use and waste decide the
//! size, as before.

use crate::{Bounded, Choice, PrefetchWindow, Prefetcher, Request, Thread};
use hinterland_units::{LinkEstimate, PAGE_BYTES, PageNo};

/// Delays that a window lasts.
const DELAYS: u64 = 8;
/// No window is larger: 2 MiB.
const PAGES_MAX: u32 = 512;
/// A window takes this part of local memory at most.
pub const WINDOW_PART: u64 = 32;
/// A load that takes less is the work of a processor: decompression, or a copy.
const WORK_NS: u64 = 10_000;
/// With so many processors or fewer, threads that fetch and evict take theirs from the program.
const FEW_PROCESSORS: usize = 2;
/// Loads of each kind before the link is believed to be known.
const LOADS_MIN: u32 = 8;

/// What is known of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowBound {
    /// A load of one page, in nanoseconds; 0: not known yet.
    pub one_ns: u64,
    /// Each further page, in nanoseconds; 0: not known yet.
    pub page_ns: u64,
    /// The largest window that is asked for, in pages.
    pub window_pages_max: u32,
    /// The prefetcher is sparing: see [`Bounded::be_sparing`].
    pub is_sparing: bool,
}

/// A prefetcher whose windows follow the link. See the module.
pub struct BoundedByLink {
    inner: Box<dyn Bounded>,
    estimate: LinkEstimate,
    usual_pages: u32,
    window_pages_max: u32,
    has_few_processors: bool,
    is_sparing: bool,
}

impl BoundedByLink {
    /// `inner` has windows of at most `usual_pages` until the link is known.
    pub fn new(inner: Box<dyn Bounded>, usual_pages: u32) -> BoundedByLink {
        let (estimate, window_pages_max) = (LinkEstimate::new(), usual_pages);
        BoundedByLink { inner, estimate, usual_pages, window_pages_max, has_few_processors: false, is_sparing: false }
    }

    /// A load of one page and each further page, in nanoseconds; 0: not known well enough.
    fn known(&self) -> (u64, u64) {
        let (ones, batches) = self.estimate.samples();
        let known = |samples, ns| if samples >= LOADS_MIN { ns } else { 0 };
        (known(ones, self.estimate.best_ns()), known(batches, self.estimate.page_ns()))
    }

    /// The bound for this link and so much local memory.
    fn bound(&self, local_pages: u64) -> Option<u32> {
        let (one_ns, page_ns) = self.known();
        if one_ns == 0 || page_ns == 0 {
            return None;
        }
        let wanted = (one_ns * DELAYS / page_ns).clamp(1, PAGES_MAX.into()).next_power_of_two();
        let allowed = wanted.min(local_pages / WINDOW_PART);
        Some(u32::try_from(allowed).unwrap_or(PAGES_MAX).max(self.usual_pages))
    }
}

impl Prefetcher for BoundedByLink {
    fn requested(&mut self, page: PageNo, request: Request, thread: Thread) -> Option<PrefetchWindow> {
        self.inner.requested(page, request, thread)
    }

    fn wasted(&mut self, page: PageNo, pages: u32) {
        self.inner.wasted(page, pages);
    }

    fn loaded(&mut self, pages: u32, ns: u64, local_pages: u64) {
        self.estimate.sample(u64::from(pages) * PAGE_BYTES as u64, true, ns);
        let bound = self.bound(local_pages).filter(|bound| *bound != self.window_pages_max);
        if let Some(bound) = bound {
            self.window_pages_max = bound;
            self.inner.limit(bound);
        }
        let (one_ns, _) = self.known();
        let is_sparing = self.has_few_processors && one_ns > 0 && one_ns < WORK_NS;
        if is_sparing != self.is_sparing {
            self.is_sparing = is_sparing;
            self.inner.be_sparing(is_sparing);
        }
    }

    fn has_processors(&mut self, processors: usize) {
        self.has_few_processors = processors <= FEW_PROCESSORS;
    }

    fn choice(&self, page: PageNo) -> Option<Choice> {
        self.inner.choice(page)
    }

    fn follows_steps(&self) -> bool {
        self.inner.follows_steps()
    }

    fn window_bound(&self) -> Option<WindowBound> {
        let (one_ns, page_ns) = self.known();
        let (window_pages_max, is_sparing) = (self.window_pages_max, self.is_sparing);
        Some(WindowBound { one_ns, page_ns, window_pages_max, is_sparing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Streams, Unmapped};

    /// The bound after loads over a link, with so many local pages.
    fn bound(delay_ns: u64, page_ns: u64, local_pages: u64) -> u32 {
        let mut bounded = BoundedByLink::new(Box::new(Streams::of_any_step(64)), 64);
        for _ in 0..200 {
            for pages in [1, 8, 64] {
                bounded.loaded(pages, delay_ns + u64::from(pages) * page_ns, local_pages);
            }
        }
        let known = bounded.window_bound().unwrap();
        assert!(known.page_ns.abs_diff(page_ns) <= 1, "{known:?}");
        assert!(known.one_ns.abs_diff(delay_ns + page_ns) * 16 <= known.one_ns, "{known:?}");
        known.window_pages_max
    }

    #[test]
    fn the_bound_is_eight_times_bandwidth_times_delay() {
        assert_eq!(bound(5_000, 1_311, 1 << 20), 64, "eight times 4.8 is less than usual");
        assert_eq!(bound(90_000, 8_192, 1 << 20), 128, "eight times 12");
        assert_eq!(bound(200_000, 3_277, 1 << 20), 512, "eight times 62");
        assert_eq!(bound(2_000_000, 3_277, 1 << 20), 512);
        assert_eq!(bound(0, 1_500, 1 << 20), 64, "memory has no delay");
    }

    #[test]
    fn a_window_takes_a_32nd_of_local_memory_at_most() {
        assert_eq!(bound(2_000_000, 3_277, 4096), 128);
        assert_eq!(bound(2_000_000, 3_277, 1024), 64, "nor less than usual");
    }

    #[test]
    fn it_is_sparing_where_loads_are_work_and_processors_are_few() {
        let is_sparing = |processors: Option<usize>, one_ns: u64| {
            let mut bounded = BoundedByLink::new(Box::new(Streams::of_any_step(64)), 64);
            processors.into_iter().for_each(|processors| bounded.has_processors(processors));
            (0..LOADS_MIN).for_each(|_| bounded.loaded(1, one_ns, 1 << 20));
            bounded.window_bound().is_some_and(|known| known.is_sparing)
        };
        assert!(is_sparing(Some(2), 6_000) && is_sparing(Some(1), 6_000));
        assert!(!is_sparing(Some(2), 15_000), "a link");
        assert!(
            !is_sparing(Some(3), 6_000) && !is_sparing(None, 6_000),
            "enough processors, or their number is not known"
        );
    }

    #[test]
    fn single_long_waits_for_a_processor_do_not_count() {
        let mut bounded = BoundedByLink::new(Box::new(Streams::of_any_step(64)), 64);
        for round in 0..1000 {
            let waited = if round % 50 == 49 { 4_000_000 } else { 0 };
            bounded.loaded(1, 2_000 + waited, 1 << 20);
            bounded.loaded(64, 66_000 + waited, 1 << 20);
        }
        assert_eq!(bounded.window_bound().unwrap().window_pages_max, 64);
    }

    #[test]
    fn windows_grow_where_the_link_is_long_and_first_touches_stay() {
        let mut bounded = BoundedByLink::new(Box::new(Streams::of_any_step(64)), 64);
        // Two faults, and then a request at each key page.
        let largest = |bounded: &mut BoundedByLink, from: u32, first: Request, then: Request| {
            let mut request = |page, request| bounded.requested(PageNo(page), request, Thread(0));
            let mut window = request(from, first).or_else(|| request(from + 1, first));
            for _ in 0..12 {
                let Some(Unmapped::Key(key)) = window.map(|window| window.unmapped) else { return None };
                window = request(key.0, then);
            }
            window.map(|window| window.pages)
        };
        let hits = (Request::Major, Request::PrefetchHit);
        assert_eq!(largest(&mut bounded, 0, hits.0, hits.1), Some(64));
        for _ in 0..100 {
            bounded.loaded(1, 500_000, 1 << 20);
            bounded.loaded(64, 700_000, 1 << 20);
        }
        assert_eq!(largest(&mut bounded, 100_000, hits.0, hits.1), Some(512));
        assert_eq!(largest(&mut bounded, 200_000, Request::FirstTouch, Request::FirstTouch), Some(64));
    }
}
