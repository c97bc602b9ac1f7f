//! How long a node takes to answer a load of one page, as it was seen from here.
//!
//! Mean and deviation as TCP keeps them for its retransmission timer (Jacobson 1988, appendix A): `mean += (sample − mean) / 8`,
//! `deviation += (|sample − mean| − deviation) / 4`. The 95th percentile goes up by 19 steps with a sample above it and down by one
//! with any other, so that it rests where one in twenty lies above. Changed without a lock: of two samples at the same moment one
//! may be lost.

use super::limits::{LATE_AFTER_MIN, PATIENCE_MAX, PATIENCE_MIN, SLOW, SLOW_NO_MORE, SLOWER};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A step of the percentile: so small a part of it.
const STEP: u64 = 304;
const STEPS_UP: u64 = 19;

/// Estimates for one node.
#[derive(Default)]
pub(super) struct Latency {
    /// In nanoseconds; 0: no sample yet.
    mean_ns: AtomicU64,
    deviation_ns: AtomicU64,
    percentile_ns: AtomicU64,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl Latency {
    /// A load of one page took so long.
    pub(super) fn sample(&self, took: Duration) {
        let (took, mean) = (nanoseconds(took), self.mean_ns.load(Relaxed));
        if mean == 0 {
            self.mean_ns.store(took, Relaxed);
            self.deviation_ns.store(took / 2, Relaxed);
            self.percentile_ns.store(took.saturating_mul(2), Relaxed);
            return;
        }
        let percentile = self.percentile_ns.load(Relaxed);
        let step = percentile.div_ceil(STEP);
        let up = took > percentile;
        let now = if up { percentile.saturating_add(STEPS_UP * step) } else { percentile.saturating_sub(step) };
        self.percentile_ns.store(now, Relaxed);
        let (error, deviation) = (took.abs_diff(mean), self.deviation_ns.load(Relaxed));
        self.mean_ns.store((mean - mean / 8 + took / 8).max(1), Relaxed);
        self.deviation_ns.store(deviation - deviation / 4 + error / 4, Relaxed);
    }

    /// An answer was not waited for any longer, after so long a time. Until something better is seen, the node takes that long.
    pub(super) fn late(&self, after: Duration) {
        self.mean_ns.fetch_max(nanoseconds(after), Relaxed);
    }

    /// Something that takes at least as long as a load of one page took so long.
    pub(super) fn at_most(&self, took: Duration) {
        self.mean_ns.fetch_min(nanoseconds(took).max(2), Relaxed);
    }

    /// A load of one page took at least so long.
    pub(super) fn at_least(&self, took: Duration) {
        if nanoseconds(took) > self.mean_ns() {
            self.sample(took);
        }
    }

    /// How long a load takes in nineteen of twenty cases, in which another node is not asked, too.
    pub(super) fn late_after(&self) -> Duration {
        match self.percentile_ns.load(Relaxed) {
            0 => PATIENCE_MAX,
            percentile => Duration::from_nanos(percentile).clamp(LATE_AFTER_MIN, PATIENCE_MAX),
        }
    }

    /// The mean in nanoseconds; 0 as long as nothing is known.
    pub(super) fn mean_ns(&self) -> u64 {
        self.mean_ns.load(Relaxed)
    }

    /// How long a load may take before another node is asked: mean and eight deviations.
    pub(super) fn patience(&self) -> Duration {
        let (mean, deviation) = (self.mean_ns.load(Relaxed), self.deviation_ns.load(Relaxed));
        if mean == 0 {
            return PATIENCE_MAX;
        }
        Duration::from_nanos(mean.saturating_add(deviation.saturating_mul(8))).clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    /// Whether it is slow now, beside a node with the mean `fastest_ns`, if it was `before` or not.
    pub(super) fn is_slow(&self, fastest_ns: u64, before: bool) -> bool {
        let mean = self.mean_ns();
        let bound = if before { SLOW_NO_MORE } else { SLOW };
        mean >= nanoseconds(bound) && mean / SLOWER >= fastest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn follows_what_it_sees() {
        let latency = Latency::default();
        assert_eq!((latency.mean_ns(), latency.patience()), (0, PATIENCE_MAX));
        (0..100).for_each(|n| latency.sample(MICROSECOND * (30 + n % 3)));
        assert!((30_000..32_000).contains(&latency.mean_ns()), "{}", latency.mean_ns());
        assert_eq!(latency.patience(), PATIENCE_MIN);
        (0..100).for_each(|_| latency.sample(Duration::from_millis(100)));
        assert!((98_000_000..=100_000_000).contains(&latency.mean_ns()), "{}", latency.mean_ns());
        assert!(latency.patience() >= Duration::from_millis(100) && latency.patience() < PATIENCE_MAX);
        latency.at_most(Duration::from_millis(3));
        assert_eq!(latency.mean_ns(), 3_000_000);
    }

    /// Of samples from 1 to 1000 µs in a scrambled order, and when all become ten times slower.
    #[test]
    fn the_percentile_is_one_that_one_in_twenty_exceeds() {
        let latency = Latency::default();
        let percentile_us = || latency.percentile_ns.load(Relaxed) / 1000;
        for factor in [1, 10] {
            (0..20_000).for_each(|n| latency.sample(MICROSECOND * factor * (1 + n * 7919 % 1000)));
            let above = (0..1000)
                .filter(|n| {
                    let took = factor * (1 + n * 7919 % 1000);
                    let is_above = u64::from(took) > percentile_us();
                    latency.sample(MICROSECOND * took);
                    is_above
                })
                .count();
            assert!((35..65).contains(&above), "{above} of 1000 are above {} µs", percentile_us());
        }
        assert!(latency.late_after() > Duration::from_millis(9), "{:?}", latency.late_after());
        let fast = Latency::default();
        assert_eq!(fast.late_after(), PATIENCE_MAX);
        (0..1000).for_each(|_| fast.sample(MICROSECOND * 30));
        assert_eq!(fast.late_after(), LATE_AFTER_MIN);
        // An answer that lost against a hedge says nothing, unless it is more than was known.
        fast.at_least(MICROSECOND);
        assert!((29_000..31_000).contains(&fast.mean_ns()), "{}", fast.mean_ns());
        fast.at_least(MICROSECOND * 830);
        assert!(fast.mean_ns() > 100_000, "{}", fast.mean_ns());
    }

    #[test]
    fn slow_is_beside_others_and_lasts_until_it_is_clearly_over() {
        let latency = Latency::default();
        latency.sample(Duration::from_millis(100));
        assert!(latency.is_slow(50_000, false));
        assert!(!latency.is_slow(30_000_000, false), "all are as slow");
        latency.at_most(Duration::from_millis(15));
        assert!(latency.is_slow(50_000, true) && !latency.is_slow(50_000, false));
        latency.at_most(Duration::from_millis(5));
        assert!(!latency.is_slow(50_000, true));
    }
}
