//! What a program would take on each backend, at several sizes of local memory, by replays of its trace.

use super::costs::Backend;
use crate::sim::{Combination, Whole, replay_all};
use hinterland_sim::{FaultPath, ReplayStats, Setup, SetupError, Workload};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};

/// Local memory in per cent of what the program touches, from large to small.
pub const SIZES_PERCENT: [u64; 6] = [75, 50, 40, 30, 20, 10];
/// The size at which effectiveness is compared.
pub const COMPARED_PERCENT: u64 = 50;
/// Sizes are whole MiB, as `--local` is printed with them.
const STEP_PAGES: u64 = (1 << 20) / PAGE_BYTES as u64;
/// The least local memory for a slowdown is looked for until a size that is too small is less than a 32nd below it, in so many rounds at most.
const APART_PART: u64 = 32;
const ROUNDS_MAX: usize = 9;
/// What a run takes without flags.
const EVICTION: &str = "s3-fifo";
const PREFETCHER: &str = "auto";
/// What is compared with it: the plain demand fetch.
const NO_PREFETCHER: &str = "none";

/// What was predicted for a backend.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// Slowdowns at [`SIZES_PERCENT`]; `None`: less than [`Sizes::least_bytes`].
    pub slowdowns: Vec<Option<f64>>,
    /// The slowdown at [`COMPARED_PERCENT`], or with the least that is looked at where that is more.
    pub compared: f64,
    /// The same without prefetching.
    pub without_prefetching: f64,
    /// The least local memory with the slowdown that was asked for.
    pub least: Least,
}

/// The least local memory for a slowdown.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Least {
    /// In pages.
    pub pages: u64,
    /// The slowdown with it; with all memory local, 1.
    pub slowdown: f64,
}

/// The sizes of local memory that are looked at: those that a run can have, and of which the trace tells.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sizes {
    touched_pages: u64,
    /// The least.
    least_pages: u64,
}

impl Sizes {
    /// A run has [`Budget::FLOOR`] at least, and a trace has no information on memory that a microset fills.
    pub fn of(traced: &Whole) -> Sizes {
        let least_pages = whole_steps(floor_pages().max(u64::from(traced.microset_pages) + 1));
        Sizes { touched_pages: traced.work.touched_pages(), least_pages }
    }

    /// The least in bytes.
    pub fn least_bytes(&self) -> u64 {
        self.least_pages * PAGE_BYTES as u64
    }

    /// With the least that is looked at all is local.
    pub fn is_all_local(&self) -> bool {
        self.least_pages >= self.touched_pages
    }

    /// A run could have less than what is looked at, and something of the program far: the trace tells nothing of it.
    pub fn is_bounded_by_microset(&self) -> bool {
        self.least_pages > floor_pages() && self.touched_pages > floor_pages()
    }

    /// So many per cent of what is touched, if that is looked at.
    fn pages(&self, percent: u64) -> Option<u64> {
        Some(whole_steps(self.touched_pages * percent / 100)).filter(|pages| *pages >= self.least_pages)
    }
}

fn floor_pages() -> u64 {
    Budget::FLOOR.0 / PAGE_BYTES as u64
}

fn whole_steps(pages: u64) -> u64 {
    pages.next_multiple_of(STEP_PAGES)
}

/// Predicts for all backends, in their order; `slowdown` is the one that is asked for.
///
/// # Errors
/// A setup that cannot be simulated.
pub fn all(
    work: &Workload,
    sizes: Sizes,
    path: FaultPath,
    backends: &[Backend],
    slowdown: f64,
) -> Result<Vec<Prediction>, SetupError> {
    if sizes.is_all_local() {
        let least = Least { pages: sizes.touched_pages, slowdown: 1.0 };
        let slowdowns = vec![None; SIZES_PERCENT.len()];
        return Ok(vec![Prediction { slowdowns, compared: 1.0, without_prefetching: 1.0, least }; backends.len()]);
    }
    let combination = |backend: &Backend, pages: u64, prefetch: &str| {
        let local = Budget::Bytes(ByteCount(pages * PAGE_BYTES as u64));
        let setup = Setup::new(local, backend.model()).on(path);
        Combination { setup, evict: EVICTION.into(), prefetch: prefetch.into() }
    };
    let compared = sizes.pages(COMPARED_PERCENT).unwrap_or(sizes.least_pages);
    let mut looked_at: Vec<u64> =
        SIZES_PERCENT.iter().filter_map(|percent| sizes.pages(*percent)).chain([compared]).collect();
    looked_at.sort_unstable_by(|one, other| other.cmp(one));
    looked_at.dedup();
    let asked = || looked_at.iter().map(|pages| (*pages, PREFETCHER)).chain([(compared, NO_PREFETCHER)]);
    let combinations: Vec<Combination> = backends
        .iter()
        .flat_map(|backend| asked().map(move |(pages, prefetch)| combination(backend, pages, prefetch)))
        .collect();
    let factor = |figures: &ReplayStats| figures.slowdown().unwrap_or(1.0);
    let replayed: Vec<f64> = replay_all(work, &combinations)?.iter().map(factor).collect();
    let per_backend: Vec<&[f64]> = replayed.chunks(looked_at.len() + 1).collect();
    let mut brackets: Vec<Bracket> =
        per_backend.iter().map(|slowdowns| Bracket::of(sizes, &looked_at, slowdowns, slowdown)).collect();
    for _ in 0..ROUNDS_MAX {
        let tried: Vec<(usize, u64)> =
            brackets.iter().enumerate().filter_map(|(index, bracket)| Some((index, bracket.next()?))).collect();
        if tried.is_empty() {
            break;
        }
        let next: Vec<Combination> =
            tried.iter().map(|(index, pages)| combination(&backends[*index], *pages, PREFETCHER)).collect();
        for ((index, pages), figures) in tried.iter().zip(&replay_all(work, &next)?) {
            brackets[*index].tell(*pages, factor(figures), slowdown);
        }
    }
    let prediction = |(slowdowns, bracket): (&&[f64], Bracket)| {
        let at = |pages: u64| Some(slowdowns[looked_at.iter().position(|one| *one == pages)?]);
        Prediction {
            slowdowns: SIZES_PERCENT.iter().map(|percent| at(sizes.pages(*percent)?)).collect(),
            compared: at(compared).unwrap_or(1.0),
            without_prefetching: slowdowns[looked_at.len()],
            least: bracket.enough,
        }
    };
    Ok(per_backend.iter().zip(brackets).map(prediction).collect())
}

/// The sizes between which the least one lies.
struct Bracket {
    /// The smallest that is known to keep the slowdown.
    enough: Least,
    /// The largest below it that does not; `None`: none is known.
    too_small: Option<u64>,
    /// The least that is looked at.
    least_pages: u64,
}

impl Bracket {
    /// `looked_at`: from large to small, with their `slowdowns`. These need not grow from each to the next: the smallest size that keeps the slowdown counts.
    fn of(sizes: Sizes, looked_at: &[u64], slowdowns: &[f64], asked: f64) -> Bracket {
        let mut bracket = Bracket {
            enough: Least { pages: sizes.touched_pages, slowdown: 1.0 },
            too_small: None,
            least_pages: sizes.least_pages,
        };
        for (pages, slowdown) in looked_at.iter().zip(slowdowns) {
            if *slowdown <= asked {
                bracket.enough = Least { pages: *pages, slowdown: *slowdown };
                bracket.too_small = None;
            } else if bracket.too_small.is_none() {
                bracket.too_small = Some(*pages);
            }
        }
        bracket
    }

    /// The size to try next: the least where none is known to be too small, else between both, as many times the one as the other is of it.
    fn next(&self) -> Option<u64> {
        let enough = self.enough.pages;
        let Some(too_small) = self.too_small else {
            return (self.least_pages < enough).then_some(self.least_pages);
        };
        let middle = whole_steps((too_small * enough).isqrt());
        (enough - too_small > enough / APART_PART && middle > too_small && middle < enough).then_some(middle)
    }

    fn tell(&mut self, pages: u64, slowdown: f64, asked: f64) {
        if slowdown > asked {
            self.too_small = Some(pages);
        } else {
            self.enough = Least { pages, slowdown };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::costs::Costs;
    use hinterland_sim::pages_in_order;

    /// A hot part that is touched nine times while a cold one is walked through once, with so long for each touch.
    fn work_of(touches: u32, hot: u32, cold: u32, ns: u64) -> Workload {
        let touches = (0..touches).flat_map(|i| {
            let hot_pages = (0..9).map(move |k| (i * 9 + k).wrapping_mul(0x9e37_79b9) % hot);
            hot_pages.chain([hot + i % cold])
        });
        pages_in_order(touches, ns).unwrap()
    }

    fn work() -> Workload {
        work_of(20_000, 1_000, 3_000, 1_000)
    }

    /// All sizes from a MiB on.
    fn sizes(work: &Workload) -> Sizes {
        Sizes { touched_pages: work.touched_pages(), least_pages: STEP_PAGES }
    }

    fn looked_at(sizes: Sizes) -> Vec<u64> {
        SIZES_PERCENT.iter().filter_map(|percent| sizes.pages(*percent)).collect()
    }

    #[test]
    fn slower_links_are_slower_and_the_least_memory_keeps_the_slowdown() {
        let (work, costs) = (work(), Costs::read(None).unwrap());
        let predictions = all(&work, sizes(&work), FaultPath::Inline, &costs.backends, 1.5).unwrap();
        for prediction in &predictions {
            let least = prediction.least;
            assert!(least.slowdown <= 1.5, "{least:?}");
            assert!((STEP_PAGES..=work.touched_pages()).contains(&least.pages), "{least:?}");
            assert_eq!(prediction.slowdowns[1], Some(prediction.compared));
            let fitting =
                SIZES_PERCENT.iter().zip(&prediction.slowdowns).filter(|(_, slowdown)| **slowdown <= Some(1.5));
            let fitting = fitting.filter_map(|(percent, _)| sizes(&work).pages(*percent));
            assert!(fitting.min().is_none_or(|pages| least.pages <= pages), "{prediction:?}");
        }
        // The disk beside compressed RAM.
        let (near, far) = (&predictions[0], &predictions[3]);
        assert!(near.slowdowns.iter().zip(&far.slowdowns).all(|(near, far)| near <= far), "{near:?} {far:?}");
        assert!(near.least.pages <= far.least.pages);
    }

    #[test]
    fn the_least_memory_is_looked_for_below_the_smallest_share() {
        let (work, costs) = (work_of(200_000, 5_000, 95_000, 10_000), Costs::read(None).unwrap());
        let whole = Sizes { touched_pages: work.touched_pages(), least_pages: floor_pages() };
        let prediction = &all(&work, whole, FaultPath::Inline, &costs.backends[..1], 1.3).unwrap()[0];
        let least = prediction.least;
        assert!(least.slowdown <= 1.3 && least.pages < work.touched_pages() / 10, "{prediction:?}");
    }

    #[test]
    fn with_the_smallest_size_and_no_pages_beyond_it_all_is_local() {
        for touched in [1, 100, 255, 256, 4_095, 4_096] {
            let touches = (0..touched * 10).map(|touch| u32::try_from(touch % touched).unwrap());
            let (work, costs) = (pages_in_order(touches, 1_000).unwrap(), Costs::read(None).unwrap());
            let sizes = Sizes { touched_pages: touched, least_pages: floor_pages() };
            for prediction in all(&work, sizes, FaultPath::Inline, &costs.backends, 1.01).unwrap() {
                assert_eq!(prediction.least, Least { pages: touched, slowdown: 1.0 });
                assert!(prediction.slowdowns.iter().all(Option::is_none), "{prediction:?}");
            }
        }
    }

    #[test]
    fn sizes_are_whole_mib_and_none_is_smaller_than_a_run_has() {
        let sizes = Sizes { touched_pages: 10_001, least_pages: floor_pages() };
        let found: Vec<Option<u64>> = SIZES_PERCENT.iter().map(|percent| sizes.pages(*percent)).collect();
        assert_eq!(found, [Some(30 * 256), Some(20 * 256), Some(16 * 256), None, None, None]);
    }

    #[test]
    fn a_bracket_closes_on_the_step() {
        let sizes = sizes(&work());
        let looked_at = looked_at(sizes);
        for edge in [300, 1_777, 3_900] {
            let step = |pages: u64| if pages >= edge { 1.0 } else { 5.0 };
            let slowdowns: Vec<f64> = looked_at.iter().map(|pages| step(*pages)).collect();
            let mut bracket = Bracket::of(sizes, &looked_at, &slowdowns, 1.2);
            for _ in 0..ROUNDS_MAX {
                let Some(pages) = bracket.next() else { break };
                bracket.tell(pages, step(pages), 1.2);
            }
            assert_eq!(bracket.enough.pages, whole_steps(edge).min(sizes.touched_pages), "{edge}");
        }
        let of = |slowdowns: [f64; 6]| Bracket::of(sizes, &looked_at, &slowdowns, 1.2);
        assert_eq!(of([9.0; 6]).enough.pages, sizes.touched_pages);
        assert_eq!(of([1.0; 6]).next(), Some(STEP_PAGES), "the least of all was not tried");
        let bracket = of([1.3, 1.1, 1.3, 1.3, 1.1, 1.3]);
        assert_eq!((Some(bracket.enough.pages), bracket.too_small), (sizes.pages(20), sizes.pages(10)), "not monotone");
    }
}
