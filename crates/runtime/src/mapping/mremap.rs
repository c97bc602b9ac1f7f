//! mremap(2) on far memory: content moves as pages, without being fetched.

use super::across::remap_across;
use super::carry::{advise_as, carry};
use super::mmap::move_in;
use super::{Outcome, Target, apply, bits, kernel, lock_form, refuse_own_page, seal, target};
use crate::memory_limit::{self, Account};
use crate::profile;
use crate::region_map::{self, Attributes, Kind, Locked, RegionMap, Run};
use hinterland_pager::PinAccess;
use hinterland_sys::trampoline;
use hinterland_units::{PAGE_BYTES, PageNo};

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A request whose arguments have been checked.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) old: u32,
    pub(super) old_count: u32,
    pub(super) new_count: u32,
    may_move: bool,
    /// The old range stays mapped, empty.
    pub(super) keeps_old: bool,
}

/// mremap(2).
pub fn remap(address: usize, old_bytes: usize, new_bytes: usize, flags: i32, new_address: usize) -> Outcome {
    memory_limit::check(|region_map| growth(region_map, address, old_bytes, new_bytes, flags))?;
    let fixed = flags & libc::MREMAP_FIXED != 0;
    if fixed && trampoline::lies_in(new_address, new_bytes) || trampoline::lies_in(address, old_bytes) {
        return refuse_own_page();
    }
    let pass_on = || kernel(libc::SYS_mremap, [address, old_bytes, new_bytes, bits(flags), new_address, 0]);
    let new_place =
        if fixed && new_address.is_multiple_of(PAGE_BYTES) { target(new_address, new_bytes) } else { Target::Kernel };
    // A length of 0 duplicates a shared mapping; on ours the kernel refuses it by itself.
    let (old, old_count) = match (target(address, old_bytes.max(1)), &new_place) {
        (Target::Across(_), _) | (_, Target::Across(_)) => {
            check_flags(flags, old_bytes, new_bytes)?;
            return remap_across(address, old_bytes, new_bytes, flags, new_address);
        }
        (Target::Kernel, Target::Kernel) => return pass_on(),
        (Target::Kernel, Target::Far(first, count)) => {
            return bring_in(address, old_bytes, new_bytes, flags, (*first, *count));
        }
        (Target::Far(old, count), _) => (old, count),
    };
    check_flags(flags, old_bytes, new_bytes)?;
    let new_count = u32::try_from(new_bytes.div_ceil(PAGE_BYTES)).map_err(|_| libc::ENOMEM)?;
    let wanted = Move {
        old,
        old_count,
        new_count,
        may_move: flags & libc::MREMAP_MAYMOVE != 0,
        keeps_old: flags & libc::MREMAP_DONTUNMAP != 0,
    };
    let mut region_map = region_map::lock();
    let run = region_map.run_at(old).filter(|run| run.attributes.kind != Kind::Room).ok_or(libc::EFAULT)?;
    seal::refuse(&region_map, old, 1)?;
    if !fixed && !wanted.keeps_old && new_count <= old_count {
        return shrink(&mut region_map, wanted);
    }
    if run.end() - old < old_count {
        return Err(libc::EFAULT);
    }
    if let (Target::Far(first, count), true) = (&new_place, fixed) {
        seal::refuse(&region_map, *first, *count)?;
    }
    if run.attributes.kind == Kind::Foreign {
        return remap_foreign(&mut region_map, wanted, run, new_place, flags, new_address);
    }
    match new_place {
        _ if !fixed => resize(&mut region_map, wanted, run),
        Target::Far(new, _) => move_to(&mut region_map, wanted, run, new),
        Target::Kernel if new_address.is_multiple_of(PAGE_BYTES) => move_out(&mut region_map, wanted, run, new_address),
        Target::Kernel | Target::Across(_) => Err(libc::EINVAL),
    }
}

/// What it adds to the program's memory. A mapping of the kernel's is taken to be writable.
fn growth(region_map: &RegionMap, address: usize, old_bytes: usize, new_bytes: usize, flags: i32) -> Account {
    let freed = if flags & libc::MREMAP_DONTUNMAP == 0 { old_bytes } else { 0 };
    let run = region_map::contains(address).then(|| region_map.run_at(region_map::page_of(address))).flatten();
    let is_writable = run.is_none_or(|run| run.attributes.protection & libc::PROT_WRITE != 0);
    Account::of_mapping(new_bytes.saturating_sub(freed), is_writable)
}

fn check_flags(flags: i32, old_bytes: usize, new_bytes: usize) -> Result<(), i32> {
    const TASK_BYTES: usize = 1 << 47; // What a process can address.
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let moves = flags & libc::MREMAP_MAYMOVE != 0;
    let keeps_old = flags & libc::MREMAP_DONTUNMAP != 0;
    let same_size = old_bytes.div_ceil(PAGE_BYTES) == new_bytes.div_ceil(PAGE_BYTES);
    let bad = flags & !known != 0
        || (flags & !libc::MREMAP_MAYMOVE != 0 && !moves)
        || (keeps_old && !same_size)
        || old_bytes == 0
        || new_bytes == 0
        || new_bytes > TASK_BYTES;
    if bad { Err(libc::EINVAL) } else { Ok(()) }
}

/// In place, as munmap(2) of what is behind: over several mappings and holes, as the kernel does it.
fn shrink(region_map: &mut RegionMap, wanted: Move) -> Outcome {
    let Move { old, old_count, new_count, .. } = wanted;
    let (tail, fewer) = (old + new_count, old_count - new_count);
    seal::refuse(region_map, tail, fewer)?;
    for run in region_map.mapped_in(tail, fewer) {
        apply::clear(region_map, run.first, run.count)?;
    }
    Ok(region_map::address_of(old))
}

/// Without a commanded place, larger or leaving the old range mapped: in place if that is possible.
fn resize(region_map: &mut RegionMap, wanted: Move, run: Run) -> Outcome {
    let Move { old, old_count, new_count, .. } = wanted;
    let (tail, more) = (old + old_count, new_count - old_count.min(new_count));
    let unlocked = Attributes { locked: Locked::No, ..run.attributes };
    if !wanted.keeps_old && run.end() == tail && region_map.is_free(tail, more) {
        apply::may_lock(run.attributes, more)?;
        if !region_map.place_at(tail, more, unlocked) {
            return Err(libc::ENOMEM);
        }
        let grown = Run { first: tail, count: more, attributes: run.attributes };
        apply::open(region_map, grown)?;
        if apply::lock(grown).is_ok() {
            region_map.update(tail, more, |a| a.locked = run.attributes.locked);
        }
        return Ok(region_map::address_of(old));
    }
    if !wanted.may_move {
        return Err(libc::ENOMEM);
    }
    apply::may_lock(run.attributes, new_count)?;
    let new = region_map.place(new_count, 1, unlocked).ok_or(libc::ENOMEM)?;
    carry(region_map, wanted, run.attributes, new)
}

/// To a commanded place inside the far range, replacing what was there.
fn move_to(region_map: &mut RegionMap, wanted: Move, run: Run, new: u32) -> Outcome {
    let new_count = wanted.new_count;
    if overlaps(wanted, new) {
        return Err(libc::EINVAL);
    }
    apply::may_lock(run.attributes, new_count)?;
    let unlocked = Attributes { locked: Locked::No, ..run.attributes };
    let there = region_map.runs_in(new, new_count);
    let readable = |there: &Run| {
        there.count == new_count
            && there.attributes.kind != Kind::Foreign
            && there.attributes.protection & libc::PROT_READ != 0
    };
    match there[..] {
        // Accessible before and after, so meanwhile: the pager moves page by page over what is there.
        [there] if readable(&there) && run.attributes.protection & libc::PROT_READ != 0 => {
            apply::forget_attributes(there, there.attributes.protection)?;
            region_map.remove(new, new_count);
            let (address, bytes) = apply::span(there);
            profile::unmapped(address, bytes);
        }
        _ => apply::clear(region_map, new, new_count)?,
    }
    if !region_map.place_at(new, new_count, unlocked) {
        return Err(libc::ENOMEM);
    }
    carry(region_map, wanted, run.attributes, new)
}

/// To a commanded place outside the far range: the content is copied into a mapping of the kernel's, which keeps what the program said of the old one.
fn move_out(region_map: &mut RegionMap, wanted: Move, run: Run, new_address: usize) -> Outcome {
    let Move { old, old_count, new_count, keeps_old, .. } = wanted;
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    let bytes = new_count as usize * PAGE_BYTES;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let protect = |protection| pager.protect(PageNo(old), old_count, protection).map_err(|e| apply::errno_of(&e));
    kernel(libc::SYS_mmap, [new_address, bytes, bits(READ_WRITE), bits(flags), usize::MAX, 0])?;
    advise_as(run.attributes, new_address, bytes)?;
    if run.attributes.unforked {
        // Of ours, the region map knows it alone.
        kernel(libc::SYS_madvise, [new_address, bytes, bits(libc::MADV_DONTFORK), 0, 0, 0])?;
    }
    protect(READ_WRITE)?;
    let copy = |from: usize, bytes: usize| {
        let to = new_address + (from - region_map::address_of(old));
        // SAFETY: both ranges are mapped read-write, and one lies outside the far range.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(from as *const u8, bytes) };
        Ok(())
    };
    // Pinned: with the region map locked, signals are blocked, and a fault could not be served on the inline path.
    let copied = pager.with_pages(PageNo(old), old_count.min(new_count), PinAccess::Read, copy);
    protect(run.attributes.protection)?;
    copied.map_err(|error| apply::errno_of(&error))?;
    if keeps_old {
        if run.attributes.locked != Locked::No {
            pager.unlock(PageNo(old), old_count).map_err(|e| apply::errno_of(&e))?;
            region_map.update(old, old_count, |a| a.locked = Locked::No);
        }
        pager.discard(PageNo(old), old_count);
    } else {
        apply::clear(region_map, old, old_count)?;
    }
    kernel(libc::SYS_mprotect, [new_address, bytes, bits(run.attributes.protection), 0, 0, 0])?;
    if let Some(on_fault) = lock_form(run.attributes.locked) {
        // What comes to more than may be locked stays unlocked, as what moves inside the far range does.
        let _ = kernel(libc::SYS_mlock2, [new_address, bytes, usize::from(on_fault), 0, 0, 0]);
    }
    Ok(new_address)
}

/// A mapping of the kernel's to a commanded place inside the far range: resized where it is, then moved.
fn bring_in(address: usize, old_bytes: usize, new_bytes: usize, flags: i32, (first, count): (u32, u32)) -> Outcome {
    if flags & libc::MREMAP_MAYMOVE == 0 || flags & libc::MREMAP_DONTUNMAP != 0 {
        return Err(libc::EINVAL);
    }
    seal::refuse(&region_map::lock(), first, count)?;
    let moved = kernel(libc::SYS_mremap, [address, old_bytes, new_bytes, bits(libc::MREMAP_MAYMOVE), 0, 0])?;
    let moves = bits(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    move_in(&mut region_map::lock(), first, count, READ_WRITE, |place| {
        kernel(libc::SYS_mremap, [moved, new_bytes, new_bytes, moves, place, 0])
    })
}

/// A foreign mapping: the kernel moves it; what it leaves inside the far range becomes ours again.
fn remap_foreign(
    region_map: &mut RegionMap,
    wanted: Move,
    run: Run,
    new_place: Target,
    flags: i32,
    new_address: usize,
) -> Outcome {
    let Move { old, old_count, new_count, keeps_old, .. } = wanted;
    let bytes = |count: u32| count as usize * PAGE_BYTES;
    let ask = |place: usize| {
        let address = region_map::address_of(old);
        kernel(libc::SYS_mremap, [address, bytes(old_count), bytes(new_count), bits(flags), place, 0])
    };
    let moved = match new_place {
        Target::Far(new, _) if overlaps(wanted, new) => return Err(libc::EINVAL),
        Target::Far(new, count) => move_in(region_map, new, count, run.attributes.protection, ask)?,
        Target::Kernel | Target::Across(_) => ask(new_address)?,
    };
    if !keeps_old && moved != region_map::address_of(old) {
        let pager = crate::pager().ok_or(libc::ENOMEM)?;
        pager.take_back(PageNo(old), old_count).map_err(|e| apply::errno_of(&e))?;
        region_map.remove(old, old_count);
    }
    Ok(moved)
}

/// Whether the new place of a mapping and its old one have pages in common.
fn overlaps(wanted: Move, new: u32) -> bool {
    new < wanted.old + wanted.old_count && wanted.old < new + wanted.new_count
}
