//! Pin requests: a process of a run has pages of another one brought in and pinned, because it is about to read or write them
//! (process_vm_readv(2), process_vm_writev(2)).
//!
//! ```text
//! requester                                target process, in its evictor
//! FREE ─► TAKEN: fills the request in
//!         SUBMITTED, wakes the evictor ──► SERVING: brings the pages in and pins them
//!         makes its call ◄──────────────── READY, wakes the requester
//!         DONE, wakes the evictor ───────► gives the pin up, FREE
//! ```
//!
//! Both may be killed or stopped at any point. Every change is a compare-and-exchange of a word that also counts how often the
//! request was taken, so a process that is late finds another count and changes nothing. The target takes back what is not done in
//! time; the requester stops waiting after a while. Neither trusts the other: a pin is no more than memory that stays.

use crate::ledger::Counter;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Requests that one process answers at a time.
pub const PIN_REQUESTS_MAX: usize = 8;

/// Where a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum PinRequestPhase {
    /// Not in use.
    Free = 0,
    /// A requester fills it in.
    Taken = 1,
    /// The target is to answer.
    Submitted = 2,
    /// It brings the pages in.
    Serving = 3,
    /// The pages are pinned.
    Ready = 4,
    /// The requester needs them no more.
    Done = 5,
}

/// A phase and a count, as they were seen in the word of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinRequestState(u32);

const PHASE_BITS: u32 = 3;

impl PinRequestState {
    /// The phase; what no version of ours writes is free.
    pub fn phase(self) -> PinRequestPhase {
        match self.0 & ((1 << PHASE_BITS) - 1) {
            1 => PinRequestPhase::Taken,
            2 => PinRequestPhase::Submitted,
            3 => PinRequestPhase::Serving,
            4 => PinRequestPhase::Ready,
            5 => PinRequestPhase::Done,
            _ => PinRequestPhase::Free,
        }
    }

    /// The word itself, to sleep on.
    pub fn word(self) -> u32 {
        self.0
    }

    /// Whether the request was not taken again between the two.
    pub fn is_same_request(self, other: PinRequestState) -> bool {
        self.0 >> PHASE_BITS == other.0 >> PHASE_BITS
    }

    fn in_phase(self, phase: PinRequestPhase) -> PinRequestState {
        PinRequestState(self.0 & !((1 << PHASE_BITS) - 1) | phase as u32)
    }

    fn taken_again(self) -> PinRequestState {
        PinRequestState(self.0.wrapping_add(1 << PHASE_BITS)).in_phase(PinRequestPhase::Taken)
    }
}

/// One request.
#[repr(C)]
pub struct PinRequest {
    state: AtomicU32,
    /// 1: the pages are to be written to.
    pub write: AtomicU32,
    /// First byte, in the target process.
    pub address: Counter,
    /// Bytes that are asked for; in phase `Ready`, those that are pinned, from the first one.
    pub bytes: Counter,
}

impl PinRequest {
    /// Phase and count now.
    pub fn state(&self) -> PinRequestState {
        PinRequestState(self.state.load(Acquire))
    }

    /// The word that changes with the phase, to sleep on.
    pub fn word(&self) -> &AtomicU32 {
        &self.state
    }

    /// Goes on from `seen` to `phase`; `None` when another process was faster.
    pub fn change(&self, seen: PinRequestState, phase: PinRequestPhase) -> Option<PinRequestState> {
        self.exchange(seen, seen.in_phase(phase))
    }

    fn exchange(&self, seen: PinRequestState, to: PinRequestState) -> Option<PinRequestState> {
        self.state.compare_exchange(seen.0, to.0, AcqRel, Relaxed).is_ok().then_some(to)
    }
}

/// What others request of one process.
#[repr(C, align(64))]
pub struct PinRequests {
    /// Bumped and woken when the evictor has something to look at.
    pub evictor_wakes: AtomicU32,
    /// 1: pages may be missing here, and a thread answers requests. 0: the kernel waits for missing pages by itself, or the process
    /// has no such thread.
    pub answers: AtomicU32,
    requests: [PinRequest; PIN_REQUESTS_MAX],
}

impl PinRequests {
    /// All requests.
    pub fn all(&self) -> &[PinRequest; PIN_REQUESTS_MAX] {
        &self.requests
    }

    /// Takes a free request and fills it in; `None` when all are in use. The caller wakes the evictor.
    pub fn submit(&self, address: u64, bytes: u64, write: bool) -> Option<(&PinRequest, PinRequestState)> {
        self.requests.iter().find_map(|request| {
            let seen = request.state();
            let taken =
                (seen.phase() == PinRequestPhase::Free).then(|| request.exchange(seen, seen.taken_again()))??;
            request.address.store(address, Relaxed);
            request.bytes.store(bytes, Relaxed);
            request.write.store(write.into(), Relaxed);
            Some((request, request.change(taken, PinRequestPhase::Submitted)?))
        })
    }

    /// Gives everything back: another process answers from now on, or none. Counts go on.
    pub fn reset(&self) {
        self.answers.store(0, Relaxed);
        for request in &self.requests {
            while request.change(request.state(), PinRequestPhase::Free).is_none() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Box<PinRequests> {
        // SAFETY: requests consist of atomics, which are valid when zero.
        unsafe { Box::<PinRequests>::new_zeroed().assume_init() }
    }

    #[test]
    fn a_request_goes_round_and_is_free_again() {
        let requests = requests();
        let (request, submitted) = requests.submit(0x1000, 64, true).unwrap();
        assert_eq!(
            (submitted.phase(), request.address.load(Relaxed), request.write.load(Relaxed)),
            (PinRequestPhase::Submitted, 0x1000, 1)
        );
        let serving = request.change(submitted, PinRequestPhase::Serving).unwrap();
        let ready = request.change(serving, PinRequestPhase::Ready).unwrap();
        let done = request.change(ready, PinRequestPhase::Done).unwrap();
        assert_eq!(request.change(done, PinRequestPhase::Free).unwrap().phase(), PinRequestPhase::Free);
    }

    #[test]
    fn a_process_that_is_late_changes_nothing() {
        let requests = requests();
        let (request, first) = requests.submit(0x1000, 64, false).unwrap();
        let ready = request
            .change(first, PinRequestPhase::Serving)
            .and_then(|seen| request.change(seen, PinRequestPhase::Ready))
            .unwrap();
        // Taken back because it was not done in time, and taken by another requester.
        request.change(ready, PinRequestPhase::Free).unwrap();
        let (again, second) = requests.submit(0x2000, 64, false).unwrap();
        assert!(std::ptr::eq(request, again) && second != first);
        assert_eq!(request.change(ready, PinRequestPhase::Done), None);
        assert_eq!(request.state(), second);
    }

    #[test]
    fn a_process_answers_so_many_at_a_time() {
        let requests = requests();
        for index in 0..PIN_REQUESTS_MAX as u64 {
            assert!(requests.submit(index, 1, false).is_some());
        }
        assert!(requests.submit(0, 1, false).is_none());
        requests.reset();
        assert!(requests.submit(0, 1, false).is_some());
    }
}
