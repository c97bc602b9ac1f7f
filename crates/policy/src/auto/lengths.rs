//! How long the runs of a region are.

use crate::Choice;

/// A run of so many pages is a stream.
pub(super) const LONG_PAGES: u32 = 64;
/// Ended runs between two looks at all of them.
const LOOK_EVERY: u32 = 32;
/// Older runs count half after so many.
const RUNS_MAX: u32 = 512;

/// Runs that have ended, by length.
#[derive(Clone)]
pub(super) struct Lengths {
    /// By pages less one; the last one has all long runs.
    ended: [u16; LONG_PAGES as usize],
    /// Pages of long runs.
    long_pages: u32,
    runs: u32,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { ended: [0; LONG_PAGES as usize], long_pages: 0, runs: 0 }
    }
}

impl Lengths {
    /// A run of so many pages has ended; tells from time to time what the region is for.
    pub(super) fn ended(&mut self, pages: u32) -> Option<Choice> {
        self.ended[(pages.min(LONG_PAGES) - 1) as usize] += 1;
        if pages >= LONG_PAGES {
            self.long_pages = self.long_pages.saturating_add(pages);
        }
        self.runs += 1;
        if self.runs >= RUNS_MAX {
            self.ended.iter_mut().for_each(|count| *count /= 2);
            self.long_pages /= 2;
            self.runs /= 2;
        }
        self.runs.is_multiple_of(LOOK_EVERY).then(|| self.choice())
    }

    fn choice(&self) -> Choice {
        let pages = |(length, count): (u32, &u16)| length * u32::from(*count);
        let short: u32 = (2..LONG_PAGES).zip(&self.ended[1..]).map(pages).sum();
        let single = u32::from(self.ended[0]);
        let all = single.saturating_add(short).saturating_add(self.long_pages);
        if short < all / 4 || short <= self.long_pages {
            return Choice::Streams;
        }
        Choice::Runs { pages: self.median() }
    }

    /// Pages of a run of several: half of them are no longer.
    fn median(&self) -> u32 {
        let half = self.ended[1..].iter().map(|count| u32::from(*count)).sum::<u32>().div_ceil(2);
        let mut seen = 0;
        let reached = self.ended[1..].iter().position(|count| {
            seen += u32::from(*count);
            seen >= half
        });
        reached.map_or(2, |at| u32::try_from(at).unwrap_or(0) + 2)
    }

    /// How many pages at least so many quarters of the runs that came to `pages` (fewer than [`LONG_PAGES`]) went on for.
    pub(super) fn rest_of(&self, pages: u32, quarters: u32) -> u32 {
        let at = (pages - 1) as usize;
        let came: u32 = self.ended[at..].iter().map(|count| u32::from(*count)).sum();
        if came == 0 {
            // Longer than any before: perhaps as long again.
            return pages;
        }
        let mut left = came;
        let mut rest = 0;
        for count in &self.ended[at..LONG_PAGES as usize - 1] {
            left -= u32::from(*count);
            if left * 4 < came * quarters {
                return rest;
            }
            rest += 1;
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runs: &[(u32, u32)]) -> (Lengths, Option<Choice>) {
        let (mut lengths, mut choice) = (Lengths::default(), None);
        for _ in 0..100 {
            for (pages, count) in runs {
                (0..*count).for_each(|_| choice = lengths.ended(*pages).or(choice));
            }
        }
        (lengths, choice)
    }

    #[test]
    fn the_more_runs_must_go_on_the_fewer_pages_are_fetched() {
        let (lengths, _) = of(&[(2, 1), (3, 1), (6, 1), (8, 1)]);
        assert_eq!([1, 2, 3, 4].map(|quarters| lengths.rest_of(1, quarters)), [7, 5, 2, 1]);
        assert_eq!(
            [1, 3].map(|quarters| lengths.rest_of(3, quarters)),
            [5, 0],
            "a third of those that come so far end here"
        );
    }

    #[test]
    fn objects_of_one_length_are_fetched_whole() {
        for pages in [2, 3, 8, 32, 63] {
            let (lengths, choice) = of(&[(pages, 1)]);
            assert_eq!(choice, Some(Choice::Runs { pages }));
            let rest: Vec<u32> = (1..=pages).map(|at| lengths.rest_of(at, 1)).collect();
            assert!(rest.iter().copied().eq((0..pages).rev()), "{pages}: {rest:?}");
            assert_eq!(lengths.rest_of((pages + 1).min(63), 1), if pages == 63 { 0 } else { pages + 1 });
        }
    }

    #[test]
    fn of_several_lengths_a_quarter_decides() {
        let (lengths, choice) = of(&[(4, 4), (16, 1)]);
        assert_eq!(choice, Some(Choice::Runs { pages: 4 }));
        assert_eq!((lengths.rest_of(1, 1), lengths.rest_of(4, 1), lengths.rest_of(5, 1)), (3, 0, 11));
    }

    #[test]
    fn single_pages_and_long_runs_are_for_streams() {
        assert_eq!(of(&[(1, 1)]).1, Some(Choice::Streams));
        assert_eq!(of(&[(1, 10), (2, 1)]).1, Some(Choice::Streams));
        assert_eq!(of(&[(1, 5), (8, 1), (1000, 1)]).1, Some(Choice::Streams));
        assert_eq!(of(&[(1, 10)]).0.rest_of(1, 1), 0);
    }
}
