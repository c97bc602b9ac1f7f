//! Every system call of x86-64 (up to Linux 6.18): what its arguments are, and how it is covered on the inline path.
//!
//! From this table come the filter's rules (which arguments are pointers that the kernel follows), the set of libc's call
//! sites that are replaced, what is pinned before a call, and `docs/system-calls.md`. Sources: the manual (section 2), and
//! `SYSCALL_DEFINE` in the kernel's tree for what the manual leaves out; numbers from `asm/unistd_64.h`.
//!
//! Sizes of structures may be larger than the structure: pages of the program around an argument are pinned in vain, which
//! does no harm. They must not be smaller.

#[rustfmt::skip]
mod from_0;
#[rustfmt::skip]
mod from_260;
#[rustfmt::skip]
mod from_125;
#[cfg(test)]
mod document;
#[cfg(test)]
mod exercised;
#[cfg(test)]
mod tests;

use hinterland_sys::seccomp::{Codes, Rule};

/// One argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Not a pointer.
    Value,
    /// An address whose content the call leaves alone: mappings, stacks, addresses in other processes.
    Address,
    /// The kernel reads this much.
    In(Size),
    /// The kernel writes this much, or reads and writes.
    Out(Size),
    /// Text that ends with a zero byte, read by the kernel; paths and names, at most a page.
    Text,
    /// A list of texts that ends with a null pointer: arguments, environment.
    Texts,
    /// An array of `iovec`, of as many elements as the given argument says.
    Vector(u8),
    /// A `msghdr`.
    Message,
    /// An array of `mmsghdr`, of as many elements as the given argument says.
    Messages(u8),
}

/// How many bytes an argument points at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// A number.
    Bytes(u16),
    /// An argument, times a number.
    Times(u8, u16),
    /// An argument, and a header of that many bytes.
    Plus(u8, u16),
    /// A set of as many bits as the argument says, in words of 64.
    Bits(u8),
    /// A byte for each page of as many bytes as the argument says.
    Pages(u8),
    /// The 32-bit number that the argument points at (a length that the kernel updates).
    At(u8),
}

impl Size {
    /// Whether an argument counts the elements.
    pub(crate) fn is_counted_by(self, argument: usize) -> bool {
        matches!(self, Size::Times(index, _) | Size::Bits(index) if usize::from(index) == argument)
    }
}

/// How a call is covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Nothing to do: the kernel follows no pointer.
    Pass,
    /// What the arguments point at is pinned.
    Pin,
    /// As `Pin`, and the given argument (a count of elements of so many bytes) is lowered to what one call may pin: the call
    /// may return fewer.
    Fewer(u8, u16),
    /// A buffer of any size, in pieces.
    Pieces,
    /// Buffers named by an array.
    Vectors,
    /// Messages: name, buffers, control data.
    Messages,
    /// As `Pin`, with the mask of signals that the call waits with. The argument is the mask, or for pselect6 a pair of its
    /// address and size.
    Masked(u8),
    /// A new program: its arguments are copied to near memory.
    Exec,
    /// What is pinned depends on a request: `nested` knows.
    Nested,
    /// Belongs to the signals, with their virtual masks and dispositions.
    Signals,
    /// The descriptors of Hinterland are left out.
    Descriptors,
    /// Changes or looks at mappings: made by the function of its name, when it names a far address.
    Memory,
    /// Fails with this error, as on a kernel without it.
    Refused(u16),
}

/// One system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub number: u32,
    pub name: &'static str,
    /// The arguments; those behind the last are no pointers.
    pub shapes: &'static [Shape],
    pub way: Way,
    pub seen: Seen,
}

/// Which calls must be seen with near arguments only, because far memory, or a mask of signals, may hide behind these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// None.
    Far,
    /// Those by libc's `syscall`; libc's function of this name asks by itself.
    Asked,
    /// All.
    Always,
}

impl Row {
    /// The arguments that the kernel follows: bit 0 is the first.
    pub(crate) fn pointers(&self) -> u8 {
        let followed = |shape: &&Shape| !matches!(shape, Shape::Value | Shape::Address);
        (0..).zip(self.shapes).filter(|(_, shape)| followed(shape)).fold(0, |mask, (index, _)| mask | 1 << index)
    }

    /// The arguments whose content the call leaves alone: bit 0 is the first.
    fn addresses(&self) -> u8 {
        let named = |shape: &&Shape| matches!(shape, Shape::Address);
        (0..).zip(self.shapes).filter(|(_, shape)| named(shape)).fold(0, |mask, (index, _)| mask | 1 << index)
    }

    /// The filter's rule.
    pub(crate) fn rule(&self) -> Rule {
        match (self.way, self.pointers()) {
            (Way::Refused(errno), _) => Rule::Refuse(errno),
            _ if self.number == FUTEX_NUMBER => Rule::ByCode(&FUTEX),
            _ if self.number == FCNTL_NUMBER => Rule::ByCode(&FCNTL),
            _ if self.number == PROCESS_MADVISE_NUMBER => Rule::ByCode(&PROCESS_MADVISE),
            _ if self.number == MMAP_NUMBER => Rule::ByCode(&MMAP),
            _ if self.number == MREMAP_NUMBER => Rule::ByCode(&MREMAP),
            (Way::Memory, pointers) => Rule::Pointers(pointers | self.addresses()),
            (_, 0) => Rule::Allow,
            (_, mask) => Rule::Pointers(mask),
        }
    }
}

const FUTEX_NUMBER: u32 = 202;
const FCNTL_NUMBER: u32 = 72;
const MMAP_NUMBER: u32 = 9;
const MREMAP_NUMBER: u32 = 25;
const PROCESS_MADVISE_NUMBER: u32 = 440;
const NONE: (&[u32], u16) = (&[], 0);

/// mmap(2): an address is a command with `MAP_FIXED` and `MAP_FIXED_NOREPLACE` only. A wish passes: the kernel, which has no room in the
/// far range, grants it elsewhere, and programs without a far range that inherit the filter may wish for anything.
static MMAP: Codes = Codes { argument: 3, bits: 0x10_0010, pointers: &[(0, 0)], otherwise: 0b1, refused: NONE };

/// process_madvise(2): the ranges that it names lie behind a pointer. Advice that loses content is refused, as by kernels before 6.13, to
/// everybody but the function of this name.
static PROCESS_MADVISE: Codes = Codes {
    argument: 3,
    bits: u32::MAX,
    pointers: &[],
    otherwise: 0b10,
    // DONTNEED, FREE, REMOVE, DONTFORK, WIPEONFORK, DONTNEED_LOCKED, GUARD_INSTALL
    refused: (&[4, 8, 9, 10, 18, 24, 102], 22),
};

/// mremap(2): the new address is there with `MREMAP_FIXED` only.
static MREMAP: Codes = Codes { argument: 3, bits: 2, pointers: &[(0, 0b1)], otherwise: 0b1_0001, refused: NONE };

/// linux/futex.h: the word; where the operation waits, the time limit; where it has two words, the second.
static FUTEX: Codes = Codes {
    argument: 1,
    bits: 0x7f,
    pointers: &[
        (0, 0b1001),
        (9, 0b1001),
        (6, 0b1001),
        (13, 0b1001),
        (3, 0b1_0001),
        (4, 0b1_0001),
        (5, 0b1_0001),
        (12, 0b1_0001),
        (11, 0b1_1001),
    ],
    otherwise: 0b1,
    refused: NONE,
};

/// fcntl(2): the commands whose third argument is a number, or not there.
static FCNTL: Codes = Codes {
    argument: 1,
    bits: u32::MAX,
    pointers: &[
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
        (8, 0),
        (9, 0),
        (10, 0),
        (11, 0),
        (1024, 0),
        (1025, 0),
        (1030, 0),
    ],
    otherwise: 0b100,
    refused: NONE,
};

/// All rows, in the order of their numbers.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    from_0::ROWS.iter().chain(from_125::ROWS).chain(from_260::ROWS)
}

/// The row of a call. Async-signal-safe.
pub(crate) fn row(number: i64) -> Option<&'static Row> {
    let number = u32::try_from(number).ok()?;
    let part = [from_0::ROWS, from_125::ROWS, from_260::ROWS]
        .into_iter()
        .find(|part| part.last().is_some_and(|last| number <= last.number))?;
    part.get(part.binary_search_by_key(&number, |row| row.number).ok()?)
}

/// Whether libc's sites of a call must be replaced: the filter does not see all that matters.
pub(crate) fn must_be_seen(number: i64) -> bool {
    is_among(&SEEN, number)
}

/// Whether a call by libc's `syscall` must be seen, though libc's own function needs no replacement.
pub(crate) fn is_asked(number: i64) -> bool {
    is_among(&ASKED, number)
}

fn is_among(bits: &[u64; 16], number: i64) -> bool {
    usize::try_from(number).is_ok_and(|number| bits.get(number / 64).is_some_and(|word| word & 1 << (number % 64) != 0))
}

/// The rows that are `Always` seen, and those that are `Asked`.
static SEEN: [u64; 16] = numbers_of(Seen::Always);
static ASKED: [u64; 16] = numbers_of(Seen::Asked);

/// The numbers of rows, as bits: every process asks for all of them when it starts.
const fn numbers_of(seen: Seen) -> [u64; 16] {
    let mut bits = [0; 16];
    let parts = [from_0::ROWS, from_125::ROWS, from_260::ROWS];
    let mut part = 0;
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            let row = &parts[part][at];
            if row.seen as u8 == seen as u8 {
                bits[row.number as usize / 64] |= 1 << (row.number % 64);
            }
            at += 1;
        }
        part += 1;
    }
    bits
}

/// The rules for the filter.
pub(crate) fn rules() -> Vec<(u32, Rule)> {
    rows().map(|row| (row.number, row.rule())).collect()
}

/// Short names for the rows.
mod shorthand {
    pub(super) use super::Row;
    use super::Seen;
    use super::Shape::{self, In, Out};
    pub(super) use super::Shape::{Address as A, Message, Messages as Batch, Text as T, Texts, Value as V, Vector};
    use super::Size::{At, Bits, Bytes, Pages, Plus, Times};
    pub(super) use super::Way::{
        Descriptors, Exec, Fewer, Masked, Memory, Messages, Nested, Pass, Pieces, Pin, Refused, Signals, Vectors,
    };

    /// In: a structure of so many bytes.
    pub(super) const fn i(bytes: u16) -> Shape {
        In(Bytes(bytes))
    }
    /// Out, or in and out: a structure of so many bytes.
    pub(super) const fn o(bytes: u16) -> Shape {
        Out(Bytes(bytes))
    }
    /// In: a buffer of as many bytes as an argument says.
    pub(super) const fn ib(argument: u8) -> Shape {
        In(Times(argument, 1))
    }
    /// Out: a buffer of as many bytes as an argument says.
    pub(super) const fn ob(argument: u8) -> Shape {
        Out(Times(argument, 1))
    }
    /// In: an array.
    pub(super) const fn ia(argument: u8, element: u16) -> Shape {
        In(Times(argument, element))
    }
    /// Out: an array.
    pub(super) const fn oa(argument: u8, element: u16) -> Shape {
        Out(Times(argument, element))
    }
    /// In: a message with a header before its text.
    pub(super) const fn ip(argument: u8, header: u16) -> Shape {
        In(Plus(argument, header))
    }
    /// Out: a message with a header before its text.
    pub(super) const fn op(argument: u8, header: u16) -> Shape {
        Out(Plus(argument, header))
    }
    /// In: a bit set.
    pub(super) const fn is(argument: u8) -> Shape {
        In(Bits(argument))
    }
    /// Out: a bit set.
    pub(super) const fn os(argument: u8) -> Shape {
        Out(Bits(argument))
    }
    /// Out: as long as the number at another argument says.
    pub(super) const fn at(argument: u8) -> Shape {
        Out(At(argument))
    }
    /// Out: a byte for each page.
    pub(super) const fn pages(argument: u8) -> Shape {
        Out(Pages(argument))
    }
    /// A call that the filter sees when it matters.
    pub(super) const fn row(number: u32, name: &'static str, shapes: &'static [Shape], way: super::Way) -> Row {
        Row { number, name, shapes, way, seen: Seen::Far }
    }
    /// A call that must be seen whatever its arguments.
    pub(super) const fn see(number: u32, name: &'static str, shapes: &'static [Shape], way: super::Way) -> Row {
        Row { number, name, shapes, way, seen: Seen::Always }
    }
    /// A call that must be seen when it comes by libc's `syscall`.
    pub(super) const fn ask(number: u32, name: &'static str, shapes: &'static [Shape], way: super::Way) -> Row {
        Row { number, name, shapes, way, seen: Seen::Asked }
    }
}
