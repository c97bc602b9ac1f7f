//! The maintenance thread: runs the backend's maintenance (`Backend::maintain`) when it has work beside loads and stores, for
//! example to rebuild slabs after the loss of a memory node.
//!
//! Each step passes through the gate, so a fork finds none under way; the child starts a maintenance thread of its own when it
//! needs one.

use crate::far_memory::FarMemory;
use crate::pages::Pages;
use crate::sys::gate::{futex_wait_for, futex_wake};
use crate::sys::thread;
use crate::thread_state::ThreadState;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// See the module.
pub(crate) struct Maintenance {
    pages: &'static Pages,
    far: &'static FarMemory,
    state: ThreadState,
    /// It sleeps until it is woken.
    idle: AtomicBool,
    /// Bumped and woken when there is work.
    word: AtomicU32,
}

impl Maintenance {
    pub(crate) fn new(pages: &'static Pages, far: &'static FarMemory) -> Maintenance {
        let (state, idle) = (ThreadState::new(), AtomicBool::new(false));
        Maintenance { pages, far, state, idle, word: AtomicU32::new(0) }
    }

    /// A forked child has none yet.
    pub(crate) fn forget(&self) {
        self.state.forget();
        self.idle.store(false, Relaxed);
    }

    /// Starts or wakes the maintenance thread if the backend needs it; called now and then by a thread that may start one.
    pub(crate) fn start_if_needed(&'static self) {
        let inside = self.pages.gate.enter();
        let has_new_changes = self.far.follow_changes();
        let is_needed = self.far.needs_maintenance();
        drop(inside);
        if !is_needed {
            return;
        }
        if !self.start() && (self.idle.swap(false, SeqCst) || has_new_changes) {
            self.wake();
        }
    }

    fn wake(&self) {
        self.word.fetch_add(1, SeqCst);
        futex_wake(&self.word);
    }

    /// Starts the thread, unless it runs; says whether it was started. Refused, for example while another thread is in exec: the next
    /// call tries again.
    pub(crate) fn start(&'static self) -> bool {
        let begins = self.state.begin();
        if begins {
            self.spawn();
        }
        begins
    }

    fn spawn(&'static self) {
        let outcome = thread::spawn(c"far-maintenance", || {
            self.run();
            self.state.left();
        });
        if outcome.is_err() {
            self.state.forget();
        }
    }

    /// Stops the thread.
    pub(crate) fn stop(&self) {
        self.state.stop(|| self.wake());
    }

    /// Starts it again, if it was stopped.
    pub(crate) fn resume(&'static self) {
        if self.state.resume() {
            self.spawn();
        }
    }

    /// Whether all changes of the paths that were commanded are made.
    pub(crate) fn has_made_changes(&self) -> bool {
        let _inside = self.pages.gate.enter();
        self.far.has_made_changes()
    }

    fn run(&self) {
        let registered = self.pages.own_threads.register();
        thread::never_preempt();
        loop {
            let seen = self.word.load(SeqCst);
            if self.state.should_stop() {
                return;
            }
            registered.keep_to_processors();
            let inside = self.pages.gate.enter();
            let pause = self.far.maintain();
            // Between steps it is not woken: their pauses bound the bandwidth.
            self.idle.store(pause.is_none(), SeqCst);
            drop(inside);
            futex_wait_for(&self.word, seen, pause);
        }
    }
}
