//! How fast pages come over a link, and so how many may come in one message while the program waits for a page beside them.
//!
//! What is on the wire cannot be overtaken: a page that is asked for behind a message of 32 waits a millisecond at 1 Gb/s. DaeMon (§4.1) divides a
//! link between pages and lines at the sender; here nobody but the client knows of both, so it keeps what is in front of a demand
//! short: one message at a time, which lasts no longer than [`BESIDE_DEMAND`].

use super::load::LOAD_PAGES;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a message may take beside a demand. At 1 Gb/s: four pages, and two thirds of the bandwidth.
const BESIDE_DEMAND: Duration = Duration::from_micros(150);
/// No message is smaller for it, and of smaller ones the round trip would be the larger part.
const PAGES_MIN: usize = 4;

/// A program that waited for a page so short a time ago may soon wait for the next.
const LATELY_NS: u64 = 1_000_000;

/// The estimate for one link. Changed without a lock: of two samples at the same moment one may be lost.
pub(super) struct Pace {
    /// Nanoseconds from page to page; 0: not known yet.
    page_ns: AtomicU64,
    /// Zero of `demanded_ns`.
    begun: Instant,
    /// When a demand was answered last; 0: never.
    demanded_ns: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { page_ns: AtomicU64::new(0), begun: Instant::now(), demanded_ns: AtomicU64::new(0) }
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
        demanded_ns > 0 && now_ns.saturating_sub(demanded_ns) < LATELY_NS
    }

    /// `pages` came in one message, so long after it was asked for, or after the one before it.
    pub(super) fn sample(&self, pages: usize, took: Duration) {
        if pages < PAGES_MIN {
            return;
        }
        let page_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / pages as u64;
        let mean = self.page_ns.load(Relaxed);
        let next = if mean == 0 { page_ns } else { mean - mean / 8 + page_ns / 8 };
        self.page_ns.store(next.max(1), Relaxed);
    }

    /// Pages of one message beside a demand.
    pub(super) fn pages_beside_demand(&self) -> usize {
        match self.page_ns.load(Relaxed) {
            0 => LOAD_PAGES,
            page_ns => usize::try_from(BESIDE_DEMAND.as_nanos() / u128::from(page_ns))
                .unwrap_or(LOAD_PAGES)
                .clamp(PAGES_MIN, LOAD_PAGES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(page_ns: u64, samples: u32) -> Pace {
        let pace = Pace::new();
        for _ in 0..samples {
            pace.sample(LOAD_PAGES, Duration::from_nanos(page_ns) * 32);
        }
        pace
    }

    #[test]
    fn messages_beside_a_demand_are_as_long_as_the_link_is_fast() {
        assert_eq!(Pace::new().pages_beside_demand(), LOAD_PAGES);
        assert_eq!(after(1_000, 1).pages_beside_demand(), LOAD_PAGES);
        assert_eq!(after(10_000, 1).pages_beside_demand(), 15);
        assert_eq!(after(33_000, 1).pages_beside_demand(), PAGES_MIN);
        assert_eq!(after(10_000_000, 1).pages_beside_demand(), PAGES_MIN);
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
            slow.expects_demand_at(demanded_ns + LATELY_NS - 1) && !slow.expects_demand_at(demanded_ns + LATELY_NS)
        );
        std::thread::sleep(Duration::from_nanos(2 * LATELY_NS));
        assert!(!slow.expects_demand());
    }

    #[test]
    fn one_late_message_is_no_slow_link_and_many_are() {
        let pace = after(2_000, 8);
        pace.sample(LOAD_PAGES, Duration::from_micros(640));
        assert_eq!(pace.pages_beside_demand(), LOAD_PAGES);
        (0..40).for_each(|_| pace.sample(LOAD_PAGES, Duration::from_millis(1)));
        assert!(pace.pages_beside_demand() <= 5);
        pace.sample(1, Duration::from_nanos(1));
        assert!(pace.pages_beside_demand() <= 5, "a message of one page tells of its round trip");
    }
}
