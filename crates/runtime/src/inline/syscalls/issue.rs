//! The call itself: from the trampoline, under the program's own mask of signals.
//!
//! A handler that caught the call runs with all signals blocked. The program's mask comes back for the call, so that a signal
//! interrupts it, restarts it, or jumps out of it as it would natively; a restart repeats the instruction in the trampoline.

use super::{is_error, refused};
use crate::inline::call::Call;
use crate::inline::signals::RESERVED_SET;
use hinterland_sys::trampoline;

/// The kernel's `struct` of signals is a word.
const MASK_BYTES: usize = size_of::<u64>();

impl Call {
    /// Makes the call with these arguments. Signals of the program are delivered meanwhile.
    pub(super) fn issue(&self, arguments: [usize; 6]) -> isize {
        self.issue_as(self.number, arguments)
    }

    /// As `issue`, with another call's number.
    pub(super) fn issue_as(&self, number: i64, arguments: [usize; 6]) -> isize {
        let caught = !self.context.is_null();
        if caught {
            set_mask(self.program_mask());
        }
        // SAFETY: the program's own call, or one of ours that does the same; no call that returns on another stack comes here.
        let answer = unsafe {
            if self.is_own() { trampoline::call(number, arguments) } else { trampoline::repeat(number, arguments) }
        };
        if caught {
            set_mask(!RESERVED_SET);
        }
        answer
    }

    /// A call of ours that does not wait and concerns no signal.
    pub(super) fn ask(number: i64, arguments: [usize; 6]) -> isize {
        // SAFETY: questions about descriptors, and scratch memory: the callers' arguments are valid.
        unsafe { trampoline::call(number, arguments) }
    }

    /// The mask that the program had when its call was caught.
    fn program_mask(&self) -> u64 {
        // SAFETY: the kernel passed the context to the handler, which is still running. Its first word of the mask is all
        // that the kernel knows.
        let mask = unsafe { (&raw const (*self.context).uc_sigmask).cast::<u64>().read() };
        mask & !RESERVED_SET
    }
}

fn set_mask(mask: u64) {
    let how = libc::SIG_SETMASK.unsigned_abs() as usize;
    Call::ask(libc::SYS_rt_sigprocmask, [how, (&raw const mask).addr(), 0, MASK_BYTES, 0, 0]);
}

/// Near memory for the length of a call: a mapping, given back when this is dropped.
pub(super) struct Scratch {
    start: usize,
    len: usize,
}

impl Scratch {
    /// Maps memory; the kernel's error when there is none.
    pub(super) fn map(len: usize) -> Result<Scratch, isize> {
        let protection = (libc::PROT_READ | libc::PROT_WRITE).unsigned_abs() as usize;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).unsigned_abs() as usize;
        let answer = Call::ask(libc::SYS_mmap, [0, len, protection, flags, usize::MAX, 0]);
        if is_error(answer) { Err(refused(libc::ENOMEM)) } else { Ok(Scratch { start: answer.cast_unsigned(), len }) }
    }

    pub(super) fn start(&self) -> usize {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: a private mapping of this length, writable, that only this owns.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u8, self.len) }
    }

    /// Keeps the mapping: its start and length.
    pub(super) fn keep(self) -> (usize, usize) {
        let kept = (self.start, self.len);
        std::mem::forget(self);
        kept
    }

    /// Takes a mapping over that was kept.
    ///
    /// # Safety
    /// It came from `keep`, and no thread uses it.
    pub(super) unsafe fn kept((start, len): (usize, usize)) -> Scratch {
        Scratch { start, len }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        Call::ask(libc::SYS_munmap, [self.start, self.len, 0, 0, 0, 0]);
    }
}
