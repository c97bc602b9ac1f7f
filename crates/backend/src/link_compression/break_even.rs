//! Whether compression pays on a link: the time that it saves there against its processor time.
//!
//! ```text
//! spared = time of a page on the link × (1 − compressed / whole)
//! a page goes and comes back:        2 × spared  >  compress + expand
//! a demand waits for what comes:         spared  >  expand
//! ```
//! Both times are as a clock shows them: where processors are busy, they are longer, and compression pays later. How a page is kept is decided when it is
//! stored, and whether a demand or a prefetch loads it is not known then; so both must hold.
//!
//! Source: DaeMon §4.4, which compresses pages only and not the lines that a processor waits for.

use super::LinkCompression;
use hinterland_units::PAGE_BYTES;

/// Where compression does not pay, one page of so many is compressed to see whether it would.
const PROBED_ONE_IN: u64 = 64;
/// Samples before anything is decided.
const SAMPLES_MIN: u32 = 8;
/// While pages are compressed it must pay by more than this, in quarters; to begin, by more than that.
const GO_ON: u64 = 4;
const BEGIN: u64 = 5;
/// A mean follows its samples by so small a part.
const WEIGHT: u64 = 16;
/// A sample counts as so many times the mean at most: the thread may have waited for a processor.
const SAMPLE_MAX: u64 = 8;

/// What is known, and the decision that follows from it. Times in nanoseconds, each of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct BreakEven {
    compress_ns: Mean,
    expand_ns: Mean,
    /// Bytes that a page has when it is compressed; a whole page where it does not shrink.
    bytes: Mean,
    pays: bool,
    stores: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Mean {
    /// Sixteen times as much.
    scaled: u64,
    samples: u32,
}

impl Mean {
    fn add(&mut self, value: u64) {
        self.samples = self.samples.saturating_add(1);
        self.scaled = match self.samples {
            1 => value.saturating_mul(WEIGHT),
            _ => {
                let mean = self.scaled / WEIGHT;
                self.scaled - mean + value.min(mean.saturating_mul(SAMPLE_MAX).max(SAMPLE_MAX))
            }
        };
    }

    fn get(self) -> u64 {
        self.scaled / WEIGHT
    }
}

impl BreakEven {
    /// A page was compressed to so many bytes.
    pub(super) fn compressed(&mut self, ns: u64, bytes: usize) {
        self.compress_ns.add(ns);
        self.bytes.add(bytes as u64);
    }

    /// A page was expanded.
    pub(super) fn expanded(&mut self, ns: u64) {
        self.expand_ns.add(ns);
    }

    /// Whether the next page to be stored is to be compressed, and if so whether only to see what comes of it. `page_ns`: a whole page's
    /// time on the link; 0: not known.
    pub(super) fn decide(&mut self, mode: LinkCompression, page_ns: u64) -> Decision {
        match mode {
            LinkCompression::Off => return Decision::Whole,
            LinkCompression::On => return Decision::Compress,
            LinkCompression::Auto => {}
        }
        self.stores += 1;
        let is_known = page_ns > 0 && self.bytes.samples >= SAMPLES_MIN;
        self.pays = is_known && self.would_pay(page_ns);
        match self.pays {
            true => Decision::Compress,
            false if self.bytes.samples < SAMPLES_MIN || self.stores.is_multiple_of(PROBED_ONE_IN) => Decision::Probe,
            false => Decision::Whole,
        }
    }

    fn would_pay(&self, page_ns: u64) -> bool {
        let page = PAGE_BYTES as u64;
        let spared_ns = page_ns.saturating_mul(page.saturating_sub(self.bytes.get())) / page;
        // Expanding takes less than compressing; until enough is measured, half.
        let compress_ns = self.compress_ns.get();
        let is_known = self.expand_ns.samples >= SAMPLES_MIN;
        let expand_ns = if is_known { self.expand_ns.get() } else { compress_ns / 2 };
        let quarters = if self.pays { GO_ON } else { BEGIN };
        4 * 2 * spared_ns > quarters * (compress_ns + expand_ns) && 4 * spared_ns > quarters * expand_ns
    }
}

/// What is done with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// It is stored as it is.
    Whole,
    /// It is compressed, expanded again, both are measured, and it is stored as it is.
    Probe,
    /// It is compressed, and stored so if it shrinks.
    Compress,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is decided for each of 256 pages that shrink to `bytes`, on a link with this time for a page.
    fn decided(break_even: &mut BreakEven, bytes: usize, page_ns: u64) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..256 {
            let decision = break_even.decide(LinkCompression::Auto, page_ns);
            if decision != Decision::Whole {
                break_even.compressed(4_000, bytes);
                break_even.expanded(1_500);
            }
            counts[decision as usize] += 1;
        }
        counts
    }

    #[test]
    fn it_pays_where_the_link_is_slow_and_pages_shrink() {
        // 1, 4, 10 and 25 Gb/s.
        for (page_ns, pays) in [(32_768, true), (8_192, true), (3_277, false), (1_311, false), (0, false)] {
            let [whole, probe, compress] = decided(&mut BreakEven::default(), 1_500, page_ns);
            assert_eq!(compress >= 200, pays, "{page_ns} ns: {whole} whole, {probe} probed, {compress} compressed");
            assert!(pays || probe <= 8 + 4, "{page_ns} ns: {probe} probed");
        }
        let [_, probe, compress] = decided(&mut BreakEven::default(), PAGE_BYTES, 32_768);
        assert!(compress == 0 && probe <= 8 + 4, "{probe} probed, {compress} compressed");
    }

    #[test]
    fn it_follows_the_program_and_the_link() {
        let mut break_even = BreakEven::default();
        assert!(decided(&mut break_even, 1_500, 32_768)[2] > 200);
        // What it stores now does not shrink; then it does again.
        assert!(decided(&mut break_even, PAGE_BYTES, 32_768)[2] < 100);
        assert_eq!(decided(&mut break_even, PAGE_BYTES, 32_768)[2], 0);
        (0..40).for_each(|_| _ = decided(&mut break_even, 1_500, 32_768));
        assert_eq!(decided(&mut break_even, 1_500, 32_768)[2], 256);
        // Another link.
        assert_eq!(decided(&mut break_even, 1_500, 1_311)[2], 0);
    }

    #[test]
    fn busy_processors_make_it_dearer() {
        let mut break_even = BreakEven::default();
        assert!(decided(&mut break_even, 1_500, 8_192)[2] > 200);
        for _ in 0..100 {
            break_even.compressed(20_000, 1_500);
        }
        assert_eq!(break_even.decide(LinkCompression::Auto, 8_192), Decision::Whole);
    }

    /// Nothing that is loaded while it does not pay is expanded: probes alone say that it would pay again.
    #[test]
    fn it_pays_again_once_processors_that_were_busy_are_not() {
        let mut break_even = BreakEven::default();
        assert!(decided(&mut break_even, 1_500, 8_192)[2] > 200);
        (0..40).for_each(|_| break_even.expanded(30_000));
        assert!(decided(&mut break_even, 1_500, 8_192)[2] == 0);
        (0..20).for_each(|_| _ = decided(&mut break_even, 1_500, 8_192));
        assert_eq!(decided(&mut break_even, 1_500, 8_192)[2], 256);
    }

    #[test]
    fn a_few_pages_that_were_expanded_slowly_decide_nothing() {
        let mut break_even = BreakEven::default();
        (0..20).for_each(|_| break_even.compressed(4_000, 1_500));
        break_even.expanded(1_000_000);
        assert_eq!(break_even.decide(LinkCompression::Auto, 8_192), Decision::Compress);
    }

    #[test]
    fn it_does_not_change_its_mind_for_little() {
        let mut break_even = BreakEven::default();
        for _ in 0..20 {
            break_even.compressed(4_000, 2_048);
            break_even.expanded(1_500);
        }
        let pays = |break_even: &mut BreakEven, page_ns| {
            break_even.decide(LinkCompression::Auto, page_ns) == Decision::Compress
        };
        // 5.5 µs of a processor for a page: the link must spare more than 2 × 2.75 µs, and a quarter more to begin.
        assert!(
            !pays(&mut break_even, 6_000)
                && pays(&mut break_even, 7_000)
                && pays(&mut break_even, 6_000)
                && !pays(&mut break_even, 5_400)
        );
        let modes = [LinkCompression::Off, LinkCompression::On].map(|mode| break_even.decide(mode, 0));
        assert_eq!(modes, [Decision::Whole, Decision::Compress]);
    }
}
