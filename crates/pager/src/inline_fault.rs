//! Faults on the inline path: the thread that faults serves itself, in a signal handler.
//!
//! The same steps as in the monitor (`fault`), with two differences: this thread waits for a page that another thread has made
//! busy, and the memory that the steps need comes from a pool that was filled at the start, because a signal handler cannot
//! allocate. The caller has all signals blocked, so no other handler of this thread runs meanwhile; and no thread touches far
//! memory while it owns pages or locks of the pager, so the owner that this thread waits for makes progress without it.

use crate::fault::Outcome;
use crate::pager::{FaultPath, Pager, Scratch};
use crate::state::{Entry, State};
use hinterland_sys::gate::{futex_wait, futex_wake};
use hinterland_sys::thread::{self, SignalsBlocked};
use hinterland_sys::{Fault, SysError};
use hinterland_units::PageNo;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use std::time::Instant;

/// Loads of a busy page's entry before the thread sleeps: a fetch from compressed memory takes about as long.
const SPINS: u32 = 200;
/// Threads that can be served at the same moment.
const SCRATCHES: usize = 32;

/// Threads that wait for pages of other threads.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Counts wake-ups.
    word: AtomicU32,
}

impl Waiters {
    pub(crate) fn wake(&self) {
        self.word.fetch_add(1, SeqCst);
        futex_wake(&self.word);
    }
}

/// Scratch memory for threads of the program that serve their faults. Empty on the monitor path.
pub(crate) struct ScratchPool {
    free: Box<[AtomicPtr<Scratch>]>,
}

impl ScratchPool {
    pub(crate) fn new(path: FaultPath) -> Result<ScratchPool, SysError> {
        if path == FaultPath::Monitor {
            return Ok(ScratchPool { free: Box::default() });
        }
        let free = Scratch::several(SCRATCHES)?.map(|scratch| AtomicPtr::new(Box::into_raw(Box::new(scratch))));
        Ok(ScratchPool { free: free.collect() })
    }

    /// Runs `work` with one; waits for one when more threads fault than there are.
    fn with<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        // Threads start at different places, so that they seldom meet.
        let start = thread::pointer() >> 12;
        let (cell, scratch) = loop {
            let taken = (0..self.free.len()).find_map(|offset| {
                let cell = &self.free[(start + offset) % self.free.len()];
                let scratch = cell.load(Relaxed);
                (!scratch.is_null() && cell.compare_exchange(scratch, std::ptr::null_mut(), AcqRel, Relaxed).is_ok())
                    .then_some((cell, scratch))
            });
            match taken {
                Some(taken) => break taken,
                None => thread::yield_now(),
            }
        };
        // SAFETY: the pointer came from a box and was taken out of its cell, so nobody else has it.
        let result = work(unsafe { &mut *scratch });
        cell.store(scratch, Release);
        result
    }
}

impl Pager {
    /// Serves a fault of the calling thread at `address`, which was a write or not. False: the address is not far.
    ///
    /// For a signal handler in which all signals are blocked.
    pub fn serve_inline(&self, address: usize, write: bool) -> bool {
        let Some(page) = self.page_of(address) else { return false };
        let begin = Instant::now();
        let _signals = SignalsBlocked::already();
        let inside = self.gate.enter();
        self.scratches.with(|scratch| {
            // The kernel does not say whether the page is missing or protected: lifting a protection that is not there does no harm.
            let fault = Fault { address, write, write_protected: write, thread: 0 };
            self.serve_and_wait(page, fault, scratch);
        });
        self.count_fault(begin);
        if self.above_high(&inside) || self.read_ahead.has_work() && !self.helpers_started.load(Relaxed) {
            self.wake_evictor();
        }
        true
    }

    fn serve_and_wait(&self, page: PageNo, mut fault: Fault, scratch: &mut Scratch) {
        loop {
            match self.serve_page(page, fault, scratch) {
                Outcome::Served => return,
                Outcome::Again => {}
                // The thread's id is needed only where it has to wait: the pager's own threads do not.
                Outcome::Busy(entry) if fault.thread == 0 => {
                    self.count_late(entry);
                    fault.thread = thread::id();
                }
                Outcome::Busy(entry) => {
                    if self.wait_for(page, entry) {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until a page has left the state in `busy`. True: it is mapped, the thread can fault again.
    fn wait_for(&self, page: PageNo, busy: Entry) -> bool {
        for _ in 0..SPINS {
            let now = self.table.load(page);
            if now.state() != busy.state() {
                return now.state() == State::Resident;
            }
            std::hint::spin_loop();
        }
        let seen = self.waiters.word.load(SeqCst);
        let now = self.table.load(page);
        if now.state().is_busy() && (now.waited() || self.table.wait_on(page, now)) {
            futex_wait(&self.waiters.word, seen);
        }
        false
    }

    /// Resets pins and write-protected ranges in the child of a fork. The gate was closed: no thread was being served.
    pub(crate) fn reset_inline(&self) {
        self.pins.clear();
        self.wp_ranges.clear();
        debug_assert!(
            self.scratches.free.iter().all(|cell| !cell.load(Relaxed).is_null()),
            "a thread was being served during a fork"
        );
    }
}
