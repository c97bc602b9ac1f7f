//! The pins of one call: few, on the stack, given up together.
//!
//! A pager has room for 1024 pins, for all threads; so one call takes at most `MAX`, and names more memory than that only in
//! several steps. Ranges within the pages of the pin before them cost nothing.

use super::copy;
use super::pieces::whole_bytes;
use super::table::{Shape, Size};
use super::touches_far;
use crate::Pager;
use crate::inline::stacks::stack_switch;
use hinterland_pager::{Pin, PinAccess};
use hinterland_units::PAGE_BYTES;

/// Pins of one call.
pub(super) const MAX: usize = 24;
/// Bytes of a path or name, with its zero: the kernel's limit.
pub(super) const TEXT_MAX: usize = 4096;

/// The pins of one call; they end when this is dropped.
pub(super) struct Pins {
    pager: Option<&'static Pager>,
    held: [Option<Pin<'static>>; MAX],
    count: usize,
    /// The pages of the newest pin.
    newest: (usize, usize, PinAccess),
    /// Bytes pinned.
    bytes: usize,
}

impl Pins {
    pub(super) fn new() -> Pins {
        let none = (0, 0, PinAccess::Read);
        Pins { pager: crate::pager(), held: [const { None }; MAX], count: 0, newest: none, bytes: 0 }
    }

    /// Pins that are left.
    pub(super) fn left(&self) -> usize {
        MAX - self.count
    }

    /// Bytes pinned so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pins the far part of a range. False when there are too many.
    pub(super) fn add(&mut self, address: usize, len: usize, access: PinAccess) -> bool {
        let Some(pager) = self.pager.filter(|_| touches_far(address, len)) else { return true };
        let (first, end) = (address & !(PAGE_BYTES - 1), address.saturating_add(len));
        let (known, known_end, known_access) = self.newest;
        if known <= first && end <= known_end && (known_access == access || access == PinAccess::Read) {
            return true;
        }
        if self.count == MAX {
            return false;
        }
        self.held[self.count] = Some(pin(pager, address, len, access));
        self.count += 1;
        self.bytes += len;
        self.newest = (first, end.next_multiple_of(PAGE_BYTES), access);
        true
    }

    /// Pins what the arguments point at, by their shapes.
    pub(super) fn add_arguments(&mut self, shapes: &[Shape], arguments: &[usize; 6]) {
        for (shape, address) in shapes.iter().zip(arguments) {
            match shape {
                Shape::In(size) => self.add_sized(*address, *size, arguments, PinAccess::Read),
                Shape::Out(size) => self.add_sized(*address, *size, arguments, PinAccess::Write),
                Shape::Text => self.add_text(*address),
                _ => {}
            }
        }
    }

    fn add_sized(&mut self, address: usize, size: Size, arguments: &[usize; 6], access: PinAccess) {
        let argument = |index: u8| arguments[usize::from(index)];
        let bytes = match size {
            Size::Bytes(bytes) => usize::from(bytes),
            Size::Times(index, element) => argument(index).saturating_mul(element.into()),
            Size::Plus(index, header) => argument(index).saturating_add(header.into()),
            Size::Bits(index) => argument(index).div_ceil(64).saturating_mul(8),
            Size::Pages(index) => argument(index).div_ceil(PAGE_BYTES),
            Size::At(index) if address != 0 => copy::read::<u32>(argument(index)).unwrap_or(0) as usize,
            Size::At(_) => 0,
        };
        // Longer ones are errors of the program, or of a size that no kernel accepts.
        self.add(address, bytes.min(whole_bytes()), access);
    }

    /// Pins a text with its final zero, page by page: what comes behind the zero may be large, and cold.
    pub(super) fn add_text(&mut self, text: usize) {
        if !touches_far(text, 1) {
            return;
        }
        let (mut at, end) = (text, text.saturating_add(TEXT_MAX));
        while at < end {
            let page_end = (at | (PAGE_BYTES - 1)) + 1;
            self.add(at, page_end.min(end) - at, PinAccess::Read);
            if ends_before(at, page_end.min(end)) {
                return;
            }
            at = page_end;
        }
    }
}

/// Pins memory for the call that the calling code belongs to. Its stack may be far, and the pager does not work there.
pub(crate) fn pin(pager: &'static Pager, address: usize, len: usize, access: PinAccess) -> Pin<'static> {
    let frame = 0u8;
    let frame = (&raw const frame).addr();
    stack_switch::run_blocked(|| pager.pin_for(address, len, access, frame))
}

/// Whether a text ends within `from..to`; also if that cannot be read.
fn ends_before(from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let mut part = [0u8; 128];
        let wanted = (to - at).min(part.len());
        let len = copy::read_bytes(at, &mut part[..wanted]);
        if len < wanted || part[..len].contains(&0) {
            return true;
        }
        at += len;
    }
    false
}
