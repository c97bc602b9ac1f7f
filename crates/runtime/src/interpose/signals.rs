//! Signal functions that programs call often: without a trap at the system call inside libc.
//!
//! Only on the inline path, where signals are virtual; otherwise libc's own. The rest of the family (`signal`, `sigset`,
//! `siglongjmp`, …) goes through libc, whose system calls are seen.

use super::next_symbol::next;
use crate::errno;
use crate::inline::signals::action::{self, KernelAction, SA_RESTORER};
use crate::inline::signals::{mask, pending};
use crate::inline::{stacks, trap, user_copy};
use libc::{c_int, sigset_t, stack_t};

/// glibc's own signals, cancellation and setxid: it lets no program block or handle them.
const LIBC_SIGNALS: [c_int; 2] = [32, 33];

type ActionFunction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type MaskFunction = unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;
type StackFunction = unsafe extern "C" fn(*const stack_t, *mut stack_t) -> c_int;

/// What a call returns that reports by errno.
fn answer<T>(outcome: Result<T, i32>) -> Result<T, c_int> {
    outcome.map_err(|number| {
        errno::set(number);
        -1
    })
}

/// Where a call is to write what was before; none: null. The page around it is not overwritten by the program itself.
///
/// # Safety
/// It is null or the program's.
unsafe fn wanted<'a, T>(old: *mut T) -> Option<&'a mut T> {
    trap::take_back(old.addr(), size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe { old.as_mut() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // libc keeps the action of SIGABRT for abort(3).
    if !trap::is_installed() || signal == libc::SIGABRT || LIBC_SIGNALS.contains(&signal) {
        let next = next!(sigaction: ActionFunction);
        // SAFETY: the call is the program's.
        return unsafe { next(signal, new, old) };
    }
    // SAFETY: null or the program's action.
    let new = unsafe { new.as_ref() }.map(|new| KernelAction {
        handler: new.sa_sigaction,
        flags: u64::from(new.sa_flags.cast_unsigned()) | SA_RESTORER,
        restorer: trap::frame::restorer_address(),
        mask: set_of(&new.sa_mask),
    });
    let changed = answer(action::change(signal, new));
    // A reserved signal that came in the middle of the change waits for its end.
    pending::deliver();
    match changed {
        Ok(before) => {
            // SAFETY: null or the program's structure.
            if let Some(old) = unsafe { wanted(old) } {
                old.sa_sigaction = before.handler;
                #[allow(clippy::cast_possible_truncation, reason = "all flags are in the lower half")]
                let flags = before.flags as u32;
                old.sa_flags = flags.cast_signed();
                // SAFETY: null or the address of a function of this type, which is not called here.
                old.sa_restorer = unsafe { std::mem::transmute::<usize, Option<extern "C" fn()>>(before.restorer) };
                set_from(&mut old.sa_mask, before.mask);
            }
            0
        }
        Err(failed) => failed,
    }
}

/// The kernel's part of a set: its first word.
fn set_of(set: &sigset_t) -> u64 {
    // SAFETY: libc's set is an array of words, of which the first holds signals 1 to 64.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

fn set_from(set: &mut sigset_t, word: u64) {
    // SAFETY: as in `set_of`; all words are written.
    unsafe {
        std::ptr::from_mut(set).write_bytes(0, 1);
        std::ptr::from_mut(set).cast::<u64>().write(word);
    }
}

/// Changes the mask as libc does: an error number, or 0.
unsafe fn change_mask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    let libc_signals = LIBC_SIGNALS.iter().fold(0, |set, signal| set | 1u64 << (signal - 1));
    // SAFETY: null or the program's set.
    let set = unsafe { set.as_ref() }.map(|set| set_of(set) & !libc_signals);
    // libc fills the kernel's part of a set only.
    mask::change_and_tell(how, set, old.addr()).err().unwrap_or(0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    if trap::is_installed() {
        // SAFETY: the program's own arguments.
        return unsafe { change_mask(how, set, old) };
    }
    let next = next!(pthread_sigmask: MaskFunction);
    // SAFETY: the call is the program's.
    unsafe { next(how, set, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    if trap::is_installed() {
        // SAFETY: the program's own arguments.
        return match unsafe { change_mask(how, set, old) } {
            0 => 0,
            number => {
                errno::set(number);
                -1
            }
        };
    }
    let next = next!(sigprocmask: MaskFunction);
    // SAFETY: the call is the program's.
    unsafe { next(how, set, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
    if !trap::is_installed() {
        let next = next!(sigaltstack: StackFunction);
        // SAFETY: the call is the program's.
        return unsafe { next(new, old) };
    }
    let here = 0u8;
    let change = || {
        let new = user_copy::read_optional::<stack_t>(new.addr())?;
        let before = stacks::altstack::change(new, (&raw const here).addr())?;
        if old.is_null() { Ok(()) } else { Ok(user_copy::write(old.addr(), &before)?) }
    };
    let changed = answer(change());
    // As in `sigaction`.
    pending::deliver();
    changed.err().unwrap_or(0)
}
