//! How a test sees that a thread waits: never by time, but by the pager's notes and by where the thread sleeps in the
//! kernel.

use super::Stage;
use crate::FaultPath;
use crate::blocked::{Blocked, TestThread, blocked};
use crate::points::{Hold, Point};
use hinterland_units::PageNo;
use std::sync::atomic::Ordering::SeqCst;

/// What a thread of a race waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum For {
    /// A page that it touches or pins, and that another thread has made busy: `WAITED` is set, and the thread sleeps.
    Page(PageNo),
    /// The same for a call on ranges, or for a long-term pin: these load the entry of the page again and again.
    Owner(PageNo),
    /// The gate, which a fork closes or has closed: the thread sleeps in it; or, where it faults, its monitor.
    Gate,
    /// The end of a write-protected range: the thread looks at it again and again.
    WpRange,
    /// The right to take a slot of the prefetch cache.
    Slot,
}

impl Stage {
    /// A thread waits: ends when that is seen, and fails the test when the thread goes on instead.
    pub(super) fn must_wait(&self, thread: &TestThread, what: For) {
        let for_what = format!("{what:?}");
        match what {
            For::Page(page) => thread.must_wait(&for_what, || {
                let entry = self.pager.pages.table.load(page);
                entry.state().is_busy() && entry.waited() && blocked(thread.id) != Blocked::No
            }),
            For::Owner(page) => {
                // One pass may have begun before the page was busy; the next ones are because it is.
                for _ in 0..2 {
                    let pass = Hold::next(self.pager.address(PageNo(0)), Point::WaitsForOwner, page);
                    thread.must_wait(&for_what, || pass.is_reached());
                    pass.release();
                }
            }
            For::Gate => {
                thread.must_wait(&for_what, || self.pager.pages.gate.is_closing() && self.is_in_gate(thread.id))
            }
            For::WpRange => {
                let before = self.pager.rooms.wp_ranges.looks.load(SeqCst);
                thread.must_wait(&for_what, || self.pager.rooms.wp_ranges.looks.load(SeqCst) > before + 1);
            }
            For::Slot => thread.must_wait(&for_what, || blocked(thread.id).is_futex_in(self.pager.rooms.cache)),
        }
    }

    /// Whether a thread, or the monitor that is to serve its fault, sleeps in the gate.
    fn is_in_gate(&self, thread: u32) -> bool {
        let sleeps_in = |id: u32| blocked(id).is_futex_in(&self.pager.pages.gate);
        let is_served = self.pager.path() == FaultPath::Monitor && blocked(thread) == Blocked::Fault;
        sleeps_in(thread) || is_served && self.pager.pages.own_threads.any(sleeps_in)
    }
}
