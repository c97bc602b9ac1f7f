//! mseal(2) on far memory: what the program can no longer change.
//!
//! Sealed are the pages in the region map, not in the kernel: the pager goes on opening, dropping and moving them. The rules are the
//! kernel's (Documentation/userspace-api/mseal.rst, `mm/mseal.c`): no unmapping, no moving, no replacing, no change of protection; and no
//! advice that loses content, unless the pages may be written to anyway.

use super::{Outcome, Target, kernel, sync, target};
use crate::region_map::{self, Kind, RegionMap, Run};
use hinterland_units::PAGE_BYTES;

/// From <asm/unistd_64.h>, since Linux 6.10.
pub(super) const SYS_MSEAL: libc::c_long = 462;

/// mseal(2): all of the range or nothing.
pub fn seal(address: usize, bytes: usize, flags: usize) -> Outcome {
    let pass_on = || kernel(SYS_MSEAL, [address, bytes, flags, 0, 0, 0]);
    let whole = bytes.checked_next_multiple_of(PAGE_BYTES).and_then(|bytes| address.checked_add(bytes));
    if whole.is_none() {
        return pass_on();
    }
    let (first, count) = match target(address, bytes) {
        Target::Kernel => return pass_on(),
        Target::Across(parts) => {
            parts.in_turn(|address, bytes| sync(address, bytes, libc::MS_ASYNC))?; // Changes nothing, and tells of holes.
            return parts.in_turn(|address, bytes| seal(address, bytes, flags));
        }
        Target::Far(first, count) => (first, count),
    };
    // A kernel without the call says so, and one with it what it says of the flags.
    kernel(SYS_MSEAL, [address, 0, flags, 0, 0, 0])?;
    let mut region_map = region_map::lock();
    if region_map.mapped_in(first, count).iter().map(|run| run.count).sum::<u32>() != count {
        return Err(libc::ENOMEM);
    }
    region_map.update(first, count, |attributes| attributes.sealed = true);
    Ok(0)
}

/// `EPERM` if a call that unmaps, moves, replaces or protects would meet a sealed page.
pub(super) fn refuse(region_map: &RegionMap, first: u32, count: u32) -> Result<(), i32> {
    if region_map.is_sealed(first, count) { Err(libc::EPERM) } else { Ok(()) }
}

/// `EPERM` if advice that loses content would meet a sealed run that may not be written to. Files and shared memory keep theirs.
pub(super) fn refuse_loss(run: Run) -> Result<(), i32> {
    let Run { attributes, .. } = run;
    let writable = attributes.protection & libc::PROT_WRITE != 0;
    if attributes.sealed && !writable && attributes.kind != Kind::Foreign { Err(libc::EPERM) } else { Ok(()) }
}
