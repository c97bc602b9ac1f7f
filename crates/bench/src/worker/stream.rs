//! The access streams: which page a thread touches next.
//!
//! A stream depends on its pattern, its page count and its seed alone, so every system sees the same one. Drawing an
//! element allocates nothing and touches no table but that of a few strides: what is measured is paging.
//!
//! Zipf: exponent 0.99 as in YCSB (Cooper et al., SoCC 2010), drawn by rejection inversion (Hörmann and Derflinger 1996,
//! `rand_distr`). Ranks are scattered over the pages, so that popularity is no locality.

use clap::ValueEnum;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Exponent of the zipf pattern.
const ZIPF_EXPONENT: f64 = 0.99;
/// Pages from one page of the scattered pattern to the next: the largest group of neighbours that the pager evicts together
/// (`CLUSTER_PAGES`, crates/pager), so that none of them has a neighbour in local memory.
const SCATTERED_STEP: u32 = 16;
/// Steps of interleaved streams: all different, so that the way from one stream to the next never repeats.
const STEPS: [u32; 4] = [3, 5, 7, 11];

/// In which order pages are touched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One page after the other, again and again.
    Sequential,
    /// Uniformly random reads.
    Random,
    /// Every tenth page; each round starts one page further on.
    #[value(name = "stride-10")]
    #[serde(rename = "stride-10")]
    Stride10,
    /// Two streams in turn, each over its half of the data: every third page, and every fifth.
    #[value(name = "interleaved-2")]
    #[serde(rename = "interleaved-2")]
    Interleaved2,
    /// Four streams in turn, each over its quarter of the data: every third, fifth, seventh and eleventh page.
    #[value(name = "interleaved-4")]
    #[serde(rename = "interleaved-4")]
    Interleaved4,
    /// Random reads, popular pages far more often than others.
    Zipf,
    /// Uniformly random; every page is read, checked and modified.
    Write,
    /// By turns a random page of a hot set (half of the local memory) and the next page of a scan over the rest.
    HotScan,
    /// Random reads of one page in 16: no two of them are neighbours, so each is evicted alone.
    Scattered,
}

impl Pattern {
    /// Accesses of one timed phase for each page of the data, unless told otherwise: a few seconds on zram.
    pub fn accesses_per_page(self) -> u64 {
        match self {
            Pattern::Scattered => 1,
            Pattern::Sequential | Pattern::Stride10 | Pattern::Interleaved2 | Pattern::Interleaved4 => 2,
            Pattern::Random | Pattern::Write | Pattern::HotScan => 3,
            Pattern::Zipf => 6,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |v| v.get_name()))
    }
}

/// One thread's stream.
pub struct Stream {
    rng: SmallRng,
    pages: u32,
    order: Order,
}

enum Order {
    Sequential { next: u32 },
    Random,
    Scattered { groups: u32 },
    Strides { turn: usize, strides: Vec<Stride> },
    Zipf { ranks: Zipf<f64>, scatter: u64 },
    HotScan { hot_pages: u32, scan_next: u32, hot_turn: bool },
}

impl Stream {
    /// The stream of `pattern` over pages 0 up to `pages`; `hot_pages` of them are hot where the pattern knows of that.
    ///
    /// # Panics
    /// When there are fewer than two pages, or no page outside the hot set.
    pub fn new(pattern: Pattern, pages: u32, hot_pages: u32, seed: u64) -> Stream {
        assert!(pages >= 2, "a stream over {pages} pages");
        let order = match pattern {
            Pattern::Sequential => Order::Sequential { next: 0 },
            Pattern::Random | Pattern::Write => Order::Random,
            Pattern::Scattered => Order::Scattered { groups: pages.div_ceil(SCATTERED_STEP) },
            Pattern::Stride10 => strides(pages, &[10]),
            Pattern::Interleaved2 => strides(pages, &STEPS[..2]),
            Pattern::Interleaved4 => strides(pages, &STEPS),
            Pattern::Zipf => Order::Zipf { ranks: zipf(pages), scatter: scatter(pages) },
            Pattern::HotScan => {
                assert!(hot_pages > 0 && hot_pages < pages, "{hot_pages} hot pages of {pages}");
                Order::HotScan { hot_pages, scan_next: hot_pages, hot_turn: true }
            }
        };
        Stream { rng: SmallRng::seed_from_u64(seed), pages, order }
    }

    /// The next page.
    #[inline]
    pub fn next_page(&mut self) -> u32 {
        let pages = self.pages;
        match &mut self.order {
            Order::Sequential { next } => {
                let page = *next;
                *next = if page + 1 == pages { 0 } else { page + 1 };
                page
            }
            Order::Random => self.rng.random_range(0..pages),
            Order::Scattered { groups } => self.rng.random_range(0..*groups) * SCATTERED_STEP,
            Order::Strides { turn, strides } => {
                let page = strides[*turn].next_page();
                *turn = (*turn + 1) % strides.len();
                page
            }
            Order::Zipf { ranks, scatter } => {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank lies in 1..=pages")]
                let rank = ranks.sample(&mut self.rng) as u64 - 1;
                #[allow(clippy::cast_possible_truncation, reason = "the remainder is below pages")]
                let page = (rank * *scatter % u64::from(pages)) as u32;
                page
            }
            Order::HotScan { hot_pages, scan_next, hot_turn } => {
                *hot_turn = !*hot_turn;
                if *hot_turn {
                    return self.rng.random_range(0..*hot_pages);
                }
                let page = *scan_next;
                *scan_next = if page + 1 == pages { *hot_pages } else { page + 1 };
                page
            }
        }
    }
}

/// Every so many pages of a part of the data, again and again; each round starts one page further on.
struct Stride {
    first: u32,
    pages: u32,
    step: u32,
    start: u32,
    next: u32,
}

impl Stride {
    fn next_page(&mut self) -> u32 {
        let page = self.next;
        self.next = page + self.step;
        if self.next >= self.pages {
            self.start = (self.start + 1) % self.step.min(self.pages);
            self.next = self.start;
        }
        self.first + page
    }
}

/// Streams of these steps in turn, each over an equal part of the pages; pages that are left over are never touched.
fn strides(pages: u32, steps: &[u32]) -> Order {
    let each = pages / u32::try_from(steps.len()).expect("a few");
    let stride =
        |(place, step): (u32, &u32)| Stride { first: place * each, pages: each, step: *step, start: 0, next: 0 };
    Order::Strides { turn: 0, strides: (0..).zip(steps).map(stride).collect() }
}

/// The distribution of ranks 1..=pages.
fn zipf(pages: u32) -> Zipf<f64> {
    let count = f64::from(pages);
    Zipf::new(count, ZIPF_EXPONENT).expect("a positive count and exponent")
}

/// A factor without common divisor with `pages`, near the golden ratio: multiplying by it permutes the pages.
fn scatter(pages: u32) -> u64 {
    let mut factor = (u64::from(pages) * 618 / 1000) | 1;
    while gcd(factor, u64::from(pages)) != 1 {
        factor += 2;
    }
    factor
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pattern: Pattern, seed: u64, count: usize) -> Vec<u32> {
        let mut stream = Stream::new(pattern, 1000, 250, seed);
        (0..count).map(|_| stream.next_page()).collect()
    }

    #[test]
    fn one_seed_gives_one_stream_and_every_page_exists() {
        for pattern in Pattern::value_variants() {
            let first = take(*pattern, 7, 5000);
            assert_eq!(first, take(*pattern, 7, 5000), "{pattern}");
            assert!(first.iter().all(|page| *page < 1000), "{pattern}");
        }
    }

    #[test]
    fn seeds_change_what_is_random() {
        for pattern in [Pattern::Random, Pattern::Write, Pattern::Zipf, Pattern::HotScan, Pattern::Scattered] {
            assert_ne!(take(pattern, 1, 100), take(pattern, 2, 100), "{pattern}");
        }
    }

    #[test]
    fn sequential_and_stride_visit_every_page_once_in_a_round() {
        for pattern in [Pattern::Sequential, Pattern::Stride10] {
            let mut round = take(pattern, 1, 1000);
            if pattern == Pattern::Stride10 {
                assert_eq!(round[..3], [0, 10, 20]);
                assert_eq!(round[100], 1);
            }
            round.sort_unstable();
            assert_eq!(round, (0..1000).collect::<Vec<_>>(), "{pattern}");
        }
    }

    #[test]
    fn interleaved_streams_take_turns_and_come_to_all_pages() {
        assert_eq!(take(Pattern::Interleaved2, 1, 6), [0, 500, 3, 505, 6, 510]);
        let mut pages = take(Pattern::Interleaved4, 1, 4 * 250 * 2);
        assert_eq!(pages[..8], [0, 250, 500, 750, 3, 255, 507, 761]);
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn zipf_follows_its_law_and_spreads_its_head() {
        let pages = 10_000u32;
        let mut stream = Stream::new(Pattern::Zipf, pages, 0, 3);
        let mut counts = vec![0u32; pages as usize];
        let draws = 400_000;
        for _ in 0..draws {
            counts[stream.next_page() as usize] += 1;
        }
        let harmonic: f64 = (1..=pages).map(|k| f64::from(k).powf(-0.99)).sum();
        for rank in [1u32, 2, 10, 100] {
            let page = usize::try_from(u64::from(rank - 1) * scatter(pages) % u64::from(pages)).unwrap();
            let expected = f64::from(draws) * f64::from(rank).powf(-0.99) / harmonic;
            let seen = f64::from(counts[page]);
            assert!(
                (seen - expected).abs() < 5.0 * expected.sqrt() + 0.02 * expected,
                "rank {rank}: {seen} vs {expected}"
            );
        }
        let head_in_first_tenth = (0..100u64).filter(|r| r * scatter(pages) % u64::from(pages) < 1000).count();
        assert!(head_in_first_tenth < 20, "{head_in_first_tenth} of the 100 hottest pages lie together");
    }

    #[test]
    fn scatter_permutes() {
        for pages in [2u32, 3, 1000, 4096, 65_537] {
            let mut seen = vec![false; pages as usize];
            for rank in 0..u64::from(pages) {
                seen[usize::try_from(rank * scatter(pages) % u64::from(pages)).unwrap()] = true;
            }
            assert!(seen.into_iter().all(|s| s), "{pages}");
        }
    }

    #[test]
    fn scattered_pages_have_no_neighbours() {
        let mut pages = take(Pattern::Scattered, 1, 5000);
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages, (0..1000).step_by(16).collect::<Vec<_>>());
    }

    #[test]
    fn hot_scan_takes_turns() {
        let pages = take(Pattern::HotScan, 1, 1000);
        assert!(pages.iter().step_by(2).all(|p| *p >= 250));
        assert!(pages.iter().skip(1).step_by(2).all(|p| *p < 250));
        assert_eq!(pages[0..5].iter().step_by(2).copied().collect::<Vec<_>>(), [250, 251, 252]);
    }
}
