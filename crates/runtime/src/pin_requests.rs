//! Requests to another process of the run to pin its pages: the side of the requester.
//!
//! The requests lie in the ledger (`hinterland_abi::PinRequests`); the other process's evictor answers. The caller holds no pin and no lock
//! of the pager's while it waits, and may be in a signal handler: nothing is allocated.

use crate::ledger;
use hinterland_abi::{Ledger, Numbered, PinRequest, PinRequestPhase, PinRequestState, PinRequests};
use hinterland_pager::FaultPath;
use hinterland_sys::gate::{shared_futex_bump, shared_futex_wait_for};
use hinterland_sys::thread;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// The time after which a process that does not answer is given up: it may be stopped, or its far memory far too slow.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time between two looks at whether the other process still lives, and at whether one of its requests is free.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Another process that answers requests.
pub(crate) struct PeerProcess {
    process: Numbered,
    ledger: &'static Ledger,
    requests: &'static PinRequests,
}

/// Pages of the other process are local and stay so until this is dropped, or for a second.
pub(crate) struct PeerPin {
    requests: &'static PinRequests,
    request: &'static PinRequest,
    state: PinRequestState,
}

/// `process`, if it is one of this run's that answers. Tells all others that requests may come.
pub(crate) fn of_process(process: i32) -> Option<PeerProcess> {
    let ledger = ledger::get()?;
    // The kernel takes the number in this process's namespace.
    let process = ledger::numbered(process);
    let requests = ledger.pin_requests_of_process(process)?;
    ledger.pin_requests_wanted.store(1, Relaxed);
    (requests.answers.load(Relaxed) == 1).then_some(PeerProcess { process, ledger, requests })
}

/// Says, once, that `process` belongs to this run and answers no requests yet: without much far memory it has no evictor, and only when it
/// next maps memory does it see that requests may come.
pub(crate) fn warn_that_none_answers(process: i32) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let requests = ledger::get().and_then(|ledger| ledger.pin_requests_of_process(ledger::numbered(process)));
    let inline = crate::pager().is_some_and(|pager| pager.path() == FaultPath::Inline);
    if inline && requests.is_some_and(|requests| requests.answers.load(Relaxed) == 0) && !SAID.swap(true, Relaxed) {
        thread::write_stderr(
            "hinterland: process_vm_readv or process_vm_writev on a process with little far memory, which cannot be asked for its pages yet: \
             EFAULT for those that it has not touched; the monitor path (--fault-path monitor) has no such limit\n",
        );
    }
}

impl PeerProcess {
    /// Has the pages of `bytes` bytes at `address` brought in and pinned, or of the first of them; `None` when it does not answer.
    pub(crate) fn bring_in(&self, address: usize, bytes: usize, write: bool) -> Option<PeerPin> {
        let begun = thread::since_boot();
        let in_time = || thread::since_boot().saturating_sub(begun) < TIMEOUT && self.lives();
        let (request, mut state) = loop {
            let seen = self.requests.evictor_wakes.load(SeqCst);
            if let Some(submitted) = self.requests.submit(address as u64, bytes as u64, write) {
                break submitted;
            }
            if !in_time() {
                return None;
            }
            shared_futex_wait_for(&self.requests.evictor_wakes, seen, RETRY_INTERVAL);
        };
        shared_futex_bump(&self.requests.evictor_wakes);
        loop {
            let now = request.state();
            match now.phase() {
                PinRequestPhase::Submitted | PinRequestPhase::Serving if now.is_same_request(state) => state = now,
                PinRequestPhase::Ready if now.is_same_request(state) => {
                    return Some(PeerPin { requests: self.requests, request, state: now });
                }
                // Overdue, or another process's by now.
                _ => return None,
            }
            if !in_time() {
                request.change(state, PinRequestPhase::Free);
                return None;
            }
            shared_futex_wait_for(request.word(), state.word(), POLL_INTERVAL);
        }
    }

    fn lives(&self) -> bool {
        self.ledger.pin_requests_of_process(self.process).is_some_and(|requests| ptr::eq(requests, self.requests))
    }
}

impl PeerPin {
    /// Bytes from the first one that are there.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.request.bytes.load(Relaxed)).unwrap_or(0)
    }
}

impl Drop for PeerPin {
    fn drop(&mut self) {
        if self.request.change(self.state, PinRequestPhase::Done).is_some() {
            shared_futex_bump(&self.requests.evictor_wakes);
        }
    }
}
