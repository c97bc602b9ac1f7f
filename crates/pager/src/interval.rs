//! Intervals: the parts of a program that it says are to be recorded or prefetched (3PO §3.1.1, Table 1). One for the whole process: it
//! begins in any thread, and counts for all of them. An interval inside another one changes nothing.

use crate::pages::Pages;
use crate::prefetch_driver::PrefetchDriver;
use crate::sys::sync::{Mutex, MutexGuard};
use crate::sys::thread::SignalsBlocked;
use crate::tracer::Tracer;
use std::sync::atomic::Ordering::Relaxed;

/// What a program wants in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntervalMode {
    /// To be recorded, and no tape to be followed.
    Record,
    /// To follow its tape, and not to be recorded.
    Prefetch,
    /// What the run was started for.
    Auto,
}

/// What is done in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InForce {
    /// The run neither records this process nor has a tape for it, or the mode forbids it.
    #[default]
    Nothing,
    /// References are recorded.
    Recording,
    /// Threads follow their tapes.
    Prefetching,
}

/// See the module.
pub(crate) struct Intervals {
    pages: &'static Pages,
    tracer: Option<&'static Tracer>,
    driver: &'static PrefetchDriver,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Intervals that have begun and not ended.
    depth: u32,
    /// Outermost intervals that have begun.
    count: u32,
    in_force: InForce,
}

impl Intervals {
    pub(crate) fn new(
        pages: &'static Pages,
        tracer: Option<&'static Tracer>,
        driver: &'static PrefetchDriver,
    ) -> Intervals {
        Intervals { pages, tracer, driver, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no thread panics while it begins an interval")
    }

    /// See `Pager::begin_interval`.
    pub(crate) fn begin(&self, mode: IntervalMode) -> InForce {
        let _signals = SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        let mut open = self.open();
        open.depth = open.depth.saturating_add(1);
        if open.depth == 1 {
            open.count = open.count.saturating_add(1);
            let (record, follow) = (mode != IntervalMode::Prefetch, mode != IntervalMode::Record);
            let records = self.tracer.is_some_and(|tracer| tracer.begin_interval(open.count, record));
            let prefetches = self.driver.begin_interval(open.count, follow);
            open.in_force = match (records, prefetches) {
                (true, _) => InForce::Recording,
                (false, true) => InForce::Prefetching,
                (false, false) => InForce::Nothing,
            };
            self.pages.row().intervals.fetch_add(u64::from(records || prefetches), Relaxed);
        }
        open.in_force
    }

    /// See `Pager::end_interval`.
    pub(crate) fn end(&self) -> bool {
        let _signals = SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        let mut open = self.open();
        let Some(depth) = open.depth.checked_sub(1) else { return false };
        open.depth = depth;
        if depth == 0 {
            open.in_force = InForce::Nothing;
            if let Some(tracer) = self.tracer {
                tracer.end_interval();
            }
            self.driver.end_interval();
        }
        true
    }

    /// In the child of a fork: an interval that is open there is neither recorded nor followed; its next ones may be.
    pub(crate) fn begin_child(&self) {
        self.open().in_force = InForce::Nothing;
    }
}
