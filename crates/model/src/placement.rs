//! On which memory component a page is (§6.9).

use crate::random::Random;

/// How pages are distributed over memory components.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Page after page in turns.
    RoundRobin,
    /// Each page by itself.
    Random,
}

impl Placement {
    /// The component of a page, of `count`. The same seed places it there again.
    pub fn component(self, page: u32, count: u32, seed: u64) -> usize {
        let component = match self {
            Placement::RoundRobin => page % count,
            Placement::Random => {
                let drawn = Random::new(seed ^ u64::from(page).rotate_left(32)).below(u64::from(count));
                u32::try_from(drawn).expect("below the count")
            }
        };
        component as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages_of(placement: Placement, count: u32, seed: u64) -> Vec<usize> {
        (0..8000).map(|page| placement.component(page, count, seed)).collect()
    }

    #[test]
    fn round_robin_takes_turns() {
        assert_eq!(pages_of(Placement::RoundRobin, 3, 1)[..7], [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn random_pages_are_spread_evenly_and_as_the_seed_says() {
        let pages = pages_of(Placement::Random, 4, 1);
        for component in 0..4 {
            let count = pages.iter().filter(|page| **page == component).count();
            assert!((1850..2150).contains(&count), "{component}: {count}");
        }
        assert_eq!(pages, pages_of(Placement::Random, 4, 1));
        assert_ne!(pages, pages_of(Placement::Random, 4, 2));
        // Neighbours are not in turns.
        let same = pages.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((1850..2150).contains(&same), "{same}");
    }

    #[test]
    fn one_component_has_all_pages() {
        for placement in [Placement::RoundRobin, Placement::Random] {
            assert!(pages_of(placement, 1, 7).iter().all(|component| *component == 0));
        }
    }
}
