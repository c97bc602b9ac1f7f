//! How oblivious a program is: what two or more of its runs have in common, phase by phase.
//!
//! ```text
//!   traces ──► Runs: each run's pages in order ──► stretches: all runs side by side, a new page of each at a time (see `stretch`)
//!                     └──────────────────────────► sets: what all runs touch from where a phase begins to where the next one does
//! ```
//!
//! 3PO prefetches for programs whose runs touch the same pages in the same order. Many more touch the same pages in another order: of
//! those a phase, a stretch in which the pages agree, can be fetched as a set (REAP does so for a whole function). A phase begins with
//! pages that the phase before it does not have; so a loop over one set is one phase, however often it runs.
//!
//! Pages are compared by region and number: the far range is at the same place in every run, and objects are at the same addresses as long
//! as they are allocated in the same order.
//!
//! Memory: 4 bytes for each reference of each run, 20 for each page and run.

mod order;
mod runs;
mod stretch;
mod write;

use crate::tape::PageRange;
use crate::{Region, Trace, TraceError};
use runs::Runs;
use stretch::{Stretch, Stretches};

pub use write::write_sets;

/// A phase agrees when of a thousand pages that a run touches in it at least so many are touched by all runs.
const AGREES_PERMILLE: u64 = 800;
/// A program is ordered when of a thousand pages so many are touched in the same order by all runs.
const ORDERED_PERMILLE: u64 = 900;
/// It is one of sets when of a thousand pages so many are touched in phases that agree: for most of it the sets are known.
const SET_PERMILLE: u64 = 500;

/// How oblivious a program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The sequences of its pages agree.
    Ordered,
    /// The pages of its phases agree, their order does not.
    Set,
    /// Neither does.
    Neither,
}

impl Verdict {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ordered => "ordered",
            Verdict::Set => "set",
            Verdict::Neither => "neither",
        }
    }
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// References in its trace.
    pub references: u64,
    /// Different pages.
    pub pages: u64,
}

/// A stretch of all runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    /// Pages that a run touches in it and that the phase before does not have, at most.
    pub pages: u64,
    /// Of these, those that all runs touch in it.
    pub common: u64,
    /// Of these, those that all runs touch in the same order.
    pub in_order: u64,
    /// The pages agree: it is a phase of a tape.
    pub agrees: bool,
    /// All that all runs touch in it, or where it comes again, in ascending order, but for pages of many phases; none where the pages do not
    /// agree.
    pub set: Vec<PageRange>,
}

impl Phase {
    /// Pages of the set.
    pub fn set_pages(&self) -> u64 {
        self.set.iter().map(|range| u64::from(range.pages)).sum()
    }
}

/// What runs have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// The runs, in the order of their traces.
    pub runs: Vec<Run>,
    /// What they do, in order.
    pub phases: Vec<Phase>,
    /// The regions of the sets.
    pub regions: Vec<Region>,
}

impl Comparison {
    /// Compares traces of a program. No phase has more than `phase_pages_max` pages: what a set of more is good for, no local memory holds.
    ///
    /// # Errors
    /// There are fewer than two, or one of them is damaged or empty.
    pub fn of(traces: &[Trace<'_>], phase_pages_max: u64) -> Result<Comparison, CompareError> {
        if traces.len() < 2 {
            return Err(CompareError::TooFew);
        }
        let runs = Runs::read(traces)?;
        let stretches = Stretches::new(&runs, usize::try_from(phase_pages_max).unwrap_or(usize::MAX)).all();
        let mut sets = runs.sets(&stretches).into_iter();
        let phase = |stretch: &Stretch| {
            let set = sets.next().unwrap_or_default();
            let Stretch { pages, common, in_order, agrees, .. } = *stretch;
            Phase { pages, common, in_order, agrees, set }
        };
        let phases = stretches.iter().map(phase).collect();
        Ok(Comparison { runs: runs.figures(), phases, regions: runs.regions().to_vec() })
    }

    /// Of a thousand pages, those that all runs touch in the same stretch.
    pub fn common_permille(&self) -> u64 {
        self.permille(|phase| phase.common)
    }

    /// Of a thousand pages, those that all runs touch in the same order.
    pub fn in_order_permille(&self) -> u64 {
        self.permille(|phase| phase.in_order)
    }

    /// Of a thousand pages, those that are touched in phases that agree.
    pub fn agreeing_permille(&self) -> u64 {
        self.permille(|phase| if phase.agrees { phase.pages } else { 0 })
    }

    fn permille(&self, of: impl Fn(&Phase) -> u64) -> u64 {
        let sum = |of: &dyn Fn(&Phase) -> u64| self.phases.iter().map(of).sum::<u64>();
        permille(sum(&of), sum(&|phase| phase.pages))
    }

    /// How oblivious the program is.
    pub fn verdict(&self) -> Verdict {
        if self.in_order_permille() >= ORDERED_PERMILLE {
            Verdict::Ordered
        } else if self.agreeing_permille() >= SET_PERMILLE {
            Verdict::Set
        } else {
            Verdict::Neither
        }
    }

    /// The phases that agree.
    pub fn agreeing(&self) -> impl Iterator<Item = &Phase> {
        self.phases.iter().filter(|phase| phase.agrees)
    }
}

/// A part of a whole, in thousandths; of nothing, none.
fn permille(part: u64, whole: u64) -> u64 {
    part * 1000 / whole.max(1)
}

/// Why traces cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompareError {
    /// One trace, or none.
    #[error("runs are compared by two traces of a program, or more")]
    TooFew,
    /// A trace cannot be read.
    #[error("{source}")]
    Trace {
        /// Which, from 0.
        index: usize,
        /// Why.
        source: TraceError,
    },
    /// A trace has no references.
    #[error("the trace has no references: there is nothing to compare")]
    Empty {
        /// Which, from 0.
        index: usize,
    },
}
