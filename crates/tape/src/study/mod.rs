//! What a trace says of its program: how much of it is regular, how much memory it works in, and how often it would have to
//! wait in less memory.
//!
//! What microsets do to it: a page that is touched again inside its microset is not recorded again. So all figures are of the
//! program as seen through a first level of memory of `microset_pages` pages, which is emptied when it is full. Miss ratios are
//! ratios of the recorded references, and say nothing of memory smaller than a microset.

mod features;
mod map;
mod pattern;
mod stack;

pub use features::{FeatureStudy, Features, RegionFeatures};
pub use hinterland_policy::{FRAGMENT_PAGES, WINDOW_REFERENCES};
pub use map::AccessMap;
pub use pattern::{Pattern, Patterns, Shares};
pub use stack::{Recency, StackDistances};

use crate::{Cause, Entry, Reference};
use std::collections::HashSet;

/// What one thread did.
#[derive(Clone, Default, Debug)]
pub struct ThreadStudy {
    /// Its references.
    pub references: u64,
    /// How regular they were.
    pub shares: Shares,
    /// Pages that it touched.
    pub pages: u64,
    /// Its processor time at its last reference, in nanoseconds.
    pub cpu_ns: u64,
    touched: HashSet<u64>,
    patterns: Patterns,
}

/// Everything at once, reference by reference.
#[derive(Default)]
pub struct Study {
    /// References so far.
    pub references: u64,
    /// By thread.
    pub threads: Vec<ThreadStudy>,
    /// Reuse, of all threads together.
    pub distances: StackDistances,
    /// Pages whose content was given up, by [`Cause`].
    pub discarded: [u64; 4],
    /// The program went on in its parent's at a fork: references that are no first touches are then of pages that it has ([`crate::Head::is_forked`]).
    pub is_forked: bool,
    /// Pages that it had, of those that it touches.
    pub inherited: u64,
    /// References of which the trace tells whether their page was written to.
    pub known: u64,
    /// Of these, those whose page was.
    pub written: u64,
}

impl Study {
    /// Nothing seen yet.
    pub fn new() -> Study {
        Study::default()
    }

    /// Takes in what a trace says next.
    pub fn entry(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Touch(reference) => {
                self.reference(reference);
            }
            Entry::Discard(discard) => {
                let position = |page: u32| u64::from(discard.region) << 32 | u64::from(page);
                for position in discard.each().map(position) {
                    let had_content = match discard.cause {
                        Cause::Freed => self.distances.has(position),
                        _ => self.distances.discard(position),
                    };
                    self.discarded[discard.cause as usize] += u64::from(had_content);
                }
            }
            Entry::MicrosetEnd { references, written } => {
                let known = (0..*references).filter_map(|index| written.get(index));
                let (all, yes) = known.fold((0, 0), |(all, yes), is_written| (all + 1, yes + u64::from(is_written)));
                (self.known, self.written) = (self.known + all, self.written + yes);
            }
        }
    }

    /// Takes a reference in; tells its stack distance. `None`: its page had no content; `u64::MAX`: it has that of the parent, which memory of no size
    /// has.
    pub fn reference(&mut self, reference: &Reference) -> Option<u64> {
        self.references += 1;
        let index = reference.thread as usize;
        if index >= self.threads.len() {
            self.threads.resize(index + 1, ThreadStudy::default());
        }
        let thread = &mut self.threads[index];
        thread.references += 1;
        thread.cpu_ns = reference.cpu_ns;
        thread.shares.count(thread.patterns.reference(reference.position()));
        thread.pages += u64::from(thread.touched.insert(reference.position()));
        match self.distances.reference(reference.position()) {
            Recency::Distance(distance) => Some(distance),
            Recency::First => (self.is_forked && !reference.is_first).then(|| {
                self.inherited += 1;
                u64::MAX
            }),
        }
    }

    /// References to pages without content: the misses of memory in which everything fits, but for what it had.
    pub fn first_touches(&self) -> u64 {
        self.distances.first_touches() - self.inherited
    }

    /// The shares of all threads together.
    pub fn shares(&self) -> Shares {
        self.threads.iter().fold(Shares::default(), |sum, thread| sum + thread.shares)
    }
}
