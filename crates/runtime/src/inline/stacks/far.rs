//! Stacks of the program that are far: malloc'ed or mapped, for threads and coroutines.
//!
//! A page of such a stack that is not there is served like any other, because every signal begins on a stack of ours
//! (`altstack`). One thing needs more: libc puts a thread's descriptor at the upper end of its stack, where the kernel reads and
//! writes (rseq, robust list, the word that tells of its end): that part is pinned until the thread is gone.

use super::super::raw;
use super::super::thread::Thread;
use super::{Stack, give_back, own, stack_switch};
use crate::inline::syscalls::is_far;
use hinterland_sys::thread::SignalsBlocked;
use libc::{pthread_attr_t, size_t};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// More than glibc's `struct pthread` and its alignment: 2304 bytes and the area for rseq.
const DESCRIPTOR_BYTES: usize = 4 << 10;
/// For the frames of a thread's first functions, and of a trapped call among them.
pub(super) const BEGIN_BYTES: usize = 20 << 10;

/// Stacks of threads whose descriptor is pinned.
static WATCHED: AtomicPtr<Stack> = AtomicPtr::new(null_mut());

/// The calling thread's descriptor, with the thread-local variables that handlers of ours use: they are below it, at the same
/// distance in every thread.
fn own_descriptor() -> Range<usize> {
    let ours = std::ptr::from_ref(Thread::current()).addr();
    // SAFETY: only the address is taken.
    let errno = unsafe { libc::__errno_location() }.addr();
    ours.min(errno)..hinterland_sys::thread::pointer() + DESCRIPTOR_BYTES
}

/// Where a thread's descriptor will be, if the program gives it a far stack: start and bytes.
pub(crate) fn descriptor_of(attributes: *const pthread_attr_t) -> Option<(usize, usize)> {
    if attributes.is_null() {
        return None;
    }
    let (mut address, mut bytes) = (null_mut(), 0 as size_t);
    // SAFETY: the program passes initialised attributes.
    unsafe { libc::pthread_attr_getstack(attributes, &raw mut address, &raw mut bytes) };
    let begin = own_descriptor().len() + BEGIN_BYTES;
    let (end, part) = (address.addr().wrapping_add(bytes), bytes.min(begin));
    (bytes != 0 && is_far(end.wrapping_sub(1))).then(|| (end - part, part))
}

/// Before a thread starts: pins the place of its descriptor.
pub(crate) fn prepare(stack: &Stack, (start, bytes): (usize, usize)) {
    give_up_gone();
    let pin = stack_switch::run_blocked(|| {
        let _blocked = SignalsBlocked::new();
        crate::pager().map(|pager| pager.pin_for_good(start, bytes))
    });
    stack.far_end.store(start + bytes, Relaxed);
    // SAFETY: nobody else knows of the stack yet.
    unsafe { *stack.descriptor.get() = pin };
}

/// Unpins what `prepare` pinned for a thread that could not start.
pub(crate) fn forget(stack: &Stack) {
    // SAFETY: as in `prepare`.
    unsafe { *stack.descriptor.get() = None };
}

/// Whether a stack's thread runs on a far one, and the stack is given back when the thread is gone.
pub(super) fn is_watched(stack: &Stack) -> bool {
    // SAFETY: asked by the thread itself; nobody else touches the pin while it lives.
    unsafe { (*stack.descriptor.get()).is_some() }
}

/// At a thread's beginning: if its descriptor is pinned, that is until the thread is gone.
pub(crate) fn watch(stack: &Stack) {
    if is_watched(stack) {
        pin_own(stack);
        stack.thread.store(raw::thread(), Relaxed);
        push(stack);
    }
}

fn push(stack: &Stack) {
    let mut first = WATCHED.load(Acquire);
    loop {
        stack.next.store(first.addr(), Relaxed);
        match WATCHED.compare_exchange_weak(first, std::ptr::from_ref(stack).cast_mut(), AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Unpins the descriptors of threads that are gone.
fn give_up_gone() {
    if WATCHED.load(Relaxed).is_null() {
        return;
    }
    let mut next = WATCHED.swap(null_mut(), AcqRel).addr();
    // SAFETY: the list was taken as a whole; its members are stacks of the pool.
    while let Some(stack) = unsafe { (next as *const Stack).as_ref() } {
        next = stack.next.load(Relaxed);
        if raw::has_thread(stack.thread.load(Relaxed)) {
            push(stack);
        } else {
            // SAFETY: its thread is gone, and it is in no list.
            unsafe { *stack.descriptor.get() = None };
            give_back(stack);
        }
    }
}

/// Pins the calling thread's descriptor, and no more of its stack. Nor what lies behind it: that is another mapping, which may not be written,
/// or may go while its pages are brought in.
fn pin_own(stack: &Stack) {
    let mut descriptor = own_descriptor();
    descriptor.end = descriptor.end.min(stack.far_end.load(Relaxed));
    let pin = stack_switch::run_blocked(|| {
        crate::pager().map(|pager| pager.pin_for_good(descriptor.start, descriptor.len()))
    });
    // SAFETY: the thread's own stack.
    unsafe { *stack.descriptor.get() = pin };
}

/// In the child of a fork, where no pin of the parent holds: what was watched there is forgotten, and the one thread is pinned anew.
pub(crate) fn begin_child() {
    WATCHED.store(null_mut(), Relaxed);
    if let Some(stack) = own().filter(|stack| is_watched(stack)) {
        pin_own(stack);
    }
}
