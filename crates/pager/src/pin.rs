//! Pins: pages that stay local while the kernel works on them.
//!
//! The inline path needs them: there, a system call that meets a missing or protected page fails (`EFAULT`), possibly
//! after it has consumed data. So the pages of its arguments are brought in and pinned before the call. On both paths a thread
//! that forks pins its stack, if that is far.
//!
//! Invariant: a page inside a pin that was brought in stays `Resident` until the pin is dropped. The thread that pins
//! publishes the range first and looks at the pages then; the thread that evicts makes the page `Leaving` first and looks at
//! the pins then. The second one sees the first.

use crate::backoff::Backoff;
use crate::page_counts::PageCounts;
use crate::sys::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use crate::sys::sync::{IS_MODELLED, Words};
use crate::sys::{Zeros, thread};
use hinterland_sys::SysError;
use hinterland_units::PageNo;
use std::ops::Range;

/// Pins at the same time: a few dozen for each thread that is in a system call. Address space only: what is used is memory.
const PINS_MAX: usize = if IS_MODELLED { 2 } else { 16 << 10 };

/// What the kernel does with pinned pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinAccess {
    /// Reads them.
    Read,
    /// Writes to them.
    Write,
}

/// One pin. The range is one word, so that it appears and disappears at once.
#[derive(Default)]
struct Slot {
    /// First page and the page after the last; 0: free.
    range: AtomicU64,
    /// Who pinned, and from which stack frame: what a jump out of the call leaves behind is found by them.
    thread: AtomicUsize,
    frame: AtomicUsize,
}

// SAFETY: a slot is free when it is zero.
unsafe impl Zeros for Slot {}

/// All pins of a process.
pub(crate) struct Pins {
    slots: Words<Slot>,
    /// Slots that were ever used: from the first one.
    used: AtomicUsize,
    /// Threads may share thread-local storage, so that its address does not tell them apart.
    by_id: AtomicBool,
    /// Forks from the first process to this one: a guard of before a fork has no slot any more.
    forks: AtomicU64,
    /// Pages that stay for longer than a call.
    pub(crate) long_term: PageCounts,
}

impl Pins {
    /// Room for pins.
    pub(crate) fn new() -> Result<Pins, SysError> {
        Ok(Pins {
            slots: Words::new(PINS_MAX)?,
            used: AtomicUsize::new(0),
            by_id: AtomicBool::new(false),
            forks: AtomicU64::new(0),
            long_term: PageCounts::default(),
        })
    }

    /// Pages that are pinned, for a call or long-term; those of two pins twice.
    pub(crate) fn pages(&self) -> u64 {
        let ranges = self.slots.all()[..self.used.load(Relaxed)].iter().map(|slot| unpack(slot.range.load(Relaxed)));
        ranges.map(|(first, end)| u64::from(end.saturating_sub(first))).sum::<u64>() + self.long_term.pages() as u64
    }

    /// Whether a page is pinned. The caller has made it `Leaving` before.
    pub(crate) fn cover(&self, page: PageNo) -> bool {
        self.touch(page, PageNo(page.0 + 1))
    }

    /// Whether part of a range is pinned. The caller has published what it is about to do with the range before.
    pub(crate) fn touch(&self, first: PageNo, end: PageNo) -> bool {
        fence(SeqCst);
        let pinned = self.slots.all()[..self.used.load(SeqCst)].iter().any(|slot| {
            let (pin_first, pin_end) = unpack(slot.range.load(SeqCst));
            first.0 < pin_end && pin_first < end.0
        });
        pinned || self.long_term.touch(first, end)
    }

    /// Publishes a range; waits when there are too many. A slot belongs to a thread before it holds a range, so that a jump
    /// out of here leaves nothing behind that is not found.
    fn add(&self, first: u32, end: u32, frame: usize) -> usize {
        let (thread, mut backoff) = (self.calling_thread(), Backoff::new());
        loop {
            for (index, slot) in self.slots.all().iter().enumerate() {
                if slot.thread.load(Relaxed) == 0 && slot.thread.compare_exchange(0, thread, SeqCst, Relaxed).is_ok() {
                    slot.frame.store(frame, Relaxed);
                    if index >= self.used.load(Relaxed) {
                        self.used.fetch_max(index + 1, SeqCst);
                    }
                    // A full barrier: the pages are looked at afterwards.
                    slot.range.swap(pack(first, end), SeqCst);
                    return index;
                }
            }
            backoff.pause();
        }
    }

    fn remove(&self, index: usize) {
        let slot = self.slots.at(index);
        slot.range.store(0, Release);
        slot.frame.store(0, Relaxed);
        slot.thread.store(0, Release);
    }

    /// See `Pager::sweep_pins`.
    pub(crate) fn sweep(&self, frames: Range<usize>) {
        let thread = self.calling_thread();
        for (index, slot) in self.slots.all()[..self.used.load(Relaxed)].iter().enumerate() {
            if slot.thread.load(Relaxed) == thread && frames.contains(&slot.frame.load(Relaxed)) {
                self.remove(index);
            }
        }
    }

    /// See `Pager::threads_share_storage`. Who has pinned before keeps the number that it had: its guards know the slots.
    pub(crate) fn tell_owners_by_id(&self) {
        self.by_id.store(true, Relaxed);
    }

    /// A number for the calling thread, not 0. An id of the kernel's is no address of a thread's storage.
    fn calling_thread(&self) -> usize {
        if self.by_id.load(Relaxed) { thread::id() as usize } else { thread::pointer() }
    }

    /// Forgets all of them, in the child of a fork: its one thread is in no call but the fork, and in those that a handler has
    /// interrupted which forked.
    pub(crate) fn clear(&self) {
        self.forks.fetch_add(1, Relaxed);
        for slot in &self.slots.all()[..self.used.load(Relaxed)] {
            slot.thread.store(0, Relaxed);
            slot.range.store(0, Relaxed);
        }
    }
}

/// A range of pages as one word.
pub(crate) fn pack(first: u32, end: u32) -> u64 {
    u64::from(end) << 32 | u64::from(first)
}

/// What `pack` made.
pub(crate) fn unpack(range: u64) -> (u32, u32) {
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let first = range as u32;
    (first, u32::try_from(range >> 32).unwrap_or(u32::MAX))
}

/// Pages stay local until this is dropped.
pub struct Pin<'a> {
    pins: &'a Pins,
    /// `None`: nothing of it was far.
    slot: Option<usize>,
    /// As `Pins::forks`, when it was published.
    forks: u64,
}

impl Pin<'_> {
    /// Of nothing that is far.
    pub(crate) const fn none(pins: &Pins) -> Pin<'_> {
        Pin { pins, slot: None, forks: 0 }
    }

    /// Publishes a range: see [`Pins::add`].
    pub(crate) fn of(pins: &Pins, first: u32, end: u32, frame: usize) -> Pin<'_> {
        // First: a handler that comes in between may fork.
        let forks = pins.forks.load(Relaxed);
        Pin { pins, slot: Some(pins.add(first, end, frame)), forks }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.filter(|_| self.forks == self.pins.forks.load(Relaxed)) {
            self.pins.remove(slot);
        }
    }
}
