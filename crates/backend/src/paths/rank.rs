//! The order of paths under `auto`: by their scores, time times memory.
//!
//! A path's score is the time of a page that is loaded alone, in nanoseconds, times the bytes that a page takes there, times the
//! price of a byte relative to RAM of this machine. Paths whose scores are within [`ALIKE`] of each other share the pages; the
//! others follow as lower tiers.
//!
//! A tier is as good as its best path with its queue: where a page waits so long that the next path would be as fast,
//! that one joins the tier, and takes its part. The order is that of pages without queues, so load makes no path go
//! below another.
//!
//! A path from which nothing was loaded for a minute, while pages came from others, may be another one by now: its score is forgotten, and it is
//! tried out again. Time in which nothing was loaded at all is no part of that minute.
//!
//! Scores vary, tiers are to stay: paths of one tier part at [`PARTS`], those of two join at [`JOINS`].

use super::{PATHS_MAX, RANKED_ANEW};
use std::time::{Duration, Instant};

/// Scores that differ by less are of one kind: measured times differ by half from one minute to the next.
const ALIKE: f64 = 2.0;
/// The same of paths that are in one tier, and in two.
const PARTS: f64 = 2.5;
const JOINS: f64 = 1.6;

/// See the module.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The tiers that were found last.
#[derive(Default)]
pub(super) struct Ranking {
    /// `None`: none were.
    pub(super) found: Option<Instant>,
    /// They are to be found anew at once, because there are other paths.
    pub(super) is_due: bool,
    pub(super) ranked: Ranked,
    pub(super) idle_times: IdleTimes,
}

impl Ranking {
    pub(super) fn is_old(&self) -> bool {
        self.is_due || self.found.is_none_or(|found| found.elapsed() >= RANKED_ANEW)
    }
}

/// For how long nothing was loaded from each path while pages came from others.
#[derive(Default)]
pub(super) struct IdleTimes([Duration; PATHS_MAX]);

impl IdleTimes {
    /// After `passed`, of paths with how long ago a page was loaded from each (`None`: none ever was): those of which what is known is too old.
    /// A time in which some path was loaded from counts as [`RANKED_ANEW`] at most: the program may have slept in it.
    pub(super) fn pass(&mut self, passed: Duration, paths: &[(usize, Option<Duration>)]) -> Vec<usize> {
        let was_loaded = |idle: &Option<Duration>| idle.is_none_or(|idle| idle < passed);
        let counts = paths.iter().any(|(_, idle)| idle.is_some() && was_loaded(idle));
        for (path, idle) in paths {
            match was_loaded(idle) {
                true => self.0[*path] = Duration::ZERO,
                false if counts => self.0[*path] += passed.min(RANKED_ANEW),
                false => {}
            }
        }
        paths.iter().map(|(path, _)| *path).filter(|path| self.0[*path] >= FORGOTTEN).collect()
    }
}

/// What is known of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Its number.
    pub(super) path: usize,
    /// Nanoseconds of a page that is loaded alone; `None`: none was.
    pub(super) one_ns: Option<f64>,
    /// Nanoseconds that a page waits there for others, on average.
    pub(super) queue_ns: f64,
    /// Bytes that a page takes there, relative to its size, times the price of a byte relative to RAM.
    pub(super) cost: f64,
}

/// The tiers: the best paths first, those of a kind together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ranked {
    scored: Vec<Vec<usize>>,
    /// Those of which nothing is known.
    unknown: Vec<usize>,
}

impl Ranked {
    /// The tiers by what is known now, after these. Pure.
    pub(super) fn next(&self, paths: &[Known]) -> Ranked {
        let mut scored: Vec<(f64, Known)> =
            paths.iter().filter_map(|known| Some((known.one_ns? * known.cost, *known))).collect();
        scored.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut tiers: Vec<(Known, f64, Vec<usize>)> = Vec::new();
        for (score, known) in scored {
            match tiers.last_mut() {
                Some((first, loaded, tier)) if score < *loaded * self.alike(first.path, known.path) => {
                    tier.push(known.path);
                }
                _ => tiers.push((known, score + known.queue_ns * known.cost, vec![known.path])),
            }
        }
        Ranked {
            scored: tiers.into_iter().map(|(.., tier)| tier).collect(),
            unknown: paths.iter().filter(|known| known.one_ns.is_none()).map(|known| known.path).collect(),
        }
    }

    fn alike(&self, one: usize, other: usize) -> f64 {
        match (self.tier_of(one), self.tier_of(other)) {
            (Some(one), Some(other)) if one == other => PARTS,
            (Some(_), Some(_)) => JOINS,
            _ => ALIKE,
        }
    }

    /// The tier that a path has by its score, from 0.
    pub(super) fn tier_of(&self, path: usize) -> Option<usize> {
        self.scored.iter().position(|tier| tier.contains(&path))
    }

    /// The tier that a path is in, from 0, known or not.
    pub(super) fn place_of(&self, path: usize) -> Option<usize> {
        self.tiers().iter().position(|tier| tier.contains(&path))
    }

    /// The tiers. What is not known is in the first one, at its end: it is tried out there with a few pages.
    pub(super) fn tiers(&self) -> Vec<Vec<usize>> {
        let mut tiers = self.scored.clone();
        match tiers.first_mut() {
            Some(first) => first.extend(&self.unknown),
            None if self.unknown.is_empty() => {}
            None => tiers.push(self.unknown.clone()),
        }
        tiers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(path: usize, page_us: f64, cost: f64) -> Known {
        Known { path, one_ns: (page_us > 0.0).then_some(page_us * 1000.0), queue_ns: 0.0, cost }
    }

    fn tiers(paths: &[Known]) -> Vec<Vec<usize>> {
        Ranked::default().next(paths).tiers()
    }

    #[test]
    fn the_cheapest_of_time_times_memory_come_first_and_equals_together() {
        // A slow file, compressed RAM, two nodes.
        let paths = [known(0, 120.0, 0.05), known(1, 3.0, 0.4), known(2, 40.0, 0.5), known(3, 60.0, 0.5)];
        assert_eq!(tiers(&paths), [vec![1], vec![0], vec![2, 3]]);
        // RAM in which nothing shrinks, beside a fast link.
        assert_eq!(tiers(&[known(0, 3.0, 1.1), known(1, 4.0, 0.25)]), [[1], [0]]);
    }

    #[test]
    fn what_is_not_known_is_tried_out_behind_the_best() {
        assert_eq!(tiers(&[known(0, 0.0, 1.0), known(1, 0.0, 1.0)]), [[0, 1]]);
        assert_eq!(tiers(&[known(0, 0.0, 1.0), known(1, 50.0, 1.0), known(2, 7.0, 1.0)]), [vec![2, 0], vec![1]]);
        assert!(tiers(&[]).is_empty());
    }

    #[test]
    fn scores_that_vary_leave_the_tiers_as_they_are() {
        for (first, stays) in [(1.9, vec![vec![0, 1]]), (2.1, vec![vec![0], vec![1]])] {
            let mut ranked = Ranked::default();
            for turn in 0..100 {
                let ratio = if turn == 0 { first } else { [1.7, 2.4, 1.95, 2.05][turn % 4] };
                ranked = ranked.next(&[known(0, 10.0, 0.5), known(1, 10.0 * ratio, 0.5)]);
                assert_eq!(ranked.tiers(), stays, "turn {turn}");
            }
        }
        let apart = Ranked::default().next(&[known(0, 10.0, 0.5), known(1, 30.0, 0.5)]);
        let together = apart.next(&[known(0, 10.0, 0.5), known(1, 15.0, 0.5)]);
        assert_eq!((together.tiers(), together.tier_of(1)), (vec![vec![0, 1]], Some(0)));
        assert_eq!(together.next(&[known(0, 10.0, 0.5), known(1, 26.0, 0.5)]).tiers(), [[0], [1]]);
    }

    #[test]
    fn a_path_is_forgotten_while_others_are_loaded_from_and_all_are_remembered_by_a_program_that_sleeps() {
        let (ms, mut idle_times) = (Duration::from_millis, IdleTimes::default());
        let paths = |first: u64, second: u64| [(0, Some(ms(first))), (1, Some(ms(second))), (7, None)];
        // Asleep for ten minutes, and then one page.
        assert!(idle_times.pass(ms(600_000), &paths(600_000, 600_000)).is_empty());
        assert!(idle_times.pass(ms(600_000), &paths(10, 600_000)).is_empty());
        assert!(idle_times.pass(ms(600_000), &paths(600_000, 600_000)).is_empty());
        // A minute of pages from the first one, with another sleep in it.
        assert!((1..59).all(|second| idle_times.pass(ms(1_000), &paths(10, 1_000 * second)).is_empty()));
        assert!(idle_times.pass(ms(600_000), &paths(600_000, 660_000)).is_empty());
        assert_eq!(idle_times.pass(ms(1_000), &paths(10, 661_000)), [1]);
        assert_eq!(idle_times.pass(ms(1_000), &paths(1_010, 662_000)), [1], "until a page comes from it");
        assert!(idle_times.pass(ms(1_000), &paths(10, 20)).is_empty());
        assert!((1..60).all(|second| idle_times.pass(ms(1_000), &paths(1_000 * second, 10)).is_empty()));
        assert_eq!(idle_times.pass(ms(1_000), &paths(60_000, 10)), [0]);
    }

    #[test]
    fn a_path_on_which_pages_wait_gets_help_and_stays_the_first() {
        let at = |queue_us: f64| [Known { queue_ns: queue_us * 1000.0, ..known(0, 10.0, 0.5) }, known(1, 60.0, 0.5)];
        let ranked = Ranked::default().next(&at(0.0));
        assert_eq!(ranked.tiers(), [[0], [1]]);
        let helped = ranked.next(&at(40.0));
        assert_eq!(helped.tiers(), [[0, 1]]);
        assert_eq!(helped.next(&at(18.0)).tiers(), [[0, 1]], "the help halves what waits");
        assert_eq!(helped.next(&at(5.0)).tiers(), [[0], [1]]);
        assert_eq!(ranked.next(&at(10_000.0)).tiers(), [[0, 1]], "and never below what is slower alone");
    }
}
