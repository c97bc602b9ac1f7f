//! Objects other than libc that make system calls by the instruction itself.
//!
//! The filter sees memory in the arguments of such a call. It sees neither memory behind pointers, nor a signal mask
//! that the call sets, nor a process that it makes: a program with such a call gets the monitor path. Objects that are
//! loaded later are not checked.
//!
//! Looks at all text of the program: about a millisecond for each 20 MiB. The first call that is found ends the search.

use super::elf::{self, Image, Kind};
use super::scan::{self, Numbers};
use super::{SITE_BYTES, SYSCALL};
use std::fmt;
use std::ops::Range;

/// Text beyond this is not searched: a tenth of a second's work.
const TEXT_BYTES_MAX: usize = 1 << 30;
/// Text without a table of functions is decoded from its start, which is slow.
const GAP_BYTES_MAX: usize = 4 << 20;

/// Libraries whose only purpose is that the kernel works on memory after a call.
const ASYNCHRONOUS: [&str; 2] = ["liburing.so", "libaio.so"];

/// Why an object is better not served inline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DirectSyscalls {
    /// It makes a call that the library does not see; `None`: any call.
    Calls(String, Option<i64>),
    /// Its runtime makes all calls by the instruction itself.
    Go(String),
    /// It is there for input and output that go on after the call.
    Asynchronous(String),
    /// There is too much of it to be searched.
    TooLarge(String),
}

impl fmt::Display for DirectSyscalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectSyscalls::Calls(object, Some(number)) => {
                write!(f, "{object} makes system call {number} without libc")
            }
            DirectSyscalls::Calls(object, None) => write!(f, "{object} makes system calls without libc"),
            DirectSyscalls::Go(object) => write!(f, "{object} is written in Go, which makes system calls without libc"),
            DirectSyscalls::Asynchronous(object) => write!(f, "{object} has the kernel work on memory after a call"),
            DirectSyscalls::TooLarge(object) => write!(f, "{object} is too large to be searched for system calls"),
        }
    }
}

/// The first object among those loaded, libc, ld.so and this library aside, with a reason against the inline path. `unseen`: a
/// call that must go through libc.
pub(crate) fn first_direct_syscall(unseen: &dyn Fn(i64) -> bool) -> Option<DirectSyscalls> {
    let mut left = TEXT_BYTES_MAX;
    elf::images().iter().filter(|image| image.kind == Kind::Other).find_map(|image| {
        let file = image.name.rsplit('/').next().unwrap_or_default();
        if image.is_go {
            return Some(DirectSyscalls::Go(image.display_name()));
        }
        if ASYNCHRONOUS.iter().any(|library| file.starts_with(library)) {
            return Some(DirectSyscalls::Asynchronous(image.display_name()));
        }
        let bytes = image.text.iter().map(Range::len).sum();
        let Some(rest) = left.checked_sub(bytes) else { return Some(DirectSyscalls::TooLarge(image.display_name())) };
        left = rest;
        call_in(image, unseen)
    })
}

/// The first object whose runtime makes all calls by the instruction itself, and blocks all signals that way.
pub(crate) fn go_object() -> Option<DirectSyscalls> {
    elf::images().iter().find(|image| image.is_go).map(|image| DirectSyscalls::Go(image.display_name()))
}

fn call_in(image: &Image, unseen: &dyn Fn(i64) -> bool) -> Option<DirectSyscalls> {
    let sites = scan::sites_of(image, &|_| true);
    let (known, gaps): (Vec<_>, Vec<_>) =
        sites.into_iter().partition(|site| image.function_around(site.address).is_some());
    let mut searched = 0;
    let in_gaps = gaps.iter().filter_map(|site| {
        let gap = image.gap_around(site.address)?;
        let first = searched <= site.address;
        searched = gap.end;
        first.then_some(gap)
    });
    let mut sites = known;
    for gap in in_gaps {
        if gap.len() > GAP_BYTES_MAX {
            return Some(DirectSyscalls::TooLarge(image.display_name()));
        }
        sites.extend(scan::sites_in(image.bytes(gap.clone()), gap.start));
    }
    debug_assert!(sites.iter().all(|site| image.bytes(site.address..site.address + SITE_BYTES) == SYSCALL));
    sites.iter().filter(|site| site.genuine).find_map(|site| match &site.numbers {
        Numbers::One(number) => unseen(*number).then(|| DirectSyscalls::Calls(image.display_name(), Some(*number))),
        Numbers::Some(numbers) => {
            let found = numbers.iter().find(|number| unseen(**number));
            found.map(|number| DirectSyscalls::Calls(image.display_name(), Some(*number)))
        }
        Numbers::Any => Some(DirectSyscalls::Calls(image.display_name(), None)),
    })
}
