//! A reserved signal that is not Hinterland's: it meets the program's virtual state as it would have met the real one.

use super::action::{self, KernelAction};
use super::{bit, index, mask, pending, strip};
use crate::inline::raw;
use crate::inline::stacks;
use crate::inline::syscalls::is_far;
use crate::inline::trap::frame::{self, Frame};
use crate::region_map::{self, Kind};
use libc::{SIG_DFL, SIG_IGN, c_int, siginfo_t, ucontext_t};
use std::sync::atomic::Ordering::Relaxed;

/// glibc's own signals, which no program can block: who has them blocked is libc or ours, and must not be interrupted.
const LIBC_SIGNALS: u64 = bit(32) | bit(33);

/// What becomes of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It waits until it is not blocked any more.
    Wait,
    /// Nothing.
    Nothing,
    /// The process ends as the signal's default action says.
    End,
    /// The program's handler runs.
    Handler,
}

/// signal(7): a signal that the thread caused by what it did cannot wait nor be ignored.
fn fate(action: &KernelAction, caused: bool, blocked: bool) -> Fate {
    match action.handler {
        SIG_DFL | SIG_IGN if caused => Fate::End,
        _ if caused && blocked => Fate::End,
        _ if blocked => Fate::Wait,
        SIG_DFL => Fate::End,
        SIG_IGN => Fate::Nothing,
        _ => Fate::Handler,
    }
}

/// Whether the thread itself caused the signal, by an instruction that failed.
fn is_caused(signal: c_int, code: c_int) -> bool {
    /// `BUS_MCEERR_AO`: memory failed that nobody is using.
    const MEMORY_FAILED_ELSEWHERE: c_int = 5;
    code > 0 && !(signal == libc::SIGBUS && code == MEMORY_FAILED_ELSEWHERE)
}

/// Passes a signal on. Returns if the handler of ours that calls may return, and does not if a handler of the program's
/// runs: then that one returns to the interrupted code.
///
/// # Safety
/// Signal, information and context are the kernel's, given to a handler of ours that has not returned.
pub(crate) unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let Some(place) = index(signal) else { return };
    // SAFETY: the caller's promise.
    let (information, real) = unsafe { (&*info, frame::mask_of(context)) };
    let caused = is_caused(signal, information.si_code);
    let action = action::of(place);
    let inside = real & LIBC_SIGNALS == LIBC_SIGNALS;
    let blocked = if caused { mask::blocked_by_program() } else { mask::blocked() };
    match fate(&action, caused, blocked & bit(signal) != 0 || inside && !caused) {
        Fate::Nothing => {}
        Fate::Wait => {
            // What comes in the middle of our own work waits for its end, which is this thread's.
            let thread_only = inside && blocked & bit(signal) == 0 || information.si_code == libc::SI_TKILL;
            pending::hold(place, information, thread_only);
        }
        Fate::End => end(signal, information),
        Fate::Handler => {
            if action.has(libc::SA_RESETHAND) {
                action::reset(signal, place);
            }
            // SIGBUS comes with all blocked; the handler's stack may be far, and its pages leave again while the frame goes there.
            raw::change_mask(libc::SIG_SETMASK, Some(super::INSIDE));
            // SAFETY: the caller's promise, and the action is the program's.
            unsafe { run(signal, &action, context, blocked) }
        }
    }
}

/// The real handler of signals that are not reserved, where the kernel must not call the program's.
///
/// # Safety
/// Called by the kernel.
pub(crate) unsafe extern "C" fn on_other(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    let errno = crate::errno::Preserved::new();
    if signal == libc::SIGSEGV {
        // SAFETY: the information is the kernel's, part of the frame that the handler gets.
        tell_unmapped(unsafe { &mut *info });
    }
    let action = action::of_other(signal);
    let blocked = mask::blocked();
    drop(errno);
    // SAFETY: the context is the kernel's, for this handler.
    unsafe { run(signal, &action, context, blocked) }
}

/// Far pages that are not mapped are inaccessible to the kernel: to the program they are not there, as the code of a SIGSEGV says.
fn tell_unmapped(information: &mut siginfo_t) {
    const MAPPED: c_int = 2;
    const NOT_MAPPED: c_int = 1;
    if signal_is_of(information, MAPPED) {
        // SAFETY: the code says that the signal tells an address.
        let address = unsafe { information.si_addr() }.addr();
        if region_map::contains(address) && !is_mapped(address) {
            information.si_code = NOT_MAPPED;
        }
    }
}

fn signal_is_of(information: &siginfo_t, code: c_int) -> bool {
    information.si_signo == libc::SIGSEGV && information.si_code == code
}

/// Whether the program has mapped a far page: room above the break is not.
fn is_mapped(address: usize) -> bool {
    let run = region_map::lock().run_at(region_map::page_of(address));
    run.is_some_and(|run| run.attributes.kind != Kind::Room)
}

/// Lets the default action happen as soon as the calling handler has returned.
fn end(signal: c_int, information: &siginfo_t) {
    let _ = action::kernel_change(signal, Some(KernelAction::default()));
    raw::change_mask(libc::SIG_BLOCK, Some(bit(signal)));
    pending::resend(signal, information);
}

/// Runs the program's handler where the kernel would have, with the mask that it would have.
///
/// # Safety
/// As for `pass_on`.
unsafe fn run(signal: c_int, action: &KernelAction, context: *mut ucontext_t, blocked: u64) -> ! {
    let own = if action.has(libc::SA_NODEFER) { 0 } else { bit(signal) };
    // SAFETY: the caller's promise.
    let program = unsafe { frame::mask_of(context) } | blocked;
    let during = program | action.mask | own;
    // SAFETY: the caller's promise: the context is part of the kernel's frame.
    let frame = unsafe { Frame::of(context).placed_for(action) };
    stacks::altstack::enter(frame);
    // SAFETY: the frame is complete; its mask says what the program's was.
    unsafe { frame::set_mask_of(frame.context(), program) };
    mask::swap(during);
    let mask = stacks::handler_mask();
    mask.store(strip(during), Relaxed);
    // SAFETY: the frame lies on the stack that the handler shall have, and nothing of the current one is needed any more.
    unsafe { frame.enter(action, signal, mask.as_ptr()) }
}

/// After the program's handler: what it left as the mask to return to is divided again. Returns the address of the frame to
/// return from: the kernel reads it, so it must not be far. Signals that waited for the handler's end are sent from there.
pub(crate) extern "C" fn handler_done(context: *mut ucontext_t) -> usize {
    // SAFETY: called by the code that entered the handler, with the context of its own frame.
    unsafe {
        let program = frame::mask_of(context);
        mask::swap(program);
        frame::set_mask_of(context, strip(program));
        stacks::altstack::leave(&mut *context);
    }
    let frame = Frame::of(context);
    if !is_far(frame.address()) {
        return frame.address();
    }
    let Some(top) = stacks::top_for_return() else { return frame.address() };
    raw::change_mask(libc::SIG_SETMASK, Some(super::INSIDE));
    // SAFETY: the frame is complete, and the place on our stack is for this, with signals blocked.
    unsafe { frame.moved_below(top) }.address()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caused_signal_neither_waits_nor_is_ignored() {
        let with = |handler| KernelAction { handler, ..KernelAction::default() };
        let table = [
            (SIG_DFL, true, false, Fate::End),
            (SIG_DFL, true, true, Fate::End),
            (SIG_DFL, false, false, Fate::End),
            (SIG_DFL, false, true, Fate::Wait),
            (SIG_IGN, true, false, Fate::End),
            (SIG_IGN, false, false, Fate::Nothing),
            (SIG_IGN, false, true, Fate::Wait),
            (4096, true, false, Fate::Handler),
            (4096, true, true, Fate::End),
            (4096, false, false, Fate::Handler),
            (4096, false, true, Fate::Wait),
        ];
        for (handler, caused, blocked, expected) in table {
            assert_eq!(fate(&with(handler), caused, blocked), expected, "{handler} {caused} {blocked}");
        }
    }
}
