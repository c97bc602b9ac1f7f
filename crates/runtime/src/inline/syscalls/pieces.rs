//! Buffers of any size: a call that fits is made whole, others piece by piece, each pinned only while it is worked on.
//!
//! The sum is what one call could have returned. A short or failed piece is the end, as it is for the kernel; a failure counts
//! only if nothing came before it. What must not be divided (a datagram) is not; what may be short (a read from a pipe or a
//! socket) is, because a second piece could wait for data where the whole call would have returned. What looks at data without
//! taking it (`MSG_PEEK`) is one call: a second piece would see the first one's data again.

use super::fd_kind::{FdKind, kind_of};
use super::pinned::Pins;
use super::table::{Row, Shape};
use super::vectors::{Array, through_near};
use super::{is_error, touches_far};
use crate::inline::call::Call;
use hinterland_pager::PinAccess;
use std::ops::ControlFlow;

/// What a thread that waits for data may hold: there may be many such threads.
const WAITING_BYTES: usize = 256 << 10;
/// The most that one call moves (`MAX_RW_COUNT` of the kernel).
pub(super) const CALL_BYTES: usize = 0x7fff_f000;

/// Bytes that one step may pin.
pub(super) fn piece_bytes(waits: bool) -> usize {
    let piece = crate::pager().map_or(WAITING_BYTES, crate::Pager::pin_piece);
    if waits { piece.min(WAITING_BYTES) } else { piece }
}

/// Bytes that one call may pin when it cannot be divided: a quarter of the budget, at most 16 MiB.
pub(super) fn whole_bytes() -> usize {
    4 * piece_bytes(false)
}

/// Where a call's buffer is among its arguments.
struct Buffer {
    /// Argument of the address; the length is the next one.
    at: usize,
    /// Argument of the offset in the file, if the call has one.
    offset: Option<usize>,
    access: PinAccess,
}

fn buffer_of(number: i64) -> Buffer {
    use PinAccess::{Read, Write};
    match number {
        libc::SYS_getrandom => Buffer { at: 0, offset: None, access: Write },
        libc::SYS_pread64 => Buffer { at: 1, offset: Some(3), access: Write },
        libc::SYS_pwrite64 => Buffer { at: 1, offset: Some(3), access: Read },
        libc::SYS_read | libc::SYS_recvfrom => Buffer { at: 1, offset: None, access: Write },
        _ => Buffer { at: 1, offset: None, access: Read },
    }
}

/// Whether a receiving call waits until its buffer is full.
pub(super) fn waits_for_all(flags: usize) -> bool {
    flags & libc::MSG_WAITALL.unsigned_abs() as usize != 0
}

/// Whether a receiving call leaves the data where it is.
pub(super) fn peeks(flags: usize) -> bool {
    flags & libc::MSG_PEEK.unsigned_abs() as usize != 0
}

/// Whether a receiving call may only count: TCP leaves the buffer as it is then, so what a near one holds must not be copied.
pub(super) fn counts(flags: usize) -> bool {
    flags & libc::MSG_TRUNC.unsigned_abs() as usize != 0
}

/// Makes a call of one buffer.
pub(super) fn pieces(call: &Call, row: &Row) -> isize {
    let buffer = buffer_of(call.number);
    let mut arguments = call.arguments;
    let (start, len) = (arguments[buffer.at], arguments[buffer.at + 1].min(CALL_BYTES));
    let mut pins = Pins::new();
    // The others: addresses of sockets. Behind them the buffer's pin is the newest.
    let others = |index: usize| {
        if index == buffer.at { Shape::Value } else { row.shapes.get(index).copied().unwrap_or(Shape::Value) }
    };
    let shapes = [others(0), others(1), others(2), others(3), others(4), others(5)];
    pins.add_arguments(&shapes, &arguments);
    let plan = plan(call, &buffer, start, len);
    match plan {
        Plan::Whole(len) => {
            pins.add(start, len, buffer.access);
            arguments[buffer.at + 1] = arguments[buffer.at + 1].min(len);
            call.issue(arguments)
        }
        Plan::Near => {
            let one = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: len };
            let array = Array { start: (&raw const one).addr(), count: 1 };
            through_near(array, len, buffer.access, |near| {
                arguments[buffer.at] = near.first();
                call.issue(arguments)
            })
        }
        Plan::Divided(piece) => in_pieces(len, |done| {
            // Not `clear`: the sockets' addresses stay.
            let mut pins = Pins::new();
            let now = piece.min(len - done);
            pins.add(start + done, now, buffer.access);
            arguments[buffer.at] = start + done;
            arguments[buffer.at + 1] = now;
            if let Some(offset) = buffer.offset {
                arguments[offset] = call.arguments[offset].wrapping_add(done);
            }
            (call.issue(arguments), now)
        }),
    }
}

/// How a buffer is worked on.
enum Plan {
    /// In one call, of at most so many bytes.
    Whole(usize),
    /// In steps of so many bytes.
    Divided(usize),
    /// In one call, on a near buffer.
    Near,
}

fn plan(call: &Call, buffer: &Buffer, start: usize, len: usize) -> Plan {
    let waiting = piece_bytes(true);
    if len <= waiting || !touches_far(start, len) {
        return Plan::Whole(call.arguments[buffer.at + 1]);
    }
    let kind = if buffer.at == 0 { FdKind::File } else { kind_of(call.arguments[0]) };
    match (kind, buffer.access) {
        (FdKind::File, _) | (FdKind::Stream, PinAccess::Read) => Plan::Divided(piece_bytes(kind == FdKind::Stream)),
        (FdKind::Stream, PinAccess::Write) => {
            let flags = if call.number == libc::SYS_recvfrom { call.arguments[3] } else { 0 };
            match (peeks(flags), waits_for_all(flags)) {
                (true, _) if counts(flags) => Plan::Whole(whole_bytes()),
                (true, _) => Plan::Near,
                (false, true) => Plan::Divided(waiting),
                (false, false) => Plan::Whole(waiting),
            }
        }
        // No message is that large: room beyond it is not offered.
        (FdKind::Message, PinAccess::Write) => Plan::Whole(whole_bytes()),
        (FdKind::Message, PinAccess::Read) if len <= whole_bytes() => Plan::Whole(len),
        (FdKind::Message, PinAccess::Read) => Plan::Near,
    }
}

/// Runs `step`, which tells the kernel's answer and how many bytes it asked for, until `len` bytes are done or a step falls
/// short.
pub(super) fn in_pieces(len: usize, mut step: impl FnMut(usize) -> (isize, usize)) -> isize {
    let mut done = 0;
    while done < len {
        let (answer, asked) = step(done);
        match add(&mut done, answer, asked) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(sum) => return sum,
        }
    }
    done.cast_signed()
}

/// Adds one step's answer to what is done; breaks with the whole call's answer when the step was the last.
pub(super) fn add(done: &mut usize, answer: isize, asked: usize) -> ControlFlow<isize> {
    if is_error(answer) {
        return ControlFlow::Break(if *done > 0 { done.cast_signed() } else { answer });
    }
    *done += answer.cast_unsigned();
    if answer.cast_unsigned() < asked { ControlFlow::Break(done.cast_signed()) } else { ControlFlow::Continue(()) }
}
