//! Steps that change pages and region map together, all under the region map's lock.

use super::{Outcome, bits, kernel, lock_form};
use crate::Pager;
use crate::profile;
use crate::region_map::{self, Kind, Locked, RegionMap, Run};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::io;

/// The error number of a pager call.
pub fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::ENOMEM)
}

fn pager() -> Result<&'static Pager, i32> {
    crate::pager().ok_or(libc::ENOMEM)
}

/// A run's address and length in bytes.
pub fn span(run: Run) -> (usize, usize) {
    (region_map::address_of(run.first), run.count as usize * PAGE_BYTES)
}

/// Frees `first .. first + count`: afterwards the pages are inaccessible, without content, managed by the pager.
///
/// Protection goes first: it may fail (too many mappings), and then nothing is lost.
pub fn clear(region_map: &mut RegionMap, first: u32, count: u32) -> Result<(), i32> {
    for run in region_map.runs_in(first, count) {
        forget_attributes(run)?;
        let pager = pager()?;
        if run.attributes.kind == Kind::Foreign {
            pager.take_back(PageNo(run.first), run.count).map_err(|e| errno_of(&e))?;
        } else {
            if run.attributes.protection != libc::PROT_NONE {
                pager.protect(PageNo(run.first), run.count, libc::PROT_NONE).map_err(|e| errno_of(&e))?;
            }
            pager.unmap(PageNo(run.first), run.count);
        }
        region_map.remove(run.first, run.count);
        let (address, bytes) = span(run);
        profile::unmapped(address, bytes);
    }
    Ok(())
}

/// Undoes what the kernel remembers of a run besides its protection.
fn forget_attributes(run: Run) -> Result<(), i32> {
    let (address, bytes) = span(run);
    let advise = |advice: i32| kernel(libc::SYS_madvise, [address, bytes, bits(advice), 0, 0, 0]);
    if run.attributes.kind == Kind::Foreign {
        return Ok(());
    }
    if run.attributes.locked != Locked::No {
        pager()?.unlock(PageNo(run.first), run.count).map_err(|e| errno_of(&e))?;
    }
    if run.attributes.wiped {
        advise(libc::MADV_KEEPONFORK)?;
    }
    if run.attributes.undumped {
        advise(libc::MADV_DODUMP)?;
    }
    if run.attributes.keyed {
        kernel(libc::SYS_pkey_mprotect, [address, bytes, bits(libc::PROT_NONE), 0, 0, 0])?;
    }
    Ok(())
}

/// Changes the protection of one run, and its key if that is not -1.
pub fn protect(region_map: &mut RegionMap, run: Run, protection: i32, key: i32) -> Outcome {
    let (address, bytes) = span(run);
    let foreign = run.attributes.kind == Kind::Foreign;
    if !foreign {
        pager()?.protect(PageNo(run.first), run.count, protection).map_err(|e| errno_of(&e))?;
        if run.attributes.undumped {
            // The pager lets what it opens into core dumps; the program said that this run stays out.
            kernel(libc::SYS_madvise, [address, bytes, bits(libc::MADV_DONTDUMP), 0, 0, 0])?;
        }
    }
    if key != -1 {
        kernel(libc::SYS_pkey_mprotect, [address, bytes, bits(protection), bits(key), 0, 0])?;
    } else if foreign {
        kernel(libc::SYS_mprotect, [address, bytes, bits(protection), 0, 0, 0])?;
    }
    region_map.update(run.first, run.count, |attributes| {
        attributes.protection = protection;
        attributes.keyed |= key > 0;
    });
    Ok(0)
}

/// Makes a run of free pages accessible; the region map has it already. On failure the pages are free again.
pub fn open(region_map: &mut RegionMap, run: Run) -> Result<(), i32> {
    if run.attributes.protection == libc::PROT_NONE {
        return Ok(());
    }
    let opened = pager()?.protect(PageNo(run.first), run.count, run.attributes.protection);
    opened.map_err(|error| {
        region_map.remove(run.first, run.count);
        errno_of(&error)
    })
}

/// Locks a run in memory as its attributes say.
pub fn lock(run: Run) -> Result<(), i32> {
    let Some(on_fault) = lock_form(run.attributes.locked) else { return Ok(()) };
    pager()?.lock(PageNo(run.first), run.count, on_fault).map_err(|e| errno_of(&e))
}
