//! The alternate signal stack: the one that the program set and reads back, and the place where its handlers run.
//!
//! The kernel has ours, for as long as the thread has one: every signal frame begins there, so that none needs a page
//! that is not there. The frame for a handler of the program's is then moved to where the kernel would have put it
//! (`placed_for`): with `SA_ONSTACK` to the stack that the program set, if that has room for it. sigaltstack(2) returns
//! to the program the stack that it set.

use super::super::signals::action::KernelAction;
use super::super::thread::Thread;
use super::super::trap::frame::{self, Frame};
use super::super::{raw, signals};
use super::{is_on_ours, own};
use hinterland_sys::thread::SignalsBlocked;
use libc::{SA_ONSTACK, SS_DISABLE, SS_ONSTACK, c_int, stack_t, ucontext_t};
use std::sync::atomic::Ordering::Relaxed;

/// `SS_AUTODISARM`: the stack is none while a handler runs on it.
const SS_AUTODISARM: c_int = 1 << 31;
/// The least that the kernel takes.
const LEAST_BYTES: usize = libc::MINSIGSTKSZ;
/// What a handler of the program's may use, beside the kernel's frame, or its stack counts as small.
const HANDLER_BYTES: usize = 2 << 10;

/// A flag of ours beside the kernel's: a handler runs, and while it does the program has no such stack (`SS_AUTODISARM`).
const DISARMED: c_int = 1 << 30;

const NONE: stack_t = stack_t { ss_sp: std::ptr::null_mut(), ss_flags: SS_DISABLE, ss_size: 0 };

/// What the program set.
fn set_by_program() -> Option<stack_t> {
    noted().filter(|stack| stack.ss_flags & DISARMED == 0)
}

/// The same, also while it is disarmed.
fn noted() -> Option<stack_t> {
    let [address, bytes, flags] = Thread::current().altstack.each_ref().map(|word| word.load(Relaxed));
    #[allow(clippy::cast_possible_truncation, reason = "stored from a c_int")]
    let flags = (flags as u32).cast_signed();
    (bytes != 0).then_some(stack_t { ss_sp: address as *mut _, ss_flags: flags, ss_size: bytes })
}

/// With the program's signals blocked: these are three words.
fn note(stack: Option<stack_t>) {
    let stack = stack.unwrap_or(stack_t { ss_flags: 0, ..NONE });
    let words = [stack.ss_sp.addr(), stack.ss_size, stack.ss_flags.cast_unsigned() as usize];
    for (place, word) in Thread::current().altstack.iter().zip(words) {
        place.store(word, Relaxed);
    }
}

/// Whether a stack has room for a frame and a handler.
fn has_room(stack: &stack_t) -> bool {
    // SAFETY: getauxval(3) only reads what the kernel gave the process.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    stack.ss_size >= usize::try_from(frame).unwrap_or(LEAST_BYTES) + HANDLER_BYTES
}

/// What the kernel shall have for the calling thread. A thread that has no stack for faults, at its end, has the program's.
pub(crate) fn real() -> stack_t {
    match own() {
        Some(stack) => stack_t { ss_sp: stack.bottom as *mut _, ss_flags: 0, ss_size: stack.top() - stack.bottom },
        None => set_by_program().unwrap_or(NONE),
    }
}

fn is_on(stack: &stack_t, stack_pointer: usize) -> bool {
    let start = stack.ss_sp.addr();
    stack.ss_flags & SS_DISABLE == 0 && stack_pointer > start && stack_pointer - start <= stack.ss_size
}

/// Whether code with its stack pointer there is a handler on the alternate stack `set`, or on ours because that has no room.
fn is_alternate(set: &stack_t, stack_pointer: usize) -> bool {
    set.ss_flags & SS_AUTODISARM == 0 && (is_on(set, stack_pointer) || is_on_ours(stack_pointer))
}

/// Whether an address is on the stack of a handler: there, it says nothing about the frames of the code that was interrupted.
pub(crate) fn holds(address: usize) -> bool {
    bottom_of(address).is_some()
}

/// The lower end of the stack of a handler that an address is on.
pub(crate) fn bottom_of(address: usize) -> Option<usize> {
    let ours = own().filter(|stack| stack.contains(address)).map(|stack| stack.bottom);
    ours.or_else(|| Some(noted().filter(|stack| is_on(stack, address))?.ss_sp.addr()))
}

/// What the program is told, with its stack pointer where it is.
fn seen(stack_pointer: usize) -> stack_t {
    match set_by_program() {
        None => NONE,
        Some(mut stack) => {
            if is_alternate(&stack, stack_pointer) {
                stack.ss_flags |= SS_ONSTACK;
            }
            stack
        }
    }
}

/// sigaltstack(2) of the program; returns what was set before.
///
/// # Errors
/// Error numbers of the call.
pub(crate) fn change(new: Option<stack_t>, stack_pointer: usize) -> Result<stack_t, i32> {
    let before = seen(stack_pointer);
    let Some(new) = new else { return Ok(before) };
    if set_by_program().is_some_and(|stack| is_alternate(&stack, stack_pointer)) {
        return Err(libc::EPERM);
    }
    let wanted = match new.ss_flags & !SS_AUTODISARM {
        SS_DISABLE => None,
        0 | SS_ONSTACK if new.ss_size < LEAST_BYTES => return Err(libc::ENOMEM),
        0 | SS_ONSTACK => Some(stack_t { ss_flags: new.ss_flags & SS_AUTODISARM, ..new }),
        _ => return Err(libc::EINVAL),
    };
    // A child of vfork is about to call exec, which takes alternate stacks away.
    if signals::vfork_child().is_none() {
        // A handler in between would begin on a stack that is half the one before and half the new one.
        let _no_handlers = SignalsBlocked::new();
        note(wanted);
        if own().is_none() {
            apply();
        }
    }
    Ok(before)
}

/// What the kernel has for the calling thread.
pub(super) fn in_force() -> stack_t {
    let mut stack = NONE;
    // SAFETY: the structure is the kernel's.
    unsafe { raw::call(libc::SYS_sigaltstack, [0, (&raw mut stack).addr(), 0, 0, 0, 0]) };
    stack
}

/// Before the calling thread has ours: the one that the kernel has was set before we began, if none is noted.
pub(super) fn adopt(stack: stack_t) {
    if noted().is_none() && stack.ss_flags & SS_DISABLE == 0 {
        note(Some(stack_t { ss_flags: stack.ss_flags & SS_AUTODISARM, ..stack }));
    }
}

/// Gives the kernel what it shall have.
pub(crate) fn apply() {
    let stack = real();
    // SAFETY: the memory is the program's own or ours, for as long as the thread lives.
    unsafe { raw::call(libc::SYS_sigaltstack, [(&raw const stack).addr(), 0, 0, 0, 0, 0]) };
}

/// The same from a handler, for a thread that has just got ours: the kernel takes it from the context when that returns.
pub(super) fn apply_at_return(context: &mut ucontext_t) {
    adopt(context.uc_stack);
    context.uc_stack = real();
}

/// At the end of a thread: the kernel has none.
pub(super) fn disable() {
    note(None);
    let none = NONE;
    // SAFETY: takes a stack away, and puts none in its place.
    unsafe { raw::call(libc::SYS_sigaltstack, [(&raw const none).addr(), 0, 0, 0, 0, 0]) };
}

/// In the padding of a context's `stack_t`: 1 where the kernel had ours. It has not in a thread that `clone` made without
/// thread-local storage of its own, which finds its parent's stack in `own`.
fn mark(stack: *mut stack_t) -> *mut u32 {
    const PADDING_OFFSET: usize = std::mem::offset_of!(stack_t, ss_flags) + size_of::<c_int>();
    stack.wrapping_byte_add(PADDING_OFFSET).cast()
}

/// Before a handler of the program's runs with `frame`: its context says what the program set, as the kernel's would.
pub(crate) fn enter(frame: Frame) {
    let set = set_by_program();
    // SAFETY: the frame is complete, and no other thread uses it.
    unsafe {
        let kernels = &raw mut (*frame.context()).uc_stack;
        let ours = (*kernels).ss_sp == real().ss_sp;
        if ours {
            *kernels = set.unwrap_or(NONE);
        }
        mark(kernels).write(ours.into());
    }
    if let Some(stack) = set.filter(|stack| stack.ss_flags & SS_AUTODISARM != 0) {
        // In a child of vfork, these are its parent's notes.
        if signals::vfork_child().is_none() {
            note(Some(stack_t { ss_flags: stack.ss_flags | DISARMED, ..stack }));
        }
    }
}

/// After it: the program has what the context says now, the kernel ours.
pub(crate) fn leave(context: &mut ucontext_t) {
    // SAFETY: `enter` has written the mark.
    if unsafe { mark(&raw mut context.uc_stack).read() } == 0 {
        return;
    }
    // SAFETY: the context is part of the frame of a handler that has just returned.
    let interrupted = unsafe { frame::stack_pointer_of(context) };
    let parts = |stack: stack_t| (stack.ss_sp, stack.ss_size, stack.ss_flags);
    if parts(context.uc_stack) != parts(set_by_program().unwrap_or(NONE)) {
        // As the kernel does, which ignores what it cannot set.
        let _ = change(Some(context.uc_stack), interrupted);
    }
    context.uc_stack = real();
}

/// Where the frame for a handler goes that is at `frame` now: below the address, or (`None`) it stays.
pub(crate) fn stack_for(action: &KernelAction, interrupted: usize, frame: usize) -> Option<usize> {
    // A call from a far stack is being made on ours: what faults while the handler runs must begin below its frames.
    if is_on_ours(interrupted) {
        return None;
    }
    let alternate = set_by_program().filter(|set| action.has(SA_ONSTACK) && !is_alternate(set, interrupted));
    let real = real();
    match alternate {
        Some(set) if is_on(&set, frame) || !has_room(&set) => None,
        Some(set) => Some(set.ss_sp.addr() + set.ss_size),
        None if is_on(&real, frame) == is_on(&real, interrupted) => None,
        None => Some(interrupted - frame::RED_ZONE_BYTES),
    }
}
