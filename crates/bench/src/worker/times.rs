//! How long single accesses took: counts by duration, 32 steps in each power of two, so a bucket's width is at most 1/32 of its
//! value.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;

const STEP_BITS: u32 = 5;
/// The shortest and longest durations that are told from others: 32 ns, and about 18 minutes.
const POWER_MIN: u32 = STEP_BITS;
const POWER_MAX: u32 = 40;
const BUCKETS: usize = ((POWER_MAX - POWER_MIN) << STEP_BITS) as usize;
/// Cells of a table in the making: the buckets, then the sum of all durations.
pub const CELLS: usize = BUCKETS + 1;

/// Reads one word of a page, and counts in `cells` how long that took.
#[inline]
pub fn timed(cells: &mut [u64], words: &mut [u64]) {
    let begun = Instant::now();
    // Opaque to the compiler, which could otherwise read before it looks at the clock.
    let words = std::hint::black_box(words);
    std::hint::black_box(words[0]);
    let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    cells[bucket_of(ns)] += 1;
    cells[BUCKETS] += ns;
}

fn bucket_of(ns: u64) -> usize {
    let ns = ns.clamp(1 << POWER_MIN, (1 << POWER_MAX) - 1);
    let power = 63 - ns.leading_zeros();
    let step = (ns >> (power - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    ((power - POWER_MIN) << STEP_BITS) as usize + usize::try_from(step).expect("below 32")
}

/// The longest duration in a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let (power, step) = (bucket >> STEP_BITS, bucket as u64 & ((1 << STEP_BITS) - 1));
    ((32 + step + 1) << power) - 1
}

/// Durations of the accesses of a phase.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Times {
    /// By ascending duration: so many nanoseconds at most, but longer than the entry before, took how many. (Pairs, because a map
    /// whose keys are numbers does not survive a tagged message.)
    counts: Vec<(u64, u64)>,
    sum_ns: u64,
}

impl Times {
    /// What was counted in the cells of `tables`.
    pub fn of<'a>(tables: impl Iterator<Item = &'a [u64]>) -> Times {
        let mut times = Times::default();
        for cells in tables {
            let counts = cells[..BUCKETS].iter().enumerate().filter(|(_, count)| **count > 0);
            let counts = counts.map(|(bucket, count)| (upper_ns(bucket), *count)).collect();
            times.add(&Times { counts, sum_ns: cells[BUCKETS] });
        }
        times
    }

    /// Adds the accesses of another phase.
    pub fn add(&mut self, other: &Times) {
        let mut counts: BTreeMap<u64, u64> = self.counts.iter().copied().collect();
        for (ns, count) in &other.counts {
            *counts.entry(*ns).or_insert(0) += count;
        }
        self.counts = counts.into_iter().collect();
        self.sum_ns += other.sum_ns;
    }

    /// Accesses.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Their mean duration in nanoseconds; none when there were none.
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of one run lie far below 2^52")]
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64)
    }

    /// The duration that `share` of the accesses did not exceed; none when there were none.
    #[allow(clippy::cast_precision_loss, reason = "counts of one run lie far below 2^52")]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = self.count() as f64 * share;
        let mut seen = 0;
        let reached = |(ns, count): &(u64, u64)| {
            seen += count;
            (seen as f64 >= wanted).then_some(*ns)
        };
        self.counts.iter().find_map(reached)
    }

    /// The same of the `count` longest accesses alone: those that faulted, if no other took as long.
    #[allow(clippy::cast_precision_loss, reason = "counts of one run lie far below 2^52")]
    pub fn quantile_of_longest_ns(&self, count: u64, share: f64) -> Option<u64> {
        let part = count as f64 / self.count().max(1) as f64;
        self.quantile_ns(1.0 - part.min(1.0) * (1.0 - share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(durations: &[u64]) -> Times {
        let mut cells = vec![0; CELLS];
        for ns in durations {
            cells[bucket_of(*ns)] += 1;
            cells[BUCKETS] += ns;
        }
        Times::of(std::iter::once(&cells[..]))
    }

    #[test]
    fn buckets_bound_their_values() {
        let mut previous = 0;
        for ns in (32..3_000_000u64).step_by(17).chain([1 << 30, 1 << 39, u64::MAX]) {
            let bucket = bucket_of(ns);
            assert!(bucket >= previous && bucket < BUCKETS, "{ns}");
            assert!(ns == u64::MAX || (ns..=ns + ns / 32).contains(&upper_ns(bucket)), "{ns}");
            previous = bucket;
        }
    }

    #[test]
    fn quantiles_are_those_of_the_counts() {
        let mut all = times(&[100, 200, 300]);
        all.add(&times(&[400_000]));
        let near = |ns: Option<u64>, exact: u64| ns.is_some_and(|ns| (exact..=exact + exact / 32).contains(&ns));
        assert_eq!((all.count(), all.mean_ns()), (4, Some(100_150.0)));
        assert!(
            near(all.quantile_ns(0.5), 200) && near(all.quantile_ns(0.99), 400_000) && near(all.quantile_ns(0.0), 100)
        );
        assert!(near(all.quantile_of_longest_ns(1, 0.5), 400_000) && near(all.quantile_of_longest_ns(2, 0.5), 300));
        assert_eq!((Times::default().quantile_ns(0.5), Times::default().mean_ns()), (None, None));
    }

    #[test]
    fn an_access_is_counted_once() {
        let (mut cells, mut words) = (vec![0; CELLS], vec![7; 512]);
        (0..10).for_each(|_| timed(&mut cells, &mut words));
        assert_eq!(Times::of(std::iter::once(&cells[..])).count(), 10);
    }
}
