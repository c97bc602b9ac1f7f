//! How long a node takes to answer a load of one page, as it was seen from here.
//!
//! Mean and deviation as TCP keeps them for its retransmission timer (Jacobson 1988, appendix A): `mean += (sample − mean) / 8`,
//! `deviation += (|sample − mean| − deviation) / 4`. Changed without a lock: of two samples at the same moment one may be lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The shortest time after which another node is asked: a busy machine lets a thread wait so long for a processor.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
/// The longest: a stall of the program, once until the node is known as slow.
const PATIENCE_MAX: Duration = Duration::from_millis(500);
/// A node is slow from here on, if another takes an eighth of it …
const SLOW: Duration = Duration::from_millis(20);
const SLOWER: u64 = 8;
/// … until its mean is below this.
const SLOW_NO_MORE: Duration = Duration::from_millis(10);

/// Estimates for one node.
#[derive(Default)]
pub(super) struct Latency {
    /// In nanoseconds; 0: no sample yet.
    mean_ns: AtomicU64,
    deviation_ns: AtomicU64,
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
            return;
        }
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
