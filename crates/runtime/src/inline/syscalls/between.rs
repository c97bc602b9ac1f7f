//! process_vm_readv(2) and process_vm_writev(2): the kernel copies between this process and another one.
//!
//! Our side is brought in and pinned as for any call. The other side may be another managed process of the run, on the inline
//! path: what is missing there is `EFAULT` here. Then that process is asked (`pin_requests`), and the call is made again. The kernel has
//! the first word, so it has judged by then whether this process may do that at all; and the call may be repeated because it
//! consumes nothing: what it has copied is counted, and the rest is copied next.
//!
//! Writes ask first, after a look at one byte that tells the same: without a pin the other process could copy a page out at the
//! moment in which the kernel writes to it.
//!
//! Both fault paths come here: the process that is asked may be on the other one.

use super::pieces::{CALL_BYTES, piece_bytes};
use super::pinned::{Pins, pin};
use super::vectors::{Array, ELEMENT, ELEMENTS_MAX};
use super::{copy, is_error, refused, touches_far};
use crate::inline::call::Call;
use crate::pin_requests::{self, PeerProcess};
use hinterland_pager::PinAccess;
use hinterland_sys::confinement;

/// Makes the call.
pub(crate) fn between_processes(call: &Call) -> isize {
    let [process, start, count, other_start, other_count, _] = call.arguments;
    let (ours, theirs) = (Array { start, count }, Array { start: other_start, count: other_count });
    let mut arrays = Pins::new();
    for array in [ours, theirs] {
        arrays.add(array.start, array.count.min(ELEMENTS_MAX) * ELEMENT, PinAccess::Read);
    }
    let flags = call.arguments[5];
    match (ours.sum(), theirs.sum()) {
        (Some(here), Some(there)) if here.far + there.far > 0 && flags == 0 => {
            drop(arrays);
            let same = shares_memory(process);
            let peer = if same { None } else { pin_requests::of_process(i32::try_from(process).unwrap_or(0)) };
            Transfer { call, process, same, peer, ours: Cursor::new(ours), theirs: Cursor::new(theirs) }.run()
        }
        // Nothing far, or what the kernel refuses.
        _ => call.issue(call.arguments),
    }
}

/// Whether a process has this very memory: this one, a child of `clone` with `CLONE_VM`, or its parent. What may not be asked under a filter of the
/// program's is not.
fn shares_memory(process: usize) -> bool {
    /// linux/kcmp.h.
    const KCMP_VM: usize = 1;
    let own = Call::ask(libc::SYS_getpid, [0; 6]).cast_unsigned();
    process == own || !confinement::is_confined() && Call::ask(libc::SYS_kcmp, [own, process, KCMP_VM, 0, 0, 0]) == 0
}

/// A place in an array's buffers.
struct Cursor {
    array: Array,
    index: usize,
    /// Bytes of this element that are behind us.
    offset: usize,
}

impl Cursor {
    fn new(array: Array) -> Cursor {
        Cursor { array, index: 0, offset: 0 }
    }

    /// Address and length of what is left of the buffer here; `None` at the end, or where the array cannot be read.
    fn rest(&mut self) -> Option<(usize, usize)> {
        while self.index < self.array.count {
            let element: libc::iovec = copy::read(self.array.start + self.index * ELEMENT)?;
            if self.offset < element.iov_len {
                return Some((element.iov_base.addr().wrapping_add(self.offset), element.iov_len - self.offset));
            }
            (self.index, self.offset) = (self.index + 1, 0);
        }
        None
    }
}

struct Transfer<'a> {
    call: &'a Call,
    process: usize,
    /// The other side is this very memory, too.
    same: bool,
    /// The other process; `None`: it is not managed, or the kernel waits for its missing pages.
    peer: Option<PeerProcess>,
    ours: Cursor,
    theirs: Cursor,
}

impl Transfer<'_> {
    /// Copies until everything is copied or the kernel refuses to; its answer, or the bytes copied before.
    fn run(mut self) -> isize {
        let mut done = 0usize;
        while let (Some((ours, ours_len)), Some((theirs, theirs_len))) = (self.ours.rest(), self.theirs.rest()) {
            let far = touches_far(ours, ours_len) || self.same && touches_far(theirs, theirs_len);
            let len = ours_len.min(theirs_len).min(if far { piece_bytes(false) } else { CALL_BYTES });
            let answer = self.step(ours, theirs, len);
            if is_error(answer) && done > 0 {
                return done.cast_signed();
            }
            let Some(copied) = usize::try_from(answer).ok().filter(|copied| *copied > 0) else { return answer };
            self.ours.offset += copied;
            self.theirs.offset += copied;
            done += copied;
        }
        done.cast_signed()
    }

    /// Copies as much as goes of one piece of memory on either side.
    fn step(&self, ours: usize, theirs: usize, len: usize) -> isize {
        let writes = self.call.number == libc::SYS_process_vm_writev;
        let peer = self.peer.as_ref().filter(|_| touches_far(theirs, len));
        let answer = match peer {
            Some(_) if writes => self.look(theirs),
            _ => self.copy(ours, theirs, len),
        };
        if self.peer.is_none() && !self.same && answer == refused(libc::EFAULT) && touches_far(theirs, len) {
            pin_requests::warn_that_none_answers(i32::try_from(self.process).unwrap_or(0));
        }
        let Some(peer) = peer.filter(|_| answer == refused(libc::EFAULT) || writes && answer >= 0) else {
            return answer;
        };
        match peer.bring_in(theirs, len, writes) {
            Some(pinned) => self.copy(ours, theirs, len.min(pinned.bytes())),
            None if writes => self.copy(ours, theirs, len),
            None => answer,
        }
    }

    /// Reads a byte of the other process: whether this one may, and the byte is there.
    fn look(&self, theirs: usize) -> isize {
        let mut byte = 0u8;
        self.issue(libc::SYS_process_vm_readv, (&raw mut byte).addr(), theirs, 1)
    }

    fn copy(&self, ours: usize, theirs: usize, len: usize) -> isize {
        let (access, other_access) = match self.call.number {
            libc::SYS_process_vm_readv => (PinAccess::Write, PinAccess::Read),
            _ => (PinAccess::Read, PinAccess::Write),
        };
        let keep = |start, access| {
            crate::pager().filter(|_| touches_far(start, len)).map(|pager| pin(pager, start, len, access))
        };
        let _ours = keep(ours, access);
        let _theirs = self.same.then(|| keep(theirs, other_access));
        self.issue(self.call.number, ours, theirs, len)
    }

    fn issue(&self, number: i64, ours: usize, theirs: usize, len: usize) -> isize {
        let vector = |start: usize| libc::iovec { iov_base: start as *mut libc::c_void, iov_len: len };
        let (here, there) = (vector(ours), vector(theirs));
        let (here, there) = ((&raw const here).addr(), (&raw const there).addr());
        self.call.issue_as(number, [self.process, here, 1, there, 1, 0])
    }
}
