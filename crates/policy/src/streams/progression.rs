//! Steps of more than one page: arithmetic progressions among the last faults, whatever lies between their terms.
//!
//! Leap's majority vote sees one trend at a time, and two strides in turn look random to it (§3.2.2). Here each term is looked
//! for by itself: streams may come in any order and number, as long as so many of their faults are among the last requests.

use super::stream::Step;

/// Requests that are remembered: eight streams in turn, and the terms that found one of them.
const REQUESTS: usize = 32;
/// The longest step, in pages: 16 MiB. Random faults in a small range would seldom be further apart.
const STEP_MAX: u32 = 4096;
/// Terms that found a stream when nothing speaks against it.
const TERMS_MIN: u32 = 3;
/// Terms after many streams that were chance. Of random faults in as few pages as [`STEP_MAX`], every fourth ends three terms, one in
/// 500 ends four; so where half of the last faults are that near, one more is needed anyway.
const TERMS_MAX: u32 = 6;

/// What stands for a request that is no fault on far memory. No progression leads to the last page number, which no far range
/// reaches.
const NONE: u32 = u32::MAX;

/// The faults on far memory among the last requests.
pub(super) struct Progressions {
    /// In order of arrival, from `next` on.
    pages: [u32; REQUESTS],
    next: usize,
    terms_needed: u32,
}

impl Progressions {
    pub(super) fn new() -> Progressions {
        Progressions { pages: [NONE; REQUESTS], next: 0, terms_needed: TERMS_MIN }
    }

    /// Notes a request: a fault on far memory, or another, by which the older ones are forgotten.
    pub(super) fn push(&mut self, fault: Option<u32>) {
        self.pages[self.next] = fault.unwrap_or(NONE);
        self.next = (self.next + 1) % REQUESTS;
    }

    /// A stream that was found here was none.
    pub(super) fn distrust(&mut self) {
        self.terms_needed = (self.terms_needed + 1).min(TERMS_MAX);
    }

    /// A stream that was found here was one.
    pub(super) fn trust(&mut self) {
        self.terms_needed = (self.terms_needed - 1).max(TERMS_MIN);
    }

    /// The shortest step of more than one page by which the last faults lead to `page`, with as many terms as are needed, itself
    /// among them. Short steps first: streams that lie at equal distances and come in turn are a progression, too. `None` beside a
    /// neighbour: every sequential walk has progressions of all steps.
    pub(super) fn step_to(&self, page: u32) -> Option<Step> {
        // Without a way out in the middle, so that several are looked at at once.
        if self.pages.iter().fold(false, |known, other| known | (page.abs_diff(*other) <= 1)) {
            return None;
        }
        let near = |other: &&u32| page.abs_diff(**other) <= STEP_MAX;
        let crowded = self.pages.iter().filter(near).count() >= REQUESTS / 2;
        let terms = self.terms_needed + u32::from(crowded);
        let mut shortest = None;
        let mut shorter_than = STEP_MAX + 1;
        // The last ones first: of a stream that goes on they have the shortest step.
        let (last, before) = self.pages.split_at(self.next);
        for &other in last.iter().rev().chain(before.iter().rev()) {
            let distance = page.abs_diff(other);
            if distance >= shorter_than {
                continue;
            }
            let step = i64::from(page) - i64::from(other);
            if self.holds(page, step, terms) {
                shortest = Some(Step(step));
                shorter_than = distance;
            }
        }
        shortest
    }

    fn holds(&self, page: u32, step: i64, terms: u32) -> bool {
        (2..i64::from(terms))
            .all(|back| u32::try_from(i64::from(page) - step * back).is_ok_and(|term| self.pages.contains(&term)))
    }
}
