//! One call that was caught: from its number to its answer.

use super::pieces::{piece_bytes, pieces};
use super::pinned::{Pins, pin};
use super::table::{self, Row, Shape, Way};
use super::{copy, exec, is_far, messages, nested, refused, touches_far, vectors};
use crate::inline::call::Call;
use crate::inline::signals::RESERVED_SET;
use crate::inline::stacks::altstack;
use crate::{descriptors, errno, mapping};
use hinterland_pager::PinAccess;

/// Below the handler's frame, what this and its callees may use of the stack; and above, the frame of the signal.
const STACK_BELOW: usize = 32 << 10;
const STACK_ABOVE: usize = 16 << 10;

/// Performs a call of the program and returns the kernel's answer: a value, or a negative error number.
///
/// Runs where the call was caught, with the program's signals blocked (if a handler caught it). They are open during the call
/// itself, so a handler of the program may run, and may jump out of here: what is pinned then is given up by the next call.
pub(crate) fn perform(call: &mut Call) -> isize {
    let _errno = errno::Preserved::new();
    if !call.context.is_null() {
        let here = 0u8;
        give_up_below((&raw const here).addr());
    }
    let _stack = stack_of_ours();
    exec::give_back();
    let Some(row) = table::row(call.number) else { return unknown(call) };
    by_way(call, row)
}

fn by_way(call: &mut Call, row: &Row) -> isize {
    match row.way {
        Way::Refused(errno) => refused(errno.into()),
        Way::Pass => call.issue(call.arguments),
        Way::Pin | Way::Signals => {
            let mut pins = Pins::new();
            pins.add_arguments(row.shapes, &call.arguments);
            call.issue(call.arguments)
        }
        Way::Fewer(count, element) => {
            let arguments = fewer(row, call.arguments, count, element);
            let mut pins = Pins::new();
            pins.add_arguments(row.shapes, &arguments);
            call.issue(arguments)
        }
        Way::Masked(argument) => masked(call, row, argument.into()),
        Way::Pieces => pieces(call, row),
        Way::Vectors => vectors::vectors(call),
        Way::Messages => messages::messages(call),
        Way::Exec => exec::exec(call),
        Way::Nested => nested::nested(call, row),
        Way::Descriptors => close_range(call),
        Way::Memory => memory(call),
    }
}

/// A memory call by an instruction of the program's own.
fn memory(call: &Call) -> isize {
    // SAFETY: the program's own call.
    let outcome = unsafe { mapping::call(call.number, call.arguments, 0) };
    outcome.map_or(refused(libc::ENOSYS), mapping::to_kernel)
}

/// A call that is newer than the table: whatever looks like a far pointer is pinned as far as a structure goes.
fn unknown(call: &Call) -> isize {
    const STRUCTURE: usize = 4096;
    let mut pins = Pins::new();
    for address in call.arguments {
        pins.add(address, STRUCTURE, PinAccess::Write);
    }
    call.issue(call.arguments)
}

/// Lowers a count of elements to what a step may pin, if the buffer is far: the call may return fewer.
fn fewer(row: &Row, mut arguments: [usize; 6], count: u8, element: u16) -> [usize; 6] {
    let (count, element) = (usize::from(count), usize::from(element));
    // The count follows its buffer, except for the few calls that name it first.
    let counted = |shape: &Shape| matches!(shape, Shape::In(size) | Shape::Out(size) if size.is_counted_by(count));
    let far = row.shapes.iter().zip(arguments).any(|(shape, address)| {
        counted(shape) && touches_far(address, arguments[count].saturating_mul(element).min(isize::MAX.unsigned_abs()))
    });
    // Counts are signed numbers for some calls: what is negative stays so.
    if far && i32::try_from(arguments[count] & 0xffff_ffff).is_ok() {
        arguments[count] = arguments[count].min(piece_bytes(true) / element);
    }
    arguments
}

/// A call that waits with a mask of its own: ours are taken out of it.
fn masked(call: &Call, row: &Row, argument: usize) -> isize {
    let mut arguments = match row.way {
        Way::Masked(_) if row.name.starts_with("epoll") => fewer(row, call.arguments, 2, 12),
        _ => call.arguments,
    };
    let mut pins = Pins::new();
    pins.add_arguments(row.shapes, &arguments);
    let boxed = matches!(row.shapes.get(argument), Some(Shape::In(size)) if !size.is_counted_by(argument + 1));
    // pselect6 has too many arguments for the mask: address and size come in a pair.
    let pair: Option<[usize; 2]> = if boxed { copy::read(arguments[argument]) } else { None };
    let at = if boxed { pair.map_or(0, |[at, _]| at) } else { arguments[argument] };
    let Some(mask) = Some(at).filter(|at| *at != 0).and_then(copy::read::<u64>) else { return call.issue(arguments) };
    let stripped = mask & !RESERVED_SET;
    let near = (&raw const stripped).addr();
    let near_pair = pair.map(|[_, bytes]| [near, bytes]);
    arguments[argument] = near_pair.as_ref().map_or(near, |pair| pair.as_ptr().addr());
    call.issue(arguments)
}

fn close_range(call: &Call) -> isize {
    let narrow = |argument: usize| u32::try_from(argument & 0xffff_ffff).unwrap_or(u32::MAX);
    let [first, last, flags, ..] = call.arguments;
    match descriptors::close_range(narrow(first), narrow(last), narrow(flags).cast_signed()) {
        Ok(()) => 0,
        Err(errno) => refused(errno),
    }
}

/// Gives up what calls of this thread have pinned that a handler jumped out of: their frames lay below `here`. False: `here` is on
/// the alternate stack of a handler, whose addresses say nothing about the frames of the stack that it interrupted.
#[cold]
pub(crate) fn give_up_below(here: usize) -> bool {
    if altstack::holds(here) {
        return false;
    }
    if let Some(pager) = crate::pager() {
        pager.sweep_pins(0..here);
    }
    true
}

/// Pins the stack that this runs on, if it is far: the kernel reads our own arguments from it. Programs with coroutines
/// allocate such stacks.
pub(crate) fn stack_of_ours() -> Option<hinterland_pager::Pin<'static>> {
    let marker = 0u8;
    let here = (&raw const marker).addr();
    if !is_far(here) {
        return None;
    }
    crate::pager().map(|pager| pin(pager, here - STACK_BELOW, STACK_BELOW + STACK_ABOVE, PinAccess::Write))
}
