//! Faults on the inline path: the thread that faults serves itself, in a signal handler.
//!
//! The same steps as in the monitor (`fault`), with two differences: this thread waits for a page that another thread has made
//! busy, and the memory that the steps need comes from a pool that was filled at the start, because a signal handler cannot
//! allocate. The caller has all signals blocked, so no other handler of this thread runs meanwhile; and no thread touches far
//! memory while it owns pages or locks of the pager, so the owner that this thread waits for makes progress without it.

use crate::evictor_waker::EvictorWaker;
use crate::fault::Faults;
use crate::local_memory::LocalMemory;
use crate::pages::{Outcome, Pages};
use crate::points::Point;
use crate::read_ahead::ReadAhead;
use crate::scratch::{Scratch, ScratchPool};
use crate::state::{Entry, State};
use crate::sys::Instant;
use crate::sys::mem;
use crate::sys::thread::{self, SignalsBlocked};
use hinterland_sys::{Fault, SysError};
use hinterland_units::{PAGE_BYTES, PageNo};

/// Loads of a busy page's entry before the thread sleeps: a fetch from compressed memory takes about as long.
const SPINS: u32 = 200;

/// Why a thread needs a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It has touched the page.
    Fault,
    /// The kernel is about to work on the page, for this thread or for another process.
    Call,
}

/// See the module.
pub(crate) struct InlineFaults {
    pages: &'static Pages,
    local: &'static LocalMemory,
    read_ahead: &'static ReadAhead,
    faults: &'static Faults,
    waker: &'static EvictorWaker,
    scratches: ScratchPool,
}

impl InlineFaults {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        read_ahead: &'static ReadAhead,
        faults: &'static Faults,
        waker: &'static EvictorWaker,
    ) -> Result<InlineFaults, SysError> {
        let scratches = ScratchPool::new(pages.path)?;
        Ok(InlineFaults { pages, local, read_ahead, faults, waker, scratches })
    }

    /// See `Pager::serve_inline`.
    pub(crate) fn serve(&self, address: usize, write: bool) -> bool {
        self.serve_for(Need::Fault, address, write)
    }

    /// The same for a page that the kernel is about to work on: the calling thread has not touched it.
    pub(crate) fn bring(&self, address: usize, write: bool) -> bool {
        self.serve_for(Need::Call, address, write)
    }

    fn serve_for(&self, need: Need, address: usize, write: bool) -> bool {
        let Some(page) = self.pages.page_of(address) else { return false };
        // Another mapping's page: that it cannot be had is the kernel's answer, for the program. Unless it was ours when it was touched.
        if need == Need::Fault && self.pages.state(page) == State::Foreign {
            self.pages.at(Point::FoundForeign, page);
            if self.is_to_be_had(page, write) {
                return true;
            }
            // Ours again meanwhile: the kernel refuses because it is the pager that is to bring it in.
            if self.pages.state(page) == State::Foreign {
                return false;
            }
        }
        let begin = Instant::now();
        let _signals = SignalsBlocked::already();
        let inside = self.pages.gate.enter();
        let watched = self.faults.watch(page, None);
        let is_late = self.scratches.with(|scratch| {
            // The kernel does not say whether the page is missing or protected: lifting a protection that is not there does no harm.
            let fault = Fault { address, write, write_protected: write, thread: 0 };
            self.serve_and_wait(page, need, fault, scratch)
        });
        let ns = self.faults.count(begin);
        if is_late {
            self.faults.count_late_for(ns);
        }
        if let Some(watched) = watched {
            watched.served(ns);
        }
        if self.local.above_high(&inside) || self.read_ahead.has_work() && !self.read_ahead.is_started() {
            self.waker.wake_if_idle();
        }
        true
    }

    /// Whether the kernel can bring in a page of another mapping's (`MADV_POPULATE_*`, Linux 5.14: an error where a touch is a signal).
    fn is_to_be_had(&self, page: PageNo, write: bool) -> bool {
        let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        mem::advise(self.pages.address(page), PAGE_BYTES, advice).is_ok()
    }

    /// Whether it waited for a page that was being prefetched.
    fn serve_and_wait(&self, page: PageNo, need: Need, mut fault: Fault, scratch: &mut Scratch) -> bool {
        let (mut waits, mut is_late) = (false, false);
        loop {
            match self.faults.serve_page(page, fault, scratch) {
                Outcome::Served => return is_late,
                Outcome::Again => {}
                Outcome::Busy(entry) if !waits => {
                    waits = true;
                    is_late = self.faults.count_late(entry);
                    // Where it has to wait: one of the pager's own threads that faults on a page which leaves is the one that takes it
                    // out. One that brings a page in for a call is not: it would map zeros in place of what another one takes out.
                    if need == Need::Fault {
                        fault.thread = thread::id();
                    }
                }
                Outcome::Busy(entry) => {
                    if self.wait_for(page, entry) {
                        return is_late;
                    }
                }
            }
        }
    }

    /// Waits until a page has left the state in `busy`. True: it is mapped, the thread can fault again.
    fn wait_for(&self, page: PageNo, busy: Entry) -> bool {
        for _ in 0..SPINS {
            let now = self.pages.table.load(page);
            if now.state() != busy.state() {
                return now.state() == State::Resident;
            }
            std::hint::spin_loop();
        }
        self.pages.waiters.wait_if(|| self.pages.table.must_wait(page));
        false
    }

    /// Whether no thread is being served.
    pub(crate) fn is_idle(&self) -> bool {
        self.scratches.is_idle()
    }
}
