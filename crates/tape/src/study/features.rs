//! What a program's pages do, in a few ratios, by which far memory and its parameters are chosen (xDM, §IV-B and Figures 10 and 11): of the
//! program, and of each of its regions of 64 MiB.
//!
//! | feature | definition here |
//! |---|---|
//! | fragment ratio | of the pages touched within [`WINDOW_REFERENCES`], the share that lies in contiguous runs shorter than [`FRAGMENT_PAGES`] |
//! | load/store ratio | references whose page left its microset unwritten, over those whose page was written to |
//! | hot ratio | the smallest share of all pages that has 90 % of the references |
//! | sequential share | references that continue a stream by one page |
//! | longest sequential run | in pages, of any stream of a thread |
//! | miss-ratio curve | references of a region that miss in LRU memory which all regions share |
//!
//! Windows, streams and runs are the program's: a region has those of its pages. So counts of regions add up to the program's.

use super::{Patterns, Shares};
use crate::{Reference, Written};
use hinterland_policy::{FRAGMENT_PAGES, REGION_PAGES, WINDOW_REFERENCES};
use std::collections::{BTreeMap, HashMap, HashSet};

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
    /// References whose page was written to in its microset, over those of which the trace tells; `None`: it tells of none.
    pub written_share: Option<f64>,
    /// Those whose page was not, over those whose page was; `None`: none was.
    pub load_store_ratio: Option<f64>,
}

/// The features of a region of 64 MiB.
pub struct RegionFeatures {
    /// The region of the trace in which it lies.
    pub region: u32,
    /// Its first page there.
    pub first_page: u32,
    /// Its features.
    pub features: Features,
    /// References by stack distance.
    distances: HashMap<u64, u64>,
}

impl RegionFeatures {
    /// References that LRU memory of so many pages would have missed, first touches left out.
    pub fn misses(&self, local_pages: u64) -> u64 {
        self.distances.iter().filter(|(distance, _)| **distance > local_pages).map(|(_, count)| count).sum()
    }
}

/// Gathers them, reference by reference. Takes memory in proportion to the pages.
#[derive(Default)]
pub struct FeatureStudy {
    references: u64,
    counts: HashMap<u64, u32>,
    window: HashSet<u64>,
    threads: Vec<Patterns>,
    /// By [`region_of`].
    regions: BTreeMap<u64, Region>,
    /// The regions of the references of this microset.
    microset: Vec<u64>,
}

/// What is counted of a region.
#[derive(Clone, Default)]
struct Region {
    references: u64,
    fragments: u64,
    windowed: u64,
    shares: Shares,
    longest_run: u64,
    known: u64,
    written: u64,
    distances: HashMap<u64, u64>,
}

/// The region of 64 MiB that a position lies in; no two regions of a trace share one.
fn region_of(position: u64) -> u64 {
    position / u64::from(REGION_PAGES)
}

impl FeatureStudy {
    /// Takes a reference in, with its stack distance ([`super::Study::reference`]).
    pub fn reference(&mut self, reference: &Reference, distance: Option<u64>) {
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
        let patterns = &mut self.threads[thread];
        let pattern = patterns.reference(position);
        self.microset.push(region_of(position));
        let region = self.regions.entry(region_of(position)).or_default();
        region.references += 1;
        region.shares.count(pattern);
        region.longest_run = region.longest_run.max(patterns.run());
        if let Some(distance) = distance {
            *region.distances.entry(distance).or_default() += 1;
        }
    }

    /// The microset of the last references ends; which of them were written to.
    pub fn end_microset(&mut self, written: &Written<'_>) {
        for (index, region) in (0..).zip(self.microset.drain(..)) {
            let Some(is_written) = written.get(index) else { continue };
            let region = self.regions.entry(region).or_default();
            region.known += 1;
            region.written += u64::from(is_written);
        }
    }

    fn end_window(&mut self) {
        let mut pages: Vec<u64> = self.window.drain().collect();
        pages.sort_unstable();
        for run in pages.chunk_by(|page, next| page + 1 == *next) {
            let is_fragment = (run.len() as u64) < FRAGMENT_PAGES;
            for part in run.chunk_by(|page, next| region_of(*page) == region_of(*next)) {
                let (region, pages) = (self.regions.entry(region_of(part[0])).or_default(), part.len() as u64);
                region.windowed += pages;
                region.fragments += if is_fragment { pages } else { 0 };
            }
        }
    }

    /// The features of all references so far: the program's, and those of its regions, the largest first.
    pub fn finish(mut self) -> (Features, Vec<RegionFeatures>) {
        self.end_window();
        let mut counts: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (position, count) in &self.counts {
            counts.entry(region_of(*position)).or_default().push(*count);
        }
        let whole = self.regions.values().fold(Region::default(), |sum, region| sum.and(region));
        let program = whole.features(self.counts.into_values().collect());
        let regions = self.regions.into_iter().zip(counts.into_values());
        let mut regions: Vec<RegionFeatures> =
            regions.map(|((at, region), counts)| region.finish(at, counts)).collect();
        regions.sort_by_key(|region| std::cmp::Reverse(region.features.pages));
        (program, regions)
    }
}

impl Region {
    /// Both together, without the distances.
    fn and(self, other: &Region) -> Region {
        Region {
            references: self.references + other.references,
            fragments: self.fragments + other.fragments,
            windowed: self.windowed + other.windowed,
            shares: self.shares + other.shares,
            longest_run: self.longest_run.max(other.longest_run),
            known: self.known + other.known,
            written: self.written + other.written,
            distances: HashMap::new(),
        }
    }

    /// `counts`: the references of each page.
    fn features(&self, counts: Vec<u32>) -> Features {
        let pages = counts.len() as u64;
        Features {
            references: self.references,
            pages,
            fragment_ratio: ratio(self.fragments, self.windowed),
            hot_ratio: ratio(hot_pages(counts, self.references), pages),
            sequential_share: ratio(self.shares.sequential, self.references),
            stride_share: ratio(self.shares.stride, self.references),
            longest_sequential_run: self.longest_run,
            written_share: (self.known > 0).then(|| ratio(self.written, self.known)),
            load_store_ratio: (self.written > 0).then(|| ratio(self.known - self.written, self.written)),
        }
    }

    fn finish(self, at: u64, counts: Vec<u32>) -> RegionFeatures {
        let first = at * u64::from(REGION_PAGES);
        let [region, first_page] = [first >> 32, first & u64::from(u32::MAX)]
            .map(|half| u32::try_from(half).expect("both halves of a position have 32 bits"));
        RegionFeatures { region, first_page, features: self.features(counts), distances: self.distances }
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
    use super::super::Study;
    use super::*;

    fn studied(touches: impl IntoIterator<Item = Reference>) -> (Features, Vec<RegionFeatures>) {
        let (mut features, mut study) = (FeatureStudy::default(), Study::new());
        for reference in touches {
            features.reference(&reference, study.reference(&reference));
        }
        features.finish()
    }

    fn touch(page: u32) -> Reference {
        Reference { page, ..Reference::default() }
    }

    fn features(pages: impl IntoIterator<Item = u32>) -> Features {
        studied(pages.into_iter().map(touch)).0
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

    #[test]
    fn regions_have_features_of_their_own_and_add_up_to_the_programs() {
        // A walk of 3,000 pages that ends nine pages behind a border, twice; and single pages in another region of the trace, of which one is hot.
        let walk = (0..2).flat_map(|_| REGION_PAGES - 2_991..REGION_PAGES + 9).map(touch);
        let apart = (0..500).flat_map(|i| [20 * i, 7]).map(|page| Reference { region: 3, ..touch(page) });
        let (program, regions) = studied(walk.chain(apart));
        let found = |at: usize| (regions[at].region, regions[at].first_page, regions[at].features.pages);
        assert_eq!([found(0), found(1), found(2)], [(0, 0, 2_991), (3, 0, 501), (0, REGION_PAGES, 9)]);
        let of = |at: usize| &regions[at].features;
        assert_eq!((of(0).longest_sequential_run, of(1).longest_sequential_run), (2_991, 0));
        assert_eq!((of(0).fragment_ratio, of(1).fragment_ratio), (0.0, 1.0));
        assert_eq!(
            (of(2).fragment_ratio, of(2).longest_sequential_run),
            (0.0, 3_000),
            "the run does not end at the border"
        );
        assert!(of(0).sequential_share > 0.99 && of(0).hot_ratio > 0.89, "{:?}", of(0));
        assert!(of(1).sequential_share < 0.01 && (0.79..0.81).contains(&of(1).hot_ratio), "{:?}", of(1));
        let sum = |of: fn(&Features) -> u64| regions.iter().map(|region| of(&region.features)).sum::<u64>();
        assert_eq!((sum(|one| one.references), sum(|one| one.pages)), (program.references, program.pages));
        assert_eq!(program.fragment_ratio, 501.0 / 3_501.0);
    }

    #[test]
    fn misses_of_regions_are_those_of_the_memory_that_they_share() {
        // A loop over 1,000 pages, and one page beside it after each step.
        let touches = (0..4_000).flat_map(|i| [touch(i % 1_000), Reference { region: 1, ..touch(5) }]);
        let (mut study, touches) = (Study::new(), touches.collect::<Vec<_>>());
        touches.iter().for_each(|reference| {
            study.reference(reference);
        });
        let (_, regions) = studied(touches);
        assert_eq!([1_001, 1_000, 2, 1].map(|pages| regions[0].misses(pages)), [0, 3_000, 3_000, 3_000]);
        assert_eq!([2, 1].map(|pages| regions[1].misses(pages)), [0, 3_999]);
        for pages in [1, 2, 1_000, 1_001] {
            let sum: u64 = regions.iter().map(|region| region.misses(pages)).sum();
            assert_eq!(sum, study.distances.misses(pages) - study.first_touches());
        }
    }

    #[test]
    fn what_a_child_has_of_its_parent_misses_in_memory_of_any_size() {
        let (mut features, mut study) = (FeatureStudy::default(), Study { is_forked: true, ..Study::new() });
        for reference in [Reference { is_first: true, ..touch(1) }, touch(2)] {
            features.reference(&reference, study.reference(&reference));
        }
        assert_eq!((features.finish().1[0].misses(1 << 40), study.inherited), (1, 1));
    }

    #[test]
    fn loads_over_stores_are_of_the_references_of_which_the_trace_tells() {
        let mut study = FeatureStudy::default();
        let mut microset = |pages: std::ops::Range<u32>, written: Written<'_>| {
            pages.for_each(|page| study.reference(&touch(page), None));
            study.end_microset(&written);
        };
        // Three of four pages are written to, those of the second region; of the last microset nothing is known.
        microset(REGION_PAGES - 1..REGION_PAGES + 3, Written::Bits(&[0b1110]));
        microset(0..5, Written::Unknown);
        let (program, regions) = study.finish();
        assert_eq!((program.written_share, program.load_store_ratio), (Some(0.75), Some(1.0 / 3.0)));
        let of = |at: usize| (regions[at].features.written_share, regions[at].features.load_store_ratio);
        assert_eq!((of(0), of(1)), ((Some(0.0), None), (Some(1.0), Some(0.0))));
        assert_eq!(features(0..9).written_share, None);
    }
}
