//! Pin requests of other processes: the evictor brings pages in and pins them for a call of another process of the run.
//!
//! The kernel reads and writes another process's memory (process_vm_readv(2)) in the caller's thread. A page that is missing is
//! `EFAULT` there on the inline path: no thread of this process has faulted, so none serves. So the caller makes a request, and the evictor,
//! the one thread of ours that sleeps and can be woken, answers. What is pinned for one request is a 64th of the local budget at most,
//! and no longer than [`READY_MAX`]: a requester that was killed or stopped keeps nothing.
//!
//! The evictor waits for no requester, and a requester owns nothing that an evictor waits for. So two processes that make requests of
//! each other at the same time both get their answers.

use crate::evictor_waker::EvictorWaker;
use crate::fault_path::FaultPath;
use crate::pages::Pages;
use crate::pin::{Pin, PinAccess};
use crate::pinning::Pinning;
use crate::sys::gate::shared_futex_wake;
use hinterland_abi::{PIN_REQUESTS_MAX, PinRequestPhase, PinRequestState, PinRequests};
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The time for a call on pinned pages: far longer than any takes that runs.
const READY_MAX: Duration = Duration::from_secs(1);
/// Of the most that a call of our own pins, the part that one request gets.
const REQUEST_SHARE: usize = 4;

/// What the evictor has pinned for requesters.
#[derive(Default)]
pub(crate) struct RequestPins<'a> {
    slots: [Option<RequestPin<'a>>; PIN_REQUESTS_MAX],
}

/// A request that waits for its requester.
struct RequestPin<'a> {
    state: PinRequestState,
    since: Instant,
    /// `None`: it is not filled in yet.
    _pin: Option<Pin<'a>>,
}

/// See the module.
pub(crate) struct PinRequestHandler {
    pages: &'static Pages,
    pinning: &'static Pinning,
    waker: &'static EvictorWaker,
}

impl PinRequestHandler {
    pub(crate) fn new(
        pages: &'static Pages,
        pinning: &'static Pinning,
        waker: &'static EvictorWaker,
    ) -> PinRequestHandler {
        PinRequestHandler { pages, pinning, waker }
    }

    /// On the monitor path the kernel waits for missing pages by itself.
    fn requests(&self) -> Option<&'static PinRequests> {
        self.waker.pin_requests().filter(|_| self.pages.path == FaultPath::Inline)
    }

    /// The evictor was started: from now on requests are answered.
    pub(crate) fn begin(&self) {
        if let Some(requests) = self.requests() {
            requests.answers.store(1, Relaxed);
        }
    }

    /// No evictor is left.
    pub(crate) fn end(&self) {
        if let Some(requests) = self.requests() {
            requests.answers.store(0, Relaxed);
        }
    }

    /// Looks at all requests once: answers new ones, gives up the pins of those that are done or overdue.
    pub(crate) fn answer<'a>(&'a self, pins: &mut RequestPins<'a>) {
        let Some(requests) = self.requests() else { return };
        for (request, slot) in requests.all().iter().zip(&mut pins.slots) {
            let state = request.state();
            match state.phase() {
                PinRequestPhase::Free | PinRequestPhase::Serving => *slot = None,
                PinRequestPhase::Done => {
                    *slot = None;
                    request.change(state, PinRequestPhase::Free);
                }
                PinRequestPhase::Submitted => {
                    let Some(serving) = request.change(state, PinRequestPhase::Serving) else { continue };
                    let access = if request.write.load(Relaxed) == 1 { PinAccess::Write } else { PinAccess::Read };
                    let address = usize::try_from(request.address.load(Relaxed)).unwrap_or(0);
                    let wanted = usize::try_from(request.bytes.load(Relaxed)).unwrap_or(usize::MAX);
                    let bytes = wanted.min((self.pinning.piece_bytes() / REQUEST_SHARE).max(PAGE_BYTES));
                    let pin = self.pinning.pin_for(address, bytes, access, usize::MAX);
                    request.bytes.store(bytes as u64, Relaxed);
                    *slot =
                        request.change(serving, PinRequestPhase::Ready).map(|state| RequestPin::new(state, Some(pin)));
                    shared_futex_wake(request.word());
                }
                // Its requester is about to go on, or has been killed.
                PinRequestPhase::Taken | PinRequestPhase::Ready => match slot {
                    Some(pinned) if pinned.state == state => {
                        if pinned.since.elapsed() > READY_MAX && request.change(state, PinRequestPhase::Free).is_some()
                        {
                            *slot = None;
                        }
                    }
                    _ => *slot = Some(RequestPin::new(state, None)),
                },
            }
        }
    }
}

impl<'a> RequestPin<'a> {
    fn new(state: PinRequestState, pin: Option<Pin<'a>>) -> RequestPin<'a> {
        RequestPin { state, since: Instant::now(), _pin: pin }
    }
}
