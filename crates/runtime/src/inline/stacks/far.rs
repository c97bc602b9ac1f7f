//! Stacks of the program that are far: malloc'ed or mapped, for threads and coroutines.
//!
//! A page of such a stack that is not there is served like any other, because SIGBUS has a stack of ours. Two things need
//! more. A system call that is trapped there needs room for a signal frame, which the kernel cannot bring in: from the first
//! far stack on, the handlers of trapped calls begin on the alternate stack too, and move. And libc puts a thread's
//! descriptor at the upper end of its stack, where the kernel reads and writes (rseq, robust list, the word that tells of its
//! end): that part is pinned until the thread is gone.
//!
//! Not covered: a handler of the program's without `SA_ONSTACK`, on a part of a far stack that is not there.

use super::super::{raw, trap};
use super::{Stack, give_back};
use crate::inline::syscalls::is_far;
use hinterland_pager::PinAccess;
use hinterland_sys::thread::SignalsBlocked;
use libc::{pthread_attr_t, size_t};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Room for a thread's descriptor and its thread-local variables, and for the frame of its first functions.
const DESCRIPTOR_BYTES: usize = 64 << 10;

/// There are far stacks.
static SEEN: AtomicBool = AtomicBool::new(false);
/// Stacks of threads that have ended, or are about to, whose descriptor is pinned.
static ENDED: AtomicPtr<Stack> = AtomicPtr::new(null_mut());

/// Whether handlers of trapped calls begin on the alternate stack.
pub(crate) fn seen() -> bool {
    SEEN.load(Relaxed)
}

/// Looks at the stack pointer of interrupted code.
pub(crate) fn look(stack_pointer: usize) {
    if is_far(stack_pointer) && !SEEN.swap(true, Relaxed) {
        trap::renew();
    }
}

/// Before a thread starts: pins the place of its descriptor, if the program gave it a far stack.
pub(crate) fn prepare(stack: &Stack, attributes: *const pthread_attr_t) {
    give_up_ended();
    if attributes.is_null() {
        return;
    }
    let (mut address, mut bytes) = (null_mut(), 0 as size_t);
    // SAFETY: the program passes initialised attributes.
    unsafe { libc::pthread_attr_getstack(attributes, &raw mut address, &raw mut bytes) };
    let end = address.addr().wrapping_add(bytes);
    if bytes == 0 || !is_far(end.wrapping_sub(1)) {
        return;
    }
    look(end - 1);
    let part = bytes.min(DESCRIPTOR_BYTES);
    let _blocked = SignalsBlocked::new();
    let pin = crate::pager().map(|pager| pager.pin_for_good(end - part, part, PinAccess::Write));
    // SAFETY: nobody else knows of the stack yet.
    unsafe { *stack.descriptor.get() = pin };
}

/// Unpins what `prepare` pinned for a thread that could not start.
pub(crate) fn forget(stack: &Stack) {
    // SAFETY: as in `prepare`.
    unsafe { *stack.descriptor.get() = None };
}

/// At a thread's end: its stack goes back to the pool, at once or when the kernel has done with its descriptor.
pub(super) fn retire(stack: &'static Stack) {
    // SAFETY: the thread's own stack, whose pin nobody else touches before it is in the list.
    if unsafe { (*stack.descriptor.get()).is_none() } {
        return give_back(stack);
    }
    stack.thread.store(raw::thread(), Relaxed);
    push(stack);
}

fn push(stack: &'static Stack) {
    let mut first = ENDED.load(Acquire);
    loop {
        stack.next.store(first.addr(), Relaxed);
        match ENDED.compare_exchange_weak(first, std::ptr::from_ref(stack).cast_mut(), AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Unpins the descriptors of threads that are gone.
fn give_up_ended() {
    if ENDED.load(Relaxed).is_null() {
        return;
    }
    let mut next = ENDED.swap(null_mut(), AcqRel).addr();
    // SAFETY: the list was taken as a whole; its members are stacks of the pool.
    while let Some(stack) = unsafe { (next as *const Stack).as_ref() } {
        next = stack.next.load(Relaxed);
        if is_alive(stack.thread.load(Relaxed)) {
            push(stack);
        } else {
            // SAFETY: its thread is gone, and it is in no list.
            unsafe { *stack.descriptor.get() = None };
            give_back(stack);
        }
    }
}

fn is_alive(thread: i32) -> bool {
    let id = |id: i32| id.unsigned_abs() as usize;
    // SAFETY: asks whether the thread exists.
    unsafe { raw::call(libc::SYS_tgkill, [id(raw::process()), id(thread), 0, 0, 0, 0]) == 0 }
}

/// In the child of a fork, where no pin of the parent holds: what ended there is forgotten, and the one thread is pinned anew.
pub(super) fn begin_child(stack: Option<&Stack>) {
    ENDED.store(null_mut(), Relaxed);
    let Some(stack) = stack else { return };
    // SAFETY: the thread's own stack.
    let old = unsafe { (*stack.descriptor.get()).take() };
    if old.is_none() {
        return;
    }
    std::mem::forget(old);
    let descriptor = hinterland_sys::thread::pointer();
    let pin = crate::pager().map(|pager| {
        let start = descriptor - DESCRIPTOR_BYTES / 2;
        pager.pin_for_good(start, DESCRIPTOR_BYTES, PinAccess::Write)
    });
    // SAFETY: as above.
    unsafe { *stack.descriptor.get() = pin };
}
