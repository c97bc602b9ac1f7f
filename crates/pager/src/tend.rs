//! The tender: a thread that does what a backend has to do beside loads and stores, when there is something: after the loss of a
//! memory node, for example.
//!
//! Each step passes through the gate, so a fork finds none under way; the child starts a tender of its own when it needs one.

use crate::pager::Pager;
use hinterland_sys::gate::{futex_wait_for, futex_wake};
use hinterland_sys::thread;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

/// Whether it runs, and whether it sleeps.
pub(crate) struct Tender {
    started: AtomicBool,
    /// It sleeps until somebody wakes it.
    idle: AtomicBool,
    /// Bumped and woken when it should look.
    word: AtomicU32,
}

impl Tender {
    pub(crate) const fn new() -> Tender {
        Tender { started: AtomicBool::new(false), idle: AtomicBool::new(false), word: AtomicU32::new(0) }
    }

    /// A forked child has none yet.
    pub(crate) fn forget(&self) {
        self.started.store(false, Relaxed);
        self.idle.store(false, Relaxed);
    }
}

impl Pager {
    /// Has the tender work if there is something to do; called now and then by a thread that may start one.
    pub(crate) fn have_backend_tended(&'static self) {
        if !self.backend.needs_maintenance() {
            return;
        }
        if !self.tender.started.swap(true, Relaxed) {
            // Refused, for example while another thread is in exec: the next call tries again.
            let started = thread::spawn(c"far-tender", || self.run_tender());
            self.tender.started.store(started.is_ok(), Relaxed);
        } else if self.tender.idle.swap(false, SeqCst) {
            self.tender.word.fetch_add(1, SeqCst);
            futex_wake(&self.tender.word);
        }
    }

    fn run_tender(&self) -> ! {
        self.register_thread();
        loop {
            let seen = self.tender.word.load(SeqCst);
            let inside = self.gate.enter();
            let pause = self.backend.maintain();
            // Between steps it is not woken: their pauses bound the bandwidth.
            self.tender.idle.store(pause.is_none(), SeqCst);
            drop(inside);
            futex_wait_for(&self.tender.word, seen, pause);
        }
    }
}
