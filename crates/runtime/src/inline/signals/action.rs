//! Dispositions: the virtual ones of reserved signals, and what the others have that the kernel must not.
//!
//! Another signal's real handler is ours too (`deliver::on_other`), and the program's is noted here: the stack that it would
//! begin on may be far, and its mask may hold reserved signals.
//!
//! Read in signal handlers, where nothing can be waited for: a writer, of which there is one at a time, fills the next of
//! several versions and then makes it the current one.

use super::{index, strip, vfork_child};
use crate::inline::raw;
use crate::inline::thread::{Child, Thread};
use crate::inline::trap::{self, frame};
use hinterland_sys::thread::{SignalsBlocked, yield_now};
use libc::c_int;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// `SA_RESTORER`: the action brings the code that returns from the handler. glibc always sets it.
pub(crate) const SA_RESTORER: u64 = 0x0400_0000;

/// The kernel's `struct sigaction` of x86-64.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

impl KernelAction {
    /// Whether a flag of `libc::SA_*` is set.
    pub fn has(&self, flag: c_int) -> bool {
        self.flags & u64::from(flag.cast_unsigned()) != 0
    }
}

/// Versions of a disposition. A reader that sleeps through this many changes would read nonsense.
const VERSIONS: usize = 16;

/// One signal's disposition.
struct Disposition {
    current: AtomicUsize,
    versions: UnsafeCell<[KernelAction; VERSIONS]>,
}

// SAFETY: the current version is not written to; the others have one writer, which holds the lock.
unsafe impl Sync for Disposition {}

impl Disposition {
    const fn new() -> Disposition {
        let none = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
        Disposition { current: AtomicUsize::new(0), versions: UnsafeCell::new([none; VERSIONS]) }
    }

    fn load(&self) -> KernelAction {
        let versions = self.versions.get().cast::<KernelAction>();
        // SAFETY: the index is below the number of versions, and this one is not written to.
        unsafe { versions.add(self.current.load(Acquire) % VERSIONS).read() }
    }

    /// For the holder of the lock.
    fn store(&self, action: KernelAction) {
        let next = self.current.load(Relaxed).wrapping_add(1);
        let versions = self.versions.get().cast::<KernelAction>();
        // SAFETY: the index is below the number of versions; this one is not current, and there is one writer.
        unsafe { versions.add(next % VERSIONS).write(action) };
        self.current.store(next, Release);
    }
}

static DISPOSITIONS: [Disposition; 3] = [const { Disposition::new() }; 3];
/// The program's actions for other signals, where the real handler is ours.
static OTHERS: [Disposition; 65] = [const { Disposition::new() }; 65];
/// The reserved signals in the masks of the other signals' actions that have no handler, as a small set.
static MASKS: [AtomicU8; 65] = [const { AtomicU8::new(0) }; 65];
/// Held by the thread that changes a disposition, with signals blocked.
static LOCK: AtomicBool = AtomicBool::new(false);

struct Locked(#[allow(dead_code, reason = "unblocks the signals when dropped, after the lock")] SignalsBlocked);

impl Locked {
    fn new() -> Locked {
        let blocked = SignalsBlocked::new();
        while LOCK.swap(true, Acquire) {
            yield_now();
        }
        Locked(blocked)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCK.store(false, Release);
    }
}

/// In the child of a fork: the thread that held the lock does not exist.
pub(super) fn unlock() {
    LOCK.store(false, Release);
}

/// The place in the child's table, which is filled from its parent's the first time.
fn childs(child: &Child, process: i32, place: usize) -> *mut KernelAction {
    super::mask::adopt(child, process);
    assert!(place < super::RESERVED.len(), "no reserved signal: {place}");
    // SAFETY: inside the table.
    unsafe { child.actions.get().cast::<KernelAction>().add(place) }
}

/// Fills a child's table.
pub(super) fn inherit(child: &Child) {
    // SAFETY: as in `of`.
    unsafe { *child.actions.get() = DISPOSITIONS.each_ref().map(Disposition::load) };
}

/// The virtual disposition of a reserved signal.
pub(crate) fn of(place: usize) -> KernelAction {
    match vfork_child() {
        // SAFETY: only the one thread of the child uses its table.
        Some(process) => unsafe { childs(&Thread::current().child, process, place).read() },
        None => DISPOSITIONS[place].load(),
    }
}

/// Replaces the virtual disposition of a reserved signal; returns the old one.
fn set_virtual(signal: c_int, place: usize, new: KernelAction) -> KernelAction {
    if let Some(process) = vfork_child() {
        // SAFETY: as in `of`.
        return unsafe { childs(&Thread::current().child, process, place).replace(new) };
    }
    let _locked = Locked::new();
    let old = DISPOSITIONS[place].load();
    DISPOSITIONS[place].store(new);
    // Whether calls go on after the signal is the kernel's business.
    let _ = trap::take_over(signal, restarts(&new));
    old
}

/// Whether calls that a signal interrupts go on: a signal without a handler does not interrupt.
pub(crate) fn restarts(action: &KernelAction) -> bool {
    action.handler <= libc::SIG_IGN || action.has(libc::SA_RESTART)
}

/// Before a handler with `SA_RESETHAND` runs.
pub(super) fn reset(signal: c_int, place: usize) {
    set_virtual(signal, place, KernelAction { handler: libc::SIG_DFL, ..of(place) });
}

/// rt_sigaction(2): sets the action of a signal if there is a new one, and returns the one before.
///
/// # Errors
/// An error number: the kernel's.
pub(crate) fn change(signal: c_int, new: Option<KernelAction>) -> Result<KernelAction, i32> {
    if let Some(place) = index(signal) {
        return Ok(match new {
            Some(new) => set_virtual(signal, place, new),
            None => of(place),
        });
    }
    change_other(signal, new)
}

/// What `CLONE_CLEAR_SIGHAND` does in a child: signals with a handler get the default action, those that are ignored stay so.
pub(crate) fn clear_handlers() {
    const SIGNALS: c_int = 64;
    for signal in 1..=SIGNALS {
        if change(signal, None).is_ok_and(|action| action.handler > libc::SIG_IGN) {
            // The kernel refuses what has no handler anyway: SIGKILL, SIGSTOP.
            let _ = change(signal, Some(KernelAction { handler: libc::SIG_DFL, ..KernelAction::default() }));
        }
    }
}

/// The program's action of a signal that is not reserved and has our handler.
pub(super) fn of_other(signal: c_int) -> KernelAction {
    usize::try_from(signal)
        .ok()
        .and_then(|signal| OTHERS.get(signal))
        .map_or(KernelAction::default(), Disposition::load)
}

fn change_other(signal: c_int, new: Option<KernelAction>) -> Result<KernelAction, i32> {
    let place = usize::try_from(signal).ok().filter(|place| *place < MASKS.len());
    let in_child = vfork_child().is_some();
    let noted = place.filter(|_| !in_child && new.is_some_and(|new| new.handler > libc::SIG_IGN));
    // The kernel's part and ours are changed together.
    let _locked = (!in_child).then(Locked::new);
    let before = of_other(signal);
    let real = match (new, noted) {
        (Some(new), Some(place)) => {
            OTHERS[place].store(new);
            Some(trap::entry_for(&new))
        }
        (Some(new), None) => Some(KernelAction { mask: strip(new.mask), ..new }),
        (None, _) => None,
    };
    let mut old = kernel_change(signal, real)?;
    if trap::is_entry(&old) {
        old = before;
    } else if old.handler == libc::SIG_DFL && old.restorer == frame::restorer_address() {
        // The kernel has reset our handler (`SA_RESETHAND`).
        old = KernelAction { handler: libc::SIG_DFL, ..before };
    }
    let Some(small) = place.map(|place| &MASKS[place]) else { return Ok(old) };
    old.mask |= unpack(small.load(Relaxed));
    if let Some(new) = new.filter(|_| !in_child) {
        small.store(if noted.is_some() { 0 } else { pack(new.mask) }, Relaxed);
    }
    Ok(old)
}

fn pack(set: u64) -> u8 {
    super::RESERVED.iter().enumerate().fold(
        0,
        |small, (place, signal)| {
            if set & super::bit(*signal) != 0 { small | 1 << place } else { small }
        },
    )
}

fn unpack(small: u8) -> u64 {
    super::RESERVED.iter().enumerate().fold(
        0,
        |set, (place, signal)| {
            if small & 1 << place != 0 { set | super::bit(*signal) } else { set }
        },
    )
}

/// The real rt_sigaction(2).
pub(crate) fn kernel_change(signal: c_int, new: Option<KernelAction>) -> Result<KernelAction, i32> {
    let passed = Thread::current().actions.next();
    // A number that is no signal's is refused by the kernel.
    let signal = signal.cast_unsigned() as usize;
    // SAFETY: both structures are the kernel's, in the thread's own storage; the handler, if it is the program's, is as good as
    // the program says.
    let (result, old) = unsafe {
        let (to, from) = (&raw mut (*passed)[0], &raw mut (*passed)[1]);
        to.write_volatile(new.unwrap_or_default());
        let to = if new.is_some() { to.addr() } else { 0 };
        let result = raw::call(libc::SYS_rt_sigaction, [signal, to, from.addr(), size_of::<u64>(), 0, 0]);
        (result, from.read_volatile())
    };
    match i32::try_from(result) {
        Ok(0) => Ok(old),
        other => Err(-other.unwrap_or(-libc::EINVAL)),
    }
}

/// At the start: what the process inherited or set before becomes virtual.
pub(crate) fn adopt_all() {
    for (place, signal) in super::RESERVED.into_iter().enumerate() {
        if let Ok(old) = trap::take_over(signal, true) {
            DISPOSITIONS[place].store(old);
            trap::take_over(signal, restarts(&old)).ok();
        }
    }
    for signal in 1..65 {
        if let (None, Ok(old)) = (index(signal), kernel_change(signal, None))
            && old.handler > libc::SIG_IGN
        {
            let _ = change(signal, Some(old));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RESERVED_SET;
    use super::*;

    #[test]
    fn a_small_set_holds_the_reserved_signals_and_no_other() {
        for set in [0, RESERVED_SET, u64::MAX, super::super::bit(libc::SIGILL), super::super::bit(libc::SIGTERM)] {
            assert_eq!(unpack(pack(set)), set & RESERVED_SET);
        }
    }

    #[test]
    fn a_disposition_is_the_last_one_stored() {
        let disposition = Disposition::new();
        for handler in 0..3 * VERSIONS {
            disposition.store(KernelAction { handler, ..KernelAction::default() });
            assert_eq!(disposition.load().handler, handler);
        }
    }
}
