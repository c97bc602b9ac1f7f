//! Intervals: the parts of a program that it says are to be recorded (3PO §3.1.1), by the calls `hinterland_begin` and `hinterland_end`.
//!
//! ```text
//!   Whole ──first begin: what was recorded is forgotten──► Inside ──end──► Between
//!                                                            ▲               │
//!                                                            └──── begin ────┘
//! ```
//!
//! A program that never says so is recorded from its beginning to its end. A page belongs to the trace if it was allocated inside an
//! interval: its first touch, since it was mapped or discarded, was there. Other pages stay mapped, as if there were no tracer.
//!
//! Faults are noted by the monitor before it maps their pages, and intervals begin in other threads. So a page that was noted may be not yet
//! mapped when the pages of the trace are parked: it is parked with the first microset.

use super::{Microset, Tracer};
use crate::state::State;
use hinterland_sys::thread;
use hinterland_units::PageNo;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

/// Where the program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Phase {
    /// It has said nothing: all of it is recorded.
    #[default]
    Whole,
    /// In an interval.
    Inside,
    /// Outside.
    Between,
}

/// Which pages were allocated outside of intervals.
#[derive(Default)]
pub(super) struct Allocations {
    outside: HashSet<PageNo>,
}

impl Allocations {
    /// A page gets its first content.
    fn allocated(&mut self, page: PageNo, inside: bool) {
        if inside {
            self.outside.remove(&page);
        } else {
            self.outside.insert(page);
        }
    }

    /// A page has become another one.
    pub(super) fn moved(&mut self, from: PageNo, target: PageNo) {
        let was_outside = self.outside.remove(&from);
        self.allocated(target, !was_outside);
    }

    pub(super) fn is_outside(&self, page: PageNo) -> bool {
        self.outside.contains(&page)
    }
}

impl Tracer {
    /// A page is about to be mapped; whether that is a reference. Outside of intervals, pages of the trace are remembered as mapped.
    pub(super) fn admits(&self, microset: &mut Microset, page: PageNo, is_first: bool) -> bool {
        let between = microset.phase == Phase::Between;
        if is_first {
            microset.allocations.allocated(page, !between);
        }
        let is_of_trace = !microset.allocations.is_outside(page);
        if is_of_trace && between {
            self.remember(microset, page);
        }
        is_of_trace && !between
    }

    /// The calling thread says that an interval begins, the `number`-th; `record`: it is to be recorded. Whether it is.
    pub(crate) fn begin_interval(&self, number: u32, record: bool) -> bool {
        let by = thread::id();
        let mut microset = self.microset();
        if !self.active.load(Relaxed) {
            return false;
        }
        if microset.phase == Phase::Whole {
            if !self.begin_again(&mut microset) {
                self.active.store(false, Relaxed);
                return false;
            }
            microset.clocks.begin_again();
            microset.phase = Phase::Between;
        }
        if record && !microset.trace.recorder.interval_began(number) {
            self.active.store(false, Relaxed);
            return false;
        }
        if record {
            microset.clocks.go_on(by);
            let mut pages = std::mem::take(&mut microset.mapped);
            pages.sort_unstable();
            pages.dedup();
            let is_late = |page: &PageNo| self.pages.table.load(*page).state() != State::Resident;
            let mut late: Vec<PageNo> = pages.iter().copied().filter(is_late).collect();
            self.park(&mut pages, &mut microset.contents);
            microset.mapped.append(&mut pages);
            microset.mapped.append(&mut late);
            microset.phase = Phase::Inside;
        }
        record
    }

    /// The first interval: what was recorded before is forgotten, and pages that have content are outside.
    fn begin_again(&self, microset: &mut Microset) -> bool {
        self.pages.table.for_each_touched(PageNo(0), self.pages.count, |page| {
            microset.allocations.outside.insert(page);
        });
        // Noted, and not mapped yet.
        microset.allocations.outside.extend(microset.members.drain());
        microset.mapped.clear();
        microset.touches.clear();
        microset.trace.recorder.begin_again()
    }

    /// The interval ends, and with it its microset.
    pub(crate) fn end_interval(&self) {
        let mut microset = self.microset();
        if microset.phase != Phase::Inside {
            return;
        }
        microset.phase = Phase::Between;
        microset.clocks.stop();
        if self.active.load(Relaxed) && !microset.end() {
            self.active.store(false, Relaxed);
        }
    }
}
