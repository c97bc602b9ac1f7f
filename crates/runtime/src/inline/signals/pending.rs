//! Reserved signals that were sent while the program had them blocked: they wait here until it has not.
//!
//! A signal sent to one thread waits in that thread's storage, one sent to the process in the process's; one of each kind is
//! enough, because standard signals do not queue. They come back by being sent again, by the thread to itself, with the
//! information that they came with.

use super::{RESERVED, RESERVED_SET, bit, mask};
use crate::inline::raw;
use crate::inline::thread::Thread;
use libc::{SIG_BLOCK, c_int, siginfo_t};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

const EMPTY: u8 = 0;
const FULL: u8 = 1;
const BUSY: u8 = 2;

#[repr(C)]
struct Slot {
    state: AtomicU8,
    info: UnsafeCell<MaybeUninit<siginfo_t>>,
}

/// One place for each reserved signal. All zeros: nothing waits.
#[repr(C)]
pub(crate) struct Slots([Slot; 3]);

// SAFETY: the information belongs to whoever made the slot `BUSY`.
unsafe impl Sync for Slots {}

static PROCESS_WIDE: Slots = Slots::new();

impl Slots {
    const fn new() -> Slots {
        Slots([const { Slot { state: AtomicU8::new(EMPTY), info: UnsafeCell::new(MaybeUninit::uninit()) } }; 3])
    }

    /// Lets a signal wait. One that waits already stays.
    fn put(&self, place: usize, info: &siginfo_t) {
        let slot = &self.0[place];
        if slot.state.compare_exchange(EMPTY, BUSY, AcqRel, Relaxed).is_ok() {
            // SAFETY: the slot is ours until its state changes.
            unsafe { (*slot.info.get()).write(*info) };
            slot.state.store(FULL, Release);
        }
    }

    fn take(&self, place: usize) -> Option<siginfo_t> {
        let slot = &self.0[place];
        slot.state.compare_exchange(FULL, BUSY, AcqRel, Relaxed).ok()?;
        // SAFETY: the slot is ours until its state changes, and was full.
        let info = unsafe { (*slot.info.get()).assume_init_read() };
        slot.state.store(EMPTY, Release);
        Some(info)
    }

    fn set(&self) -> u64 {
        let full = |place: &usize| self.0[*place].state.load(Acquire) == FULL;
        (0..RESERVED.len()).filter(full).fold(0, |set, place| set | bit(RESERVED[place]))
    }

    fn clear(&self) {
        self.0.iter().for_each(|slot| slot.state.store(EMPTY, Relaxed));
    }
}

/// Lets a signal wait, for this thread or for any.
pub(super) fn hold(place: usize, info: &siginfo_t, thread_only: bool) {
    if thread_only { &Thread::current().pending } else { &PROCESS_WIDE }.put(place, info);
}

/// The reserved signals that wait for the calling thread.
pub(super) fn set() -> u64 {
    Thread::current().pending.set() | PROCESS_WIDE.set()
}

/// Whether any waits.
pub(crate) fn any() -> bool {
    set() != 0
}

/// Takes a waiting signal out of `wanted`.
pub(super) fn take(wanted: u64) -> Option<(c_int, siginfo_t)> {
    RESERVED.iter().enumerate().find_map(|(place, signal)| {
        let from = |slots: &Slots| if wanted & bit(*signal) != 0 { slots.take(place) } else { None };
        from(&Thread::current().pending).or_else(|| from(&PROCESS_WIDE)).map(|info| (*signal, info))
    })
}

/// Sends the calling thread the signals that wait and are not blocked any more; says how many.
pub(crate) fn deliver() -> usize {
    let mut count = 0;
    while let Some((signal, info)) = take(!mask::blocked()) {
        resend(signal, &info);
        count += 1;
    }
    count
}

/// The same for a handler that is about to return: they come when it has.
pub(crate) extern "C" fn deliver_at_return() {
    if set() & !mask::blocked() != 0 {
        raw::change_mask(SIG_BLOCK, Some(RESERVED_SET));
        deliver();
    }
}

/// Sends a signal to the calling thread, with the information that it came with.
pub(super) fn resend(signal: c_int, info: &siginfo_t) {
    let id = |id: i32| id.unsigned_abs() as usize;
    let target = [id(raw::process()), id(raw::thread()), id(signal)];
    let info = std::ptr::from_ref(info).addr();
    // SAFETY: the information is the kernel's structure; what the signal does is what the program wants of it.
    unsafe {
        if raw::call(libc::SYS_rt_tgsigqueueinfo, [target[0], target[1], target[2], info, 0, 0]) < 0 {
            raw::call(libc::SYS_tgkill, [target[0], target[1], target[2], 0, 0, 0]);
        }
    }
}

/// In the child of a fork, which inherits no pending signals.
pub(super) fn forget() {
    Thread::current().pending.clear();
    PROCESS_WIDE.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_signal_of_a_kind_waits_with_its_own_information() {
        let slots = Slots::new();
        assert!(slots.set() == 0 && slots.take(1).is_none());
        // SAFETY: plain data.
        let mut info: siginfo_t = unsafe { std::mem::zeroed() };
        info.si_code = 5;
        slots.put(1, &info);
        info.si_code = 6;
        slots.put(1, &info);
        assert_eq!(slots.set(), bit(RESERVED[1]));
        assert_eq!(slots.take(1).map(|info| info.si_code), Some(5));
        assert!(slots.take(1).is_none() && slots.set() == 0);
    }
}
