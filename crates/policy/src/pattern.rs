//! Which pattern requests follow, told from the last ones of the same thread or in the same region.
//!
//! A mapped page makes no request, so where streams are read ahead only their key pages are seen: a request in or about such a
//! window belongs to its stream. Of the others, a neighbour of one of the last requests is sequential, and one that ends a
//! progression of three is strided.

use crate::{PrefetchWindow, Unmapped};
use hinterland_units::PageNo;

/// Requests that are remembered: four strides in turn, and the terms that tell one of them.
const REQUESTS: usize = 8;
/// Windows of streams that are remembered.
const WINDOWS: usize = 4;
/// The longest step, in pages, as in `streams`.
const STEP_MAX: u32 = 4096;
/// No page of a far range has this number.
const NONE: u32 = u32::MAX;

/// How a request follows from those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// The next page, up or down.
    Sequential,
    /// So many pages further; neither 0 nor 1 nor -1.
    Strided(i64),
    /// By no step that was seen before.
    Irregular,
}

/// The last requests. See the module.
#[derive(Clone, Debug)]
pub struct Recent {
    pages: [u32; REQUESTS],
    next_page: usize,
    windows: [Option<PrefetchWindow>; WINDOWS],
    next_window: usize,
}

impl Recent {
    /// Nothing requested yet.
    #[allow(clippy::new_without_default, reason = "it is made where values are constant")]
    pub const fn new() -> Recent {
        Recent { pages: [NONE; REQUESTS], next_page: 0, windows: [None; WINDOWS], next_window: 0 }
    }

    /// Notes a request for content, and the window that the prefetcher asked for after it; tells its pattern.
    pub fn requested(&mut self, page: PageNo, window: Option<PrefetchWindow>) -> Pattern {
        // A window that waits as a whole may be a guess; one with a key page is a stream's.
        let stream = window.filter(|window| matches!(window.unmapped, Unmapped::Key(_)));
        let followed = stream.or_else(|| self.windows.iter().flatten().find(|window| is_about(window, page)).copied());
        let step = followed.map(|window| window.step).or_else(|| self.step_to(page.0));
        self.pages[self.next_page] = page.0;
        self.next_page = (self.next_page + 1) % REQUESTS;
        if stream.is_some() {
            self.windows[self.next_window] = stream;
            self.next_window = (self.next_window + 1) % WINDOWS;
        }
        match step {
            Some(-1 | 1) => Pattern::Sequential,
            Some(step) => Pattern::Strided(step),
            None => Pattern::Irregular,
        }
    }

    /// The shortest step by which the last requests lead to `page`.
    fn step_to(&self, page: u32) -> Option<i64> {
        if self.pages.iter().any(|other| page.abs_diff(*other) == 1) {
            return Some(1);
        }
        let steps = self.pages.iter().map(|other| i64::from(page) - i64::from(*other));
        let near = steps.filter(|step| (2..=u64::from(STEP_MAX)).contains(&step.unsigned_abs()));
        let held = near.filter(|step| {
            u32::try_from(i64::from(page) - 2 * step).is_ok_and(|before| before != NONE && self.pages.contains(&before))
        });
        held.min_by_key(|step| step.unsigned_abs())
    }
}

/// Whether a page lies on a stream's way, at most two windows before or behind its last window.
fn is_about(window: &PrefetchWindow, page: PageNo) -> bool {
    let distance = i64::from(page.0) - i64::from(window.first.0);
    let pages = i64::from(window.pages);
    distance % window.step == 0 && (-2 * pages..=3 * pages).contains(&(distance / window.step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Sequential, strided and irregular ones among requests.
    fn shares(pages: impl IntoIterator<Item = u32>) -> [u32; 3] {
        let (mut recent, mut counts) = (Recent::new(), [0; 3]);
        for page in pages {
            match recent.requested(PageNo(page), None) {
                Pattern::Sequential => counts[0] += 1,
                Pattern::Strided(_) => counts[1] += 1,
                Pattern::Irregular => counts[2] += 1,
            }
        }
        counts
    }

    #[test]
    fn walks_up_and_down_are_sequential() {
        assert_eq!(shares(0..1000), [999, 0, 1]);
        assert_eq!(shares((0..1000).rev()), [999, 0, 1]);
    }

    #[test]
    fn steps_are_strided_also_in_turn() {
        assert_eq!(shares((0..1000).map(|at| at * 10)), [0, 998, 2]);
        let four = (0..250).flat_map(|at| (0..4).map(move |stream| stream * 1_000_000 + at * 7));
        assert_eq!(shares(four), [0, 1000 - 8, 8]);
    }

    #[test]
    fn random_requests_are_irregular() {
        let mut random = SmallRng::seed_from_u64(1);
        let [sequential, strided, irregular] = shares((0..10_000).map(|_| random.random_range(0..1 << 18)));
        assert!(irregular > 9_900, "{sequential} {strided} {irregular}");
    }

    #[test]
    fn requests_about_a_streams_window_belong_to_it() {
        let stream = |first, step| PrefetchWindow {
            first: PageNo(first),
            step,
            pages: 64,
            unmapped: Unmapped::Key(PageNo(first)),
        };
        let mut recent = Recent::new();
        assert_eq!(recent.requested(PageNo(1000), Some(stream(1001, 1))), Pattern::Sequential);
        // The program is faster than what comes: it faults every 16 pages.
        let late: Vec<Pattern> = (1..6).map(|at| recent.requested(PageNo(1000 + at * 16), None)).collect();
        assert_eq!(late, [Pattern::Sequential; 5]);
        assert_eq!(recent.requested(PageNo(90_000), Some(stream(90_010, 10))), Pattern::Strided(10));
        assert_eq!(recent.requested(PageNo(90_050), None), Pattern::Strided(10));
        assert_eq!(recent.requested(PageNo(90_053), None), Pattern::Irregular);
    }

    #[test]
    fn a_guess_makes_no_pattern() {
        let mut recent = Recent::new();
        for page in [5, 70_000, 300, 9_000_000] {
            let guess = PrefetchWindow { first: PageNo(page + 1), step: 1, pages: 8, unmapped: Unmapped::All };
            assert_eq!(recent.requested(PageNo(page), Some(guess)), Pattern::Irregular);
        }
    }
}
