//! The estimate of a link, and what a pool decides by it: how long an answer is waited for, which node is slow, and how many pages may come in
//! one message while the program waits for a page beside them.
//!
//! What is on the wire cannot be overtaken: a page that is asked for behind a message of 32 waits a millisecond at 1 Gb/s. DaeMon (§4.1) divides a
//! link between pages and lines at the sender; here nobody but the client knows of both, so it keeps what is in front of a demand
//! short: one message at a time, which lasts no longer than [`BESIDE_DEMAND`].

use super::limits::{
    BESIDE_DEMAND, BESIDE_DEMAND_PAGES_MIN, DEMANDED_LATELY_NS, LATE_AFTER_MIN, LOAD_PAGES, PATIENCE_MAX, PATIENCE_MIN,
    SLOW, SLOW_NO_MORE, SLOWER,
};
use crate::sync::lock;
use hinterland_units::{BATCH_BYTES_MIN, LinkEstimate};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One link's, which all threads share that use it.
pub(super) struct SharedEstimate {
    estimate: Mutex<LinkEstimate>,
    /// Zero of `demanded_ns`.
    begun: Instant,
    /// When a demand was answered last; 0: never.
    demanded_ns: AtomicU64,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl SharedEstimate {
    pub(super) fn new() -> SharedEstimate {
        let estimate = Mutex::new(LinkEstimate::new());
        SharedEstimate { estimate, begun: Instant::now(), demanded_ns: AtomicU64::new(0) }
    }

    fn get(&self) -> LinkEstimate {
        *lock(&self.estimate)
    }

    /// See [`LinkEstimate::sample`].
    pub(super) fn sample(&self, bytes: usize, alone: bool, took: Duration) {
        lock(&self.estimate).sample(bytes as u64, alone, nanoseconds(took));
    }

    /// As `sample`, of bytes that were sent; few of them tell nothing.
    pub(super) fn sample_batch(&self, bytes: usize, alone: bool, took: Duration) {
        if bytes as u64 >= BATCH_BYTES_MIN {
            self.sample(bytes, alone, took);
        }
    }

    /// See [`LinkEstimate::late`].
    pub(super) fn late(&self, after: Duration) {
        lock(&self.estimate).late(nanoseconds(after));
    }

    /// See [`LinkEstimate::at_most`].
    pub(super) fn at_most(&self, took: Duration) {
        lock(&self.estimate).at_most(nanoseconds(took));
    }

    /// See [`LinkEstimate::at_least`].
    pub(super) fn at_least(&self, took: Duration) {
        lock(&self.estimate).at_least(nanoseconds(took));
    }

    /// See [`LinkEstimate::mean_ns`].
    pub(super) fn mean_ns(&self) -> u64 {
        self.get().mean_ns()
    }

    /// See [`LinkEstimate::page_ns`].
    pub(super) fn page_ns(&self) -> u64 {
        self.get().page_ns()
    }

    /// How long a load takes in nineteen of twenty cases, in which another node is not asked, too.
    pub(super) fn late_after(&self) -> Duration {
        match self.get().percentile_ns() {
            0 => PATIENCE_MAX,
            percentile => Duration::from_nanos(percentile).clamp(LATE_AFTER_MIN, PATIENCE_MAX),
        }
    }

    /// How long a load may take before another node is asked: mean and eight deviations.
    pub(super) fn patience(&self) -> Duration {
        let estimate = self.get();
        match estimate.mean_ns() {
            0 => PATIENCE_MAX,
            mean => Duration::from_nanos(mean.saturating_add(estimate.deviation_ns().saturating_mul(8)))
                .clamp(PATIENCE_MIN, PATIENCE_MAX),
        }
    }

    /// Whether it is slow now, beside a node with the mean `fastest_ns`, if it was `before` or not.
    pub(super) fn is_slow(&self, fastest_ns: u64, before: bool) -> bool {
        let mean = self.mean_ns();
        let bound = if before { SLOW_NO_MORE } else { SLOW };
        mean >= nanoseconds(bound) && mean / SLOWER >= fastest_ns
    }

    /// A demand was answered.
    pub(super) fn demanded(&self) {
        self.demanded_ns.store(nanoseconds(self.begun.elapsed()), Relaxed);
    }

    /// Whether messages are to be short although no demand is under way at this moment: on a slow link one may follow before a long one has come.
    pub(super) fn expects_demand(&self) -> bool {
        self.pages_beside_demand() < LOAD_PAGES && self.expects_demand_at(nanoseconds(self.begun.elapsed()))
    }

    fn expects_demand_at(&self, now_ns: u64) -> bool {
        let demanded_ns = self.demanded_ns.load(Relaxed);
        demanded_ns > 0 && now_ns.saturating_sub(demanded_ns) < DEMANDED_LATELY_NS
    }

    /// Pages of one message beside a demand.
    pub(super) fn pages_beside_demand(&self) -> usize {
        match self.get().page_ns() {
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
    use hinterland_units::PAGE_BYTES;

    const MESSAGE: usize = LOAD_PAGES * PAGE_BYTES;

    fn after(page_ns: u64, samples: u32) -> SharedEstimate {
        let estimate = SharedEstimate::new();
        for _ in 0..samples {
            estimate.sample(MESSAGE, false, Duration::from_nanos(page_ns) * 32);
        }
        estimate
    }

    fn after_ones(times: impl IntoIterator<Item = Duration>) -> SharedEstimate {
        let estimate = SharedEstimate::new();
        times.into_iter().for_each(|took| estimate.sample(PAGE_BYTES, true, took));
        estimate
    }

    #[test]
    fn messages_beside_a_demand_are_as_long_as_the_link_is_fast() {
        assert_eq!(SharedEstimate::new().pages_beside_demand(), LOAD_PAGES);
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

    /// However long the round trip is: shorter messages, each alone, must not make the link look slower.
    #[test]
    fn a_round_trip_is_no_slow_link() {
        let settled = |round_trip_ns: u64, page_ns: u64| {
            let estimate = SharedEstimate::new();
            for _ in 0..100 {
                for pages in [1, estimate.pages_beside_demand()] {
                    let took = Duration::from_nanos(round_trip_ns + page_ns * pages as u64);
                    estimate.sample(pages * PAGE_BYTES, true, took);
                }
            }
            estimate.pages_beside_demand()
        };
        for (round_trip_ns, page_ns) in [(60_000, 2_300), (200_000, 3_300), (2_000_000, 1_000)] {
            assert_eq!(settled(round_trip_ns, page_ns), LOAD_PAGES, "{round_trip_ns} ns, {page_ns} ns a page");
        }
        assert!(settled(50_000, 33_000) <= 5, "1 Gb/s");
    }

    #[test]
    fn an_answer_is_waited_for_as_long_as_they_take() {
        let microseconds = Duration::from_micros;
        let fresh = SharedEstimate::new();
        assert_eq!((fresh.patience(), fresh.late_after()), (PATIENCE_MAX, PATIENCE_MAX));
        let fast = after_ones((0..1000).map(|n| microseconds(30 + n % 3)));
        assert_eq!((fast.patience(), fast.late_after()), (PATIENCE_MIN, LATE_AFTER_MIN));
        let slow = after_ones((0..100).map(|_| Duration::from_millis(100)));
        assert!(slow.patience() >= Duration::from_millis(100) && slow.patience() < PATIENCE_MAX);
        let scattered = after_ones((0..20_000).map(|n| microseconds(10 + 10 * (n * 7919 % 1000))));
        assert!(scattered.late_after() > Duration::from_millis(9), "{:?}", scattered.late_after());
    }

    #[test]
    fn slow_is_beside_others_and_lasts_until_it_is_clearly_over() {
        let estimate = after_ones([Duration::from_millis(100)]);
        assert!(estimate.is_slow(50_000, false));
        assert!(!estimate.is_slow(30_000_000, false), "all are as slow");
        estimate.at_most(Duration::from_millis(15));
        assert!(estimate.is_slow(50_000, true) && !estimate.is_slow(50_000, false));
        estimate.at_most(Duration::from_millis(5));
        assert!(!estimate.is_slow(50_000, true));
    }
}
