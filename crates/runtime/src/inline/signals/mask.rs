//! Masks: the program's is the real one and the thread's virtual bits together.
//!
//! A thread's word of virtual bits is zero until something is known of it: libc starts threads with everything blocked, and
//! then sets the mask that the program wants. What is sent to it before that has to wait.

use super::{RESERVED_SET, pending, strip, vfork_child};
use crate::inline::thread::{Child, Thread};
use crate::inline::{raw, user_copy};
use libc::{SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, c_int};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// In a thread's word: the bits are known. The place of SIGKILL, which cannot be blocked.
const KNOWN: u64 = super::bit(libc::SIGKILL);

/// The virtual bits of a thread's word.
fn bits(word: u64) -> u64 {
    if word & KNOWN == 0 { RESERVED_SET } else { word & RESERVED_SET }
}

/// What rt_sigprocmask(2) makes of a mask; `None`: no such operation.
pub(crate) fn combine(how: c_int, set: u64, mask: u64) -> Option<u64> {
    match how {
        SIG_BLOCK => Some(mask | set),
        SIG_UNBLOCK => Some(mask & !set),
        SIG_SETMASK => Some(set),
        _ => None,
    }
}

/// Makes `child` the state of this child of vfork, from its parent's, unless it is already.
pub(super) fn adopt(child: &Child, process: i32) {
    if child.process.load(Relaxed) != process {
        super::action::inherit(child);
        child.blocked.store(bits(Thread::current().blocked.load(Relaxed)) | KNOWN, Relaxed);
        child.process.store(process, Relaxed);
    }
}

/// Where the virtual bits are: the thread's own, or the child's that borrows the thread.
fn cell(thread: &Thread) -> &AtomicU64 {
    match vfork_child() {
        Some(process) => {
            adopt(&thread.child, process);
            &thread.child.blocked
        }
        None => {
            thread.child.process.store(0, Relaxed);
            &thread.blocked
        }
    }
}

/// The calling thread's word.
fn word() -> u64 {
    let thread = Thread::current();
    match thread.child.process.load(Relaxed) {
        0 => thread.blocked.load(Relaxed),
        _ => cell(thread).load(Relaxed),
    }
}

/// The calling thread's virtual bits.
pub(crate) fn blocked() -> u64 {
    bits(word())
}

/// Of the virtual bits those that the program itself has set.
pub(super) fn blocked_by_program() -> u64 {
    word() & RESERVED_SET
}

/// Replaces the virtual bits; returns the old ones.
pub(crate) fn swap(new: u64) -> u64 {
    let thread = Thread::current();
    let new = new & RESERVED_SET | KNOWN;
    let seen = thread.blocked.load(Relaxed);
    // Mostly there is nothing to do, and no need to ask whose thread this is.
    if thread.child.process.load(Relaxed) == 0 && seen == new {
        return bits(seen);
    }
    bits(cell(thread).swap(new, Relaxed))
}

/// In a new thread: it has the bits of the thread that started it, unless libc has set them already.
pub(crate) fn inherit(blocked: u64) {
    if word() == 0 {
        swap(blocked);
    }
}

/// rt_sigprocmask(2) outside of handlers: what the exported functions do. Returns the program's mask as it was.
///
/// # Errors
/// `EINVAL`: no such operation.
pub(crate) fn change(how: c_int, set: Option<u64>) -> Result<u64, i32> {
    let Some(set) = set else { return Ok(raw::change_mask(SIG_BLOCK, None) | blocked()) };
    let virtually = blocked();
    let new = combine(how, set, virtually).ok_or(libc::EINVAL)?;
    swap(new);
    let before = raw::change_mask(how, Some(strip(set)));
    if virtually & !new != 0 || pending::any() {
        pending::deliver();
    }
    Ok(before | virtually)
}

/// The same, and tells the mask as it was at `old`, if that is not null.
///
/// # Errors
/// `EINVAL`: no such operation. `EFAULT`: it cannot be told there; the mask has changed.
pub(crate) fn change_and_tell(how: c_int, set: Option<u64>, old: usize) -> Result<(), i32> {
    let before = change(how, set)?;
    if old != 0 {
        user_copy::write_word(old, before)?;
    }
    Ok(())
}

/// rt_sigprocmask(2) in a handler, for the code that it returns to: `real` is that code's real mask.
///
/// # Errors
/// `EINVAL`: no such operation.
pub(crate) fn change_at_return(how: c_int, set: Option<u64>, real: &mut u64) -> Result<u64, i32> {
    let before = *real | blocked();
    if let Some(set) = set {
        let new = combine(how, set, before).ok_or(libc::EINVAL)?;
        swap(new);
        *real = strip(new);
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::super::bit;
    use super::*;

    #[test]
    fn what_the_program_blocks_is_what_it_reads_and_the_reserved_part_is_never_real() {
        assert_eq!(blocked(), RESERVED_SET, "a new thread has everything blocked");
        inherit(bit(libc::SIGILL));
        inherit(RESERVED_SET);
        assert_eq!(swap(0), bit(libc::SIGILL));
        let mut real = bit(libc::SIGTERM);
        let all = u64::MAX;
        assert_eq!(change_at_return(SIG_SETMASK, Some(all), &mut real), Ok(bit(libc::SIGTERM)));
        assert_eq!((real, blocked()), (strip(all), RESERVED_SET));
        assert_eq!(change_at_return(SIG_UNBLOCK, Some(bit(libc::SIGBUS)), &mut real), Ok(all));
        assert_eq!(change_at_return(SIG_BLOCK, None, &mut real), Ok(all & !bit(libc::SIGBUS)));
        assert_eq!(change_at_return(77, Some(0), &mut real), Err(libc::EINVAL));
        assert_eq!(change_at_return(SIG_SETMASK, Some(0), &mut real), Ok(all & !bit(libc::SIGBUS)));
        assert_eq!((real, blocked()), (0, 0));
    }
}
