//! The simulated machine: memory, the faults that wait to be served, and what it does that no caller can foresee.

use super::memory::Memory;
use super::turns::{State, Wait};
use hinterland_sys::Fault;
use hinterland_units::PAGE_BYTES;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// How often the machine does what it may, each time as one in so many; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chances {
    /// A COPY, MOVE or vector call stops before its end.
    pub(crate) stops: u64,
    /// MOVE moves pages and does not count them (decision 0018).
    pub(crate) uncounted: u64,
    /// The kernel uses a page for a moment, so MOVE says `EBUSY`.
    pub(crate) busy: u64,
    /// The kernel swaps a page out after it was used.
    pub(crate) swaps: u64,
    /// A thread wakes spuriously.
    pub(crate) spurious: u64,
}

/// Serves a fault of the calling thread; false: not a far address.
pub(crate) type Handler = Arc<dyn Fn(usize, bool) -> bool + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) memory: Memory,
    pub(crate) chances: Chances,
    /// Serves faults in the thread that has them; `None`: they are messages.
    pub(crate) handler: Option<Handler>,
    /// Faults that no thread has read.
    messages: VecDeque<Fault>,
    /// Threads in a fault, with its address, and whether they were woken.
    faulting: Vec<(u32, usize, bool)>,
}

impl Machine {
    pub(crate) fn new(chances: Chances) -> Machine {
        Machine { chances, ..Machine::default() }
    }
}

/// Faults and the threads that wait for them.
impl State {
    /// A thread has a fault, which waits to be read.
    pub(crate) fn begin_fault(&mut self, fault: Fault) {
        self.machine.messages.push_back(fault);
        self.machine.faulting.push((fault.thread, fault.address, false));
        self.wake(|waits| waits == Wait::Message);
    }

    /// A thread is out of its fault, or looks again.
    pub(crate) fn end_fault(&mut self, thread: u32) {
        self.machine.faulting.retain(|(other, ..)| *other != thread);
        self.machine.messages.retain(|fault| fault.thread != thread);
    }

    /// A thread need not wait in its fault.
    pub(crate) fn wake_faulting(&mut self, thread: u32) {
        self.machine.faulting.iter_mut().filter(|(other, ..)| *other == thread).for_each(|(.., woken)| *woken = true);
    }

    /// Whether a thread in a fault has been woken.
    pub(crate) fn is_woken(&self, thread: u32) -> bool {
        self.machine.faulting.iter().any(|(other, _, woken)| *other == thread && *woken)
    }

    /// Wakes all threads in faults in a range, also those of which nobody has read.
    pub(crate) fn wake_faults(&mut self, range: &Range<usize>) {
        let mut threads = Vec::new();
        for (thread, address, woken) in &mut self.machine.faulting {
            if range.contains(address) {
                *woken = true;
                threads.push(*thread);
            }
        }
        self.machine.messages.retain(|fault| !threads.contains(&fault.thread));
        self.wake(|waits| matches!(waits, Wait::Fault(address) if range.contains(&address)));
    }

    /// Takes faults to serve.
    pub(crate) fn take_messages(&mut self, most: usize) -> Vec<Fault> {
        let count = most.min(self.machine.messages.len());
        self.machine.messages.drain(..count).collect()
    }

    /// Whether the machine does now what it does one in so many times.
    pub(crate) fn does(&mut self, chance: impl Fn(&Chances) -> u64) -> bool {
        let many = chance(&self.machine.chances);
        self.one_in(many)
    }
}

/// The page that holds an address.
pub(crate) fn page_at(address: usize) -> usize {
    address & !(PAGE_BYTES - 1)
}
