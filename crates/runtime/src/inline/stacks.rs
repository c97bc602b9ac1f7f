//! Stacks for serving faults: one for each thread.
//!
//! It is the thread's alternate signal stack, so that a fault is served even where the thread's own stack has no room, or is
//! far and not there. The one that the program sets is kept beside (`altstack`).
//!
//! ```text
//! higher  Stack: what is known of it
//!         the stack, STACK_BYTES and two of the largest signal frames
//! lower   an inaccessible page
//! ```
//! Threads get theirs before they begin (`interpose::threads`), or with their first fault; and give it back in the last round
//! of their thread-specific destructors. What a thread does after that is served on its own stack, unless that is far.
//!
//! Invariant: a stack is in the pool or belongs to one thread that lives.

pub(crate) mod altstack;
pub(crate) mod far;
mod pool;
pub(crate) mod stack_switch;
pub(crate) mod tasks;

use super::thread::Thread;
use super::trap::{TrapError, frame};
use hinterland_pager::Pin;
use hinterland_sys::SysError;
use hinterland_sys::thread::SignalsBlocked;
use libc::{c_void, pthread_key_t, ucontext_t};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Room for serving a fault, the pager's deepest way measured at 11 KiB; and for handlers of the program's that interrupt a call
/// from a far stack, which is made here. What is not used is no memory.
const STACK_BYTES: usize = 256 << 10;

/// One stack, described at its own upper end.
#[repr(C, align(64))]
pub(crate) struct Stack {
    /// In the pool: the next one.
    next: AtomicUsize,
    /// Its lowest address. The highest is that of this description.
    bottom: usize,
    /// What the thread shall run: function and argument.
    pub start: [AtomicUsize; 2],
    /// The virtual bits of the thread that started it.
    pub blocked: AtomicU64,
    /// The mask for a handler of the program's that is about to be entered.
    handler_mask: AtomicU64,
    /// Rounds of destructors that the thread has gone through.
    rounds: AtomicU32,
    /// Its thread, if that is watched.
    thread: AtomicI32,
    /// Keeps the thread's descriptor local, if that is far.
    descriptor: UnsafeCell<Option<Pin<'static>>>,
    /// Where the program's stack ends that this descriptor is in.
    far_end: AtomicUsize,
}

impl Stack {
    fn top(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn contains(&self, stack_pointer: usize) -> bool {
        // A stack that nothing is on yet has its pointer at the upper end.
        stack_pointer > self.bottom && stack_pointer <= self.top()
    }
}

/// The thread-specific value whose destructor gives a stack back; libc's number of it plus one.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Values below this number are part of the thread's descriptor: setting one allocates nothing (glibc's nptl/descr.h).
const SMALL_KEYS: pthread_key_t = 32;

/// Prepares for threads, and gives the calling one its stack.
pub(crate) fn begin() -> Result<(), TrapError> {
    let mut key: pthread_key_t = 0;
    // SAFETY: the destructor is a function of this library, which is never unloaded.
    let errno = unsafe { libc::pthread_key_create(&raw mut key, Some(round)) };
    if errno != 0 {
        return Err(TrapError::Key(std::io::Error::from_raw_os_error(errno)));
    }
    KEY.store(key + 1, Relaxed);
    altstack::adopt(altstack::in_force());
    attach(take()?);
    altstack::apply();
    Ok(())
}

/// A stack out of the pool, or a new one.
pub(crate) fn take() -> Result<&'static Stack, SysError> {
    pool::take()
}

/// Gives back a stack that no thread got.
pub(crate) fn give_back(stack: &'static Stack) {
    pool::give_back(stack);
}

/// Makes a stack the calling thread's.
pub(crate) fn attach(stack: &'static Stack) {
    tasks::begin_thread();
    stack.rounds.store(0, Relaxed);
    Thread::current().stack.store(std::ptr::from_ref(stack).cast_mut(), Relaxed);
    remember(stack);
}

/// Has the destructor called at the thread's end.
fn remember(stack: &Stack) {
    if let Some(key) = KEY.load(Relaxed).checked_sub(1) {
        // SAFETY: the key was created and is never deleted.
        unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(stack).cast()) };
    }
}

/// The calling thread's stack.
fn own() -> Option<&'static Stack> {
    if let Some(stack) = tasks::own() {
        return Some(stack);
    }
    // SAFETY: null, or a stack of the pool, whose memory is never unmapped.
    unsafe { Thread::current().stack.load(Relaxed).as_ref() }
}

/// Where a fault is served, for a thread whose stack pointer in the handler is `here`: the stack pointer to go on with.
pub(super) extern "C" fn to_serve_on(here: usize, context: *mut ucontext_t) -> usize {
    // SAFETY: the context is the one that the kernel gave to the handler that calls this.
    let interrupted = unsafe { frame::stack_pointer_of(context) };
    let thread = Thread::current();
    let stack = match own() {
        Some(stack) => stack,
        // A thread that libc started for itself, or that was started before us.
        None if !thread.ending.load(Relaxed) && KEY.load(Relaxed) <= SMALL_KEYS => match take() {
            Ok(stack) => {
                attach(stack);
                // SAFETY: the context is the one that the kernel gave to the handler that calls this.
                unsafe { altstack::apply_at_return(&mut *context) };
                stack
            }
            Err(_) => return here,
        },
        None => return here,
    };
    match () {
        () if stack.contains(here) => here,
        // The thread has just got it, and the kernel does not know of it.
        () if stack.contains(interrupted) => (interrupted - frame::RED_ZONE_BYTES) & !15,
        () => stack.top(),
    }
}

/// Where a frame may be copied for the return from a handler that ran on a far stack: at the lower end of the calling thread's
/// stack, because faults on the way begin at the upper end.
pub(crate) fn top_for_return() -> Option<usize> {
    /// Half of the room that `STACK_BYTES` leaves beside the largest frames.
    const RETURN_BYTES: usize = STACK_BYTES / 2;
    own().map(|stack| stack.bottom + RETURN_BYTES)
}

/// Where the mask is kept for a handler that is about to be entered: near, because the kernel reads it there. A thread that has no
/// stack yet, or none any more, takes one of a few in turns.
pub(crate) fn handler_mask() -> &'static AtomicU64 {
    static SHARED: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
    static TURN: AtomicUsize = AtomicUsize::new(0);
    own().map_or_else(|| &SHARED[TURN.fetch_add(1, Relaxed) % SHARED.len()], |stack| &stack.handler_mask)
}

/// Whether an address is on the calling thread's stack for faults.
pub(crate) fn is_on_ours(address: usize) -> bool {
    own().is_some_and(|stack| stack.contains(address))
}

/// The upper end of the calling thread's stack, where work on behalf of code that runs at `interrupted` may begin: below that, if
/// it is there already.
pub(crate) fn top_for(interrupted: usize) -> Option<usize> {
    let stack = own()?;
    Some(if stack.contains(interrupted) { (interrupted - frame::RED_ZONE_BYTES) & !15 } else { stack.top() })
}

/// A round of destructors at a thread's end. The last round is ours; the others may still touch far memory.
extern "C" fn round(stack: *mut c_void) {
    /// `PTHREAD_DESTRUCTOR_ITERATIONS` of glibc.
    const ROUNDS: u32 = 4;
    // SAFETY: the value is the thread's stack.
    let stack = unsafe { &*stack.cast::<Stack>() };
    if stack.rounds.fetch_add(1, Relaxed) + 1 < ROUNDS {
        remember(stack);
        return;
    }
    let thread = Thread::current();
    thread.ending.store(true, Relaxed);
    // A thread that was cancelled in a call has left its pins behind. (Those that do not belong to a call stay.)
    if let Some(pager) = crate::pager() {
        pager.sweep_pins(0..usize::MAX);
    }
    // One that runs on a far stack cannot serve faults there: it keeps ours until it is gone.
    if far::is_watched(stack) {
        return;
    }
    // A handler that came in between would run on this stack, or give it to the kernel again.
    let _no_handlers = SignalsBlocked::new();
    thread.stack.store(std::ptr::null_mut(), Relaxed);
    altstack::disable();
    give_back(stack);
}
