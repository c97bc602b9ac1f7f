//! readv(2) and its kin: buffers named by an array.
//!
//! An array that names little far memory is pinned with all it names, and the call is made as it is: the kernel reads the
//! array itself. One that names more goes in groups, each from a copy of a part of the array; for messages, which must not be
//! divided, through a near buffer. So do small writes of many parts: a record in a log or a pipe stays one.

use super::between::between_processes;
use super::fd_kind::{FdKind, kind_of};
use super::issue::Scratch;
use super::pieces::{CALL_BYTES, add, piece_bytes, whole_bytes};
use super::pinned::Pins;
use super::{copy, refused, touches_far};
use crate::inline::call::Call;
use hinterland_pager::PinAccess;
use std::ops::ControlFlow;

/// Elements that the kernel accepts (`UIO_MAXIOV`).
pub(super) const ELEMENTS_MAX: usize = 1024;
/// Elements looked at together, and elements of one group.
const WINDOW: usize = 16;
const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
/// Bytes of an element.
pub(super) const ELEMENT: usize = size_of::<libc::iovec>();

/// An array of the program's.
#[derive(Clone, Copy)]
pub(super) struct Array {
    pub start: usize,
    pub count: usize,
}

/// What an array names.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    /// Bytes in all, and in far elements.
    pub bytes: usize,
    pub far_bytes: usize,
    /// Far elements.
    pub far: usize,
}

impl Array {
    /// Address of the first buffer, of an array of ours.
    pub(super) fn first(self) -> usize {
        copy::read::<[usize; 1]>(self.start).map_or(0, |[first]| first)
    }

    /// Adds up what the array names; `None` if it cannot be read or the kernel would refuse it: the call is then made as it is.
    pub(super) fn sum(self) -> Option<Sum> {
        if self.count > ELEMENTS_MAX {
            return None;
        }
        let mut sum = Sum::default();
        self.each(|element| {
            let (start, len) = (element.iov_base.addr(), element.iov_len);
            sum.bytes = sum.bytes.checked_add(len).filter(|bytes| isize::try_from(*bytes).is_ok())?;
            if touches_far(start, len) {
                sum.far += 1;
                sum.far_bytes += len;
            }
            Some(())
        })?;
        Some(sum)
    }

    /// Calls `look` for each element until it says `None`; `None` also if the array cannot be read.
    pub(super) fn each(self, mut look: impl FnMut(libc::iovec) -> Option<()>) -> Option<()> {
        let mut next = 0;
        while next < self.count {
            let mut window = [EMPTY; WINDOW];
            let wanted = (self.count - next).min(WINDOW);
            let len = copy::read_array(self.start + next * ELEMENT, &mut window[..wanted]);
            if len < wanted {
                return None;
            }
            window[..len].iter().try_for_each(|element| look(*element))?;
            next += len;
        }
        Some(())
    }

    /// Pins the array and what it names. False when there is too much of it.
    pub(super) fn pin(self, pins: &mut Pins, access: PinAccess) -> bool {
        let array = pins.add(self.start, self.count * ELEMENT, PinAccess::Read);
        let mut all = array;
        let _ = self.each(|element| {
            all &= pins.add(element.iov_base.addr(), element.iov_len.min(CALL_BYTES), access);
            all.then_some(())
        });
        all
    }
}

/// A part of an array, copied, of at most so many bytes.
pub(super) struct Group {
    pub elements: [libc::iovec; WINDOW],
    pub count: usize,
    pub bytes: usize,
}

/// Walks through an array in groups, of which each may end within an element.
pub(super) struct Groups {
    array: Array,
    /// Bytes of the first element that earlier groups took.
    taken: usize,
    limit: usize,
}

impl Groups {
    pub(super) fn new(array: Array, limit: usize) -> Groups {
        Groups { array, taken: 0, limit }
    }

    /// The next group; empty at the end of the array, or where it cannot be read.
    pub(super) fn next(&mut self) -> Group {
        let mut group = Group { elements: [EMPTY; WINDOW], count: 0, bytes: 0 };
        let wanted = self.array.count.min(WINDOW);
        let mut window = [EMPTY; WINDOW];
        let len = copy::read_array(self.array.start, &mut window[..wanted]);
        for element in &window[..len] {
            let left = element.iov_len - self.taken;
            let now = left.min(self.limit - group.bytes);
            let iov_base = element.iov_base.wrapping_byte_add(self.taken);
            group.elements[group.count] = libc::iovec { iov_base, iov_len: now };
            group.count += 1;
            group.bytes += now;
            if now < left {
                self.taken += now;
                return group;
            }
            self.array = Array { start: self.array.start + ELEMENT, count: self.array.count - 1 };
            self.taken = 0;
        }
        group
    }
}

impl Group {
    /// The group as the kernel is to see it.
    pub(super) fn array(&self) -> Array {
        Array { start: self.elements.as_ptr().addr(), count: self.count }
    }
}

/// How a call treats its buffers.
fn access_of(number: i64) -> PinAccess {
    match number {
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => PinAccess::Write,
        _ => PinAccess::Read,
    }
}

/// Makes a call whose second and third argument are an array.
pub(super) fn vectors(call: &mut Call) -> isize {
    let [descriptor, start, count, ..] = call.arguments;
    let array = Array { start, count };
    if matches!(call.number, libc::SYS_process_vm_readv | libc::SYS_process_vm_writev) {
        return between_processes(call);
    }
    let Some(sum) = array.sum() else { return call.issue(call.arguments) };
    if call.number == libc::SYS_vmsplice {
        if sum.far == 0 {
            return call.issue(call.arguments);
        }
        copied_splice(call);
    }
    let access = access_of(call.number);
    let mut pins = Pins::new();
    if sum.far_bytes <= piece_bytes(true) && array.pin(&mut pins, access) {
        return call.issue(call.arguments);
    }
    match kind_of(descriptor) {
        FdKind::Message if sum.far_bytes <= whole_bytes() && array.pin(&mut pins, access) => call.issue(call.arguments),
        FdKind::Message => {
            drop(pins);
            through_near(array, sum.bytes, access, |near| call.issue(with_array(call.arguments, near)))
        }
        kind => {
            drop(pins);
            match gathered(array, sum.bytes, access, kind) {
                Some(scratch) => on_one(&scratch, sum.bytes, |near| call.issue(with_array(call.arguments, near))),
                None => in_groups(call, array, access, kind),
            }
        }
    }
}

/// A near copy of what is to be written, if that is no more than one piece but has more parts than one group. None also where a part
/// cannot be read: what comes before it is written then.
pub(super) fn gathered(array: Array, bytes: usize, access: PinAccess, kind: FdKind) -> Option<Scratch> {
    let one_piece = access == PinAccess::Read && bytes <= piece_bytes(kind == FdKind::Stream);
    if !one_piece || array.count <= WINDOW || bytes == 0 {
        return None;
    }
    let mut scratch = Scratch::map(bytes).ok()?;
    move_bytes(array, scratch.bytes(), copy::read_bytes)?;
    Some(scratch)
}

fn with_array(mut arguments: [usize; 6], array: Array) -> [usize; 6] {
    (arguments[1], arguments[2]) = (array.start, array.count);
    arguments
}

fn in_groups(call: &Call, array: Array, access: PinAccess, kind: FdKind) -> isize {
    let has_offset = !matches!(call.number, libc::SYS_readv | libc::SYS_writev);
    // preadv2 and pwritev2 with an offset of -1 use the file's own.
    let moves_along = has_offset && call.arguments[3] != usize::MAX;
    let mut groups = Groups::new(array, piece_bytes(kind == FdKind::Stream));
    let mut done = 0usize;
    loop {
        let group = groups.next();
        if group.count == 0 || done + group.bytes > CALL_BYTES {
            return done.cast_signed();
        }
        let mut pins = Pins::new();
        group.array().pin(&mut pins, access);
        let mut arguments = with_array(call.arguments, group.array());
        if moves_along {
            arguments[3] = arguments[3].wrapping_add(done);
        }
        let answer = call.issue(arguments);
        match add(&mut done, answer, group.bytes) {
            ControlFlow::Break(sum) => return sum,
            // More could wait for what the whole call would not have waited for.
            ControlFlow::Continue(()) if kind == FdKind::Stream && access == PinAccess::Write => {
                return done.cast_signed();
            }
            ControlFlow::Continue(()) => {}
        }
    }
}

/// Makes a call on an array of one element: the first `bytes` of near memory.
pub(super) fn on_one(near: &Scratch, bytes: usize, issue: impl FnOnce(Array) -> isize) -> isize {
    let whole = libc::iovec { iov_base: near.start() as *mut libc::c_void, iov_len: near.len().min(bytes) };
    issue(Array { start: (&raw const whole).addr(), count: 1 })
}

/// Makes a call on one near buffer instead of an array's: `issue` gets an array of one element, and what it reads or writes
/// is copied.
pub(super) fn through_near(array: Array, bytes: usize, access: PinAccess, issue: impl FnOnce(Array) -> isize) -> isize {
    const MESSAGE_MAX: usize = 16 << 20;
    if bytes > MESSAGE_MAX && access == PinAccess::Read {
        return refused(libc::EMSGSIZE);
    }
    let mut scratch = match Scratch::map(bytes.clamp(1, MESSAGE_MAX)) {
        Ok(scratch) => scratch,
        Err(errno) => return errno,
    };
    if access == PinAccess::Read && move_bytes(array, scratch.bytes(), copy::read_bytes).is_none() {
        return refused(libc::EFAULT);
    }
    let answer = on_one(&scratch, bytes, issue);
    let arrived = usize::try_from(answer).unwrap_or(0).min(scratch.len());
    if access == PinAccess::Write
        && move_bytes(array, &mut scratch.bytes()[..arrived], |to, from| copy::write_bytes(to, from)).is_none()
    {
        return refused(libc::EFAULT);
    }
    answer
}

/// Copies between an array's buffers and `near`, in portions; `None` where that fails.
fn move_bytes(array: Array, near: &mut [u8], copy: impl Fn(usize, &mut [u8]) -> usize) -> Option<()> {
    let mut rest = near;
    array.each(|element| {
        let mut at = element.iov_base.addr();
        let mut left = element.iov_len.min(rest.len());
        while left > 0 {
            let (now, behind) = std::mem::take(&mut rest).split_at_mut(left.min(piece_bytes(true)));
            rest = behind;
            if copy(at, now) < now.len() {
                return None;
            }
            at += now.len();
            left -= now.len();
        }
        Some(())
    })
}

/// vmsplice(2) lends pages to a pipe, which reads them when they are not pinned any more; so far memory is copied
/// instead, as writev(2) and readv(2) do.
fn copied_splice(call: &mut Call) {
    let [descriptor, _, _, flags, ..] = call.arguments;
    let get = libc::F_GETFL.unsigned_abs() as usize;
    let mode = i32::try_from(Call::ask(libc::SYS_fcntl, [descriptor, get, 0, 0, 0, 0])).unwrap_or(-1);
    let reads = mode >= 0 && mode & libc::O_ACCMODE == libc::O_RDONLY;
    call.number = if reads { libc::SYS_preadv2 } else { libc::SYS_pwritev2 };
    let nonblock = flags & usize::try_from(libc::SPLICE_F_NONBLOCK).unwrap_or(0) != 0;
    let how = if nonblock { libc::RWF_NOWAIT.unsigned_abs() as usize } else { 0 };
    // At the descriptor's own position: a pipe has no other.
    (call.arguments[3], call.arguments[4], call.arguments[5]) = (usize::MAX, 0, how);
}
