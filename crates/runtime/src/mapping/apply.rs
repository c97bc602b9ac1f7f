//! Steps that change pages and region map together, all under the region map's lock.

use super::{Outcome, bits, kernel, lock_form};
use crate::Pager;
use crate::kernel_limit;
use crate::memory_limit;
use crate::profile;
use crate::region_map::{self, Attributes, Kind, Locked, RegionMap, Run};
use hinterland_sys::thread;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The error number of a pager call.
pub fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::ENOMEM)
}

fn pager() -> Result<&'static Pager, i32> {
    crate::pager().ok_or(libc::ENOMEM)
}

/// The error number of a change of protection. That needs a mapping of the kernel's more where it divides one: says once that there are no more. A
/// program whose writable memory is limited gets the same answer, as it does natively, and may go on.
fn refused(error: &io::Error) -> i32 {
    static SAID: AtomicBool = AtomicBool::new(false);
    let errno = errno_of(error);
    if errno == libc::ENOMEM && !kernel_limit::is_set(libc::RLIMIT_DATA) && !SAID.swap(true, Relaxed) {
        thread::write_stderr(
            "hinterland: the kernel refuses to divide a mapping (ENOMEM): the process probably has as many as vm.max_map_count allows; each \
             hole in far memory is one, so a program with many needs up to twice as many as without Hinterland\n",
        );
    }
    errno
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
        forget_attributes(run, libc::PROT_NONE)?;
        let pager = pager()?;
        if run.attributes.kind == Kind::Foreign {
            pager.take_back(PageNo(run.first), run.count).map_err(|e| errno_of(&e))?;
        } else {
            if run.attributes.protection != libc::PROT_NONE {
                pager.protect(PageNo(run.first), run.count, libc::PROT_NONE).map_err(|e| refused(&e))?;
            }
            pager.unmap(PageNo(run.first), run.count);
        }
        region_map.remove(run.first, run.count);
        let (address, bytes) = span(run);
        profile::unmapped(address, bytes);
    }
    Ok(())
}

/// Puts plain memory with a protection that gives access in the place of whatever lies in `first .. first + count`. Other threads see what lay
/// there or what lies there now: no page is inaccessible or another mapping's meanwhile that is neither before nor after.
pub fn replace(region_map: &mut RegionMap, first: u32, count: u32, attributes: Attributes) -> Result<(), i32> {
    let mut next = first;
    for run in region_map.runs_in(first, count) {
        fill_hole(region_map, next, run.first - next, attributes)?;
        replace_run(run, attributes.protection)?;
        region_map.remove(run.first, run.count);
        let (address, bytes) = span(run);
        profile::unmapped(address, bytes);
        put(region_map, Run { attributes, ..run })?;
        next = run.end();
    }
    fill_hole(region_map, next, first + count - next, attributes)
}

fn fill_hole(region_map: &mut RegionMap, first: u32, count: u32, attributes: Attributes) -> Result<(), i32> {
    if count == 0 {
        return Ok(());
    }
    let run = Run { first, count, attributes };
    put(region_map, run)?;
    open(region_map, run)
}

fn put(region_map: &mut RegionMap, run: Run) -> Result<(), i32> {
    if region_map.place_at(run.first, run.count, run.attributes) { Ok(()) } else { Err(libc::ENOMEM) }
}

/// Empties a run and gives it another protection. Where writing comes to be allowed, that is last, and where it ceases, first: so nothing that is written
/// to the new mapping is lost, and nothing that is written to the old one is found in the new one.
fn replace_run(run: Run, protection: i32) -> Result<(), i32> {
    let (pager, first, was) = (pager()?, PageNo(run.first), run.attributes.protection);
    if run.attributes.kind == Kind::Foreign {
        let (address, bytes) = span(run);
        let flags = bits(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED);
        let map = || {
            let mapped = kernel(libc::SYS_mmap, [address, bytes, bits(protection), flags, usize::MAX, 0]);
            mapped.map(|_| ()).map_err(io::Error::from_raw_os_error)
        };
        return pager.take_back_open(first, run.count, protection, map).map_err(|e| errno_of(&e));
    }
    check_tables_of(run, protection)?;
    forget_attributes(run, was)?;
    let protect = || pager.protect(first, run.count, protection).map_err(|e| refused(&e));
    let closes = was & !protection & libc::PROT_WRITE != 0;
    if closes {
        protect()?;
    }
    pager.empty(first, run.count);
    if !closes && was != protection {
        protect()?;
    }
    Ok(())
}

/// Undoes what the kernel remembers of a run besides its protection, which becomes `protection` where it has a key.
pub fn forget_attributes(run: Run, protection: i32) -> Result<(), i32> {
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
        kernel(libc::SYS_pkey_mprotect, [address, bytes, bits(protection), 0, 0, 0])?;
    }
    Ok(())
}

/// Refuses a run that gets a protection where its tables have no room.
fn check_tables_of(run: Run, protection: i32) -> Result<(), i32> {
    if protection == libc::PROT_NONE {
        return Ok(());
    }
    let data = if protection & libc::PROT_WRITE != 0 { run.count as usize * PAGE_BYTES } else { 0 };
    memory_limit::check_tables(pager()?, run.first, run.count, data)
}

/// Changes the protection of one run, and its key if that is not -1.
pub fn protect(region_map: &mut RegionMap, run: Run, protection: i32, key: i32) -> Outcome {
    let (address, bytes) = span(run);
    let foreign = run.attributes.kind == Kind::Foreign;
    if !foreign {
        check_tables_of(run, protection)?;
        pager()?.protect(PageNo(run.first), run.count, protection).map_err(|e| refused(&e))?;
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
    let pager = pager()?;
    let opened = check_tables_of(run, run.attributes.protection).and_then(|()| {
        pager.protect(PageNo(run.first), run.count, run.attributes.protection).map_err(|error| refused(&error))
    });
    opened.inspect_err(|_| _ = region_map.remove(run.first, run.count))
}

/// Refuses what could not be locked, before anything is replaced or moved.
pub fn may_lock(attributes: Attributes, count: u32) -> Result<(), i32> {
    let may = attributes.locked == Locked::No || crate::pager().is_some_and(|pager| pager.may_lock(count));
    if may { Ok(()) } else { Err(libc::ENOMEM) }
}

/// Locks a run in memory as its attributes say; pages of one that may not be accessed when they have come.
pub fn lock(run: Run) -> Result<(), i32> {
    let Some(on_fault) = lock_form(run.attributes.locked) else { return Ok(()) };
    let on_fault = on_fault || run.attributes.protection == libc::PROT_NONE;
    pager()?.lock(PageNo(run.first), run.count, on_fault).map_err(|e| errno_of(&e))
}
