//! When the evictor starts on the inline path: not before the program has memory enough that some of it may have to be evicted.
//!
//! As long as fewer pages than half of the smallest budget were ever made accessible, nothing is evicted, whatever the budget. A
//! process without a second thread makes its system calls faster: the kernel looks files up without counting references, and
//! libc leaves cancellation out. A fault cannot start a thread, being a signal handler; a call that makes memory accessible can.
//!
//! Once a process of the run has wanted to read or write another one's memory, everybody's starts as soon as memory is made
//! accessible: it answers asks (`asks`).
//!
//! A child of vfork shares this memory: a thread that it started would end with its exec, and is left to the parent.

use crate::fault_path::FaultPath;
use crate::own_threads::watch_for_the_end;
use crate::pager::Pager;
use hinterland_sys::{SysError, thread};
use hinterland_units::{Budget, PAGE_BYTES};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How much of the range was made accessible, and whether the evictor runs.
pub(crate) struct EvictorStart {
    /// Pages that were made accessible, those that were so twice counted twice.
    opened: AtomicU64,
    started: AtomicBool,
    /// The process whose evictor it is; 0: the pager has not started.
    process: AtomicU32,
}

/// With so many pages nothing has to be evicted.
const QUIET_PAGES: u64 = Budget::FLOOR.0 / PAGE_BYTES as u64 / 2;

impl EvictorStart {
    pub(crate) const fn new() -> EvictorStart {
        EvictorStart { opened: AtomicU64::new(0), started: AtomicBool::new(false), process: AtomicU32::new(0) }
    }
}

impl Pager {
    /// Starts the evictor now or when it may be needed, in a process where none runs.
    pub(crate) fn start_evictor_when_needed(&'static self) -> Result<(), SysError> {
        self.evictor_start.process.store(thread::process(), Relaxed);
        if !self.evictor_is_needed(self.evictor_start.opened.load(Relaxed)) {
            return Ok(());
        }
        match self.start_evictor() {
            // As below.
            Err(SysError { errno: libc::EAGAIN, .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// A forked child has no evictor yet.
    pub(crate) fn forget_evictor(&self) {
        self.evictor_start.started.store(false, Relaxed);
    }

    /// Notes that pages were made accessible.
    pub(crate) fn note_accessible(&'static self, pages: u32) {
        let opened = self.evictor_start.opened.fetch_add(pages.into(), Relaxed) + u64::from(pages);
        let start = &self.evictor_start;
        if self.pages.path == FaultPath::Monitor || start.started.load(Relaxed) || !self.evictor_is_needed(opened) {
            return;
        }
        self.start_own_evictor();
    }

    /// This process reads or writes the memory of others: they will want to do the same with its own.
    pub fn expect_asks(&'static self) {
        if self.pages.path == FaultPath::Inline && !self.evictor_start.started.load(Relaxed) {
            self.start_own_evictor();
        }
    }

    fn evictor_is_needed(&self, opened: u64) -> bool {
        let asked = || self.local.shared_budget.ledger().is_some_and(|ledger| ledger.asks_wanted.load(Relaxed) == 1);
        opened > QUIET_PAGES || asked()
    }

    /// Starts the evictor, unless the memory is another process's.
    fn start_own_evictor(&'static self) {
        if self.evictor_start.process.load(Relaxed) == thread::process() {
            // Refused: the threads that fault reclaim by themselves, and the next call tries again.
            let _ = self.start_evictor();
        }
    }

    /// Starts the evictor, unless it runs.
    pub(crate) fn start_evictor(&'static self) -> Result<(), SysError> {
        if self.evictor_start.started.swap(true, Relaxed) {
            return Ok(());
        }
        let outcome = thread::spawn(c"far-evictor", || self.run_evictor());
        self.evictor_start.started.store(outcome.is_ok(), Relaxed);
        outcome?;
        // Now, and not when the thread first runs: who asks before that waits for it.
        self.begin_answering();
        // On the monitor path, that thread came with the monitors.
        if self.pages.path == FaultPath::Inline { watch_for_the_end() } else { Ok(()) }
    }
}
