//! How long requests take on the node, by kind: counted by the lanes, without a lock.
//!
//! A look at the clock costs more than all other counting, so of reads and writes each lane times one in `SAMPLED_ONE_IN`.
//! Lanes count in one of several shards, so that those that work at the same time hardly ever write to the same cache line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets: 1 µs and its doubles, up to 32.8 ms. One bucket more has what took longer.
pub const BUCKETS: usize = 16;
const SHARDS: usize = 16;
/// Of reads and writes, each, on a lane: one in so many is timed, the first of them too.
pub const SAMPLED_ONE_IN: u32 = 16;

/// What is told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// `Read`.
    Read,
    /// `Write`.
    Write,
    /// Everything else: sessions, slabs, figures.
    Other,
}

impl Work {
    /// All of them.
    pub const ALL: [Work; 3] = [Work::Read, Work::Write, Work::Other];
}

/// How many requests of a kind, of those that were timed, took how long: from the moment that the request has arrived until its answer is
/// made; of reads that are answered from where the bytes lie, until the connection has taken what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// Requests by the bucket that their time falls into.
    pub buckets: [u64; BUCKETS + 1],
    /// Their times together, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// Upper bound of a bucket, in seconds; the last one has none.
    pub fn bound_seconds(bucket: usize) -> f64 {
        if bucket < BUCKETS { (1u64 << bucket) as f64 / 1e6 } else { f64::INFINITY }
    }

    /// Requests.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Which requests of a lane are timed.
#[derive(Default)]
pub(crate) struct Sampler {
    seen: [u32; Work::ALL.len()],
}

impl Sampler {
    /// Whether the next request of this kind is timed.
    pub(crate) fn takes(&mut self, work: Work) -> bool {
        let seen = &mut self.seen[work as usize];
        *seen = seen.wrapping_add(1);
        work == Work::Other || *seen % SAMPLED_ONE_IN == 1
    }
}

/// The counts of all lanes.
#[derive(Default)]
pub(crate) struct Latencies {
    shards: [Shard; SHARDS],
    next: AtomicUsize,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard {
    works: [Counts; Work::ALL.len()],
}

#[derive(Default)]
struct Counts {
    buckets: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
}

impl Latencies {
    /// The shard for a new lane.
    pub(crate) fn shard(&self) -> usize {
        self.next.fetch_add(1, Relaxed) % SHARDS
    }

    /// Counts a request.
    pub(crate) fn count(&self, shard: usize, work: Work, took: Duration) {
        let counts = &self.shards[shard].works[work as usize];
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        counts.buckets[bucket(took_ns)].fetch_add(1, Relaxed);
        counts.sum_ns.fetch_add(took_ns, Relaxed);
    }

    /// What was counted of one kind.
    pub(crate) fn of(&self, work: Work) -> Histogram {
        let mut all = Histogram::default();
        for counts in self.shards.iter().map(|shard| &shard.works[work as usize]) {
            for (sum, count) in all.buckets.iter_mut().zip(&counts.buckets) {
                *sum += count.load(Relaxed);
            }
            all.sum_ns = all.sum_ns.saturating_add(counts.sum_ns.load(Relaxed));
        }
        all
    }
}

/// The first bucket whose bound is not exceeded.
fn bucket(took_ns: u64) -> usize {
    let doubled = took_ns.div_ceil(1000).max(1).next_power_of_two().trailing_zeros() as usize;
    doubled.min(BUCKETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_falls_into_the_first_bucket_that_bounds_it() {
        for took_ns in [0, 1, 999, 1000, 1001, 2000, 2001, 4096, 32_768_000, 32_768_001, 3_600_000_000_000] {
            let bucket = bucket(took_ns);
            let seconds = took_ns as f64 / 1e9;
            assert!(seconds <= Histogram::bound_seconds(bucket), "{took_ns} in {bucket}");
            assert!(bucket == 0 || seconds > Histogram::bound_seconds(bucket - 1), "{took_ns} in {bucket}");
        }
    }

    #[test]
    fn the_first_of_each_kind_is_timed_and_then_one_in_sixteen() {
        let mut sampler = Sampler::default();
        let taken = |sampler: &mut Sampler, work| (0..33).filter(|_| sampler.takes(work)).count();
        assert_eq!(taken(&mut sampler, Work::Read), 3);
        assert_eq!((taken(&mut sampler, Work::Write), taken(&mut sampler, Work::Other)), (3, 33));
    }

    #[test]
    fn what_all_lanes_count_adds_up() {
        let latencies = Latencies::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let shard = latencies.shard();
                    (0..1000).for_each(|n| latencies.count(shard, Work::Write, Duration::from_micros(n)));
                });
            }
        });
        let all = latencies.of(Work::Write);
        assert_eq!((all.count(), all.sum_ns), (20_000, 20 * 499_500 * 1000));
        assert_eq!(all.buckets[..3], [40, 20, 40]);
        assert_eq!(latencies.of(Work::Read), Histogram::default());
    }
}
