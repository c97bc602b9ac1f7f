//! Plans tapes (3PO §3.2): from the trace of a run, which pages each thread must fetch with less local memory, when, and what leaves.
//!
//! ```text
//!   trace ──► Recording::read: next use of every reference, pages of every thread ──┐
//!   trace ──► plan: each thread's share of each size, simulated at once ◄───────────┘ ──► Plan by size; arrivals and departures of one
//! ```
//!
//! The share: each thread gets what it touches, up to a level at which all of local memory is divided (max-min fair; 3PO gives each
//! 1/N, also where a thread touches less than that): the level is the same for all threads, or in proportion to their references, whichever
//! moves fewer pages. Of a share that is smaller than what the thread touches, an eighth, 500 pages at
//! most, is left for pages fetched ahead; the rest is simulated with LRU or MIN.
//!
//! Memory: 4 bytes for each reference; for each page that a thread touches 16 bytes and, for each size, 10 (LRU) to 26 (MIN).

mod division;
mod local_share;
mod microset_references;
mod recording;
mod schedule;
mod sharing;
mod simulate;
mod write;

pub use microset_references::{Clock, traced_ns};
pub use recording::Recording;
pub use schedule::{SPEEDS_MBIT, Stall};
pub use sharing::{Life, shares};
pub use simulate::plan;
pub use write::write_tape;

use crate::TraceError;
use crate::tape::ThreadTotals;
use hinterland_policy::NextUses;
use std::io;

/// Pages that are fetched ahead of a thread at most: LOOKAHEAD + BATCH_SIZE (3PO §5).
const AHEAD_PAGES_MAX: u64 = 500;
/// The part of a share that they take at most.
const AHEAD_PART: u64 = 8;
/// Everything is hidden when a run waits for less than this part of its processor time.
const HIDDEN_PART: u64 = 100;

/// What evicts in the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Eviction {
    /// The page that was not touched for the longest time (3PO §3.2).
    Lru,
    /// The page that is needed last.
    Min,
}

impl Eviction {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Eviction::Lru => "lru",
            Eviction::Min => "min",
        }
    }
}

/// A size to plan for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Local memory of all threads, in pages.
    pub local_pages: u64,
    /// Of these, what the pager needs for itself while it evicts; none where all pages have room.
    pub reserve_pages: u64,
    /// What evicts.
    pub eviction: Eviction,
}

/// What takes how long, and which processors do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlanCosts {
    /// Of the link, from the last byte sent to the answer.
    pub latency_ns: u64,
    /// That one page occupies the link.
    pub page_ns: u64,
    /// A fault at a key page, which needs nothing from far memory.
    pub fault_ns: u64,
    /// A page that is touched for the first time.
    pub first_touch_ns: u64,
    /// Processor time of the pager for a page that comes.
    pub come_ns: u64,
    /// The same for one that leaves.
    pub leave_ns: u64,
    /// Processors that the thread and the pager share; 0: as many as they need.
    pub processors: u32,
    /// Far memory keeps no copy of a page that is local: whatever leaves is stored.
    pub drops_copies: bool,
    /// Of 100 pages that come back and leave again, so many were written to meanwhile, where the trace does not tell.
    pub written_percent: u8,
}

/// What a size means for one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadPlan {
    /// References, those of others' pages in its microsets included.
    pub references: u64,
    /// Different pages.
    pub pages: u64,
    /// Its share of local memory, in pages.
    pub share_pages: u64,
    /// Of these, for pages fetched ahead.
    pub ahead_pages: u64,
    /// Pages in its tape that must be fetched, counted as often as they are.
    pub fetched: u64,
    /// First touches.
    pub first_touches: u64,
    /// Pages that leave.
    pub left: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Time of faults on first touches and key pages.
    pub fault_ns: u64,
    /// Time that it waits for pages.
    pub stalled_ns: u64,
    /// Of that, what it waits where no link is slow: for processors.
    pub crowded_ns: u64,
    /// How often it waits.
    pub waits: u64,
    /// The longest waits, longest first.
    pub worst: Vec<Stall>,
}

impl From<&ThreadPlan> for ThreadTotals {
    fn from(plan: &ThreadPlan) -> ThreadTotals {
        let ThreadPlan { references, pages, share_pages, ahead_pages, fetched, first_touches, left, .. } = *plan;
        ThreadTotals { references, pages, share_pages, ahead_pages, fetched, first_touches, left }
    }
}

/// What a size means for the program.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What was planned.
    pub case: Case,
    /// By thread.
    pub threads: Vec<ThreadPlan>,
    /// Pages that the link carries to the program: those to fetch that no other thread has local.
    pub pages_in: u64,
    /// Pages that it carries away: no thread has them any longer, and they were written to.
    pub pages_out: u64,
    /// The slowest of [`SPEEDS_MBIT`] for which the threads wait less than a hundredth of their processor time; `None`: none is.
    pub hidden_from_mbit: Option<u64>,
}

impl Plan {
    /// Predicted run time, one thread after the other as they were traced, in nanoseconds.
    pub fn run_ns(&self) -> u64 {
        self.threads.iter().map(|thread| thread.cpu_ns + thread.fault_ns + thread.stalled_ns).sum()
    }

    /// Time that the threads wait for pages, in nanoseconds.
    pub fn stalled_ns(&self) -> u64 {
        self.threads.iter().map(|thread| thread.stalled_ns).sum()
    }

    /// Of that, the time that they wait for processors, in nanoseconds.
    pub fn crowded_ns(&self) -> u64 {
        self.threads.iter().map(|thread| thread.crowded_ns).sum()
    }

    /// Pages that the link carries.
    pub fn pages_moved(&self) -> u64 {
        self.pages_in + self.pages_out
    }
}

/// Why nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(TraceError),
    /// Not one reference.
    #[error("the trace has no references: there is nothing to plan")]
    Empty,
    /// More than 2^32 − 2 references of one thread.
    #[error("thread {thread} has more than {max} references; record a shorter run, or with a larger --microset", max = NextUses::TOUCHES_MAX)]
    TooLong {
        /// Which.
        thread: u32,
    },
    /// The tape cannot be written.
    #[error(transparent)]
    Sink(io::Error),
}
