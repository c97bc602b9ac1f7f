//! Asks: a process of a run has pages of another one brought in, because it is about to read or write them
//! (process_vm_readv(2), process_vm_writev(2)).
//!
//! ```text
//! asker                                    asked process, in its evictor
//! FREE ─► TAKEN: fills the ask in
//!         ASKED, wakes the evictor ──────► SERVING: brings the pages in and pins them
//!         makes its call ◄──────────────── READY, wakes the asker
//!         DONE, wakes the evictor ───────► gives the pin up, FREE
//! ```
//!
//! Both may be killed or stopped at any point. Every change is a compare-and-exchange of a word that also counts how often the
//! ask was taken, so who was late finds another count and changes nothing. The asked process takes back what is not done in
//! time; the asker stops waiting after a while. Neither trusts the other: a pin is no more than memory that stays.

use crate::ledger::Counter;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Asks that one process answers at a time.
pub const ASKS_MAX: usize = 8;

/// Where an ask is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum AskPhase {
    /// Nobody's.
    Free = 0,
    /// An asker fills it in.
    Taken = 1,
    /// The asked process is to answer.
    Asked = 2,
    /// It brings the pages in.
    Serving = 3,
    /// The pages are pinned.
    Ready = 4,
    /// The asker needs them no more.
    Done = 5,
}

/// A phase and a count, as they were seen in the word of an ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskState(u32);

const PHASE_BITS: u32 = 3;

impl AskState {
    /// The phase; what no version of ours writes is nobody's.
    pub fn phase(self) -> AskPhase {
        match self.0 & ((1 << PHASE_BITS) - 1) {
            1 => AskPhase::Taken,
            2 => AskPhase::Asked,
            3 => AskPhase::Serving,
            4 => AskPhase::Ready,
            5 => AskPhase::Done,
            _ => AskPhase::Free,
        }
    }

    /// The word itself, to sleep on.
    pub fn word(self) -> u32 {
        self.0
    }

    /// Whether the ask was not taken again between the two.
    pub fn same_ask(self, other: AskState) -> bool {
        self.0 >> PHASE_BITS == other.0 >> PHASE_BITS
    }

    fn in_phase(self, phase: AskPhase) -> AskState {
        AskState(self.0 & !((1 << PHASE_BITS) - 1) | phase as u32)
    }

    fn taken_again(self) -> AskState {
        AskState(self.0.wrapping_add(1 << PHASE_BITS)).in_phase(AskPhase::Taken)
    }
}

/// One ask.
#[repr(C)]
pub struct Ask {
    state: AtomicU32,
    /// 1: the pages are to be written to.
    pub write: AtomicU32,
    /// First byte, in the asked process.
    pub address: Counter,
    /// Bytes that are asked for; in phase `Ready`, those that are pinned, from the first one.
    pub bytes: Counter,
}

impl Ask {
    /// Phase and count now.
    pub fn state(&self) -> AskState {
        AskState(self.state.load(Acquire))
    }

    /// The word that changes with the phase, to sleep on.
    pub fn word(&self) -> &AtomicU32 {
        &self.state
    }

    /// Goes on from `seen` to `phase`; `None` when somebody else was faster.
    pub fn change(&self, seen: AskState, phase: AskPhase) -> Option<AskState> {
        self.exchange(seen, seen.in_phase(phase))
    }

    fn exchange(&self, seen: AskState, to: AskState) -> Option<AskState> {
        self.state.compare_exchange(seen.0, to.0, AcqRel, Relaxed).is_ok().then_some(to)
    }
}

/// What others ask of one process.
#[repr(C, align(64))]
pub struct Asks {
    /// Bumped and woken when the evictor has something to look at.
    pub evictor_wakes: AtomicU32,
    /// 1: pages may be missing here, and a thread answers asks. 0: the kernel waits for missing pages by itself, or the process
    /// has no such thread.
    pub answers: AtomicU32,
    asks: [Ask; ASKS_MAX],
}

impl Asks {
    /// All asks.
    pub fn all(&self) -> &[Ask; ASKS_MAX] {
        &self.asks
    }

    /// Takes a free ask and fills it in; `None` when all are in use. The caller wakes the evictor.
    pub fn ask(&self, address: u64, bytes: u64, write: bool) -> Option<(&Ask, AskState)> {
        self.asks.iter().find_map(|ask| {
            let seen = ask.state();
            let taken = (seen.phase() == AskPhase::Free).then(|| ask.exchange(seen, seen.taken_again()))??;
            ask.address.store(address, Relaxed);
            ask.bytes.store(bytes, Relaxed);
            ask.write.store(write.into(), Relaxed);
            Some((ask, ask.change(taken, AskPhase::Asked)?))
        })
    }

    /// Gives everything back: another process answers from now on, or nobody. Counts go on.
    pub fn reset(&self) {
        self.answers.store(0, Relaxed);
        for ask in &self.asks {
            while ask.change(ask.state(), AskPhase::Free).is_none() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks() -> Box<Asks> {
        // SAFETY: asks consist of atomics, which are valid when zero.
        unsafe { Box::<Asks>::new_zeroed().assume_init() }
    }

    #[test]
    fn an_ask_goes_round_and_is_free_again() {
        let asks = asks();
        let (ask, asked) = asks.ask(0x1000, 64, true).unwrap();
        assert_eq!((asked.phase(), ask.address.load(Relaxed), ask.write.load(Relaxed)), (AskPhase::Asked, 0x1000, 1));
        let serving = ask.change(asked, AskPhase::Serving).unwrap();
        let ready = ask.change(serving, AskPhase::Ready).unwrap();
        let done = ask.change(ready, AskPhase::Done).unwrap();
        assert_eq!(ask.change(done, AskPhase::Free).unwrap().phase(), AskPhase::Free);
    }

    #[test]
    fn who_is_late_changes_nothing() {
        let asks = asks();
        let (ask, first) = asks.ask(0x1000, 64, false).unwrap();
        let ready = ask.change(first, AskPhase::Serving).and_then(|seen| ask.change(seen, AskPhase::Ready)).unwrap();
        // Taken back because it was not done in time, and taken by another asker.
        ask.change(ready, AskPhase::Free).unwrap();
        let (again, second) = asks.ask(0x2000, 64, false).unwrap();
        assert!(std::ptr::eq(ask, again) && second != first);
        assert_eq!(ask.change(ready, AskPhase::Done), None);
        assert_eq!(ask.state(), second);
    }

    #[test]
    fn a_process_answers_so_many_at_a_time() {
        let asks = asks();
        for index in 0..ASKS_MAX as u64 {
            assert!(asks.ask(index, 1, false).is_some());
        }
        assert!(asks.ask(0, 1, false).is_none());
        asks.reset();
        assert!(asks.ask(0, 1, false).is_some());
    }
}
