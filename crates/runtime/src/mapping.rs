//! Private anonymous mappings of the program, placed in the far range.
//!
//! The range is reserved and registered once; here a "mapping" is a run of pages in the region map, made accessible by
//! a change of protection. Pages that are free in the region map are inaccessible and have no content. Calls on addresses outside
//! the range go to the kernel unchanged, so their errors are the kernel's own.

mod across;
mod apply;
mod by_number;
mod carry;
mod grow_across;
mod madvise;
mod mmap;
mod mremap;
mod process_madvise;
mod residency;
mod seal;
mod shared;

pub(crate) use apply::clear;
pub use by_number::{MEMORY_CALL_NUMBERS, call};
pub use madvise::{madvise, posix_madvise};
pub use mmap::{MapRequest, map};
pub use mremap::remap;
pub use process_madvise::process_madvise;
pub use residency::{in_core, lock, lock_all, sync, unlock, unlock_all};
pub use seal::seal;
pub use shared::{attach, detach};

use crate::memory_limit;
use crate::region_map::{self, Locked, RangeRelation};
use across::{Parts, unmap_across};
use hinterland_sys::{thread, trampoline};
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a call returns: a value, or an error number.
pub type Outcome = Result<usize, i32>;

/// Bits of a protection that mean access to pages.
const PROTECTION_BITS: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;

/// A system call of the program's, passed on as it is. From the trampoline: the filter of the inline path stops calls on far memory
/// that come from elsewhere. `errno` stays as it is.
pub(crate) fn kernel(number: libc::c_long, arguments: [usize; 6]) -> Outcome {
    // SAFETY: the program's own call with its own arguments, or one of ours on pages that the region map says are ours.
    let value = unsafe { trampoline::call(number, arguments) };
    usize::try_from(value).map_err(|_| i32::try_from(-value).unwrap_or(libc::EINVAL))
}

/// An outcome as the kernel returns it: a value, or a negative error number.
pub(crate) fn to_kernel(outcome: Outcome) -> isize {
    outcome.map_or_else(|errno| -(errno as isize), usize::cast_signed)
}

/// Bits of a C `int` as the kernel takes them.
pub(crate) fn bits(value: i32) -> usize {
    value.cast_unsigned() as usize
}

/// The far pages that a call names: the rules of mprotect(2), madvise(2), munmap(2) and mlock(2) for addresses.
enum Target {
    /// Not ours: ask the kernel.
    Kernel,
    /// First page and number of pages.
    Far(u32, u32),
    /// Both.
    Across(Parts),
}

/// Finds what a call is about.
fn target(address: usize, bytes: usize) -> Target {
    if crate::pager().is_none() || !address.is_multiple_of(PAGE_BYTES) {
        return Target::Kernel;
    }
    match region_map::relation_of(address, bytes) {
        RangeRelation::Outside => Target::Kernel,
        RangeRelation::Inside(first, count) => Target::Far(first, count),
        RangeRelation::Across => Target::Across(Parts::new(address, bytes)),
    }
}

/// A call on near memory, which leaves the page of our own calls out: it may lie in what the program reserved.
fn near(address: usize, bytes: usize, call: impl Fn(usize, usize) -> Outcome) -> Outcome {
    trampoline::around(address, bytes).try_fold(0, |_, (address, bytes)| call(address, bytes))
}

/// What a call is answered that would replace the page of our own calls, or make it another's: it is not to be had. Says so once.
fn refuse_own_page() -> Outcome {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        thread::write_stderr(
            "hinterland: a mapping over the page at 0x17000, from which Hinterland makes its calls, is refused (ENOMEM); a program that \
             needs that address runs without Hinterland only\n",
        );
    }
    Err(libc::ENOMEM)
}

/// munmap(2).
pub fn unmap(address: usize, bytes: usize) -> Outcome {
    let (first, count) = match target(address, bytes) {
        Target::Kernel => return near(address, bytes, |at, bytes| kernel(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0])),
        Target::Across(parts) => return unmap_across(parts),
        Target::Far(first, count) => (first, count),
    };
    mmap::given_back(address, bytes);
    let mut region_map = region_map::lock();
    seal::refuse(&region_map, first, count)?;
    for run in region_map.mapped_in(first, count) {
        apply::clear(&mut region_map, run.first, run.count)?;
    }
    Ok(0)
}

/// mprotect(2); with a key other than -1, pkey_mprotect(2).
pub fn protect(address: usize, bytes: usize, protection: i32, key: i32) -> Outcome {
    let (first, count) = match target(address, bytes) {
        Target::Kernel if protection & PROTECTION_BITS != 0 && trampoline::lies_in(address, bytes) => {
            return refuse_own_page();
        }
        Target::Kernel => {
            let number = if key == -1 { libc::SYS_mprotect } else { libc::SYS_pkey_mprotect };
            return near(address, bytes, |at, bytes| kernel(number, [at, bytes, bits(protection), bits(key), 0, 0]));
        }
        Target::Across(parts) => return parts.in_turn(|address, bytes| protect(address, bytes, protection, key)),
        Target::Far(first, count) => (first, count),
    };
    const PROT_SEM: i32 = 8; // <asm-generic/mman-common.h>: accepted, without a meaning here
    if protection & !(PROTECTION_BITS | PROT_SEM) != 0 {
        return Err(libc::EINVAL);
    }
    let protection = protection & PROTECTION_BITS;
    check_key(key)?;
    let mut region_map = region_map::lock();
    if protection & libc::PROT_WRITE != 0 {
        memory_limit::check_in(&region_map, |map| memory_limit::made_writable(map, first, count))?;
    }
    let mut next = first;
    for run in region_map.mapped_in(first, count) {
        if run.first != next {
            return Err(libc::ENOMEM); // As the kernel does it: what lies before the hole is changed.
        }
        seal::refuse(&region_map, run.first, run.count)?;
        apply::protect(&mut region_map, run, protection, key)?;
        next = run.end();
    }
    if next == first + count { Ok(0) } else { Err(libc::ENOMEM) }
}

/// Refuses a protection key that the process does not have, before anything changes.
fn check_key(key: i32) -> Result<(), i32> {
    /// Behind all that any processor addresses for a process: where the kernel would go on, it finds nothing.
    const NOWHERE: usize = (1 << 63) - PAGE_BYTES;
    if key == -1 {
        return Ok(());
    }
    match kernel(libc::SYS_pkey_mprotect, [NOWHERE, PAGE_BYTES, bits(libc::PROT_NONE), bits(key), 0, 0]) {
        Ok(_) | Err(libc::ENOMEM) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// A lock's form as the pager takes it: `Some(on_fault)` if there is one.
fn lock_form(locked: Locked) -> Option<bool> {
    match locked {
        Locked::No => None,
        Locked::Now => Some(false),
        Locked::OnFault => Some(true),
    }
}
