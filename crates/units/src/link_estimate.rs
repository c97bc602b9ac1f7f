//! What a link is like, as the loads over it tell: how long a page takes that is asked for alone, and how much longer each further one.
//!
//! ```text
//!   load of one page:   |── delay ──|p|                     best_ns = delay + p, where nothing else was in the way
//!   load of n pages:    |── delay ──|p|p|p|p|p|p|           page_ns = p = (n pages − one page) / (n − 1)
//!   behind another one:             |p|p|p|p|p|p|           page_ns = p = n pages / n
//! ```
//! Bytes are counted, so that pages that travel compressed do not make the link look faster than it is.
//!
//! Of single pages there are also mean and deviation as TCP keeps them for its retransmission timer (Jacobson 1988, appendix A): `mean +=
//! (sample − mean) / 8`, `deviation += (|sample − mean| − deviation) / 4`; and the 95th percentile, which goes up by 19 steps with a sample
//! above it and down by one with any other, so that it rests where one in twenty lies above. These have queues and pauses of the other side
//! in them, which `best_ns` and `page_ns` have not.

use crate::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
/// A load of fewer bytes tells nothing of the bandwidth: four pages.
pub const BATCH_BYTES_MIN: u64 = 4 * PAGE;
/// A sample of the bandwidth counts as so many times the mean at most: one that waited for a processor tells nothing of the link.
const SAMPLE_MAX: u64 = 4;
/// The newest sample of the bandwidth is so small a part of the mean, once there are as many; the first one after the mean was lowered
/// without one is half.
const WEIGHT_MAX: u64 = 8;
const WEIGHT_LOWERED: u64 = 2;
/// So small a part of it is taken off the bandwidth's mean where a batch took no longer than was expected, and so many at most; a batch that
/// is expected to take less than that by a larger part tells nothing.
const FASTER: u64 = 32;
const FASTER_MAX: u64 = 8;
/// A step of the percentile: so small a part of it.
const STEP: u64 = 304;
const STEPS_UP: u64 = 19;

/// See the module. All times in nanoseconds; 0 as long as nothing is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkEstimate {
    best_ns: u64,
    /// That was seen too long ago to be told; it still says how much of a batch's time is the delay.
    best_is_old: bool,
    mean_ns: u64,
    deviation_ns: u64,
    percentile_ns: u64,
    page_ns: u64,
    /// That was lowered since the last sample.
    is_lowered: bool,
    ones: u32,
    batches: u32,
}

impl LinkEstimate {
    /// Without a sample.
    pub const fn new() -> LinkEstimate {
        LinkEstimate {
            best_ns: 0,
            best_is_old: false,
            mean_ns: 0,
            deviation_ns: 0,
            percentile_ns: 0,
            page_ns: 0,
            is_lowered: false,
            ones: 0,
            batches: 0,
        }
    }

    /// So many bytes of pages came, `ns` after they were asked for if they were `alone` on the link as far as is known, or else `ns`
    /// after what came before them.
    pub fn sample(&mut self, bytes: u64, alone: bool, ns: u64) {
        let ns = ns.max(1);
        if bytes <= PAGE && alone {
            self.set_best(ns.min(self.best_ns + self.best_ns / 64 + 1), ns);
            self.one(ns);
        } else if bytes >= BATCH_BYTES_MIN && !(alone && self.ones == 0) {
            let (bytes, link_ns) = if alone { (bytes - PAGE, ns.saturating_sub(self.best_ns)) } else { (bytes, ns) };
            let page_ns = u64::try_from(u128::from(link_ns) * u128::from(PAGE) / u128::from(bytes)).unwrap_or(u64::MAX);
            self.batches = self.batches.saturating_add(1);
            let sample = if self.batches == 1 { page_ns } else { page_ns.min(self.page_ns.saturating_mul(SAMPLE_MAX)) };
            let weight = u64::from(self.batches).min(if self.is_lowered { WEIGHT_LOWERED } else { WEIGHT_MAX });
            self.is_lowered = false;
            // Rounded to the nearest, so that the mean does not creep down.
            let sum = u128::from(self.page_ns) * u128::from(weight - 1) + u128::from(sample) + u128::from(weight / 2);
            self.page_ns = u64::try_from(sum / u128::from(weight)).unwrap_or(u64::MAX).max(1);
        }
    }

    /// A page that was asked for alone took so long beside others on the link: at best it takes no longer.
    pub fn beside_others(&mut self, ns: u64) {
        let ns = ns.max(1);
        self.set_best(ns.min(self.best_ns), ns);
        self.one(ns);
    }

    /// A page took `ns`, so that the best is `best_ns` by what was seen before, if anything was of late.
    fn set_best(&mut self, best_ns: u64, ns: u64) {
        let is_known = self.best_ns() > 0;
        (self.best_ns, self.best_is_old) = (if is_known { best_ns } else { ns }, false);
    }

    /// A single page took so long.
    fn one(&mut self, ns: u64) {
        self.ones = self.ones.saturating_add(1);
        let mean = self.mean_ns;
        if mean == 0 {
            (self.mean_ns, self.deviation_ns, self.percentile_ns) = (ns, ns / 2, ns.saturating_mul(2));
            return;
        }
        let step = self.percentile_ns.div_ceil(STEP);
        self.percentile_ns = match ns > self.percentile_ns {
            true => self.percentile_ns.saturating_add(STEPS_UP * step),
            false => self.percentile_ns.saturating_sub(step),
        };
        self.mean_ns = (mean - mean / 8 + ns / 8).max(1);
        self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + ns.abs_diff(mean) / 4;
    }

    /// A batch of so many bytes took at most `ns`. Where that is about what it was expected to take, each further page takes a little less until
    /// a sample says otherwise, and the more the more such batches there were since the last sample: `before` without this one. Returns
    /// whether it was. A batch that should have been over long before tells nothing.
    pub fn took_at_most(&mut self, bytes: u64, ns: u64, before: u64) -> bool {
        let pages_ns = u128::from(bytes.saturating_sub(PAGE)) * u128::from(self.page_ns) / u128::from(PAGE);
        let expected_ns = pages_ns + u128::from(self.best_ns.max(self.page_ns));
        if self.page_ns == 0 || expected_ns < u128::from(ns - ns / FASTER) {
            return false;
        }
        self.page_ns = (self.page_ns - self.page_ns / FASTER * (before + 1).min(FASTER_MAX)).max(1);
        self.is_lowered = true;
        true
    }

    /// A page that was not waited for any longer after `ns`: until something better is seen, one takes that long.
    pub fn late(&mut self, ns: u64) {
        self.mean_ns = self.mean_ns.max(ns);
    }

    /// What a page takes alone was seen too long ago to be trusted: the next sample tells.
    pub fn forget_best(&mut self) {
        self.best_is_old = true;
    }

    /// Something that takes at least as long as a load of one page took so long.
    pub fn at_most(&mut self, ns: u64) {
        self.mean_ns = self.mean_ns.min(ns.max(2));
    }

    /// A load of one page took at least so long.
    pub fn at_least(&mut self, ns: u64) {
        if ns > self.mean_ns {
            self.one(ns);
        }
    }

    /// One page alone, at best; it follows upwards slowly.
    pub fn best_ns(&self) -> u64 {
        if self.best_is_old { 0 } else { self.best_ns }
    }

    /// Each further page.
    pub fn page_ns(&self) -> u64 {
        self.page_ns
    }

    /// One page, on average.
    pub fn mean_ns(&self) -> u64 {
        self.mean_ns
    }

    /// How far single pages are from that.
    pub fn deviation_ns(&self) -> u64 {
        self.deviation_ns
    }

    /// One page in nineteen of twenty cases.
    pub fn percentile_ns(&self) -> u64 {
        self.percentile_ns
    }

    /// Samples of single pages, and of the bandwidth.
    pub fn samples(&self) -> (u32, u32) {
        (self.ones, self.batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An estimate of a link with this delay and time for a page, of `rounds` loads of one page and of `pages`.
    fn of_link(delay_ns: u64, page_ns: u64, pages: u64, rounds: u32) -> LinkEstimate {
        let mut estimate = LinkEstimate::new();
        for _ in 0..rounds {
            estimate.sample(PAGE, true, delay_ns + page_ns);
            estimate.sample(pages * PAGE, true, delay_ns + pages * page_ns);
        }
        estimate
    }

    #[test]
    fn the_delay_is_no_part_of_the_bandwidth() {
        for (delay_ns, page_ns) in [(0, 400), (5_000, 1_311), (90_000, 8_192), (2_000_000, 3_277), (200_000, 33_000)] {
            for pages in [4, 8, 32, 64] {
                let estimate = of_link(delay_ns, page_ns, pages, 20);
                assert_eq!((estimate.best_ns(), estimate.page_ns()), (delay_ns + page_ns, page_ns), "{pages} pages");
                assert_eq!(estimate.samples(), (20, 20));
            }
        }
    }

    #[test]
    fn what_comes_behind_another_load_has_no_delay_in_it() {
        let mut estimate = LinkEstimate::new();
        (0..3).for_each(|_| estimate.sample(32 * PAGE, false, 32 * 3_277));
        assert_eq!((estimate.page_ns(), estimate.best_ns()), (3_277, 0));
        estimate.sample(32 * PAGE, true, 1);
        assert_eq!(estimate.page_ns(), 3_277, "alone, and nothing is known of the delay");
        estimate.sample(BATCH_BYTES_MIN - 1, false, 1);
        assert_eq!(estimate.page_ns(), 3_277, "too few bytes");
    }

    #[test]
    fn bytes_count_and_not_pages() {
        let mut estimate = LinkEstimate::new();
        estimate.sample(1_500, true, 51_500);
        // 32 pages of 1500 bytes, at a nanosecond for each byte.
        (0..10).for_each(|_| estimate.sample(32 * 1_500, false, 32 * 1_500));
        assert_eq!(estimate.page_ns(), 4_096);
    }

    #[test]
    fn one_late_batch_is_no_slow_link_and_many_are() {
        let mut estimate = of_link(30_000, 2_000, 32, 8);
        estimate.sample(32 * PAGE, false, 1_000_000_000);
        assert!(estimate.page_ns() <= 2_750, "{}", estimate.page_ns());
        (0..40).for_each(|_| estimate.sample(32 * PAGE, false, 32 * 30_000));
        assert!((29_000..=30_000).contains(&estimate.page_ns()), "{}", estimate.page_ns());
    }

    #[test]
    fn the_best_falls_at_once_and_rises_slowly() {
        let mut estimate = of_link(20_000, 1_000, 32, 1);
        (0..8).for_each(|_| estimate.sample(PAGE, true, 500_000));
        assert!(estimate.best_ns() < 25_000, "{}", estimate.best_ns());
        (0..1_000).for_each(|_| estimate.sample(PAGE, true, 500_000));
        assert_eq!(estimate.best_ns(), 500_000);
        estimate.sample(PAGE, true, 9_000);
        assert_eq!(estimate.best_ns(), 9_000);
        // What others on the link cost is none of it, however long they stay.
        (0..1_000).for_each(|_| estimate.beside_others(500_000));
        assert_eq!(estimate.best_ns(), 9_000);
        assert!(estimate.mean_ns() > 400_000);
        estimate.beside_others(8_000);
        assert_eq!(estimate.best_ns(), 8_000);
        estimate.forget_best();
        (0..20).for_each(|_| estimate.sample(16 * PAGE, true, 8_000 + 15 * 1_000));
        assert_eq!((estimate.best_ns(), estimate.page_ns()), (0, 1_000), "the delay is still none of the pages' time");
        estimate.sample(PAGE, true, 70_000);
        assert_eq!((estimate.best_ns(), estimate.page_ns()), (70_000, 1_000));
        estimate.forget_best();
        estimate.beside_others(90_000);
        assert_eq!(estimate.best_ns(), 90_000);
    }

    #[test]
    fn what_is_never_waited_for_comes_down_and_a_sample_brings_it_up_again() {
        let mut estimate = of_link(0, 8_000, 32, 10);
        // As much is asked for each time as should take as long as the others do.
        for before in 0..6 {
            let pages = (32 * 8_000_u64).div_ceil(estimate.page_ns());
            assert!(estimate.took_at_most(pages * PAGE, 32 * 8_000, before));
        }
        assert!((3_800..4_100).contains(&estimate.page_ns()), "{}", estimate.page_ns());
        estimate.sample(32 * PAGE, false, 32 * 8_000);
        assert!((5_900..6_100).contains(&estimate.page_ns()), "{}", estimate.page_ns());
        (0..30).for_each(|_| estimate.sample(32 * PAGE, false, 32 * 8_000));
        assert!((7_800..=8_000).contains(&estimate.page_ns()), "{}", estimate.page_ns());
        assert!(!LinkEstimate::new().took_at_most(32 * PAGE, 1_000, 0), "nothing is known");
    }

    #[test]
    fn a_batch_that_should_have_been_over_long_before_tells_nothing() {
        for delay_ns in [0, 60_000] {
            let mut estimate = of_link(delay_ns, 33_000, 32, 10);
            // Others had 35 pages, this one 29, and again and again.
            for before in 0..64 {
                assert!(!estimate.took_at_most(29 * PAGE, delay_ns + 35 * 33_000, before));
            }
            assert_eq!(estimate.page_ns(), 33_000);
        }
    }

    #[test]
    fn mean_and_deviation_follow_what_they_see() {
        let mut estimate = LinkEstimate::new();
        (0..100).for_each(|n| estimate.sample(PAGE, true, 1_000 * (30 + n % 3)));
        assert!((30_000..32_000).contains(&estimate.mean_ns()), "{}", estimate.mean_ns());
        assert!(estimate.deviation_ns() < 2_000, "{}", estimate.deviation_ns());
        (0..100).for_each(|_| estimate.sample(PAGE, true, 100_000_000));
        assert!((98_000_000..=100_000_000).contains(&estimate.mean_ns()), "{}", estimate.mean_ns());
        estimate.at_most(3_000_000);
        assert_eq!(estimate.mean_ns(), 3_000_000);
        estimate.late(5_000_000);
        estimate.late(4_000_000);
        assert_eq!(estimate.mean_ns(), 5_000_000);
        // An answer that no load waited for says nothing, unless it is more than was known.
        estimate.at_least(1_000);
        assert_eq!(estimate.mean_ns(), 5_000_000);
        estimate.at_least(13_000_000);
        assert_eq!(estimate.mean_ns(), 6_000_000);
    }

    /// Of samples from 1 to 1000 µs in a scrambled order, and when all become ten times slower.
    #[test]
    fn the_percentile_is_one_that_one_in_twenty_exceeds() {
        let mut estimate = LinkEstimate::new();
        for factor in [1, 10] {
            (0..20_000).for_each(|n| estimate.sample(PAGE, true, 1_000 * factor * (1 + n * 7919 % 1000)));
            let above = (0..1000)
                .filter(|n| {
                    let ns = 1_000 * factor * (1 + n * 7919 % 1000);
                    let is_above = ns > estimate.percentile_ns();
                    estimate.sample(PAGE, true, ns);
                    is_above
                })
                .count();
            assert!((35..65).contains(&above), "{above} of 1000 are above {} ns", estimate.percentile_ns());
        }
    }
}
