//! sendmsg(2), recvmsg(2) and their plurals: a header that names an address, an array of buffers, and control data.
//!
//! A message that names little far memory is pinned with all of it and the call is made as it is, so the kernel updates the
//! program's header itself. Larger ones are made from a copy of the header, whose results are copied back.

use super::fd_kind::{FdKind, kind_of};
use super::pieces::{add, counts, peeks, piece_bytes, waits_for_all, whole_bytes};
use super::pinned::Pins;
use super::vectors::{Array, Groups, gathered, on_one, through_near};
use super::{copy, is_error};
use crate::inline::call::Call;
use hinterland_pager::PinAccess;
use std::mem::offset_of;
use std::ops::ControlFlow;

/// An address of a socket: `struct sockaddr_storage`.
const NAME_MAX: usize = size_of::<libc::sockaddr_storage>();
/// Control data: the kernel's limit on it is far below (`net.core.optmem_max`), but for receiving, any length may be offered.
const CONTROL_MAX: usize = 1 << 20;
/// Pins that a message needs beside those of its buffers: header, name, control data, array.
const OTHERS: usize = 4;

/// Makes a call about messages.
pub(super) fn messages(call: &Call) -> isize {
    match call.number {
        libc::SYS_sendmmsg | libc::SYS_recvmmsg => several(call),
        _ => one(call, call.number, call.arguments),
    }
}

fn access_of(number: i64) -> PinAccess {
    if matches!(number, libc::SYS_recvmsg | libc::SYS_recvmmsg) { PinAccess::Write } else { PinAccess::Read }
}

fn array_of(header: &libc::msghdr) -> Array {
    Array { start: header.msg_iov.addr(), count: header.msg_iovlen }
}

/// Pins a header's name and control data.
fn pin_others(pins: &mut Pins, header: &libc::msghdr, access: PinAccess) -> bool {
    let name = usize::try_from(header.msg_namelen).unwrap_or(NAME_MAX).min(NAME_MAX);
    pins.add(header.msg_name.addr(), name, access)
        && pins.add(header.msg_control.addr(), header.msg_controllen.min(CONTROL_MAX), access)
}

/// One message: `arguments` are a socket, the header's address, and flags.
fn one(call: &Call, number: i64, arguments: [usize; 6]) -> isize {
    let [socket, at, flags, ..] = arguments;
    let access = access_of(number);
    let mut pins = Pins::new();
    pins.add(at, size_of::<libc::msghdr>(), access);
    let header = copy::read::<libc::msghdr>(at);
    let Some((header, sum)) = header.and_then(|header| Some((header, array_of(&header).sum()?))) else {
        return call.issue_as(number, arguments);
    };
    let array = array_of(&header);
    pin_others(&mut pins, &header, access);
    if (sum.far == 0 || sum.far_bytes <= piece_bytes(true)) && array.pin(&mut pins, access) {
        return call.issue_as(number, arguments);
    }
    let mut copied = header;
    let mut issue = |array: Array, control: bool| {
        (copied.msg_iov, copied.msg_iovlen) = (array.start as *mut libc::iovec, array.count);
        if !control {
            (copied.msg_control, copied.msg_controllen) = (std::ptr::null_mut(), 0);
        }
        let mut now = copied;
        let answer = call.issue_as(number, [socket, (&raw mut now).addr(), flags, 0, 0, 0]);
        if control && access == PinAccess::Write && !is_error(answer) {
            give_results(at, &now);
        }
        answer
    };
    let kind = kind_of(socket);
    let peeks = access == PinAccess::Write && peeks(flags);
    if kind == FdKind::Stream && peeks && !counts(flags) {
        return through_near(array, sum.bytes, access, |near| issue(near, true));
    }
    if kind == FdKind::Stream {
        if let Some(scratch) = gathered(array, sum.bytes, access, kind) {
            return on_one(&scratch, sum.bytes, |near| issue(near, true));
        }
        let goes_on = access == PinAccess::Read || waits_for_all(flags) && !peeks;
        return in_groups(array, access, goes_on, issue);
    }
    // A message must not be divided. One with few buffers is pinned as it is.
    let mut whole = Pins::new();
    if sum.far_bytes <= whole_bytes() && array.pin(&mut whole, access) {
        return issue(array, true);
    }
    drop(whole);
    through_near(array, sum.bytes, access, |near| issue(near, true))
}

/// A stream's message in groups of buffers; control data goes with the first.
fn in_groups(array: Array, access: PinAccess, goes_on: bool, mut issue: impl FnMut(Array, bool) -> isize) -> isize {
    let mut groups = Groups::new(array, piece_bytes(true));
    let mut done = 0usize;
    loop {
        let group = groups.next();
        if group.count == 0 {
            return done.cast_signed();
        }
        let mut pins = Pins::new();
        group.array().pin(&mut pins, access);
        let answer = issue(group.array(), done == 0);
        match add(&mut done, answer, group.bytes) {
            ControlFlow::Break(sum) => return sum,
            ControlFlow::Continue(()) if !goes_on => return done.cast_signed(),
            ControlFlow::Continue(()) => {}
        }
    }
}

/// What the kernel changes in a header that it received with.
fn give_results(at: usize, header: &libc::msghdr) {
    // Failures have no remedy: the message has been received.
    copy::write(at + offset_of!(libc::msghdr, msg_namelen), header.msg_namelen);
    copy::write(at + offset_of!(libc::msghdr, msg_controllen), [header.msg_controllen]);
    copy::write(at + offset_of!(libc::msghdr, msg_flags), header.msg_flags.cast_unsigned());
}

/// Several messages: as many as can be pinned together, because the calls may do fewer than they were asked for.
fn several(call: &Call) -> isize {
    const MESSAGES_MAX: usize = 1024;
    let [socket, at, count, flags, ..] = call.arguments;
    let access = access_of(call.number);
    let count = count.min(MESSAGES_MAX);
    let mut pins = Pins::new();
    pins.add(at, count * size_of::<libc::mmsghdr>(), PinAccess::Write);
    // recvmmsg's time limit.
    pins.add(call.arguments[4], size_of::<libc::timespec>(), PinAccess::Write);
    let mut pinned = 0;
    while pinned < count {
        let Some(header) = copy::read::<libc::msghdr>(at + pinned * size_of::<libc::mmsghdr>()) else { break };
        let array = array_of(&header);
        let Some(sum) = array.sum() else { break };
        if pins.left() < sum.far + OTHERS || pins.bytes() + sum.far_bytes > piece_bytes(true) {
            break;
        }
        pin_others(&mut pins, &header, access);
        array.pin(&mut pins, access);
        pinned += 1;
    }
    let mut arguments = call.arguments;
    if pinned > 0 || count == 0 {
        arguments[2] = pinned;
        return call.issue(arguments);
    }
    // The first one is too large, or bad: by itself.
    drop(pins);
    let single = if access == PinAccess::Read { libc::SYS_sendmsg } else { libc::SYS_recvmsg };
    let waits = usize::try_from(libc::MSG_WAITFORONE).unwrap_or(0);
    let answer = one(call, single, [socket, at, flags & !waits, 0, 0, 0]);
    if is_error(answer) {
        return answer;
    }
    copy::write(at + offset_of!(libc::mmsghdr, msg_len), u32::try_from(answer).unwrap_or(u32::MAX));
    1
}
