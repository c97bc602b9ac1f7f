//! Which programs run under which settings, and how large: the lists behind `./dev test` and `./dev test --full`.
//!
//! | list | programs × settings | size |
//! |---|---|---|
//! | [`pairwise`] | every pair of program, feature set, far memory, heap mode and eviction policy | small |
//! | [`product`] | every combination of the first four, with the feature sets that differ on a fault path, one on memory nodes; the eviction policies take turns | small |
//! | [`full_size`] | every program four times, see there | full |
//!
//! `./dev test` runs the first list, `./dev test --full` the other two.

use crate::{EVICTS, FARS, FEATURES, HEAPS, MIB, PATHS, Scenario, Variant, features_of, pairs, programs};
use std::collections::HashSet;

/// Native peak to aim at where many runs have to end in their time; a quarter of it is above the smallest budget.
pub const SMALL_SIZE_BYTES: u64 = 72 * MIB;
/// Native peak to aim at where size matters.
pub const FULL_SIZE_BYTES: u64 = 640 * MIB;

/// One program under one choice of settings.
#[derive(Clone, Copy)]
pub struct Run {
    /// The program.
    pub scenario: &'static Scenario,
    /// Its settings.
    pub variant: Variant,
    /// Native peak to aim at.
    pub size_bytes: u64,
}

/// A cover of all pairs.
pub fn pairwise() -> Vec<Run> {
    let sizes = [programs::ALL.len(), PATHS.len(), FEATURES.len(), FARS.len(), HEAPS.len(), EVICTS.len()];
    of_size(SMALL_SIZE_BYTES, pairs::cover(&sizes))
}

/// Every combination of program, fault path, feature set (of those that differ there; on memory nodes one), far memory and heap
/// mode.
pub fn product() -> Vec<Run> {
    let rows = pairs::product(&[programs::ALL.len(), PATHS.len(), FEATURES.len(), FARS.len(), HEAPS.len()]);
    let differs = |row: &Vec<usize>| features_in_product(PATHS[row[1]], FARS[row[3]]).contains(&FEATURES[row[2]]);
    let rows = rows.into_iter().filter(differs).enumerate();
    of_size(SMALL_SIZE_BYTES, rows.map(|(turn, row)| [row, vec![turn % EVICTS.len()]].concat()).collect())
}

fn features_in_product(path: &str, far: &str) -> &'static [&'static str] {
    if far == "nodes" { &FEATURES[..1] } else { features_of(path) }
}

/// Every program at full size: as a user gets it without flags; with the oldest feature set and large allocations alone,
/// on a disk; with a feature set between, on the other kind of disk; and on memory nodes. So each program meets each far memory
/// and each heap mode, and each feature set and policy meets several programs.
pub fn full_size() -> Vec<Run> {
    let oldest = FEATURES.len() - 1;
    let rows = programs::ALL.iter().enumerate().flat_map(|(turn, scenario)| {
        let old = Variant {
            path: PATHS[turn % PATHS.len()],
            features: FEATURES[oldest],
            far: FARS[1 + turn % 2],
            heap: "large",
            evict: EVICTS[1 + turn % (EVICTS.len() - 1)],
        };
        let between = Variant {
            path: PATHS[1 + turn % (PATHS.len() - 1)],
            features: FEATURES[1 + turn % (oldest - 1)],
            far: FARS[2 - turn % 2],
            heap: "all",
            evict: EVICTS[turn % EVICTS.len()],
        };
        let nodes = Variant { path: PATHS[turn % PATHS.len()], far: FARS[3], ..Variant::DEFAULT };
        [Variant::DEFAULT, old, between, nodes].map(|variant| Run { scenario, variant, size_bytes: FULL_SIZE_BYTES })
    });
    rows.collect()
}

/// How many pairs of values of two of program, fault path, feature set and far memory meet in `runs`, and how many there are.
pub fn pairs_met(runs: &[Run]) -> (usize, usize) {
    let values = |run: &Run| [run.scenario.name, run.variant.path, run.variant.features, run.variant.far];
    let two = |at: &[&'static str; 4]| {
        let at = *at;
        (0..4).flat_map(move |one| (one + 1..4).map(move |other| ((one, at[one]), (other, at[other]))))
    };
    let of_these = runs.iter().filter(|run| PATHS.contains(&run.variant.path));
    let met: HashSet<_> = of_these.map(values).flat_map(|row| two(&row).collect::<Vec<_>>()).collect();
    let sizes = [programs::ALL.len(), PATHS.len(), FEATURES.len(), FARS.len()];
    let all = (0..4)
        .flat_map(|one| (one + 1..4).map(move |other| (one, other)))
        .map(|(one, other)| sizes[one] * sizes[other]);
    (met.len(), all.sum())
}

/// The rows as runs. The programs take turns: those that run at the same time are different ones, and none waits for the native run that
/// another begins with.
fn of_size(size_bytes: u64, mut rows: Vec<Vec<usize>>) -> Vec<Run> {
    rows.sort();
    let mut turns = [0; programs::ALL.len()];
    let mut in_turn: Vec<(usize, Vec<usize>)> = Vec::new();
    for row in rows {
        turns[row[0]] += 1;
        in_turn.push((turns[row[0]], row));
    }
    in_turn.sort();
    let run = |row: Vec<usize>| Run {
        scenario: &programs::ALL[row[0]],
        variant: Variant {
            path: PATHS[row[1]],
            features: FEATURES[row[2]],
            far: FARS[row[3]],
            heap: HEAPS[row[4]],
            evict: EVICTS[row[5]],
        },
        size_bytes,
    };
    in_turn.into_iter().map(|(_, row)| run(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AUTO;

    #[test]
    fn pairs_that_do_not_meet_are_not_counted() {
        let mut runs = pairwise();
        let (met, all) = pairs_met(&runs);
        assert_eq!((met, all), (all, 16 * 3 + 16 * 5 + 16 * 4 + 3 * 5 + 3 * 4 + 5 * 4));
        runs.retain(|run| run.variant.far != "nodes" || run.variant.path != "inline");
        assert!(pairs_met(&runs).0 < all);
        assert_eq!(pairs_met(&[full_size()[0]]).0, 0, "a path that is chosen by program is none of them");
    }

    #[test]
    fn runs_beside_each_other_are_of_different_programs() {
        for runs in pairwise().windows(4) {
            let names: HashSet<_> = runs.iter().map(|run| run.scenario.name).collect();
            assert_eq!(names.len(), runs.len(), "{names:?}");
        }
    }

    #[test]
    fn every_value_appears_at_full_size() {
        let runs = full_size();
        let seen = |of: fn(&Variant) -> &'static str| runs.iter().map(|run| of(&run.variant)).collect::<HashSet<_>>();
        assert_eq!(seen(|variant| variant.path), HashSet::from(PATHS).union(&HashSet::from([AUTO])).copied().collect());
        assert_eq!(seen(|variant| variant.features), HashSet::from(FEATURES));
        assert_eq!(seen(|variant| variant.far), HashSet::from(FARS));
        assert_eq!(seen(|variant| variant.heap), HashSet::from(HEAPS));
        assert_eq!(seen(|variant| variant.evict), HashSet::from(EVICTS));
        for scenario in programs::ALL {
            let fars = runs.iter().filter(|run| run.scenario.name == scenario.name).map(|run| run.variant.far);
            assert_eq!(fars.collect::<HashSet<_>>(), HashSet::from(FARS), "{}", scenario.name);
        }
    }

    #[test]
    fn the_product_has_every_combination_and_every_policy() {
        let runs = product();
        let rows: HashSet<_> = runs
            .iter()
            .map(|Run { scenario, variant, .. }| {
                (scenario.name, variant.path, variant.features, variant.far, variant.heap)
            })
            .collect();
        let kernels = |far: &str| PATHS.iter().map(|path| features_in_product(path, far).len()).sum::<usize>();
        let each = FARS.iter().map(|far| kernels(far)).sum::<usize>() * HEAPS.len();
        assert_eq!(rows.len(), programs::ALL.len() * each);
        assert_eq!(runs.len(), rows.len());
        assert_eq!(runs.iter().map(|run| run.variant.evict).collect::<HashSet<_>>(), HashSet::from(EVICTS));
    }
}
