//! The speed of a path, measured by the batches over it.
//!
//! Batches over several paths are begun together and waited for in turn, so of one that was ready before the others it is known only that
//! it took no longer. Where it was expected to take as long, its estimate comes down a little, until it gets so much that it has to be waited
//! for; where it had less to do than the others, because pages were spread by other estimates when they were stored, nothing is learnt.
//!
//! How loaded it is, the pages tell that are on their way when a batch begins: those it waits for.

use crate::sync::lock;
use hinterland_units::{LinkEstimate, PAGE_BYTES};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A batch that was waited for during less than this part of its time was ready before.
const WAITED_SHARE: u64 = 64;
/// The mean of the pages that are on their way follows a batch by so small a part, and is kept in as small parts of a page.
const QUEUE_PART: u64 = 64;

/// One path's, in one direction.
pub(super) struct Speed {
    /// Where every page has its tier, no estimate is needed, and a load of one page is not to pay for it.
    is_needed: bool,
    estimate: Mutex<LinkEstimate>,
    under_way: AtomicUsize,
    /// Their pages, and the mean of these at the beginning of a batch, in parts of a page ([`QUEUE_PART`]).
    under_way_pages: AtomicU64,
    queue: AtomicU64,
    /// Batches since the last sample that were ready before the others.
    ready: AtomicU64,
    /// When a batch was over last, in nanoseconds since `born`.
    over_ns: AtomicU64,
    born: Instant,
    /// What a test says that the time is.
    #[cfg(test)]
    by_hand: Option<AtomicU64>,
}

/// A batch that is under way.
pub(super) struct Timed<'a> {
    /// `None`: it is not timed.
    speed: Option<&'a Speed>,
    pages: u64,
    begun_ns: u64,
    alone: bool,
    /// When something else was over that was done since; 0: nothing was.
    elsewhere_until_ns: u64,
}

impl Speed {
    pub(super) fn new() -> Speed {
        let (estimate, under_way) = (Mutex::new(LinkEstimate::new()), AtomicUsize::new(0));
        Speed {
            is_needed: true,
            estimate,
            under_way,
            under_way_pages: AtomicU64::new(0),
            queue: AtomicU64::new(0),
            ready: AtomicU64::new(0),
            over_ns: AtomicU64::new(0),
            born: Instant::now(),
            #[cfg(test)]
            by_hand: None,
        }
    }

    /// Decides whether batches are timed.
    pub(super) fn set_needed(&mut self, is_needed: bool) {
        self.is_needed = is_needed;
    }

    fn now_ns(&self) -> u64 {
        #[cfg(test)]
        if let Some(now_ns) = &self.by_hand {
            return now_ns.load(Relaxed);
        }
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A batch of so many pages begins.
    pub(super) fn begin(&self, pages: usize) -> Timed<'_> {
        let pages = pages as u64;
        if !self.is_needed {
            return Timed { speed: None, pages, begun_ns: 0, alone: false, elsewhere_until_ns: 0 };
        }
        let alone = self.under_way.fetch_add(1, Relaxed) == 0;
        let before = self.under_way_pages.fetch_add(pages, Relaxed);
        // Two threads at once may lose one of their samples.
        let queue = self.queue.load(Relaxed);
        self.queue.store(queue - queue.div_ceil(QUEUE_PART) + before, Relaxed);
        Timed { speed: Some(self), pages, begun_ns: self.now_ns(), alone, elsewhere_until_ns: 0 }
    }

    /// Nanoseconds that each further page takes; 0: not known.
    pub(super) fn page_ns(&self) -> u64 {
        lock(&self.estimate).page_ns()
    }

    /// Nanoseconds that a page takes alone, at best; 0: not known.
    pub(super) fn one_ns(&self) -> u64 {
        lock(&self.estimate).best_ns()
    }

    /// Nanoseconds that a page waits for those before it, on average.
    pub(super) fn queue_ns(&self) -> u64 {
        self.queue.load(Relaxed).saturating_mul(self.page_ns()) / QUEUE_PART
    }

    /// How long ago a batch was over last; `None`: none ever was.
    pub(super) fn idle(&self) -> Option<Duration> {
        let over_ns = self.over_ns.load(Relaxed);
        (over_ns > 0).then(|| Duration::from_nanos(self.now_ns().saturating_sub(over_ns)))
    }

    /// A batch of so many pages took so long, alone.
    #[cfg(test)]
    pub(super) fn took(&self, pages: u64, time: Duration) {
        self.over_ns.fetch_max(self.now_ns().max(1), Relaxed);
        lock(&self.estimate).sample(
            pages * PAGE_BYTES as u64,
            true,
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        );
    }

    /// What a page takes alone is not known any more.
    pub(super) fn forget(&self) {
        lock(&self.estimate).forget_best();
    }
}

impl Timed<'_> {
    /// Does something else meanwhile.
    pub(super) fn elsewhere(&mut self, work: impl FnOnce()) {
        let Some(speed) = self.speed else { return work() };
        work();
        self.elsewhere_until_ns = speed.now_ns();
    }

    /// The batch is over, and none of its pages failed.
    pub(super) fn end(self) {
        let Some(speed) = self.speed else { return };
        let now_ns = speed.now_ns();
        let before_ns = speed.over_ns.fetch_max(now_ns, Relaxed);
        let took_ns = now_ns.saturating_sub(self.begun_ns);
        let waited_ns = now_ns.saturating_sub(self.elsewhere_until_ns);
        let mut estimate = lock(&speed.estimate);
        let bytes = self.pages * PAGE_BYTES as u64;
        if self.elsewhere_until_ns > 0 && waited_ns < took_ns / WAITED_SHARE && estimate.page_ns() > 0 {
            if estimate.took_at_most(bytes, took_ns, speed.ready.load(Relaxed)) {
                speed.ready.fetch_add(1, Relaxed);
            }
        } else {
            speed.ready.store(0, Relaxed);
            let since_ns = if self.alone { self.begun_ns } else { self.begun_ns.max(before_ns) };
            // As long as no single page was seen, the delay is taken for time of the pages.
            let alone = self.alone && (self.pages == 1 || estimate.samples().0 > 0);
            estimate.sample(bytes, alone, now_ns.saturating_sub(since_ns));
        }
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        if let Some(speed) = self.speed {
            speed.under_way.fetch_sub(1, Relaxed);
            speed.under_way_pages.fetch_sub(self.pages, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ready_before_the_others_counts_as_faster() {
        let speed = Speed { by_hand: Some(AtomicU64::new(1)), ..Speed::new() };
        let pass = |us: u64| _ = speed.by_hand.as_ref().expect("set above").fetch_add(us * 1_000, Relaxed);
        let batch = |pages: usize, own_us: u64, elsewhere_us: u64| {
            let mut timed = speed.begin(pages);
            timed.elsewhere(|| pass(elsewhere_us));
            pass(own_us);
            timed.end();
        };
        batch(1, 1, 0);
        batch(16, 2_000, 0);
        let alone_ns = speed.page_ns();
        assert!(alone_ns >= 100_000, "{alone_ns}");
        // Nothing of the other path's time is taken for this one's, whatever that takes.
        (0..8).for_each(|_| batch(4096, 0, 5_000));
        assert!(speed.page_ns() < alone_ns * 2 / 3, "{} after {alone_ns}", speed.page_ns());
        let before_ns = speed.page_ns();
        (0..20).for_each(|_| batch(16, 4_000, 1_000));
        assert!(speed.page_ns() > before_ns * 3 / 2, "{} after {before_ns}", speed.page_ns());
    }

    #[test]
    fn what_waits_before_a_batch_is_its_queue_and_what_was_seen_long_ago_can_be_forgotten() {
        let speed = Speed::new();
        speed.begin(1).end();
        lock(&speed.estimate).sample(8 * PAGE_BYTES as u64, false, 8 * 5_000);
        assert_eq!((speed.queue_ns(), speed.page_ns()), (0, 5_000));
        for _ in 0..1_000 {
            let (one, other) = (speed.begin(16), speed.begin(16));
            drop((one, other));
        }
        // Every other one has 16 pages before it.
        assert!((7 * 5_000..9 * 5_000).contains(&speed.queue_ns()), "{}", speed.queue_ns());
        (0..1_000).for_each(|_| drop(speed.begin(16)));
        assert_eq!(speed.queue_ns(), 0);
        assert!(speed.one_ns() > 0 && speed.idle().is_some() && Speed::new().idle().is_none());
        speed.forget();
        assert_eq!((speed.one_ns(), speed.page_ns()), (0, 5_000));
    }
}
