//! Wakes the evictor, for this process's threads and for other processes of the run that request its pages (`pin_requests`).

use crate::pages::Pages;
use crate::sys::gate::{shared_futex_bump, shared_futex_wait_for};
use hinterland_abi::{Ledger, PinRequests};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// See the module.
pub(crate) struct EvictorWaker {
    pages: &'static Pages,
    /// Where other processes reach the evictor.
    ledger: Option<&'static Ledger>,
    /// Bumped and woken in a process without a ledger.
    word: AtomicU32,
    /// The evictor sleeps.
    idle: AtomicBool,
}

impl EvictorWaker {
    pub(crate) fn new(pages: &'static Pages, ledger: Option<&'static Ledger>) -> EvictorWaker {
        EvictorWaker { pages, ledger, word: AtomicU32::new(0), idle: AtomicBool::new(false) }
    }

    /// What other processes request of this one.
    pub(crate) fn pin_requests(&self) -> Option<&'static PinRequests> {
        self.ledger.and_then(|ledger| ledger.pin_requests_of(self.pages.row()))
    }

    /// Whether a process of the run has wanted to read or write another one's memory.
    pub(crate) fn pin_requests_are_wanted(&self) -> bool {
        self.ledger.is_some_and(|ledger| ledger.pin_requests_wanted.load(Relaxed) == 1)
    }

    fn word(&self) -> &AtomicU32 {
        self.pin_requests().map_or(&self.word, |requests| &requests.evictor_wakes)
    }

    /// How often it was woken.
    pub(crate) fn wakes(&self) -> u32 {
        self.word().load(SeqCst)
    }

    /// The evictor sleeps until it is woken, unless it was since `seen`, or there is work that came before it could be.
    pub(crate) fn wait(&self, seen: u32, limit: Duration, has_work: impl FnOnce() -> bool) {
        self.idle.store(true, SeqCst);
        if !has_work() {
            shared_futex_wait_for(self.word(), seen, limit);
        }
        self.idle.store(false, SeqCst);
    }

    /// Wakes the evictor, whatever it does.
    pub(crate) fn wake(&self) {
        shared_futex_bump(self.word());
    }

    /// Lets an evictor that sleeps look at the watermarks.
    pub(crate) fn wake_if_idle(&self) {
        if self.idle.load(SeqCst) {
            shared_futex_bump(self.word());
        }
    }
}
