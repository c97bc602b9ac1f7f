//! The access history and its majority (Leap §3.2.1, Algorithm 1).
//!
//! ```text
//!   steps   … +2  +2  +4  +41  -39  +2  +2        newest on the right
//!                        └──── 4: none ────┘
//!          └──────── 8: +2, five of eight ─┘
//! ```
//!
//! The vote is Boyer's and Moore's (MJRTY, 1991): one pass, one candidate, one counter. A larger window continues the vote of
//! the smaller one, so a step is voted on once however often the window doubles; only the count that confirms a candidate
//! reads a window again: at most 3 passes over the history in all.

use hinterland_units::PageNo;

/// The last steps between requests, in pages, in a ring.
pub(super) struct AccessHistory {
    steps: Box<[i64]>,
    /// Where the next step goes.
    head: usize,
    last: Option<PageNo>,
}

impl AccessHistory {
    /// Nothing requested yet; room for `steps`, a power of two.
    pub(super) fn new(steps: usize) -> AccessHistory {
        assert!(steps.is_power_of_two(), "a ring of {steps} steps has no mask");
        AccessHistory { steps: vec![0; steps].into(), head: 0, last: None }
    }

    /// Notes a request; tells the step that led to it, 0 for the first one.
    pub(super) fn record(&mut self, page: PageNo) -> i64 {
        let step = self.last.map_or(0, |last| i64::from(page.0) - i64::from(last.0));
        self.last = Some(page);
        self.steps[self.head] = step;
        self.head = (self.head + 1) & (self.steps.len() - 1);
        step
    }

    /// The step at `age`, 0 for the newest.
    fn step(&self, age: usize) -> i64 {
        self.steps[(self.head.wrapping_sub(age + 1)) & (self.steps.len() - 1)]
    }

    /// `FindTrend`: the step that more than half of the newest `1 / split` of the history took, or of twice as many, and so on
    /// up to all of it. Places that were never filled count as steps of 0, which is no trend.
    pub(super) fn find_trend(&self, split: usize) -> Option<i64> {
        let mut window = self.steps.len() / split;
        let (mut candidate, mut votes, mut voted) = (0, 0u32, 0);
        loop {
            for age in voted..window {
                let step = self.step(age);
                if votes == 0 {
                    candidate = step;
                }
                votes = if step == candidate { votes + 1 } else { votes - 1 };
            }
            voted = window;
            if votes > 0 && candidate != 0 {
                let count = (0..window).filter(|age| self.step(*age) == candidate).count();
                if count > window / 2 {
                    return Some(candidate);
                }
            }
            if window == self.steps.len() {
                return None;
            }
            window *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// §3.2.1, Figure 5.
    const EXAMPLE: [u32; 16] =
        [0x48, 0x45, 0x42, 0x3f, 0x3c, 0x02, 0x04, 0x06, 0x08, 0x0a, 0x0c, 0x10, 0x39, 0x12, 0x14, 0x16];

    #[test]
    fn the_papers_worked_example() {
        let mut history = AccessHistory::new(8);
        let trends: Vec<Option<i64>> = EXAMPLE
            .iter()
            .map(|page| {
                history.record(PageNo(*page));
                history.find_trend(2)
            })
            .collect();
        assert_eq!(trends[3], Some(-3), "t3");
        assert_eq!(trends[7], None, "t7");
        assert_eq!(trends[8], Some(2), "t8");
        assert_eq!(trends[15], Some(2), "t15");
    }

    #[test]
    fn steps_are_differences_of_consecutive_requests() {
        let mut history = AccessHistory::new(8);
        let steps: Vec<i64> = [2, 5, 4, 6, 1, 9].iter().map(|page| history.record(PageNo(*page))).collect();
        assert_eq!(steps, [0, 3, -1, 2, -5, 8], "§4.1");
    }

    /// The majority of each window counted plainly.
    fn counted(steps: &[i64], history: usize, split: usize) -> Option<i64> {
        let mut window = history / split;
        while window <= history {
            let newest: Vec<i64> = steps.iter().rev().copied().chain(std::iter::repeat(0)).take(window).collect();
            let major = newest.iter().find(|step| newest.iter().filter(|other| other == step).count() > window / 2);
            if let Some(step) = major.filter(|step| **step != 0) {
                return Some(*step);
            }
            window *= 2;
        }
        None
    }

    #[test]
    fn finds_exactly_the_majorities_that_counting_finds() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut found = 0;
        for round in 0..2000u32 {
            let (size, split) = ([8, 16, 32][round as usize % 3], [1, 2, 4, 8][round as usize / 3 % 4]);
            let mut history = AccessHistory::new(size);
            let (mut steps, mut page) = (Vec::new(), 1u32 << 20);
            for _ in 0..80 {
                page = page
                    .wrapping_add_signed([1, 1, 1, -7, 10, random.random_range(-500..500)][random.random_range(0..6)]);
                steps.push(history.record(PageNo(page)));
                let trend = history.find_trend(split);
                assert_eq!(trend, counted(&steps, size, split), "seed 1, round {round}, {steps:?}");
                found += u32::from(trend.is_some());
            }
        }
        assert!((10_000..150_000).contains(&found), "{found} trends test one answer only");
    }
}
