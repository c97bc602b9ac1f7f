//! What a program would take on each backend, at several sizes of local memory, by replays of its trace.

use super::costs::Backend;
use crate::sim::{Combination, replay_all};
use hinterland_sim::{FaultPath, Figures, LOCAL_PAGES_MIN, Setup, SetupError, Workload};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};

/// Local memory in per cent of what the program touches, from large to small.
pub const SIZES_PERCENT: [u64; 6] = [75, 50, 40, 30, 20, 10];
/// The size at which effectiveness is compared.
pub const COMPARED_PERCENT: u64 = 50;
/// The least local memory for a slowdown is looked for between two of the sizes, by so many halvings.
const HALVINGS: usize = 4;
/// What a run takes without flags.
const EVICTION: &str = "s3-fifo";
const PREFETCHER: &str = "auto";
/// What is compared with it: the plain demand fetch.
const NO_PREFETCHER: &str = "none";

/// What was predicted for a backend.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// Slowdowns at [`SIZES_PERCENT`], see [`is_simulated`].
    pub slowdowns: Vec<f64>,
    /// The slowdown without prefetching, at [`COMPARED_PERCENT`].
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

fn pages_of(work: &Workload, percent: u64) -> u64 {
    (work.touched_pages() * percent / 100).max(LOCAL_PAGES_MIN)
}

/// Whether so many per cent of what the program touches can be simulated; fewer pages count as the fewest that can.
pub fn is_simulated(work: &Workload, percent: u64) -> bool {
    work.touched_pages() * percent / 100 >= LOCAL_PAGES_MIN
}

/// Predicts for all backends, in their order; `slowdown` is the one that is asked for.
///
/// # Errors
/// A setup that cannot be simulated.
pub fn all(
    work: &Workload,
    path: FaultPath,
    backends: &[Backend],
    slowdown: f64,
) -> Result<Vec<Prediction>, SetupError> {
    let combination = |backend: &Backend, pages: u64, prefetch: &str| {
        let local = Budget::Bytes(ByteCount(pages * PAGE_BYTES as u64));
        let setup = Setup::new(local, backend.model()).on(path);
        Combination { setup, evict: EVICTION.into(), prefetch: prefetch.into() }
    };
    let sizes = || SIZES_PERCENT.iter().map(|percent| (pages_of(work, *percent), PREFETCHER));
    let asked = || sizes().chain([(pages_of(work, COMPARED_PERCENT), NO_PREFETCHER)]);
    let combinations: Vec<Combination> = backends
        .iter()
        .flat_map(|backend| asked().map(move |(pages, prefetch)| combination(backend, pages, prefetch)))
        .collect();
    let factor = |figures: &Figures| figures.slowdown().unwrap_or(1.0);
    let replayed: Vec<f64> = replay_all(work, &combinations)?.iter().map(factor).collect();
    let per_backend: Vec<&[f64]> = replayed.chunks(SIZES_PERCENT.len() + 1).collect();
    let mut brackets: Vec<Bracket> =
        per_backend.iter().map(|slowdowns| Bracket::of(work, &slowdowns[..SIZES_PERCENT.len()], slowdown)).collect();
    for _ in 0..HALVINGS {
        let tried: Vec<(usize, u64)> =
            brackets.iter().enumerate().filter_map(|(index, bracket)| Some((index, bracket.middle()?))).collect();
        let halves: Vec<Combination> =
            tried.iter().map(|(index, pages)| combination(&backends[*index], *pages, PREFETCHER)).collect();
        let replayed = if halves.is_empty() { Vec::new() } else { replay_all(work, &halves)? };
        for ((index, pages), figures) in tried.iter().zip(&replayed) {
            brackets[*index].halve(*pages, factor(figures), slowdown);
        }
    }
    let predictions = per_backend.iter().zip(brackets);
    Ok(predictions
        .map(|(slowdowns, bracket)| Prediction {
            slowdowns: slowdowns[..SIZES_PERCENT.len()].to_vec(),
            without_prefetching: slowdowns[SIZES_PERCENT.len()],
            least: bracket.enough,
        })
        .collect())
}

/// The sizes between which the least one lies.
struct Bracket {
    /// Keeps the slowdown.
    enough: Least,
    /// Does not; `None`: the smallest size that was looked at is enough.
    too_small: Option<u64>,
}

impl Bracket {
    fn of(work: &Workload, slowdowns: &[f64], asked: f64) -> Bracket {
        let mut enough = Least { pages: work.touched_pages(), slowdown: 1.0 };
        for (percent, slowdown) in SIZES_PERCENT.iter().zip(slowdowns) {
            let pages = pages_of(work, *percent);
            // With all that there is, nothing is far.
            if pages >= work.touched_pages() {
                break;
            }
            if *slowdown > asked {
                return Bracket { enough, too_small: Some(pages) };
            }
            enough = Least { pages, slowdown: *slowdown };
        }
        Bracket { enough, too_small: None }
    }

    /// The size to try next, while both ends are more than a hundredth apart.
    fn middle(&self) -> Option<u64> {
        let too_small = self.too_small?;
        let middle = too_small.midpoint(self.enough.pages);
        (middle - too_small > self.enough.pages / 100).then_some(middle)
    }

    fn halve(&mut self, pages: u64, slowdown: f64, asked: f64) {
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

    /// A hot part that is touched nine times while a cold one is walked through once, with 1 µs for each touch.
    fn work() -> Workload {
        let touches = (0..20_000u32).flat_map(|i| {
            let hot = (0..9).map(move |k| (i * 9 + k).wrapping_mul(0x9e37_79b9) % 1_000);
            hot.chain([1_000 + i % 3_000])
        });
        pages_in_order(touches, 1_000).unwrap()
    }

    #[test]
    fn slower_links_are_slower_and_the_least_memory_keeps_the_slowdown() {
        let (work, costs) = (work(), Costs::read(None).unwrap());
        let predictions = all(&work, FaultPath::Inline, &costs.backends, 1.5).unwrap();
        for prediction in &predictions {
            let least = prediction.least;
            assert!(least.slowdown <= 1.5, "{least:?}");
            assert!((LOCAL_PAGES_MIN..=work.touched_pages()).contains(&least.pages), "{least:?}");
            let larger = SIZES_PERCENT.iter().zip(&prediction.slowdowns);
            let fitting =
                larger.filter(|(_, slowdown)| **slowdown <= 1.5).map(|(percent, _)| pages_of(&work, *percent));
            assert!(fitting.min().is_none_or(|pages| least.pages <= pages), "{prediction:?}");
        }
        // The disk beside compressed RAM.
        let (near, far) = (&predictions[0], &predictions[3]);
        assert!(near.slowdowns.iter().zip(&far.slowdowns).all(|(near, far)| near <= far), "{near:?} {far:?}");
        assert!(near.least.pages <= far.least.pages);
    }

    #[test]
    fn where_less_is_touched_than_can_be_simulated_all_of_it_is_local() {
        for touched in [1, 100, LOCAL_PAGES_MIN - 1, LOCAL_PAGES_MIN, LOCAL_PAGES_MIN + 1] {
            let touches = (0..touched * 10).map(|touch| u32::try_from(touch % touched).unwrap());
            let (work, costs) = (pages_in_order(touches, 1_000).unwrap(), Costs::read(None).unwrap());
            for prediction in all(&work, FaultPath::Inline, &costs.backends, 1.1).unwrap() {
                assert!(prediction.least.pages <= touched, "{touched}: {:?}", prediction.least);
            }
            assert!(SIZES_PERCENT.iter().all(|percent| !is_simulated(&work, *percent)), "{touched}");
        }
        assert!(is_simulated(&work(), 75) && is_simulated(&work(), 10));
    }

    #[test]
    fn a_bracket_closes_on_the_step() {
        let work = work();
        let step = |pages: u64| if pages >= 1_777 { 1.0 } else { 5.0 };
        let slowdowns: Vec<f64> = SIZES_PERCENT.iter().map(|percent| step(pages_of(&work, *percent))).collect();
        let mut bracket = Bracket::of(&work, &slowdowns, 1.2);
        for _ in 0..20 {
            let Some(pages) = bracket.middle() else { break };
            bracket.halve(pages, step(pages), 1.2);
        }
        assert!((1_777..1_777 + 40).contains(&bracket.enough.pages), "{:?}", bracket.enough);
        assert_eq!(Bracket::of(&work, &[9.0; 6], 1.2).enough.pages, work.touched_pages());
        assert_eq!(Bracket::of(&work, &[1.0; 6], 1.2).middle(), None);
    }
}
