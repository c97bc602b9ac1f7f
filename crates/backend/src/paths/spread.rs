//! Spreads pages over paths in proportion to their bandwidth: stride scheduling (Waldspurger and Weihl 1995), in which a page on a path is
//! a stride as long as it takes there. The next page goes where it would be over first.
//!
//! Consecutive pages go to different paths, so that whatever is loaded together later comes over all of them at once.

use super::PATHS_MAX;

/// How far each path is ahead of the others, in the time that its pages take. Pure.
#[derive(Default)]
pub(super) struct Spread {
    ahead_ns: [u64; PATHS_MAX],
}

impl Spread {
    /// Chooses among `paths`, numbers with the nanoseconds that a page takes there (0: not known, as fast as the others on average), one for
    /// each of `pages`. At least one path.
    pub(super) fn choose(&mut self, paths: &[(usize, u64)], pages: usize) -> Vec<usize> {
        let known: Vec<u64> = paths.iter().map(|(_, page_ns)| *page_ns).filter(|page_ns| *page_ns > 0).collect();
        let average_ns = known.iter().sum::<u64>().checked_div(known.len() as u64).unwrap_or(1);
        let stride = |page_ns: u64| if page_ns == 0 { average_ns } else { page_ns };
        // Those that are not among them now, or were not before, have nothing to make up for.
        let least_ns = paths.iter().map(|(path, _)| self.ahead_ns[*path]).min().unwrap_or(0);
        for path in 0..PATHS_MAX {
            let longest_ns = paths.iter().find(|(other, _)| *other == path).map_or(0, |(_, page_ns)| stride(*page_ns));
            self.ahead_ns[path] = self.ahead_ns[path].saturating_sub(least_ns).min(longest_ns);
        }
        let next = |ahead_ns: &mut [u64; PATHS_MAX]| {
            let over = |(path, page_ns): &&(usize, u64)| ahead_ns[*path].saturating_add(stride(*page_ns));
            let (path, page_ns) = *paths.iter().min_by_key(over).expect("a path");
            ahead_ns[path] = ahead_ns[path].saturating_add(stride(page_ns));
            path
        };
        (0..pages).map(|_| next(&mut self.ahead_ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(chosen: &[usize]) -> Vec<usize> {
        let most = chosen.iter().max().map_or(0, |most| most + 1);
        (0..most).map(|path| chosen.iter().filter(|other| **other == path).count()).collect()
    }

    #[test]
    fn equal_paths_get_pages_in_turn_also_over_small_batches() {
        let mut spread = Spread::default();
        assert_eq!(spread.choose(&[(0, 0), (1, 0)], 4), [0, 1, 0, 1]);
        let singly: Vec<usize> = (0..300).flat_map(|_| spread.choose(&[(0, 5), (1, 5), (2, 5)], 1)).collect();
        assert_eq!(counts(&singly), [100, 100, 100]);
    }

    #[test]
    fn shares_are_those_of_the_bandwidth_for_every_part_of_a_batch() {
        let mut spread = Spread::default();
        let chosen = spread.choose(&[(0, 1_000), (1, 3_000), (2, 6_000)], 900);
        assert_eq!(counts(&chosen), [600, 200, 100]);
        for window in chosen.chunks(9) {
            let counts = counts(window);
            assert!((5..=7).contains(&counts[0]) && (1..=3).contains(&counts[1]), "{counts:?}");
        }
    }

    #[test]
    fn a_path_that_comes_or_comes_back_makes_up_for_nothing() {
        let mut spread = Spread::default();
        for alone in [0, 1] {
            spread.choose(&[(alone, 10)], 1_000);
            let counts = counts(&spread.choose(&[(0, 10), (1, 10)], 10));
            assert!(counts.iter().all(|count| (4..=6).contains(count)), "{counts:?}");
        }
        // Neither does one of which something is known at last.
        assert_eq!(counts(&spread.choose(&[(0, 10), (1, 40)], 10)), [8, 2]);
    }
}
