//! shmat(2) and shmdt(2) inside the far range: a segment of System V shared memory is a foreign mapping there.

use super::mmap::move_in;
use super::{Outcome, apply, bits, kernel, refuse_own_page, seal};
use crate::region_map::{self, Kind, RangeRelation, RegionMap, Run};
use hinterland_sys::trampoline;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::mem::MaybeUninit;

/// shmat(2).
pub fn attach(segment: i32, address: usize, flags: i32) -> Outcome {
    let pass_on = |address: usize, flags: i32| kernel(libc::SYS_shmat, [bits(segment), address, bits(flags), 0, 0, 0]);
    let start = if flags & libc::SHM_RND == 0 { address } else { address & !(PAGE_BYTES - 1) };
    if crate::pager().is_none() || !region_map::contains(start) || !start.is_multiple_of(PAGE_BYTES) {
        let replaces = flags & libc::SHM_REMAP != 0
            && start < trampoline::ADDRESS + PAGE_BYTES
            && size_of_segment(segment).is_ok_and(|bytes| trampoline::lies_in(start, bytes));
        return if replaces { refuse_own_page() } else { pass_on(address, flags) };
    }
    let bytes = size_of_segment(segment)?;
    let RangeRelation::Inside(first, count) = region_map::relation_of(start, bytes) else { return Err(libc::EINVAL) };
    let mut region_map = region_map::lock();
    if flags & libc::SHM_REMAP == 0 && !region_map.is_free(first, count) {
        return Err(libc::EINVAL);
    }
    seal::refuse(&region_map, first, count)?;
    // Elsewhere first: if the kernel refuses it, nothing is lost.
    let made = pass_on(0, flags & !(libc::SHM_REMAP | libc::SHM_RND))?;
    let protection = if flags & libc::SHM_RDONLY == 0 { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ }
        | if flags & libc::SHM_EXEC == 0 { 0 } else { libc::PROT_EXEC };
    let (bytes, moves) = (bytes.next_multiple_of(PAGE_BYTES), bits(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED));
    let moved = move_in(&mut region_map, first, count, protection, |place| {
        kernel(libc::SYS_mremap, [made, bytes, bytes, moves, place, 0])
    });
    if moved.is_err() {
        // Just attached and shown to nobody.
        let _ = kernel(libc::SYS_shmdt, [made, 0, 0, 0, 0, 0]);
    }
    moved
}

/// The length of a segment, in bytes.
fn size_of_segment(segment: i32) -> Result<usize, i32> {
    let mut status = MaybeUninit::<libc::shmid_ds>::zeroed();
    kernel(libc::SYS_shmctl, [bits(segment), bits(libc::IPC_STAT), status.as_mut_ptr().addr(), 0, 0, 0])?;
    // SAFETY: the kernel has filled it.
    Ok(unsafe { status.assume_init() }.shm_segsz)
}

/// shmdt(2). What the kernel unmaps inside the far range becomes the pager's again.
pub fn detach(address: usize) -> Outcome {
    let pass_on = || kernel(libc::SYS_shmdt, [address, 0, 0, 0, 0, 0]);
    if crate::pager().is_none() || !region_map::contains(address) || !address.is_multiple_of(PAGE_BYTES) {
        return pass_on();
    }
    let mut region_map = region_map::lock();
    let first = region_map::page_of(address);
    let Some(run) = foreign_at(&region_map, first) else { return Err(libc::EINVAL) };
    if run.attributes.sealed {
        return Ok(0); // The kernel, too, says that it is detached, and leaves it.
    }
    pass_on()?;
    let mut page = first;
    while let Some(run) = foreign_at(&region_map, page) {
        take_back_holes(&mut region_map, page, run.end())?;
        page = run.end();
    }
    Ok(0)
}

fn foreign_at(region_map: &RegionMap, page: u32) -> Option<Run> {
    region_map.run_at(page).filter(|run| run.attributes.kind == Kind::Foreign)
}

/// Gives the pager back what is not mapped between two pages.
fn take_back_holes(region_map: &mut RegionMap, first: u32, end: u32) -> Result<(), i32> {
    let mut local = 0u8;
    let mut is_hole = |page: u32| {
        let asked =
            kernel(libc::SYS_mincore, [region_map::address_of(page), PAGE_BYTES, (&raw mut local).addr(), 0, 0, 0]);
        asked == Err(libc::ENOMEM)
    };
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    let mut page = first;
    while page < end {
        let count = (page..end).take_while(|page| is_hole(*page)).count();
        let count = u32::try_from(count).unwrap_or(0);
        if count > 0 {
            pager.take_back(PageNo(page), count).map_err(|e| apply::errno_of(&e))?;
            region_map.remove(page, count);
        }
        page += count.max(1);
    }
    Ok(())
}
