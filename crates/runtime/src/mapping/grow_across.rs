//! A mapping across an end of the far range that grows, by mremap(2): in place where the kernel would grow it, else it moves, and lies in one
//! piece afterwards. Memory of the program's own moves inside, where all of it is far; a file's mapping, or a shared one, stays the kernel's.

use super::across::{Parts, is_mapped};
use super::carry::restore_fork_rule;
use super::mmap::{MapRequest, map_anywhere, map_part};
use super::{Outcome, apply, bits, kernel, remap, seal, unmap};
use crate::region_map::{self, Attributes, Kind, Locked, Run};
use hinterland_pager::PinAccess;
use hinterland_units::{PAGE_BYTES, PageNo};

/// The most outside the far range that is copied: page by page, so that the time shows.
const COPIED_BYTES_MAX: usize = 64 << 30;
const MOVED: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Addresses for a mapping that is on its way: the kernel's where `address` is 0.
fn reservation(address: usize, bytes: usize) -> MapRequest {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    MapRequest { address, bytes, protection: libc::PROT_NONE, flags, fd: -1, offset: 0 }
}

/// Without a commanded place.
pub fn grow(address: usize, old: usize, new: usize, flags: i32) -> Outcome {
    let (parts, keeps_old) = (Parts::new(address, old), flags & libc::MREMAP_DONTUNMAP);
    let last = parts.in_order().last().filter(|_| keeps_old == 0);
    if last.is_some_and(|(at, bytes)| remap(at, bytes, bytes + new - old, 0, 0).is_ok()) {
        return Ok(address);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(libc::ENOMEM);
    }
    let run = {
        let (region_map, (first, count)) = (region_map::lock(), parts.inside());
        seal::refuse(&region_map, first, count)?;
        region_map.run_at(first).filter(|run| is_mapped(run) && run.end() - first >= count).ok_or(libc::EFAULT)?
    };
    if run.attributes.kind == Kind::Foreign {
        move_outside(address, parts, new, keeps_old)
    } else {
        move_inside(address, parts, new, keeps_old, run.attributes)
    }
}

/// To a commanded place. That is taken first, so that the mapping does not come to lie there while it grows.
pub fn grow_to(address: usize, old: usize, new: usize, new_address: usize) -> Outcome {
    map_part(&reservation(new_address, new))?;
    match grow(address, old, new, libc::MREMAP_MAYMOVE) {
        Ok(grown) => remap(grown, new, new, MOVED, new_address),
        Err(errno) => unmap(new_address, new).and(Err(errno)),
    }
}

/// What is not ours: the kernel moves each part. What lies beside each other there is one mapping of a file again.
fn move_outside(address: usize, parts: Parts, new: usize, keeps_old: i32) -> Outcome {
    let place = reservation(0, new).pass_on()?;
    let last = parts.in_order().last();
    for (from, bytes) in parts.in_order() {
        let grown = if last == Some((from, bytes)) { address + new - from } else { bytes };
        remap(from, bytes, grown, MOVED | keeps_old, place + (from - address))?;
    }
    Ok(place)
}

/// Memory of the program's own: pages inside move, those outside are copied.
fn move_inside(address: usize, parts: Parts, new: usize, keeps_old: i32, attributes: Attributes) -> Outcome {
    if parts.outside().any(|(_, bytes)| bytes > COPIED_BYTES_MAX) {
        return Err(libc::ENOMEM);
    }
    let place = map_anywhere(&MapRequest { protection: READ_WRITE, ..reservation(0, new) })?;
    let moved = fill(address, parts, place, keeps_old).and_then(|()| adopt(place, new, attributes));
    if moved.is_err() {
        unmap(place, new)?;
    }
    for (from, bytes) in parts.outside() {
        if moved.is_ok() && keeps_old == 0 {
            unmap(from, bytes)?;
        } else {
            if moved.is_ok() {
                kernel(libc::SYS_madvise, [from, bytes, bits(libc::MADV_DONTNEED), 0, 0, 0])?;
            }
            kernel(libc::SYS_mprotect, [from, bytes, bits(attributes.protection), 0, 0, 0])?;
        }
    }
    moved.map(|()| place)
}

/// Brings the content of all parts to their new place.
fn fill(address: usize, parts: Parts, place: usize, keeps_old: i32) -> Result<(), i32> {
    if !region_map::contains(place) {
        return Err(libc::ENOMEM);
    }
    for (from, bytes) in parts.outside() {
        kernel(libc::SYS_mprotect, [from, bytes, bits(libc::PROT_READ), 0, 0, 0])?;
        (0..bytes).step_by(PAGE_BYTES).try_for_each(|at| copy_page(from + at, place + (from - address) + at))?;
    }
    let inside = parts.in_order().find(|(from, _)| region_map::contains(*from)).ok_or(libc::EFAULT)?;
    remap(inside.0, inside.1, inside.1, MOVED | keeps_old, place + (inside.0 - address)).map(drop)
}

/// Copies a page of the kernel's to a far page without content. Zeros stay no content.
fn copy_page(from: usize, to: usize) -> Result<(), i32> {
    // SAFETY: the page was just made readable; the program gives its memory to the call meanwhile.
    let content = unsafe { std::slice::from_raw_parts(from as *const u64, PAGE_BYTES / size_of::<u64>()) };
    if content.iter().all(|word| *word == 0) {
        return Ok(());
    }
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    let copy = |to: usize, bytes: usize| {
        // SAFETY: both pages are whole and apart, and the second is mapped read-write.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(content.as_ptr().cast(), bytes) };
        Ok(())
    };
    // Pinned: a call that was caught on the inline path cannot fault.
    let page = PageNo(region_map::page_of(to));
    pager.with_pages(page, 1, PinAccess::Write, copy).map_err(|error| apply::errno_of(&error))
}

/// Makes of what has been brought together one run, with the attributes that the part inside had.
fn adopt(place: usize, bytes: usize, attributes: Attributes) -> Result<(), i32> {
    let (first, count) = (region_map::page_of(place), bytes / PAGE_BYTES);
    let whole = Run { first, count: u32::try_from(count).map_err(|_| libc::ENOMEM)?, attributes };
    let mut region_map = region_map::lock();
    for run in region_map.runs_in(first, whole.count) {
        apply::protect(&mut region_map, run, attributes.protection, -1)?;
    }
    region_map.update(first, whole.count, |each| *each = Attributes { locked: Locked::No, ..attributes });
    restore_fork_rule(whole)?;
    apply::lock(whole)?;
    region_map.update(first, whole.count, |each| each.locked = attributes.locked);
    Ok(())
}
