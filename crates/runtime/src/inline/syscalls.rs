//! System calls on far memory: what they point at is brought in and pinned before the call, never after it failed.
//!
//! | file | room |
//! |---|---|
//! | `table` | every call of the architecture: shapes of its arguments, and how it is covered |
//! | `perform` | one call that was caught, from its number to its answer |
//! | `issue` | the call itself, from the trampoline, under the program's own mask of signals |
//! | `pinned` | the pins of one call |
//! | `copy` | reading and writing memory that may not be there |
//! | `fd_kind` | files, streams, messages: what may be done in pieces |
//! | `pieces`, `vectors`, `messages` | buffers of any size |
//! | `between` | calls on the memory of another process |
//! | `exec` | new programs |
//! | `nested` | pointers behind pointers, by request |
//! | `ioctl`, `bpf` | those of ioctl(2) and bpf(2) |
//!
//! Law: everything here may run in a signal handler, on whatever stack the program has. Nothing is allocated, no lock is taken,
//! no pointer of the program is followed except through `copy`.

mod between;
mod bpf;
mod copy;
mod exec;
mod fd_kind;
mod ioctl;
mod issue;
mod messages;
mod nested;
mod perform;
mod pieces;
mod pinned;
pub(crate) mod table;
mod vectors;

pub(crate) use between::between_processes;
pub(crate) use ioctl::names_memory;
pub(crate) use nested::{attaches_filter, receives_without_copy, zero_copy};
pub(crate) use perform::{give_up_below, perform, stack_of_ours};
pub(crate) use pinned::pin;

use hinterland_pager::{FAR_BASE, FAR_PAGES};
use hinterland_units::PAGE_BYTES;

/// Before calls are caught: what some of them need to know.
pub(crate) fn begin() {
    bpf::count_processors();
}

/// Bytes of the far range.
const FAR_BYTES: usize = FAR_PAGES as usize * PAGE_BYTES;

/// Whether an address is far.
#[inline]
pub(crate) fn is_far(address: usize) -> bool {
    address.wrapping_sub(FAR_BASE) < FAR_BYTES
}

/// Whether a part of a buffer is far. A buffer that lies around the whole range is nobody's.
#[inline]
pub(crate) fn touches_far(address: usize, len: usize) -> bool {
    len != 0 && (is_far(address) || is_far(address.wrapping_add(len - 1)))
}

/// A kernel's answer that is this error.
pub(crate) const fn refused(errno: i32) -> isize {
    -(errno as isize)
}

/// Whether an answer of the kernel is an error.
pub(crate) fn is_error(answer: isize) -> bool {
    (-4095..0).contains(&answer)
}
