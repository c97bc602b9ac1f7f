//! The estimate of a link, and what a pool decides by it: how long an answer is waited for, which node is slow, and how much bulk may be under way
//! beside a page that the program waits for.
//!
//! What is on the wire cannot be overtaken: a page that is asked for behind four messages of 32 waits 4 ms at 1 Gb/s. So the link's scheduler says how
//! much of all else may be under way beside it, in each direction, over all lanes: in messages of a quarter of that, so that the next one is asked for before the last has come.

use super::limits::{
    DEMANDED_LATELY_NS, LATE_AFTER_MIN, LOAD_PAGES, MESSAGES_OF_A_WINDOW, PATIENCE_MAX, PATIENCE_MIN, SLOW, SLOW_LINK,
    SLOW_NO_MORE, SLOWER,
};
use crate::Direction;
use crate::sync::lock;
use hinterland_units::{BATCH_BYTES_MIN, LinkEstimate, PAGE_BYTES};
use hinterland_wire::{LinkScheduler, LinkShare};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A demand that takes less alone is taken to need so long: half of it is what it may wait behind bulk, which cannot do with less (two messages of a page
/// at 1 Gb/s).
const ALONE_NS_MIN: u64 = 80_000;

/// One link's, which all threads share that use it.
pub(super) struct SharedEstimate {
    estimate: Mutex<LinkEstimate>,
    scheduler: Mutex<LinkScheduler>,
    /// Bytes of bulk that were asked for or sent and are not answered, by direction.
    bulk_under_way: [AtomicU64; 2],
    /// Zero of `demanded_ns`.
    begun: Instant,
    /// When a demand was answered last; 0: never.
    demanded_ns: AtomicU64,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl SharedEstimate {
    pub(super) fn new(share: LinkShare) -> SharedEstimate {
        SharedEstimate {
            estimate: Mutex::new(LinkEstimate::new()),
            scheduler: Mutex::new(LinkScheduler::new(share)),
            bulk_under_way: Default::default(),
            begun: Instant::now(),
            demanded_ns: AtomicU64::new(0),
        }
    }

    fn get(&self) -> LinkEstimate {
        *lock(&self.estimate)
    }

    /// See [`LinkEstimate::sample`].
    pub(super) fn sample(&self, bytes: usize, alone: bool, took: Duration) {
        let mut estimate = lock(&self.estimate);
        match bytes <= PAGE_BYTES && alone && self.bulk_under_way[Direction::In as usize].load(Relaxed) > 0 {
            true => estimate.beside_others(nanoseconds(took)),
            false => estimate.sample(bytes as u64, alone, nanoseconds(took)),
        }
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

    /// The page of a demand came, so long after it was asked for: what it waited behind bulk the scheduler learns.
    pub(super) fn demand_took(&self, took: Duration) {
        if self.bulk_under_way[Direction::In as usize].load(Relaxed) == 0 {
            return;
        }
        let (estimate, mut scheduler) = (self.get(), lock(&self.scheduler));
        let (alone_ns, page_ns) = (estimate.best_ns(), estimate.page_ns());
        let Some(window_bytes) = scheduler.window_bytes(true, alone_ns, page_ns) else { return };
        let wait_ns = nanoseconds(took).saturating_sub(alone_ns);
        // What bulk cannot have caused is somebody else's: a busy processor, another program on the link.
        if wait_ns <= 2 * window_bytes / PAGE_BYTES as u64 * page_ns {
            scheduler.waited(wait_ns, alone_ns.max(ALONE_NS_MIN));
        }
    }

    /// Whether a demand may follow although none is under way at this moment: on a slow link, before a long message has come.
    fn expects_demand(&self, estimate: &LinkEstimate) -> bool {
        let is_slow = estimate.page_ns().saturating_mul(LOAD_PAGES as u64) > nanoseconds(SLOW_LINK);
        is_slow && self.expects_demand_at(nanoseconds(self.begun.elapsed()))
    }

    fn expects_demand_at(&self, now_ns: u64) -> bool {
        let demanded_ns = self.demanded_ns.load(Relaxed);
        demanded_ns > 0 && now_ns.saturating_sub(demanded_ns) < DEMANDED_LATELY_NS
    }

    /// What may be asked for or sent now by a caller with `own` bytes of it under way; `has_demands`: the program waits for a page.
    pub(super) fn grant(&self, direction: Direction, has_demands: bool, own: u64) -> Grant {
        let estimate = self.get();
        let beside = has_demands || self.expects_demand(&estimate);
        let window = lock(&self.scheduler).window_bytes(beside, estimate.best_ns(), estimate.page_ns());
        match window {
            None => Grant::Any,
            // A caller with none under way is never told to wait: nothing would wake it.
            Some(window) if own > 0 && self.bulk_under_way[direction as usize].load(Relaxed) >= window => Grant::Wait,
            Some(window) => Grant::Bytes(window / MESSAGES_OF_A_WINDOW),
        }
    }

    /// Percent of the link that demands have.
    #[cfg(test)]
    fn percent(&self) -> u8 {
        lock(&self.scheduler).percent()
    }
}

/// What may be asked for or sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grant {
    /// A long message, and several at a time.
    Any,
    /// A message of so many bytes, or of one page.
    Bytes(u64),
    /// Nothing, until something is answered.
    Wait,
}

/// Bytes of bulk that one transfer has under way.
pub(super) struct UnderWay<'a> {
    estimate: &'a SharedEstimate,
    direction: Direction,
    bytes: u64,
}

impl<'a> UnderWay<'a> {
    pub(super) fn none(estimate: &'a SharedEstimate, direction: Direction) -> UnderWay<'a> {
        UnderWay { estimate, direction, bytes: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn begin(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.estimate.bulk_under_way[self.direction as usize].fetch_add(bytes as u64, Relaxed);
    }

    /// So many of them were answered.
    pub(super) fn end(&mut self, bytes: usize) {
        self.bytes -= bytes as u64;
        self.estimate.bulk_under_way[self.direction as usize].fetch_sub(bytes as u64, Relaxed);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.estimate.bulk_under_way[self.direction as usize].fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Link, LinkModel, Priority};
    use std::str::FromStr;

    fn after_ones(times: impl IntoIterator<Item = Duration>) -> SharedEstimate {
        let estimate = SharedEstimate::new(LinkShare::Auto);
        times.into_iter().for_each(|took| estimate.sample(PAGE_BYTES, true, took));
        estimate
    }

    /// A link with this delay and time for a page, as its loads show it.
    fn known(share: LinkShare, delay_ns: u64, page_ns: u64) -> SharedEstimate {
        let estimate = SharedEstimate::new(share);
        for pages in [1, 32].repeat(8) {
            estimate.sample(pages * PAGE_BYTES, true, Duration::from_nanos(delay_ns + page_ns * pages as u64));
        }
        estimate
    }

    #[test]
    fn bulk_beside_a_demand_does_not_fill_the_link() {
        let page = PAGE_BYTES as u64;
        let slow = known(LinkShare::Weighted(20), 297_000, 33_000);
        let grant = |own| slow.grant(Direction::In, true, own);
        assert_eq!(grant(0), Grant::Bytes(2 * page), "ten pages fill the link, eight are granted");
        let mut under_way = UnderWay::none(&slow, Direction::In);
        under_way.begin(7 * PAGE_BYTES);
        assert_eq!((grant(1), slow.grant(Direction::Out, true, 1)), (Grant::Bytes(2 * page), Grant::Bytes(2 * page)));
        under_way.begin(PAGE_BYTES);
        assert_eq!((grant(1), grant(0)), (Grant::Wait, Grant::Bytes(2 * page)), "a caller with none goes on");
        under_way.end(PAGE_BYTES);
        assert_eq!((grant(1), under_way.bytes()), (Grant::Bytes(2 * page), 7 * page));
        drop(under_way);
        assert_eq!(slow.bulk_under_way[0].load(Relaxed), 0);
        assert_eq!(slow.grant(Direction::In, false, 100 * page), Grant::Any);
        assert_eq!(SharedEstimate::new(LinkShare::Auto).grant(Direction::In, true, 100 * page), Grant::Any);
        assert_eq!(known(LinkShare::Fixed(20), 297_000, 33_000).grant(Direction::In, false, 0), Grant::Bytes(2 * page));
    }

    #[test]
    fn with_strict_each_thread_has_a_page_beside_a_demand_and_no_more() {
        let link = known(LinkShare::Strict, 297_000, 33_000);
        let mut callers = [(); 4].map(|()| UnderWay::none(&link, Direction::In));
        for caller in &mut callers {
            // A part of a page is one page.
            let granted = link.grant(Direction::In, true, caller.bytes());
            assert_eq!(granted, Grant::Bytes(PAGE_BYTES as u64 / MESSAGES_OF_A_WINDOW));
            caller.begin(PAGE_BYTES);
            assert_eq!(link.grant(Direction::In, true, caller.bytes()), Grant::Wait);
        }
        callers[0].end(PAGE_BYTES);
        assert_ne!(link.grant(Direction::In, true, callers[0].bytes()), Grant::Wait, "nothing would wake it");
        assert_eq!(link.grant(Direction::In, true, callers[1].bytes()), Grant::Wait);
    }

    /// One demand after another beside bulk, over a link that serves all in the order of their coming, in virtual time: the 99th percentile of what
    /// demands take, in percent of what one takes alone, and bulk's percent of the link.
    fn beside_bulk(share: LinkShare, delay_ns: u64, page_ns: u64, think_ns: u64) -> (u64, u64) {
        const DEMAND: u32 = 0;
        let estimate = known(share, delay_ns, page_ns);
        let bits_per_second = PAGE_BYTES as u64 * 8 * 1_000_000_000 / page_ns;
        let model = LinkModel { latency_ns: delay_ns, bits_per_second, ..LinkModel::from_str("0ns:1Gb/s").unwrap() };
        let mut link: Link<u32> = Link::new(&model);
        let mut bulk = UnderWay::none(&estimate, Direction::In);
        let (mut now, mut demand_ns, mut next_demand_ns) = (0, 0, 0);
        let (mut took, mut bulk_bytes) = (Vec::new(), 0);
        while took.len() < 4_000 {
            while let Grant::Bytes(bytes) = estimate.grant(Direction::In, true, bulk.bytes()) {
                let pages = u32::try_from(bytes / PAGE_BYTES as u64).unwrap().clamp(1, 32);
                link.submit(now, pages, Direction::In, u64::from(pages) * PAGE_BYTES as u64, Priority::Demand);
                bulk.begin(pages as usize * PAGE_BYTES);
            }
            if link.next_ns() > next_demand_ns {
                (now, demand_ns, next_demand_ns) = (next_demand_ns, next_demand_ns, u64::MAX);
                link.submit(now, DEMAND, Direction::In, PAGE_BYTES as u64, Priority::Demand);
                continue;
            }
            now = link.next_ns();
            match link.step() {
                Some(DEMAND) => {
                    let alone = Duration::from_nanos(now - demand_ns);
                    estimate.sample(PAGE_BYTES, true, alone);
                    estimate.demand_took(alone);
                    took.push(now - demand_ns);
                    next_demand_ns = now + think_ns;
                }
                Some(pages) => {
                    bulk.end(pages as usize * PAGE_BYTES);
                    bulk_bytes += u64::from(pages) * PAGE_BYTES as u64;
                }
                None => {}
            }
        }
        took.sort_unstable();
        let percent = |part: u64, whole: u64| part * 100 / whole;
        (percent(took[took.len() * 99 / 100], delay_ns + page_ns), percent(model.send_ns(bulk_bytes), now))
    }

    #[test]
    fn a_demand_beside_bulk_takes_little_longer_and_bulk_has_most_of_the_link() {
        // 1 Gb/s near and far, 4 and 10 Gb/s.
        for (delay_ns, page_ns) in
            [(60_000, 32_768), (150_000, 32_768), (2_000_000, 32_768), (60_000, 8_192), (60_000, 3_277)]
        {
            for share in [LinkShare::Auto, LinkShare::Weighted(20), LinkShare::Fixed(25)] {
                let (demand, bulk) = beside_bulk(share, delay_ns, page_ns, 300_000);
                let demand_max = if share == LinkShare::Auto { 175 } else { 225 };
                assert!(
                    demand <= demand_max && bulk >= 70,
                    "{share}, {delay_ns} ns, {page_ns} ns a page: {demand} % and {bulk} %"
                );
            }
            let (demand, bulk) = beside_bulk(LinkShare::Strict, delay_ns, page_ns, 300_000);
            assert!(demand <= 110 && bulk < 40, "{delay_ns} ns, {page_ns} ns a page: {demand} % and {bulk} %");
        }
    }

    #[test]
    fn demands_that_wait_behind_bulk_have_more_of_the_link() {
        let estimate = known(LinkShare::Auto, 297_000, 33_000);
        let took = |us: u64| (0..50).for_each(|_| estimate.demand_took(Duration::from_micros(us)));
        let before = estimate.percent();
        took(600);
        assert_eq!(estimate.percent(), before, "there was no bulk");
        let mut bulk = UnderWay::none(&estimate, Direction::In);
        bulk.begin(PAGE_BYTES);
        took(10_000);
        assert_eq!(estimate.percent(), before, "bulk cannot have caused that");
        took(600);
        let more = estimate.percent();
        assert!(more > before, "{more}");
        took(340);
        assert!(estimate.percent() < more);
    }

    #[test]
    fn on_a_slow_link_a_demand_is_expected_after_a_demand() {
        let (fast, slow) = (known(LinkShare::Auto, 30_000, 1_000), known(LinkShare::Auto, 50_000, 33_000));
        let expects = |link: &SharedEstimate| link.grant(Direction::In, false, 0) != Grant::Any;
        assert!(!expects(&slow));
        fast.demanded();
        assert!(!expects(&fast));
        slow.demanded();
        let demanded_ns = slow.demanded_ns.load(Relaxed);
        assert!(
            slow.expects_demand_at(demanded_ns + DEMANDED_LATELY_NS - 1)
                && !slow.expects_demand_at(demanded_ns + DEMANDED_LATELY_NS)
        );
        std::thread::sleep(Duration::from_nanos(2 * DEMANDED_LATELY_NS));
        assert!(!expects(&slow));
    }

    #[test]
    fn an_answer_is_waited_for_as_long_as_they_take() {
        let microseconds = Duration::from_micros;
        let fresh = SharedEstimate::new(LinkShare::Auto);
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
