//! How fast pages come over a link, and so how many may come in one message while the program waits for a page beside them.
//!
//! What is on the wire cannot be overtaken: a page that is asked for behind a message of 32 waits a millisecond at 1 Gb/s. DaeMon (§4.1) divides a
//! link between pages and lines at the sender; here nobody but the client knows of both, so it keeps what is in front of a demand
//! short: one message at a time, which lasts no longer than [`BESIDE_DEMAND`].

use super::limits::{BESIDE_DEMAND, BESIDE_DEMAND_PAGES_MIN, DEMANDED_LATELY_NS, LOAD_PAGES};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A sample counts as so many times the estimate at most: one that waited for a processor tells nothing of the link.
const SAMPLE_MAX: u64 = 4;

/// The estimate for one link. Changed without a lock: of two samples at the same moment one may be lost.
pub(super) struct LinkEstimate {
    /// Nanoseconds from page to page; 0: not known yet.
    page_ns: AtomicU64,
    /// Nanoseconds until one page has come that was asked for alone, at best: it follows upwards slowly. 0: not known yet.
    one_ns: AtomicU64,
    /// Zero of `demanded_ns`.
    begun: Instant,
    /// When a demand was answered last; 0: never.
    demanded_ns: AtomicU64,
}

impl LinkEstimate {
    pub(super) fn new() -> LinkEstimate {
        LinkEstimate {
            page_ns: AtomicU64::new(0),
            one_ns: AtomicU64::new(0),
            begun: Instant::now(),
            demanded_ns: AtomicU64::new(0),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A demand was answered.
    pub(super) fn demanded(&self) {
        self.demanded_ns.store(self.now_ns(), Relaxed);
    }

    /// Whether messages are to be short although no demand is under way at this moment: on a slow link one may follow before a long one has come.
    pub(super) fn expects_demand(&self) -> bool {
        self.pages_beside_demand() < LOAD_PAGES && self.expects_demand_at(self.now_ns())
    }

    fn expects_demand_at(&self, now_ns: u64) -> bool {
        let demanded_ns = self.demanded_ns.load(Relaxed);
        demanded_ns > 0 && now_ns.saturating_sub(demanded_ns) < DEMANDED_LATELY_NS
    }

    /// `pages` came in one message, so long after it was asked for, if it was `alone` on the link as far as we know, or after the one before it.
    /// Alone it took the round trip, too, which is left out: it is no part of the bandwidth.
    pub(super) fn sample(&self, pages: usize, alone: bool, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let one_ns = self.one_ns.load(Relaxed);
        if alone && pages == 1 {
            let best_ns = if one_ns == 0 { took_ns } else { took_ns.min(one_ns + one_ns / 64 + 1) };
            self.one_ns.store(best_ns, Relaxed);
        }
        if pages < BESIDE_DEMAND_PAGES_MIN || alone && one_ns == 0 {
            return;
        }
        let (pages, link_ns) =
            if alone { (pages as u64 - 1, took_ns.saturating_sub(one_ns)) } else { (pages as u64, took_ns) };
        let mean = self.page_ns.load(Relaxed);
        let next = match (link_ns / pages, mean) {
            (page_ns, 0) => page_ns,
            (page_ns, _) => mean - mean / 8 + page_ns.min(mean.saturating_mul(SAMPLE_MAX)) / 8,
        };
        self.page_ns.store(next.max(8), Relaxed);
    }

    /// Pages of one message beside a demand.
    pub(super) fn pages_beside_demand(&self) -> usize {
        match self.page_ns.load(Relaxed) {
            0 => LOAD_PAGES,
            page_ns => usize::try_from(BESIDE_DEMAND.as_nanos() / u128::from(page_ns))
                .unwrap_or(LOAD_PAGES)
                .clamp(BESIDE_DEMAND_PAGES_MIN, LOAD_PAGES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(page_ns: u64, samples: u32) -> LinkEstimate {
        let estimate = LinkEstimate::new();
        for _ in 0..samples {
            estimate.sample(LOAD_PAGES, false, Duration::from_nanos(page_ns) * 32);
        }
        estimate
    }

    #[test]
    fn messages_beside_a_demand_are_as_long_as_the_link_is_fast() {
        assert_eq!(LinkEstimate::new().pages_beside_demand(), LOAD_PAGES);
        assert_eq!(after(1_000, 1).pages_beside_demand(), LOAD_PAGES);
        assert_eq!(after(10_000, 1).pages_beside_demand(), 15);
        assert_eq!(after(33_000, 1).pages_beside_demand(), BESIDE_DEMAND_PAGES_MIN);
        assert_eq!(after(10_000_000, 1).pages_beside_demand(), BESIDE_DEMAND_PAGES_MIN);
    }

    #[test]
    fn on_a_slow_link_a_demand_is_expected_after_a_demand() {
        let (fast, slow) = (after(1_000, 1), after(33_000, 1));
        assert!(!slow.expects_demand());
        fast.demanded();
        assert!(!fast.expects_demand());
        slow.demanded();
        let demanded_ns = slow.demanded_ns.load(Relaxed);
        assert!(
            slow.expects_demand_at(demanded_ns + DEMANDED_LATELY_NS - 1)
                && !slow.expects_demand_at(demanded_ns + DEMANDED_LATELY_NS)
        );
        std::thread::sleep(Duration::from_nanos(2 * DEMANDED_LATELY_NS));
        assert!(!slow.expects_demand());
    }

    #[test]
    fn one_late_message_is_no_slow_link_and_many_are() {
        let estimate = after(2_000, 8);
        estimate.sample(LOAD_PAGES, false, Duration::from_secs(1));
        assert_eq!(estimate.pages_beside_demand(), LOAD_PAGES);
        (0..40).for_each(|_| estimate.sample(LOAD_PAGES, false, Duration::from_millis(1)));
        assert!(estimate.pages_beside_demand() <= 5);
        estimate.sample(1, true, Duration::from_nanos(1));
        assert!(estimate.pages_beside_demand() <= 5, "a message of one page tells of its round trip");
    }

    /// However long the round trip is: shorter messages, each alone, must not make the link look slower.
    #[test]
    fn a_round_trip_is_no_slow_link() {
        for (round_trip_ns, page_ns) in [(60_000, 2_300), (200_000, 3_300), (2_000_000, 1_000)] {
            let estimate = LinkEstimate::new();
            for _ in 0..100 {
                for pages in [1, estimate.pages_beside_demand()] {
                    estimate.sample(pages, true, Duration::from_nanos(round_trip_ns + page_ns * pages as u64));
                }
            }
            assert_eq!(estimate.pages_beside_demand(), LOAD_PAGES, "{round_trip_ns} ns, {page_ns} ns a page");
        }
        let slow = LinkEstimate::new();
        for _ in 0..100 {
            for pages in [1, slow.pages_beside_demand()] {
                slow.sample(pages, true, Duration::from_micros(50 + 33 * pages as u64));
            }
        }
        assert!(slow.pages_beside_demand() <= 5, "1 Gb/s");
    }
}
