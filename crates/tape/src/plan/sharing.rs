//! What each process of a run has of local memory: the run divides it anew whenever processes come and go (decision 0013).

use hinterland_policy::{SHARE_FLOOR, fair_level};
use hinterland_units::PAGE_BYTES;

/// A process, as it was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// When it began, in nanoseconds on one clock for all of the run.
    pub begun_ns: u64,
    /// When it was gone; [`u64::MAX`]: that is not known.
    pub ended_ns: u64,
    /// Different pages that it touched.
    pub pages: u64,
}

impl Life {
    fn is_at(&self, ns: u64) -> bool {
        self.begun_ns == ns || self.begun_ns < ns && ns < self.ended_ns
    }
}

/// The pages of local memory that each process has at the least, while it lives: all of them alone, and beside others its max-min fair share by what they
/// touch, as the pager divides the budget. A tape for less serves where there is more; one for more than there is has pages leave early.
pub fn shares(local_pages: u64, lives: &[Life]) -> Vec<u64> {
    let floor = (SHARE_FLOOR / PAGE_BYTES as u64).min(local_pages);
    let mut shares = vec![local_pages; lives.len()];
    // Processes that end leave more to the others: shares are least where one begins.
    for begun in lives.iter().map(|life| life.begun_ns) {
        let level = fair_level(local_pages, || lives.iter().filter(|life| life.is_at(begun)).map(|life| life.pages));
        for (share, _) in shares.iter_mut().zip(lives).filter(|(_, life)| life.is_at(begun)) {
            *share = level.max(floor).min(*share);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: u64 = 10_000;

    fn life(begun_ns: u64, ended_ns: u64, pages: u64) -> Life {
        Life { begun_ns, ended_ns, pages }
    }

    #[test]
    fn processes_that_follow_one_another_have_all_and_those_at_the_same_time_divide_it() {
        let lives = [life(0, 10, 9_000), life(10, 20, 9_000), life(10, 15, 9_000), life(20, u64::MAX, 20_000)];
        assert_eq!(shares(LOCAL, &lives), [LOCAL, 5_000, 5_000, LOCAL]);
        assert_eq!(shares(LOCAL, &[life(0, 10, 4_000), life(5, 7, 5_000)]), [LOCAL, LOCAL], "both have room");
        assert_eq!(shares(LOCAL, &[]), [0; 0]);
    }

    #[test]
    fn one_that_needs_little_leaves_the_rest_to_the_others() {
        assert_eq!(shares(LOCAL, &[life(0, 9, 2_000), life(0, 9, 9_000), life(3, 5, 9_000)]), [4_000; 3]);
        // Each has what it needs up to the level, the first one all.
        let lives = [life(0, u64::MAX, 100), life(1, 9, 90_000)];
        assert_eq!(shares(LOCAL, &lives), [9_900; 2]);
    }

    #[test]
    fn the_least_of_a_process_life_counts_and_none_has_less_than_the_pager_leaves_it() {
        // Two come and go beside the first, one after the other, then three at once.
        let beside = [(1, 2), (2, 3), (4, 5), (4, 5), (4, 5)].map(|(begun, ended)| life(begun, ended, 20_000));
        let lives = [&[life(0, 9, 20_000)], &beside[..]].concat();
        assert_eq!(shares(LOCAL, &lives), [2_500, 5_000, 5_000, 2_500, 2_500, 2_500]);
        assert_eq!(shares(LOCAL, &[life(0, 9, 20_000); 100]), [1_024; 100]);
        assert_eq!(shares(500, &[life(0, 9, 20_000); 2]), [500; 2]);
    }
}
