//! Features of a running program's pages (xDM §IV-B), estimated from its requests; a trace has them exactly: fragment
//! ratio, sequential and strided share, longest sequential run.
//!
//! A mapped page makes no request. So a request in what was asked for ahead of its stream, or right behind that, stands for all pages from the
//! stream's last request on: the program has passed them, as hits are inferred (decision 0008). Pages that stay local all the time are not seen,
//! nor are those that tapes and hints bring.
//!
//! ```text
//!   request ──► in reach of a stream's last one ──► the pages up to it: references by the stream's step ──┐
//!           └─► not                             ──► this page, and perhaps the beginning of a stream  ────┴─► bits of areas of 2 MiB that are sampled
//!                                                                        every 65,536 references: their runs of pages are measured
//! ```
//!
//! Memory is bounded: each place for an area keeps the one with the least hash of all that were touched, so the areas are a random sample that does
//! not depend on the order. A run is cut at the ends of its area.

use crate::{PrefetchWindow, Unmapped};
use hinterland_units::PageNo;

/// References within which pages count as touched together.
pub const WINDOW_REFERENCES: u64 = 65_536;
/// Contiguous runs of fewer pages are fragments.
pub const FRAGMENT_PAGES: u64 = 16;

/// Streams of the process that are followed at once.
const STREAMS: usize = 16;
/// A page as far from a stream's last one, at most, may give it its step.
const NEAR_PAGES: u32 = 512;
/// No page has this number.
const NONE: u32 = u32::MAX;
/// Pages of an area: 2 MiB.
const AREA_PAGES: u32 = 512;
/// Words of its bits.
const AREA_WORDS: usize = AREA_PAGES as usize / 64;
/// Places for areas: 36 KiB.
const AREAS: usize = 512;
/// Shifts after which a bit says that the whole run from it on is set, as long as no fragment is.
const SHIFTS: [u32; 4] = [1, 2, 4, 8];
const _: () = assert!(FRAGMENT_PAGES == 1 + 1 + 2 + 4 + 8);
/// Figures are worth reading again after so many requests.
const READ_REQUESTS: u64 = 4096;

/// What requests said so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestFeatures {
    /// Pages that requests stand for.
    pub references: u64,
    /// Of those, pages that continue a stream by one page.
    pub sequential: u64,
    /// Of those, pages that continue a stream by the same step of several pages.
    pub strided: u64,
    /// Pages of the longest sequential run.
    pub longest_run: u64,
    /// Different pages of the sampled areas, window by window.
    pub windowed: u64,
    /// Of those, pages in fragments.
    pub fragments: u64,
}

/// Gathers them, request by request. See the module.
pub struct FeatureSample {
    streams: [Stream; STREAMS],
    /// By stream: the last page of it.
    last: [u32; STREAMS],
    /// By stream: the first of the pages that it may lead to, and how many these are.
    reach: [(u32, u32); STREAMS],
    /// Streams that went on, or began, since all had: one of the others is given up for a new one.
    used: u16,
    areas: Vec<Area>,
    requests: u64,
    /// References of this window.
    in_window: u64,
    /// Without the pages of this window.
    figures: RequestFeatures,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    /// 0: not known yet.
    step: i64,
    /// The step was seen, not only expected: a stream's first two pages continue nothing.
    is_seen: bool,
    /// The farthest page that may be the next one requested, from the last one in the direction of the step.
    reach: i64,
    /// Pages of the sequential run that ends here.
    run: u64,
}

impl Stream {
    /// The program has come to a page that it leads to, so many pages further; returns the references up to there, and how many of them continue it.
    fn go_on(&mut self, passed: i64) -> (u64, u64) {
        let references = (passed / self.step).unsigned_abs();
        self.reach = (self.reach - passed.abs()).max(self.step.abs());
        self.run += references;
        let was_seen = std::mem::replace(&mut self.is_seen, true);
        (references, references - u64::from(!was_seen))
    }

    /// The pages that it may lead to from `last`: the first of them, and how many they are.
    fn range(&self, last: u32) -> (u32, u32) {
        let reach = u32::try_from(self.reach).unwrap_or(u32::MAX);
        match self.step {
            0 => (0, 0),
            1.. => (last.saturating_add(1), reach),
            _ => (last.saturating_sub(reach), reach.min(last)),
        }
    }

    /// A window was asked for after its request for `last`: all of it but the key page will be mapped.
    fn expect(&mut self, window: &PrefetchWindow, last: u32) {
        let ahead = (i64::from(window.first.0) - i64::from(last)) * window.step.signum();
        if ahead > 0 && ahead % window.step == 0 {
            self.is_seen &= self.step == window.step;
            self.step = window.step;
            self.reach = ahead + i64::from(window.pages) * window.step.abs();
        }
    }
}

/// Which pages of 2 MiB were touched.
#[derive(Clone, Copy, Default)]
struct Area {
    /// Its hash, which no other area has.
    hash: u32,
    /// None is set: the place is free.
    pages: [u64; AREA_WORDS],
}

impl Area {
    /// Touched pages, and those of them that are in fragments.
    fn measured(&self) -> (u64, u64) {
        let mut long = SHIFTS.iter().fold(self.pages, |begins, by| both(begins, down(begins, *by), |a, b| a & b));
        long = SHIFTS.iter().fold(long, |long, by| both(long, up(long, *by), |a, b| a | b));
        let pages = count(&self.pages);
        (pages, pages - count(&long))
    }
}

fn count(words: &[u64; AREA_WORDS]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

fn both(a: [u64; AREA_WORDS], b: [u64; AREA_WORDS], with: fn(u64, u64) -> u64) -> [u64; AREA_WORDS] {
    std::array::from_fn(|at| with(a[at], b[at]))
}

/// Each bit where the bit `by` pages later was; `by` is 1 to 63.
fn down(words: [u64; AREA_WORDS], by: u32) -> [u64; AREA_WORDS] {
    std::array::from_fn(|at| words[at] >> by | words.get(at + 1).map_or(0, |next| next << (64 - by)))
}

/// Each bit where the bit `by` pages before was.
fn up(words: [u64; AREA_WORDS], by: u32) -> [u64; AREA_WORDS] {
    std::array::from_fn(|at| words[at] << by | at.checked_sub(1).map_or(0, |before| words[before] >> (64 - by)))
}

/// A number for each number, as if by chance: the last steps of MurmurHash3 (A. Appleby), which can be undone.
pub(crate) fn mixed(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

impl Default for FeatureSample {
    fn default() -> FeatureSample {
        FeatureSample {
            streams: [Stream::default(); STREAMS],
            last: [NONE; STREAMS],
            reach: [(0, 0); STREAMS],
            used: 0,
            areas: vec![Area::default(); AREAS],
            requests: 0,
            in_window: 0,
            figures: RequestFeatures::default(),
        }
    }
}

impl FeatureSample {
    /// Takes a request in, and the window that the prefetcher asked for after it. True: the figures are worth reading again.
    pub fn requested(&mut self, page: PageNo, window: Option<&PrefetchWindow>) -> bool {
        self.requests += 1;
        let known = self.leading_to(page.0);
        let at = known.unwrap_or_else(|| self.begin(page.0));
        let stream = &mut self.streams[at];
        let passed = i64::from(page.0) - i64::from(self.last[at]);
        let (references, continuing) = if known.is_some() { stream.go_on(passed) } else { (1, 0) };
        let (step, run) = (stream.step, stream.run);
        // What waits as a whole is seen page by page.
        if let Some(window) = window.filter(|window| matches!(window.unmapped, Unmapped::Key(_))) {
            stream.expect(window, page.0);
        }
        (self.last[at], self.reach[at]) = (page.0, stream.range(page.0));
        self.used |= 1 << at;
        if self.used == u16::MAX {
            self.used = 1 << at;
        }
        self.figures.references += references;
        match step.abs() {
            1 => self.figures.sequential += continuing,
            _ => self.figures.strided += continuing,
        }
        if continuing > 0 && step.abs() == 1 {
            self.figures.longest_run = self.figures.longest_run.max(run);
        }
        for back in 0..references.cast_signed() {
            let passed = u32::try_from(i64::from(page.0) - back * step).unwrap_or(page.0);
            self.touch(passed);
        }
        self.in_window += references;
        if self.in_window >= WINDOW_REFERENCES {
            self.figures = self.figures();
            self.areas.fill(Area::default());
            self.in_window = 0;
        }
        self.requests.is_power_of_two() || self.requests.is_multiple_of(READ_REQUESTS)
    }

    /// The stream that leads to a page.
    fn leading_to(&self, page: u32) -> Option<usize> {
        let is_in_reach = |(first, pages): (u32, u32)| page.wrapping_sub(first) < pages;
        let leads = |at: &usize| {
            let passed = i64::from(page) - i64::from(self.last[*at]);
            is_in_reach(self.reach[*at]) && passed % self.streams[*at].step == 0
        };
        (0..STREAMS).find(leads)
    }

    /// A page to which no stream leads gives the nearest one a step, or begins one in place of another that has not gone on lately.
    fn begin(&mut self, page: u32) -> usize {
        // A page that is none, or the same one, is far away.
        let distances = self.last.map(|last| page.abs_diff(last).wrapping_sub(1));
        let nearest = distances.into_iter().min().filter(|distance| *distance < NEAR_PAGES);
        let known = nearest.and_then(|nearest| distances.iter().position(|distance| *distance == nearest));
        let at = known.unwrap_or(self.used.trailing_ones() as usize);
        let step = if known.is_some() { i64::from(page) - i64::from(self.last[at]) } else { 0 };
        let run = if step.abs() == 1 { 2 } else { 1 };
        self.streams[at] = Stream { step, is_seen: step != 0, reach: step.abs(), run };
        at
    }

    fn touch(&mut self, page: u32) {
        let hash = mixed(page / AREA_PAGES);
        let area = &mut self.areas[hash as usize % AREAS];
        let is_free = area.pages == [0; AREA_WORDS];
        if is_free || hash < area.hash {
            *area = Area { hash, ..Area::default() };
        }
        if area.hash == hash {
            let at = page % AREA_PAGES;
            area.pages[at as usize / 64] |= 1 << (at % 64);
        }
    }

    /// As before the first request, in the same memory.
    pub fn forget(&mut self) {
        self.streams = Default::default();
        (self.last, self.reach, self.used) = ([NONE; STREAMS], [(0, 0); STREAMS], 0);
        self.areas.fill(Area::default());
        (self.requests, self.in_window) = (0, 0);
        self.figures = RequestFeatures::default();
    }

    /// What requests said so far, with the pages of the window that is not full.
    pub fn figures(&self) -> RequestFeatures {
        self.areas.iter().map(Area::measured).fold(self.figures, |sum, (pages, fragments)| RequestFeatures {
            windowed: sum.windowed + pages,
            fragments: sum.fragments + fragments,
            ..sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn figures(pages: impl IntoIterator<Item = u32>) -> RequestFeatures {
        let mut sample = FeatureSample::default();
        pages.into_iter().for_each(|page| {
            sample.requested(PageNo(page), None);
        });
        sample.figures()
    }

    #[test]
    fn walks_and_strides_are_told_apart() {
        let walk = RequestFeatures {
            references: 1000,
            sequential: 998,
            longest_run: 1000,
            windowed: 1000,
            ..RequestFeatures::default()
        };
        assert_eq!(figures(4000..5000), walk);
        assert_eq!(figures((4000..5000).rev()), walk);
        let stride = RequestFeatures {
            references: 100,
            strided: 98,
            windowed: 100,
            fragments: 100,
            ..RequestFeatures::default()
        };
        assert_eq!(figures((0..100).map(|at| 7 * at)), stride);
    }

    #[test]
    fn walks_in_turns_are_walks() {
        let turns = figures((0..1000).flat_map(|at| [at, 1_000_000 + at, 2_000_000 - at]));
        assert_eq!((turns.sequential, turns.longest_run, turns.fragments), (3 * 998, 1000, 0));
    }

    #[test]
    fn random_pages_are_fragments_of_no_stream() {
        let mut random = SmallRng::seed_from_u64(3);
        let found = figures((0..20_000).map(|_| random.random_range(0..1 << 22)));
        assert!(found.sequential + found.strided < 100 && found.fragments == found.windowed, "{found:?}");
    }

    #[test]
    fn a_request_in_reach_of_a_stream_stands_for_the_pages_that_it_passed() {
        let window = |first, step, pages, key| PrefetchWindow {
            first: PageNo(first),
            step,
            pages,
            unmapped: Unmapped::Key(PageNo(key)),
        };
        let mut sample = FeatureSample::default();
        for page in [100, 101] {
            sample.requested(PageNo(page), None);
        }
        sample.requested(PageNo(102), Some(&window(103, 1, 30, 113)));
        sample.requested(PageNo(113), Some(&window(133, 1, 60, 153)));
        // The key page was local: the program comes to the first page behind the window.
        sample.requested(PageNo(193), None);
        let walk = sample.figures();
        assert_eq!((walk.references, walk.sequential, walk.longest_run), (94, 92, 94));
        assert_eq!((walk.windowed, walk.fragments), (94, 0), "all of them were touched");
        sample.requested(PageNo(195), None);
        assert_eq!(sample.figures().sequential, 92, "out of reach");
        // Downwards, in steps of three.
        let mut sample = FeatureSample::default();
        sample.requested(PageNo(900), Some(&window(897, -3, 20, 879)));
        sample.requested(PageNo(879), None);
        sample.requested(PageNo(837), None);
        let stride = sample.figures();
        assert_eq!((stride.references, stride.strided, stride.windowed, stride.fragments), (22, 20, 22, 22));
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        let mut sample = FeatureSample::default();
        (0..5000).for_each(|page| {
            sample.requested(PageNo(page), None);
        });
        sample.forget();
        assert_eq!(sample.figures(), RequestFeatures::default());
        assert!(sample.requested(PageNo(5000), None), "the first request");
        assert_eq!(sample.figures().sequential, 0, "its stream is forgotten");
    }

    #[test]
    fn what_waits_as_a_whole_stands_for_nothing() {
        let guess = PrefetchWindow { first: PageNo(11), step: 1, pages: 8, unmapped: Unmapped::All };
        let mut sample = FeatureSample::default();
        sample.requested(PageNo(10), Some(&guess));
        sample.requested(PageNo(15), Some(&guess));
        assert_eq!(
            sample.figures(),
            RequestFeatures { references: 2, windowed: 2, fragments: 2, ..RequestFeatures::default() }
        );
    }

    #[test]
    fn runs_are_measured_as_a_look_at_each_page_measures_them() {
        let mut random = SmallRng::seed_from_u64(9);
        for density in [1, 5, 9, 10] {
            let mut area = Area::default();
            // Blocks of 4, so that there are runs of all lengths.
            let set: Vec<bool> = (0..AREA_PAGES / 4).flat_map(|_| [random.random_range(0..10) < density; 4]).collect();
            (0..).zip(&set).for_each(|(at, is_set): (usize, _)| area.pages[at / 64] |= u64::from(*is_set) << (at % 64));
            let runs = set.chunk_by(|a, b| a == b).filter(|run| run[0]).map(|run| run.len() as u64);
            let (pages, fragments) = runs.fold((0, 0), |(pages, fragments), run| {
                (pages + run, fragments + if run < FRAGMENT_PAGES { run } else { 0 })
            });
            assert_eq!(area.measured(), (pages, fragments), "{set:?}");
        }
        let of_runs = |pages: u32| figures((0..100).flat_map(move |run| (0..pages).map(move |at| run * 1024 + at)));
        assert_eq!([of_runs(15), of_runs(16)].map(|found| found.fragments), [of_runs(15).windowed, 0]);
    }

    #[test]
    fn windows_count_by_themselves_and_memory_is_bounded() {
        // Even pages in the first window, odd ones in the second: together they would be one run.
        let length = u32::try_from(WINDOW_REFERENCES).unwrap();
        let found = figures((0..2).flat_map(|half| (0..length).map(move |at| 2 * at + half)));
        assert_eq!(found.fragments, found.windowed);
        assert!(found.windowed > u64::from(length), "most of the 256 areas have a place: {found:?}");
        // Many more areas than places: each place has one.
        let wide = figures((0..60_000).map(|at| at * AREA_PAGES));
        assert_eq!((wide.windowed, wide.fragments), (AREAS as u64, AREAS as u64));
    }

    #[test]
    fn the_sample_of_areas_does_not_depend_on_their_order() {
        let area = |at: u32| (0..20).map(move |page| at * AREA_PAGES + page);
        let kept = |areas: &mut dyn Iterator<Item = u32>| {
            let mut sample = FeatureSample::default();
            areas.flat_map(area).for_each(|page| sample.touch(page));
            sample.areas.iter().map(|area| area.hash).collect::<Vec<u32>>()
        };
        assert_eq!(kept(&mut (0..3000)), kept(&mut (0..3000).rev()));
    }
}
