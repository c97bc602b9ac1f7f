//! What a program's pages do, in a few ratios, by which far memory and its parameters are chosen (xDM, §IV-B and Figures 10 and 11).
//!
//! | feature | definition here |
//! |---|---|
//! | fragment ratio | of the pages touched within [`WINDOW_REFERENCES`], the share that lies in contiguous runs shorter than [`FRAGMENT_PAGES`] |
//! | hot ratio | the smallest share of all pages that has 90 % of the references |
//! | sequential share | references that continue a stream by one page |
//! | longest sequential run | in pages, of any stream of a thread |

use super::{Patterns, Shares};
use crate::Reference;
use std::collections::{HashMap, HashSet};

/// References within which pages count as touched together.
pub const WINDOW_REFERENCES: u64 = 65_536;
/// Contiguous runs of fewer pages are fragments.
pub const FRAGMENT_PAGES: u64 = 16;
/// The share of references that the hot pages have.
const HOT_SHARE: f64 = 0.9;

/// See the module. Ratios are from 0 to 1.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Features {
    /// References.
    pub references: u64,
    /// Different pages.
    pub pages: u64,
    /// Pages in fragments, over all pages, window by window.
    pub fragment_ratio: f64,
    /// Hot pages, over all pages.
    pub hot_ratio: f64,
    /// References that continue a stream by one page, over all.
    pub sequential_share: f64,
    /// References that continue a stream by the same step of several pages, over all.
    pub stride_share: f64,
    /// Pages.
    pub longest_sequential_run: u64,
}

/// Gathers them, reference by reference. Takes memory in proportion to the pages.
#[derive(Default)]
pub struct FeatureStudy {
    references: u64,
    counts: HashMap<u64, u32>,
    window: HashSet<u64>,
    fragments: u64,
    windowed: u64,
    threads: Vec<(Patterns, Shares)>,
}

impl FeatureStudy {
    /// Takes a reference in.
    pub fn reference(&mut self, reference: &Reference) {
        let position = reference.position();
        self.references += 1;
        let count = self.counts.entry(position).or_default();
        *count = count.saturating_add(1);
        self.window.insert(position);
        if self.references.is_multiple_of(WINDOW_REFERENCES) {
            self.end_window();
        }
        let thread = reference.thread as usize;
        if thread >= self.threads.len() {
            self.threads.resize_with(thread + 1, Default::default);
        }
        let (patterns, shares) = &mut self.threads[thread];
        shares.count(patterns.reference(position));
    }

    fn end_window(&mut self) {
        let mut pages: Vec<u64> = self.window.drain().collect();
        pages.sort_unstable();
        self.windowed += pages.len() as u64;
        let runs = pages.chunk_by(|page, next| page + 1 == *next).map(|run| run.len() as u64);
        self.fragments += runs.filter(|pages| *pages < FRAGMENT_PAGES).sum::<u64>();
    }

    /// The features of all references so far.
    pub fn finish(mut self) -> Features {
        self.end_window();
        let shares = self.threads.iter().fold(Shares::default(), |sum, thread| sum + thread.1);
        let pages = self.counts.len() as u64;
        Features {
            references: self.references,
            pages,
            fragment_ratio: ratio(self.fragments, self.windowed),
            hot_ratio: ratio(hot_pages(self.counts.into_values().collect(), self.references), pages),
            sequential_share: ratio(shares.sequential, self.references),
            stride_share: ratio(shares.stride, self.references),
            longest_sequential_run: self.threads.iter().map(|thread| thread.0.longest_run()).max().unwrap_or(0),
        }
    }
}

/// The fewest pages that have [`HOT_SHARE`] of the references.
fn hot_pages(mut counts: Vec<u32>, references: u64) -> u64 {
    counts.sort_unstable_by(|one, other| other.cmp(one));
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
    let wanted = (references as f64 * HOT_SHARE).ceil() as u64;
    let mut sum = 0;
    let pages = counts.iter().take_while(|count| {
        let is_needed = sum < wanted;
        sum += u64::from(**count);
        is_needed
    });
    pages.count() as u64
}

#[allow(clippy::cast_precision_loss, reason = "a ratio needs few digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(pages: impl IntoIterator<Item = u32>) -> Features {
        let mut study = FeatureStudy::default();
        for (sequence, page) in pages.into_iter().enumerate() {
            study.reference(&Reference { sequence: sequence as u64, page, ..Reference::default() });
        }
        study.finish()
    }

    #[test]
    fn a_walk_is_one_run_without_fragments_and_equally_hot() {
        let walk = features((0..3).flat_map(|_| 0..1000));
        assert_eq!((walk.references, walk.pages, walk.fragment_ratio, walk.hot_ratio), (3000, 1000, 0.0, 0.9));
        assert_eq!(walk.longest_sequential_run, 1000);
        assert!(walk.sequential_share > 0.99, "{walk:?}");
    }

    #[test]
    fn pages_apart_are_fragments_and_runs_of_16_are_none() {
        assert_eq!(features((0..1000).map(|i| 2 * i)).fragment_ratio, 1.0);
        let of_runs = |length: u32| features((0..100).flat_map(move |run| (0..length).map(move |i| run * 1000 + i)));
        assert_eq!((of_runs(15).fragment_ratio, of_runs(16).fragment_ratio), (1.0, 0.0));
    }

    #[test]
    fn windows_count_by_themselves() {
        // Even pages in the first window, odd ones in the second: together they would be one run.
        let length = u32::try_from(WINDOW_REFERENCES).unwrap();
        let pages = (0..2).flat_map(|half| (0..length).map(move |i| 2 * i + half));
        assert_eq!(features(pages).fragment_ratio, 1.0);
    }

    #[test]
    fn the_hot_ratio_is_the_least_share_of_pages_with_nine_tenths_of_the_references() {
        // One page 90 times, ten pages once.
        let one = features(std::iter::repeat_n(7, 90).chain(100..110));
        assert_eq!(one.hot_ratio, 1.0 / 11.0);
        assert_eq!(features([]), Features::default());
    }
}
