//! When pages are there: a thread's arrivals over a link, prefetched as 3PO does it, at several link speeds at once.
//!
//! Every `batch` arrivals there is a key page, at which all pages up to `AHEAD_BATCHES` batches further are asked for (3PO §3.3:
//! LOOKAHEAD = 4 · BATCH_SIZE). The link takes one page after the other, in their order: what leaves for a page, and the page. The
//! processors take one arrival's work after the other: what the program has done since the arrival before, and what the pager does for the pages that
//! come and leave. So a page is there at the later one of
//!
//! ```text
//!   max(link free, its key page was touched) + page time · (pages in and out) + latency
//!   max(processors free + program's time / P, its key page was touched) + pager's time / P          P = min(processors, WORKERS)
//! ```
//!
//! and the thread waits until then if it comes earlier. What only leaves has to be gone by then. Link and processors are the thread's alone. Which of
//! the pager's threads does the work makes no difference: the evictor and the read-ahead thread both evict, and a thread of the program that
//! waits on the inline path evicts and fetches by itself (decision 0046).

use super::PlanCosts;
use hinterland_units::PAGE_BYTES;

/// Link speeds at which it is told whether everything is hidden, in Mb/s.
pub const SPEEDS_MBIT: [u64; 10] = [1_000, 2_500, 5_000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000];
/// The user's link, none, and those.
const LANES: usize = 2 + SPEEDS_MBIT.len();
/// The lane without a link.
const NO_LINK: usize = 1;
/// Threads that work for one of the program's: itself, the evictor, and the read-ahead thread.
const WORKERS: u32 = 3;
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

/// An arrival, as the thread comes to it.
#[derive(Clone, Copy, Debug)]
pub struct Arriving {
    pub position: u32,
    /// What the thread has run, without waits.
    pub ran_ns: u64,
    /// What the pager works for it.
    pub work_ns: u64,
    /// Pages that go over the link for it.
    pub pages_in: u64,
    pub pages_out: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Schedule {
    latency_ns: [u64; LANES],
    page_ns: [u64; LANES],
    /// Processors that work at once; `None`: work takes no time.
    processors: Option<u64>,
    /// Arrivals from one key page to the next.
    batch: u64,
    arrivals: u64,
    /// When each of the last key pages was touched.
    keys: [[u64; LANES]; KEYS],
    /// When the link is free.
    free_ns: [u64; LANES],
    /// When the processors are.
    worked_ns: [u64; LANES],
    /// What the thread had run at the last arrival.
    ran_ns: u64,
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
    pub fn new(costs: &PlanCosts, ahead_pages: u64) -> Schedule {
        let mut page_ns = [costs.page_ns; LANES];
        for (lane, megabits) in page_ns[NO_LINK + 1..].iter_mut().zip(SPEEDS_MBIT) {
            *lane = (PAGE_BYTES as u64 * 8 * 1_000).div_ceil(megabits);
        }
        let mut latency_ns = [costs.latency_ns; LANES];
        (page_ns[NO_LINK], latency_ns[NO_LINK]) = (0, 0);
        Schedule {
            latency_ns,
            page_ns,
            processors: (costs.processors > 0).then(|| costs.processors.min(WORKERS).into()),
            batch: (ahead_pages / (AHEAD_BATCHES + 1)).max(1),
            arrivals: 0,
            keys: [[0; LANES]; KEYS],
            free_ns: [0; LANES],
            worked_ns: [0; LANES],
            ran_ns: 0,
            stalled_ns: [0; LANES],
            waits: 0,
            stall: Stall::default(),
            worst: [Stall::default(); WORST],
        }
    }

    /// The thread comes to an arrival. Whether it is a key page.
    pub fn arrive(&mut self, arriving: Arriving) -> bool {
        let Arriving { position, ran_ns, work_ns, pages_in, pages_out } = arriving;
        let batch = self.arrivals / self.batch;
        let is_key = self.arrivals.is_multiple_of(self.batch);
        if is_key {
            self.begin_batch(batch, ran_ns);
        }
        self.arrivals += 1;
        let pages = pages_in + pages_out;
        let own_ns = ran_ns.saturating_sub(self.ran_ns);
        self.ran_ns = ran_ns;
        if pages == 0 && self.processors.is_none() {
            return is_key;
        }
        let asked = self.keys[index(batch.saturating_sub(AHEAD_BATCHES))];
        let before = self.stalled_ns[0];
        for (lane, asked_ns) in asked.into_iter().enumerate() {
            let mut there_ns = 0;
            if pages > 0 {
                self.free_ns[lane] = self.free_ns[lane].max(asked_ns) + pages * self.page_ns[lane];
                there_ns = self.free_ns[lane] + pages_in * self.latency_ns[lane];
            }
            if let Some(processors) = self.processors {
                // What the thread ran until now was done before the pager's work was asked for, if that is only now.
                self.worked_ns[lane] =
                    (self.worked_ns[lane] + own_ns / processors).max(asked_ns) + work_ns / processors;
                there_ns = there_ns.max(self.worked_ns[lane]);
            }
            self.stalled_ns[lane] += there_ns.saturating_sub(ran_ns + self.stalled_ns[lane]);
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

    /// Waits, on the user's link.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// How long the thread waits, on the user's link.
    pub fn stalled_ns(&self) -> u64 {
        self.stalled_ns[0]
    }

    /// How long it waits where there is no link: for processors. On the user's link no less.
    pub fn crowded_ns(&self) -> u64 {
        self.stalled_ns[NO_LINK].min(self.stalled_ns[0])
    }

    /// How much longer it waits with each of [`SPEEDS_MBIT`] than where there is no link.
    pub fn held_up_at(&self) -> [u64; SPEEDS_MBIT.len()] {
        std::array::from_fn(|speed| self.stalled_ns[NO_LINK + 1 + speed].saturating_sub(self.stalled_ns[NO_LINK]))
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
        Schedule::new(&PlanCosts { latency_ns: 1_000, page_ns: 100, ..PlanCosts::default() }, 10)
    }

    fn at_link(position: u32, ran_ns: u64, pages_in: u64, pages_out: u64) -> Arriving {
        Arriving { position, ran_ns, work_ns: 0, pages_in, pages_out }
    }

    #[test]
    fn what_is_asked_for_in_time_is_not_waited_for() {
        let mut schedule = schedule();
        // The first pages are asked for when the thread comes to the first of them, those of the fifth batch too; then it has 1100 ns.
        for at in 0..40 {
            schedule.arrive(at_link(at, u64::from(at) * 1_100, 1, 0));
        }
        assert_eq!((schedule.stalled_ns(), schedule.waits()), (1_100, 1));
        assert_eq!(schedule.worst(), [Stall { ns: 1_100, position: 0, cpu_ns: 0 }]);
    }

    #[test]
    fn a_link_that_is_too_slow_is_waited_for_by_what_it_lacks() {
        let mut schedule = schedule();
        // 50 ns of work for each page: the link takes 100 in, and as much again for what leaves.
        for at in 0..10_000 {
            schedule.arrive(at_link(at, u64::from(at) * 50, 1, 1));
        }
        let run_ns = 9_999 * 50 + schedule.stalled_ns();
        assert!((2_000_000..2_001_100).contains(&run_ns), "10,000 · 200 and a latency: {run_ns}");
        let faster = schedule.held_up_at();
        assert!(faster.is_sorted_by(|slow, fast| slow >= fast), "{faster:?}");
    }

    #[test]
    fn pages_that_only_leave_must_be_gone_and_first_touches_cost_nothing() {
        let mut schedule = schedule();
        for at in 0..1_000 {
            schedule.arrive(at_link(at, 0, 0, 0));
        }
        assert_eq!(schedule.stalled_ns(), 0);
        for at in 1_000..2_000 {
            schedule.arrive(at_link(at, 0, 0, 1));
        }
        assert_eq!(schedule.stalled_ns(), 1_000 * 100);
    }

    /// Run time of 10,000 arrivals with 60 ns of the thread's between them and 420 of the pager's for each.
    fn run_on(processors: u32, page_ns: u64) -> (u64, u64, u64) {
        let mut schedule = Schedule::new(&PlanCosts { page_ns, processors, ..PlanCosts::default() }, 10);
        for at in 0..10_000 {
            let arriving = Arriving { work_ns: 420, ..at_link(at, u64::from(at) * 60, 1, 1) };
            schedule.arrive(arriving);
        }
        (9_999 * 60 + schedule.stalled_ns(), schedule.crowded_ns(), schedule.stalled_ns())
    }

    #[test]
    fn a_thread_and_its_pager_share_the_processors() {
        for (processors, all_ns) in [(1, 4_800_000), (2, 2_400_000), (3, 1_600_000), (64, 1_600_000)] {
            let (run_ns, crowded_ns, stalled_ns) = run_on(processors, 0);
            assert!((all_ns - 1_000..=all_ns).contains(&run_ns), "{run_ns} on {processors}: the sum of the work");
            assert_eq!(crowded_ns, stalled_ns, "no link is waited for");
        }
        assert_eq!(run_on(0, 0), (599_940, 0, 0), "as many as are needed");
        // A link that takes longer than the work is what is waited for.
        let (run_ns, crowded_ns, stalled_ns) = run_on(2, 1_000);
        assert!((20_000_000..20_001_000).contains(&run_ns) && crowded_ns < stalled_ns / 8, "{run_ns}, {crowded_ns}");
    }

    #[test]
    fn work_that_fits_beside_the_thread_is_not_waited_for() {
        let mut schedule = Schedule::new(&PlanCosts { processors: 2, ..PlanCosts::default() }, 10);
        for at in 0..10_000 {
            schedule.arrive(Arriving { work_ns: 400, ..at_link(at, u64::from(at) * 500, 1, 1) });
        }
        // The work for the first arrivals begins when the thread comes to them.
        assert!(schedule.stalled_ns() <= 400, "{}", schedule.stalled_ns());
        // Where the pager has nothing to do, the thread has its processor.
        let mut schedule = Schedule::new(&PlanCosts { processors: 1, ..PlanCosts::default() }, 10);
        for at in 1..10_000 {
            schedule.arrive(at_link(at, u64::from(at) * 500, 0, 0));
        }
        assert_eq!((schedule.stalled_ns(), schedule.waits()), (0, 0));
    }
}
