//! The alternate signal stack: what the program set, what it is told, and what the kernel has.
//!
//! | the program has set | the kernel has |
//! |---|---|
//! | none | ours |
//! | one with room for two frames and a handler | the program's; pinned, if it is far |
//! | a smaller one | ours: a fault in a handler on it would not fit |
//!
//! Handlers with `SA_ONSTACK` run on what the kernel has. A program that asks is told what it set.

use super::super::signals::action::KernelAction;
use super::super::thread::Thread;
use super::super::{raw, signals};
use super::own;
use crate::inline::syscalls::is_far;
use hinterland_pager::PinAccess;
use libc::{SA_ONSTACK, SS_DISABLE, SS_ONSTACK, c_int, stack_t, ucontext_t};
use std::sync::atomic::Ordering::Relaxed;

/// `SS_AUTODISARM`: the stack is none while a handler runs on it.
const SS_AUTODISARM: c_int = 1 << 31;
/// The least that the kernel takes.
const LEAST_BYTES: usize = libc::MINSIGSTKSZ;
/// What a handler of the program's may use, beside two frames of the kernel's, before its stack counts as small.
const HANDLER_BYTES: usize = 2 << 10;

const NONE: stack_t = stack_t { ss_sp: std::ptr::null_mut(), ss_flags: SS_DISABLE, ss_size: 0 };

/// What the program set.
fn set_by_program() -> Option<stack_t> {
    let [address, bytes, flags] = Thread::current().altstack.each_ref().map(|word| word.load(Relaxed));
    #[allow(clippy::cast_possible_truncation, reason = "stored from a c_int")]
    let flags = (flags as u32).cast_signed();
    (bytes != 0).then_some(stack_t { ss_sp: address as *mut _, ss_flags: flags, ss_size: bytes })
}

fn note(stack: Option<stack_t>) {
    let stack = stack.unwrap_or(stack_t { ss_flags: 0, ..NONE });
    let words = [stack.ss_sp.addr(), stack.ss_size, stack.ss_flags.cast_unsigned() as usize];
    for (place, word) in Thread::current().altstack.iter().zip(words) {
        place.store(word, Relaxed);
    }
}

/// Whether a stack has room for a fault in a handler.
fn has_room(stack: &stack_t) -> bool {
    // SAFETY: getauxval(3) only reads what the kernel gave the process.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    stack.ss_size >= 2 * usize::try_from(frame).unwrap_or(LEAST_BYTES) + HANDLER_BYTES
}

/// What the kernel shall have for the calling thread.
pub(crate) fn real() -> stack_t {
    let ours = || {
        own().map(|stack| stack_t { ss_sp: stack.bottom as *mut _, ss_flags: 0, ss_size: stack.top() - stack.bottom })
    };
    match set_by_program() {
        Some(stack) if has_room(&stack) => stack,
        Some(stack) => ours().unwrap_or(stack),
        None => ours().unwrap_or(NONE),
    }
}

fn is_on(stack: &stack_t, stack_pointer: usize) -> bool {
    let start = stack.ss_sp.addr();
    stack.ss_flags & SS_DISABLE == 0 && stack_pointer > start && stack_pointer - start <= stack.ss_size
}

/// What the program is told, with its stack pointer where it is.
fn seen(stack_pointer: usize) -> stack_t {
    match set_by_program() {
        None => NONE,
        Some(mut stack) => {
            if stack.ss_flags & SS_AUTODISARM == 0 && is_on(&real(), stack_pointer) {
                stack.ss_flags |= SS_ONSTACK;
            }
            stack
        }
    }
}

/// sigaltstack(2) of the program; returns what was set before. The kernel's own is changed too.
///
/// # Errors
/// Error numbers of the call.
pub(crate) fn change(new: Option<stack_t>, stack_pointer: usize) -> Result<stack_t, i32> {
    let before = seen(stack_pointer);
    let Some(new) = new else { return Ok(before) };
    if is_on(&real(), stack_pointer) {
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
        note(wanted);
        pin_again();
        apply();
    }
    Ok(before)
}

/// Gives the kernel what it shall have.
pub(crate) fn apply() {
    let stack = real();
    // SAFETY: the memory is the program's own or ours, for as long as the thread lives.
    unsafe { raw::call(libc::SYS_sigaltstack, [(&raw const stack).addr(), 0, 0, 0, 0, 0]) };
}

/// The same from a handler: the kernel takes it from the context when that returns.
pub(super) fn apply_at_return(context: &mut ucontext_t) {
    context.uc_stack = real();
}

/// At the end of a thread: the kernel has none.
pub(super) fn disable() {
    note(None);
    pin_again();
    let none = NONE;
    // SAFETY: takes a stack away, and puts none in its place.
    unsafe { raw::call(libc::SYS_sigaltstack, [(&raw const none).addr(), 0, 0, 0, 0, 0]) };
}

/// Keeps the kernel's stack local if it is far: a signal frame cannot wait for a page. The pin of the one before is given up.
pub(super) fn pin_again() {
    let Some(stack) = own() else { return };
    let far = set_by_program().filter(|stack| has_room(stack) && is_far(stack.ss_sp.addr()));
    let new = far.zip(crate::pager()).map(|(stack, pager)| {
        let _blocked = hinterland_sys::thread::SignalsBlocked::new();
        pager.pin_for_good(stack.ss_sp.addr(), stack.ss_size, PinAccess::Write)
    });
    // SAFETY: only the thread itself gets here, and keeps no reference.
    unsafe { *stack.pin.get() = new };
}

/// Where the frame for a handler goes that is at `frame` now: `None`: there; else the upper end of the alternate stack, or
/// `Some(None)`: on the interrupted stack.
pub(crate) fn stack_for(action: &KernelAction, interrupted: usize, frame: usize) -> Option<Option<usize>> {
    let real = real();
    let wants_alternate = action.has(SA_ONSTACK) && set_by_program().is_some() && !is_on(&real, interrupted);
    match (wants_alternate, is_on(&real, frame), is_on(&real, interrupted)) {
        // The kernel put it right: on the alternate stack as wanted, or below where the thread was.
        (true, true, _) | (false, true, true) | (false, false, false) => None,
        (true, false, _) => Some(Some(real.ss_sp.addr() + real.ss_size)),
        (false, ..) => Some(None),
    }
}
