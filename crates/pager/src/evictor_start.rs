//! When the evictor starts on the inline path: not before the program has memory enough that some of it may have to be evicted.
//!
//! As long as fewer pages than half of the smallest budget were ever made accessible, nothing is evicted, whatever the
//! budget. A process without a second thread makes its system calls faster: the kernel looks files up without counting
//! references, and libc leaves cancellation out. A fault cannot start a thread, being a signal handler; a call that
//! makes memory accessible can.
//!
//! Once a process of the run has tried to read or write another one's memory, the evictors of all processes start as
//! soon as memory is made accessible, because they answer pin requests (`pin_requests`).
//!
//! A child of vfork shares this memory: a thread that it started would end with its exec, and is left to the parent.

use crate::evictor::Evictor;
use crate::evictor_waker::EvictorWaker;
use crate::fault_path::FaultPath;
use crate::pages::Pages;
use crate::read_ahead::ReadAhead;
use crate::sys::thread;
use crate::thread_state::ThreadState;
use hinterland_sys::SysError;
use hinterland_units::{Budget, PAGE_BYTES};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// See the module.
pub(crate) struct EvictorStart {
    pages: &'static Pages,
    read_ahead: &'static ReadAhead,
    waker: &'static EvictorWaker,
    evictor: &'static Evictor,
    /// Pages that were made accessible, those that were so twice counted twice.
    opened: AtomicU64,
    state: ThreadState,
    /// This process was forked from one that had an evictor, and has not started its own.
    is_inherited: AtomicBool,
    /// The process whose evictor it is; 0: the pager has not started.
    process: AtomicU32,
}

/// With so many pages nothing has to be evicted.
const QUIET_PAGES: u64 = Budget::FLOOR.0 / PAGE_BYTES as u64 / 2;

impl EvictorStart {
    pub(crate) fn new(
        pages: &'static Pages,
        read_ahead: &'static ReadAhead,
        waker: &'static EvictorWaker,
        evictor: &'static Evictor,
    ) -> EvictorStart {
        let (opened, state, process) = (AtomicU64::new(0), ThreadState::new(), AtomicU32::new(0));
        let is_inherited = AtomicBool::new(false);
        EvictorStart { pages, read_ahead, waker, evictor, opened, state, is_inherited, process }
    }

    /// Starts the evictor now or when it may be needed, in a process where none runs.
    pub(crate) fn start_when_needed(&'static self) -> Result<(), SysError> {
        self.process.store(thread::process(), Relaxed);
        if !self.is_needed(self.opened.load(Relaxed)) {
            return Ok(());
        }
        match self.start() {
            // As below.
            Err(SysError { errno: libc::EAGAIN, .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether there is an evictor, or was one when this process was forked.
    pub(crate) fn is_started(&self) -> bool {
        self.state.is_started() || self.is_inherited.load(Relaxed)
    }

    /// A forked child has no evictor yet. Where its parent had one, the child may have far pages, and starts its own with its first threads: what
    /// is commanded of the paths that hold these pages is for it, too.
    pub(crate) fn forget(&self) {
        self.is_inherited.store(self.is_started(), Relaxed);
        self.state.forget();
    }

    /// Starts the evictor of a child whose parent had one.
    pub(crate) fn start_inherited(&'static self) -> Result<(), SysError> {
        if !self.is_inherited.swap(false, Relaxed) {
            return Ok(());
        }
        match self.start() {
            // As below.
            Err(SysError { errno: libc::EAGAIN, .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Notes that pages were made accessible.
    pub(crate) fn note_accessible(&'static self, pages: u32) {
        let opened = self.opened.fetch_add(pages.into(), Relaxed) + u64::from(pages);
        if self.pages.path == FaultPath::Monitor || self.state.is_started() || !self.is_needed(opened) {
            return;
        }
        self.start_own();
    }

    /// See `Pager::expect_pin_requests`.
    pub(crate) fn expect_pin_requests(&'static self) {
        if self.pages.path == FaultPath::Inline && !self.state.is_started() {
            self.start_own();
        }
    }

    fn is_needed(&self, opened: u64) -> bool {
        opened > QUIET_PAGES || self.waker.pin_requests_are_wanted()
    }

    /// Starts the evictor, unless the memory is another process's.
    fn start_own(&'static self) {
        if self.process.load(Relaxed) == thread::process() {
            // Refused: the threads that fault reclaim by themselves, and the next call tries again.
            let _ = self.start();
        }
    }

    /// Starts evictor and read-ahead once; the evictor of the inline path has its own time.
    pub(crate) fn start_helpers(&'static self) {
        self.read_ahead.start(|| match self.pages.path {
            FaultPath::Monitor => self.start(),
            FaultPath::Inline => Ok(()),
        });
    }

    /// Starts the evictor, unless it runs.
    pub(crate) fn start(&'static self) -> Result<(), SysError> {
        if !self.state.begin() {
            return Ok(());
        }
        self.spawn()?;
        // Now, and not when the thread first runs: what is requested before that waits for it.
        self.evictor.begin_answering();
        // On the monitor path, that thread came with the monitors.
        if self.pages.path == FaultPath::Inline { self.pages.own_threads.watch_for_the_end() } else { Ok(()) }
    }

    fn spawn(&'static self) -> Result<(), SysError> {
        let outcome = thread::spawn(c"far-evictor", || {
            self.evictor.run(|| self.state.should_stop());
            self.state.left();
        });
        if outcome.is_err() {
            // It answered before it was stopped, or the child of a fork said that it would. Another thread may start one only afterwards.
            self.evictor.end_answering();
            self.state.forget();
        }
        outcome
    }

    /// Stops the evictor. What other processes request of it waits.
    pub(crate) fn stop(&self) {
        self.state.stop(|| self.waker.wake());
    }

    /// Starts the evictor again, if it was stopped.
    pub(crate) fn resume(&'static self) -> Result<(), SysError> {
        if self.state.resume() { self.spawn() } else { Ok(()) }
    }
}
