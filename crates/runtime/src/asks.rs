//! Asking another process of the run for its pages: the side of the one that asks.
//!
//! The asks lie in the ledger (`hinterland_abi::Asks`); the other process's evictor answers. The caller holds no pin and no lock
//! of the pager's while it waits, and may be in a signal handler: nothing is allocated.

use crate::ledger;
use hinterland_abi::{Ask, AskPhase, AskState, Asks, Ledger, Numbered};
use hinterland_pager::FaultPath;
use hinterland_sys::gate::{shared_futex_bump, shared_futex_wait_for};
use hinterland_sys::thread;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// The time after which a process that does not answer is given up: it may be stopped, or its far memory far too slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks at whether the other process still lives, and at whether one of its asks is free.
const LOOK: Duration = Duration::from_millis(50);
const FULL: Duration = Duration::from_millis(1);

/// Another process that answers asks.
pub(crate) struct Asked {
    process: Numbered,
    ledger: &'static Ledger,
    asks: &'static Asks,
}

/// Pages of the other process are local and stay so until this is dropped, or for a second.
pub(crate) struct Brought {
    asks: &'static Asks,
    ask: &'static Ask,
    state: AskState,
}

/// Where `process` can be asked; `None`: it is none of this run's that answers. Tells all others that they may be asked.
pub(crate) fn of_process(process: i32) -> Option<Asked> {
    let ledger = ledger::get()?;
    // The kernel takes the number in this process's namespace.
    let process = ledger::numbered(process);
    let asks = ledger.asks_of_process(process)?;
    ledger.asks_wanted.store(1, Relaxed);
    (asks.answers.load(Relaxed) == 1).then_some(Asked { process, ledger, asks })
}

/// Says, once, that `process` belongs to this run and cannot be asked yet: without much far memory it has no evictor, and only when it
/// next maps memory does it see that it may be asked.
pub(crate) fn say_who_is_deaf(process: i32) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let asks = ledger::get().and_then(|ledger| ledger.asks_of_process(ledger::numbered(process)));
    let inline = crate::pager().is_some_and(|pager| pager.path() == FaultPath::Inline);
    if inline && asks.is_some_and(|asks| asks.answers.load(Relaxed) == 0) && !SAID.swap(true, Relaxed) {
        thread::write_stderr(
            "hinterland: process_vm_readv or process_vm_writev on a process with little far memory, which cannot be asked for its pages yet: \
             EFAULT for those that it has not touched; the monitor path (--fault-path monitor) has no such limit\n",
        );
    }
}

impl Asked {
    /// Has the pages of `bytes` bytes at `address` brought in and pinned, or of the first of them; `None` when nobody answers.
    pub(crate) fn bring_in(&self, address: usize, bytes: usize, write: bool) -> Option<Brought> {
        let begun = thread::since_boot();
        let in_time = || thread::since_boot().saturating_sub(begun) < PATIENCE && self.lives();
        let (ask, mut state) = loop {
            let seen = self.asks.evictor_wakes.load(SeqCst);
            if let Some(asked) = self.asks.ask(address as u64, bytes as u64, write) {
                break asked;
            }
            if !in_time() {
                return None;
            }
            shared_futex_wait_for(&self.asks.evictor_wakes, seen, FULL);
        };
        shared_futex_bump(&self.asks.evictor_wakes);
        loop {
            let now = ask.state();
            match now.phase() {
                AskPhase::Asked | AskPhase::Serving if now.same_ask(state) => state = now,
                AskPhase::Ready if now.same_ask(state) => return Some(Brought { asks: self.asks, ask, state: now }),
                // Overdue, or another process's by now.
                _ => return None,
            }
            if !in_time() {
                ask.change(state, AskPhase::Free);
                return None;
            }
            shared_futex_wait_for(ask.word(), state.word(), LOOK);
        }
    }

    fn lives(&self) -> bool {
        self.ledger.asks_of_process(self.process).is_some_and(|asks| ptr::eq(asks, self.asks))
    }
}

impl Brought {
    /// Bytes from the first one that are there.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.ask.bytes.load(Relaxed)).unwrap_or(0)
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        if self.ask.change(self.state, AskPhase::Done).is_some() {
            shared_futex_bump(&self.asks.evictor_wakes);
        }
    }
}
