//! Following a tape: where each thread is on its own, what is asked for ahead of it, and what may leave (3PO §3.3, §3.4; eviction from
//! the known future goes beyond it).
//!
//! ```text
//!   request ──► TapeSource: the thread's cursor passes the page ──► Holds: pages that are asked for stay, those it has passed may leave
//!                                                              └──► batches, up to LOOKAHEAD + BATCH_SIZE pages ahead
//!   frames are needed ──► ByTape: of the pages that may leave the one with the furthest next use; then the policy's
//! ```
//!
//! A batch has one key page, which stays unmapped: its use is a fault that tells where the thread is. It is chosen when the batch is
//! asked for, before any of its pages can be mapped; so no thread maps it unseen but one that fetches the same page at that moment, and
//! then the key page of the next batch does its work. (3PO chooses among pages that have arrived, and declares under a lock what is
//! about to be mapped.)
//!
//! An unordered tape has sets of pages instead, one a phase of the program (`set_source`); what they hold is held in the same way.

mod by_tape;
mod cursor;
mod holds;
mod page_set;
mod set_source;
#[cfg(test)]
mod set_tests;
mod source;
mod tapes;
#[cfg(test)]
mod tests;

pub use by_tape::ByTape;
pub use holds::{Holds, SharedHolds};
pub use page_set::PageSet;
pub use set_source::{SetSource, set_pages_max};
pub use source::{TapeProgress, TapeSource};
pub use tapes::{TapeKind, Tapes};

use hinterland_units::PageNo;

/// What is fetched ahead by tapes takes this part of local memory at most.
const BUDGET_PART: u64 = 8;

/// What was done by tapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapeStatistics {
    /// Batches that were asked for.
    pub batches: u64,
    /// Their pages.
    pub pages: u64,
    /// Times that a thread left its tape.
    pub left: u64,
    /// Where that was the last time: the position, and the page that the thread asked for there.
    pub left_at: Option<(u32, PageNo)>,
    /// Times that one was found on it again.
    pub resumed: u64,
    /// Major faults of threads on their tapes for pages that are not there.
    pub beside: u64,
    /// The same for pages that the plan has in local memory, and that left early.
    pub early: u64,
    /// Threads that follow a tape, or did.
    pub threads: u64,
    /// Threads for which there is none.
    pub threads_without: u64,
    /// Phases of an unordered tape.
    pub phases: u64,
    /// Phases that have begun.
    pub phases_begun: u64,
    /// Of these, given up: the program touched other pages, or used few of the set.
    pub phases_given_up: u64,
}

/// A page that a thread needs in local memory, and that was not there in the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapeArrival {
    /// Which of the thread's references needs it.
    pub position: u32,
    /// The page.
    pub page: PageNo,
    /// The thread touches it itself; otherwise another one may have it mapped, and it is a key page only where there is no other.
    pub own: bool,
    /// In which of the program's intervals, from 1; 0: the tape is of all of the program.
    pub interval: u32,
}

/// A page that leaves local memory in the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TapeDeparture {
    /// That of the arrival which it makes room for.
    pub position: u32,
    /// The page.
    pub page: PageNo,
    /// When the thread is here, it has used the page for the last time before `position`.
    pub used_until: u32,
    /// Position of the thread's next use; `None`: there is none.
    pub next_use: Option<u32>,
}

/// The tape of one thread, in the order of positions.
pub struct ThreadTape {
    /// What comes.
    pub arrivals: Box<dyn Iterator<Item = TapeArrival> + Send>,
    /// What leaves.
    pub departures: Box<dyn Iterator<Item = TapeDeparture> + Send>,
    /// Pages that were planned to be fetched ahead of the thread.
    pub ahead_pages: u32,
}

/// How far ahead of a thread pages are asked for, and how many at a time (3PO §3.3); `None`: as it was planned, a fifth of it at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapeLookahead {
    /// BATCH_SIZE.
    pub batch_pages: Option<u32>,
    /// LOOKAHEAD.
    pub lookahead_pages: Option<u32>,
}

/// Where a page is, as far as it matters for a tape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageLocality {
    /// It has no content.
    Untouched,
    /// The program can use it without a fault.
    Mapped,
    /// In far memory.
    Remote,
    /// On its way, or in the swap cache.
    Between,
}

/// The pages of a body, as the arbiter sees them. Other threads may change them meanwhile.
pub trait PageLocalities {
    /// Where a page is.
    fn locality(&self, page: PageNo) -> PageLocality;

    /// Local memory of the program.
    fn budget_pages(&self) -> u64;

    /// Pages of blocks that were asked for and have not come.
    fn block_pages(&self) -> u32 {
        0
    }
}
