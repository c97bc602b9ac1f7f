//! When pages are there: a thread's arrivals over a link, prefetched as 3PO does it, at several link speeds at once.
//!
//! Every `batch` arrivals there is a key page, at which all pages up to `AHEAD_BATCHES` batches further are asked for (3PO §3.3:
//! LOOKAHEAD = 4 · BATCH_SIZE). The link takes one page after the other, in their order: what leaves for a page, and the page. So a page
//! is there at
//!
//! ```text
//!   max(link free, its key page was touched) + page time · (pages in and out) + latency
//! ```
//!
//! and the thread waits until then if it comes earlier. What only leaves has to be gone by then. The link is the thread's alone.

use super::Pace;
use hinterland_units::PAGE_BYTES;

/// Link speeds at which it is told whether everything is hidden, in Mb/s.
pub const SPEEDS_MBIT: [u64; 10] = [1_000, 2_500, 5_000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000];
/// The user's link, and those.
const LANES: usize = 1 + SPEEDS_MBIT.len();
/// LOOKAHEAD in batches (3PO §5: 400 and 100).
const AHEAD_BATCHES: u64 = 4;
/// Key pages whose times are kept: more than [`AHEAD_BATCHES`].
const KEYS: usize = 8;
/// Longest waits that are kept.
const WORST: usize = 3;

/// A batch in which the thread waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Stall {
    /// For how long.
    pub ns: u64,
    /// Position of the first wait.
    pub position: u32,
    /// Processor time of the thread there.
    pub cpu_ns: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Schedule {
    latency_ns: u64,
    page_ns: [u64; LANES],
    /// Arrivals from one key page to the next.
    batch: u64,
    arrivals: u64,
    /// When each of the last key pages was touched.
    keys: [[u64; LANES]; KEYS],
    /// When the link is free.
    free_ns: [u64; LANES],
    /// How long the thread has waited.
    stalled_ns: [u64; LANES],
    /// On the user's link.
    waits: u64,
    /// The batch that is passed.
    stall: Stall,
    worst: [Stall; WORST],
}

impl Schedule {
    /// For a thread that has so many pages asked for ahead of it.
    pub fn new(pace: &Pace, ahead_pages: u64) -> Schedule {
        let mut page_ns = [pace.page_ns; LANES];
        for (lane, megabits) in page_ns[1..].iter_mut().zip(SPEEDS_MBIT) {
            *lane = (PAGE_BYTES as u64 * 8 * 1_000).div_ceil(megabits);
        }
        Schedule {
            latency_ns: pace.latency_ns,
            page_ns,
            batch: (ahead_pages / (AHEAD_BATCHES + 1)).max(1),
            arrivals: 0,
            keys: [[0; LANES]; KEYS],
            free_ns: [0; LANES],
            stalled_ns: [0; LANES],
            waits: 0,
            stall: Stall::default(),
            worst: [Stall::default(); WORST],
        }
    }

    /// The thread comes to an arrival after `ran_ns` without waits: `pages_in` and `pages_out` go over the link for it. Whether it is a
    /// key page.
    pub fn arrive(&mut self, position: u32, ran_ns: u64, pages_in: u64, pages_out: u64) -> bool {
        let batch = self.arrivals / self.batch;
        let is_key = self.arrivals.is_multiple_of(self.batch);
        if is_key {
            self.begin_batch(batch, ran_ns);
        }
        self.arrivals += 1;
        let pages = pages_in + pages_out;
        if pages == 0 {
            return is_key;
        }
        let latency_ns = pages_in * self.latency_ns;
        let asked = &self.keys[index(batch.saturating_sub(AHEAD_BATCHES))];
        let before = self.stalled_ns[0];
        let lanes = self.free_ns.iter_mut().zip(&mut self.stalled_ns).zip(asked.iter().zip(&self.page_ns));
        for ((free_ns, stalled_ns), (asked_ns, page_ns)) in lanes {
            *free_ns = (*free_ns).max(*asked_ns) + pages * page_ns;
            *stalled_ns += (*free_ns + latency_ns).saturating_sub(ran_ns + *stalled_ns);
        }
        let waited = self.stalled_ns[0] - before;
        if waited > 0 {
            self.waits += 1;
            if self.stall.ns == 0 {
                (self.stall.position, self.stall.cpu_ns) = (position, ran_ns);
            }
            self.stall.ns += waited;
        }
        is_key
    }

    fn begin_batch(&mut self, batch: u64, ran_ns: u64) {
        let key = &mut self.keys[index(batch)];
        for (key, stalled_ns) in key.iter_mut().zip(&self.stalled_ns) {
            *key = ran_ns + stalled_ns;
        }
        self.note_stall();
    }

    fn note_stall(&mut self) {
        let stall = std::mem::take(&mut self.stall);
        if let Some(least) = self.worst.iter_mut().min().filter(|least| stall > **least) {
            *least = stall;
        }
    }

    /// Waits on the user's link.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// How long the thread waits, on the user's link.
    pub fn stalled_ns(&self) -> u64 {
        self.stalled_ns[0]
    }

    /// The same by [`SPEEDS_MBIT`].
    pub fn stalled_at(&self) -> [u64; SPEEDS_MBIT.len()] {
        std::array::from_fn(|speed| self.stalled_ns[1 + speed])
    }

    /// The longest waits, longest first.
    pub fn worst(mut self) -> Vec<Stall> {
        self.note_stall();
        self.worst.sort_unstable_by(|one, other| other.cmp(one));
        self.worst.into_iter().filter(|stall| stall.ns > 0).collect()
    }
}

fn index(batch: u64) -> usize {
    usize::try_from(batch % KEYS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page takes 100 ns, and 1000 more; a batch is two pages.
    fn schedule() -> Schedule {
        Schedule::new(&Pace { latency_ns: 1_000, page_ns: 100, ..Pace::default() }, 10)
    }

    #[test]
    fn what_is_asked_for_in_time_is_not_waited_for() {
        let mut schedule = schedule();
        // The first pages are asked for when the thread comes to the first of them, those of the fifth batch too; then it has 1100 ns.
        for at in 0..40 {
            schedule.arrive(at, u64::from(at) * 1_100, 1, 0);
        }
        assert_eq!((schedule.stalled_ns(), schedule.waits()), (1_100, 1));
        assert_eq!(schedule.worst(), [Stall { ns: 1_100, position: 0, cpu_ns: 0 }]);
    }

    #[test]
    fn a_link_that_is_too_slow_is_waited_for_by_what_it_lacks() {
        let mut schedule = schedule();
        // 50 ns of work for each page: the link takes 100 in, and as much again for what leaves.
        for at in 0..10_000 {
            schedule.arrive(at, u64::from(at) * 50, 1, 1);
        }
        let run_ns = 9_999 * 50 + schedule.stalled_ns();
        assert!((2_000_000..2_001_100).contains(&run_ns), "10,000 · 200 and a latency: {run_ns}");
        let faster = schedule.stalled_at();
        assert!(faster.is_sorted_by(|slow, fast| slow >= fast), "{faster:?}");
    }

    #[test]
    fn pages_that_only_leave_must_be_gone_and_first_touches_cost_nothing() {
        let mut schedule = schedule();
        for at in 0..1_000 {
            schedule.arrive(at, 0, 0, 0);
        }
        assert_eq!(schedule.stalled_ns(), 0);
        for at in 1_000..2_000 {
            schedule.arrive(at, 0, 0, 1);
        }
        assert_eq!(schedule.stalled_ns(), 1_000 * 100);
    }
}
