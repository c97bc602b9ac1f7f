//! Asks of other processes: the evictor brings pages in and pins them for a call of another process of the run.
//!
//! The kernel reads and writes another process's memory (process_vm_readv(2)) in the caller's thread. A page that is missing is
//! `EFAULT` there on the inline path: no thread of this process has faulted, so none serves. So the caller asks, and the evictor,
//! the one thread of ours that sleeps and can be woken, answers. What is pinned for one ask is a 64th of the local budget at most,
//! and no longer than [`READY_MAX`]: an asker that was killed or stopped keeps nothing.
//!
//! The evictor waits for no asker, and an asker owns nothing that an evictor waits for. So two processes that ask each other at the
//! same time both get their answers.

use crate::evictor_waker::EvictorWaker;
use crate::fault_path::FaultPath;
use crate::pages::Pages;
use crate::pin::{Pin, PinAccess};
use crate::pinning::Pinning;
use crate::sys::gate::shared_futex_wake;
use hinterland_abi::{ASKS_MAX, AskPhase, AskState, Asks};
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The time for a call on pinned pages: far longer than any takes that runs.
const READY_MAX: Duration = Duration::from_secs(1);
/// Of the most that a call of our own pins, the part that one ask gets.
const ASK_SHARE: usize = 4;

/// What the evictor holds for askers.
#[derive(Default)]
pub(crate) struct Held<'a> {
    slots: [Option<Seen<'a>>; ASKS_MAX],
}

/// An ask that waits for its asker.
struct Seen<'a> {
    state: AskState,
    since: Instant,
    /// `None`: it is not filled in yet.
    _pin: Option<Pin<'a>>,
}

/// See the module.
pub(crate) struct Answers {
    pages: &'static Pages,
    pinning: &'static Pinning,
    waker: &'static EvictorWaker,
}

impl Answers {
    pub(crate) fn new(pages: &'static Pages, pinning: &'static Pinning, waker: &'static EvictorWaker) -> Answers {
        Answers { pages, pinning, waker }
    }

    /// On the monitor path the kernel waits for missing pages by itself.
    fn asks(&self) -> Option<&'static Asks> {
        self.waker.asks().filter(|_| self.pages.path == FaultPath::Inline)
    }

    /// The evictor was started: from now on asks are answered.
    pub(crate) fn begin(&self) {
        if let Some(asks) = self.asks() {
            asks.answers.store(1, Relaxed);
        }
    }

    /// No evictor is left.
    pub(crate) fn end(&self) {
        if let Some(asks) = self.asks() {
            asks.answers.store(0, Relaxed);
        }
    }

    /// Looks at all asks once: answers new ones, gives up the pins of those that are done or overdue.
    pub(crate) fn answer<'a>(&'a self, held: &mut Held<'a>) {
        let Some(asks) = self.asks() else { return };
        for (ask, slot) in asks.all().iter().zip(&mut held.slots) {
            let state = ask.state();
            match state.phase() {
                AskPhase::Free | AskPhase::Serving => *slot = None,
                AskPhase::Done => {
                    *slot = None;
                    ask.change(state, AskPhase::Free);
                }
                AskPhase::Asked => {
                    let Some(serving) = ask.change(state, AskPhase::Serving) else { continue };
                    let access = if ask.write.load(Relaxed) == 1 { PinAccess::Write } else { PinAccess::Read };
                    let address = usize::try_from(ask.address.load(Relaxed)).unwrap_or(0);
                    let wanted = usize::try_from(ask.bytes.load(Relaxed)).unwrap_or(usize::MAX);
                    let bytes = wanted.min((self.pinning.piece_bytes() / ASK_SHARE).max(PAGE_BYTES));
                    let pin = self.pinning.pin_for(address, bytes, access, usize::MAX);
                    ask.bytes.store(bytes as u64, Relaxed);
                    *slot = ask.change(serving, AskPhase::Ready).map(|state| Seen::new(state, Some(pin)));
                    shared_futex_wake(ask.word());
                }
                // Its asker is about to go on, or has been killed.
                AskPhase::Taken | AskPhase::Ready => match slot {
                    Some(seen) if seen.state == state => {
                        if seen.since.elapsed() > READY_MAX && ask.change(state, AskPhase::Free).is_some() {
                            *slot = None;
                        }
                    }
                    _ => *slot = Some(Seen::new(state, None)),
                },
            }
        }
    }
}

impl<'a> Seen<'a> {
    fn new(state: AskState, pin: Option<Pin<'a>>) -> Seen<'a> {
        Seen { state, since: Instant::now(), _pin: pin }
    }
}
