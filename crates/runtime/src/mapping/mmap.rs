//! mmap(2): which requests become far memory, and where.
//!
//! | request | becomes |
//! |---|---|
//! | private anonymous, no address or one that is only a wish | far |
//! | the same, wished within 2 GiB of code (a JIT's), or accessible below 4 GiB (32-bit pointers) | the kernel's, if it grants the wish |
//! | the same, an inaccessible reservation of a length for which a wish above 1 TiB was not granted and the place given back at once | the kernel's, if it grants the wish |
//! | the same with `MAP_FIXED` inside the far range | far, replacing what was there |
//! | anything else with `MAP_FIXED` inside the far range | foreign: the pager gives the pages up |
//! | with `MAP_FIXED` across an end of the far range | each part what it would be by itself |
//! | with `MAP_FIXED` over the page of Hinterland's own calls | inaccessible: reserved around it; else refused with a message |
//! | `MAP_STACK`, `MAP_GROWSDOWN`, `MAP_32BIT`, `MAP_HUGETLB`; shared; files; fixed outside | the kernel's |
//! | larger than the largest free run; accessible, and larger than 4 TiB | the kernel's |
//!
//! Other wishes are wishes, which the kernel may ignore, too: the JVM (compressed oops) and V8 (randomised pages) adapt. A runtime that insists
//! gives back what it got and tries the next address, as the JVM's ZGC does, whose pointers carry bits of their address: from then on its
//! wishes for that length are granted.

use super::across::{Parts, map_across};
use super::{Outcome, PROTECTION_BITS, apply, bits, kernel, near, refuse_own_page, seal};
use crate::caller;
use crate::memory_limit::{self, Account};
use crate::profile;
use crate::region_map::{self, Attributes, Kind, Locked, RangeRelation, RegionMap, Run};
use hinterland_pager::NotReplaced;
use hinterland_sys::trampoline;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The arguments of mmap(2).
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Where: a wish, or with `MAP_FIXED` a command.
    pub address: usize,
    /// Length.
    pub bytes: usize,
    /// `PROT_*`.
    pub protection: i32,
    /// `MAP_*`.
    pub flags: i32,
    /// File.
    pub fd: i32,
    /// Offset in the file.
    pub offset: libc::off_t,
}

/// Flags that keep a mapping out of the far range.
const NATIVE_FLAGS: i32 = libc::MAP_32BIT | libc::MAP_GROWSDOWN | libc::MAP_STACK | libc::MAP_HUGETLB;
/// Mappings of at least this size start on a multiple of it, as the kernel's do.
const LARGE_BYTES: usize = 2 << 20;
/// The most that one mapping makes accessible at once: the page table notes that with a bit for each page, 32 MiB for each TiB.
const OPEN_BYTES_MAX: usize = 4 << 40;
/// Below this, addresses fit 32 bits.
const LOW_END: usize = 1 << 32;

impl MapRequest {
    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn is_fixed(&self) -> bool {
        self.has(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE)
    }

    fn is_private_anonymous(&self) -> bool {
        self.flags & libc::MAP_TYPE == libc::MAP_PRIVATE && self.has(libc::MAP_ANONYMOUS)
    }

    pub(super) fn pass_on(&self) -> Outcome {
        let MapRequest { address, bytes, protection, flags, fd, offset } = *self;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        kernel(libc::SYS_mmap, [address, bytes, bits(protection), bits(flags), bits(fd), offset])
    }

    /// What it adds to the program's memory. In place of something it adds no address space, and is taken to make all of it writable.
    fn growth(&self) -> Account {
        let private = self.flags & libc::MAP_TYPE == libc::MAP_PRIVATE && !self.has(libc::MAP_GROWSDOWN);
        let growth = Account::of_mapping(self.bytes, private && self.protection & libc::PROT_WRITE != 0);
        if self.has(libc::MAP_FIXED) { Account { address_space: 0, ..growth } } else { growth }
    }

    fn attributes(&self) -> Attributes {
        let locked = if self.has(libc::MAP_LOCKED) { Locked::Now } else { Locked::No };
        Attributes { locked, ..Attributes::plain(Kind::Mapping, self.protection & PROTECTION_BITS) }
    }
}

/// mmap(2).
pub fn map(request: MapRequest, caller: usize) -> Outcome {
    let regular = request.bytes != 0 && request.address.is_multiple_of(PAGE_BYTES);
    if crate::pager().is_none() || (!regular && request.is_fixed()) {
        return request.pass_on();
    }
    memory_limit::check(|_| request.growth())?;
    if request.is_fixed() {
        return map_part(&request);
    }
    let offset_ok = request.offset.cast_unsigned().is_multiple_of(PAGE_BYTES as u64);
    let ours = request.is_private_anonymous() && !request.has(NATIVE_FLAGS) && request.bytes != 0 && offset_ok;
    if !ours || caller::is_internal(caller) {
        return request.pass_on();
    }
    let reserves = reserves(&request);
    if (wish_counts(&request) || reserves && INSISTED.load(Relaxed) == request.bytes)
        && let Some(address) = map_where_wished(&request)
    {
        return Ok(address);
    }
    let address = map_anywhere(&request)?;
    if reserves {
        ELSEWHERE.iter().zip([address, request.bytes]).for_each(|(noted, word)| noted.store(word, Relaxed));
    }
    Ok(address)
}

/// A mapping at a commanded place, or the part of it on one side of an end of the far range.
pub(super) fn map_part(request: &MapRequest) -> Outcome {
    match region_map::relation_of(request.address, request.bytes) {
        RangeRelation::Outside if replaces_the_page(request) => map_around_the_page(request),
        RangeRelation::Outside => request.pass_on(),
        RangeRelation::Inside(first, count) => map_fixed(request, first, count),
        RangeRelation::Across => map_across(request, Parts::new(request.address, request.bytes)),
    }
}

/// Whether a mapping outside the far range would replace the page of our own calls.
fn replaces_the_page(request: &MapRequest) -> bool {
    request.has(libc::MAP_FIXED) && trampoline::lies_in(request.address, request.bytes)
}

/// Such a mapping: addresses alone are reserved around the page, as if it were reserved, too.
fn map_around_the_page(request: &MapRequest) -> Outcome {
    let accessible = request.protection & PROTECTION_BITS != libc::PROT_NONE;
    if accessible || !request.is_private_anonymous() {
        return refuse_own_page();
    }
    near(request.address, request.bytes, |address, bytes| MapRequest { address, bytes, ..*request }.pass_on())?;
    Ok(request.address)
}

/// Whether the program can be expected to need the address that it wishes.
fn wish_counts(request: &MapRequest) -> bool {
    let address = request.address;
    let accessible = request.protection & PROTECTION_BITS != libc::PROT_NONE;
    address != 0
        && !region_map::contains(address)
        && (caller::is_near_code(address) || (address < LOW_END && accessible))
}

/// Where wishes begin that a runtime may insist on.
const INSISTED_FROM: usize = 1 << 40;
/// The last reservation that did not lie where it was wished: address and bytes.
static ELSEWHERE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// The length of reservations whose place is insisted on; 0: none.
static INSISTED: AtomicUsize = AtomicUsize::new(0);

/// Whether a request reserves addresses where it wishes them, and nothing else.
fn reserves(request: &MapRequest) -> bool {
    request.protection & PROTECTION_BITS == libc::PROT_NONE
        && request.has(libc::MAP_NORESERVE)
        && request.address >= INSISTED_FROM
        && !region_map::contains(request.address)
}

/// At munmap(2): what lay elsewhere than it was wished is given back, so the wish was more than one.
pub(super) fn given_back(address: usize, bytes: usize) {
    if ELSEWHERE[0].load(Relaxed) == address && ELSEWHERE[1].load(Relaxed) == bytes {
        INSISTED.store(bytes, Relaxed);
    }
}

/// The kernel's mapping, if it lies where it was wished.
fn map_where_wished(request: &MapRequest) -> Option<usize> {
    let address = request.pass_on().ok()?;
    if address == request.address & !(PAGE_BYTES - 1) {
        return Some(address);
    }
    // Just mapped and shown to nobody; if this fails, address space is lost and nothing else.
    let _ = kernel(libc::SYS_munmap, [address, request.bytes, 0, 0, 0, 0]);
    None
}

pub(super) fn map_anywhere(request: &MapRequest) -> Outcome {
    let accessible = request.protection & PROTECTION_BITS != libc::PROT_NONE;
    let Ok(count) = u32::try_from(request.bytes.div_ceil(PAGE_BYTES)) else { return map_beyond(request) };
    if accessible && request.bytes > OPEN_BYTES_MAX {
        return map_beyond(request);
    }
    let alignment = if request.bytes >= LARGE_BYTES { LARGE_BYTES / PAGE_BYTES } else { 1 };
    let alignment = u32::try_from(alignment).unwrap_or(1);
    let attributes = request.attributes();
    let mut region_map = region_map::lock();
    let wished = match region_map::relation_of(request.address & !(PAGE_BYTES - 1), request.bytes) {
        RangeRelation::Inside(first, count) if region_map.place_at(first, count, attributes) => Some(first),
        _ => None,
    };
    let Some(first) = wished.or_else(|| region_map.place(count, alignment, attributes)) else {
        drop(region_map);
        return map_beyond(request);
    };
    finish(&mut region_map, Run { first, count, attributes })
}

/// A mapping that the far range has no room for.
fn map_beyond(request: &MapRequest) -> Outcome {
    let address = request.pass_on()?;
    if let Some(pager) = crate::pager() {
        pager.mapped_beyond(request.bytes);
    }
    Ok(address)
}

/// Makes a new run of the region map accessible; locks it if that was asked for.
fn finish(region_map: &mut RegionMap, run: Run) -> Outcome {
    apply::open(region_map, run)?;
    if let Err(errno) = apply::lock(run) {
        apply::clear(region_map, run.first, run.count)?;
        return Err(errno);
    }
    let address = region_map::address_of(run.first);
    if run.attributes.protection != libc::PROT_NONE {
        profile::mapped(address, run.count as usize * PAGE_BYTES);
    }
    Ok(address)
}

/// A mapping at a commanded place inside the far range.
fn map_fixed(request: &MapRequest, first: u32, count: u32) -> Outcome {
    let mut region_map = region_map::lock();
    let replaces = !request.has(libc::MAP_FIXED_NOREPLACE);
    if !replaces && !region_map.is_free(first, count) {
        return Err(libc::EEXIST);
    }
    seal::refuse(&region_map, first, count)?;
    if !request.is_private_anonymous() || request.has(libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) {
        return map_foreign(&mut region_map, request, first, count);
    }
    let attributes = request.attributes();
    apply::may_lock(attributes, count)?;
    let unlocked = Attributes { locked: Locked::No, ..attributes };
    if attributes.protection == libc::PROT_NONE {
        apply::clear(&mut region_map, first, count)?;
        if !region_map.place_at(first, count, unlocked) {
            return Err(libc::ENOMEM);
        }
    } else {
        apply::replace(&mut region_map, first, count, unlocked)?;
        profile::mapped(request.address, count as usize * PAGE_BYTES);
    }
    // What cannot be locked is mapped all the same (mmap(2), `MAP_LOCKED`).
    if apply::lock(Run { first, count, attributes }).is_ok() {
        region_map.update(first, count, |each| each.locked = attributes.locked);
    }
    Ok(request.address)
}

/// A mapping that is not ours inside the far range. It is made elsewhere first: if the kernel refuses it, nothing is lost.
fn map_foreign(region_map: &mut RegionMap, request: &MapRequest, first: u32, count: u32) -> Outcome {
    let flags = request.flags & !(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    let made = MapRequest { address: 0, flags, ..*request }.pass_on()?;
    let moves = bits(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    let moved = move_in(region_map, first, count, request.protection, |place| {
        kernel(libc::SYS_mremap, [made, request.bytes, request.bytes, moves, place, 0])
    });
    if moved.is_err() {
        // Just mapped and shown to nobody.
        let _ = kernel(libc::SYS_munmap, [made, request.bytes, 0, 0, 0, 0]);
    }
    moved
}

/// Has `replace` move a mapping of the kernel's to the far pages' address that it is given, in place of what was there: one mremap(2), so other
/// threads see the one or the other.
pub fn move_in(
    region_map: &mut RegionMap,
    first: u32,
    count: u32,
    protection: i32,
    replace: impl FnOnce(usize) -> Outcome,
) -> Outcome {
    let pager = crate::pager().ok_or(libc::ENOMEM)?;
    let place = region_map::address_of(first);
    memory_limit::check_tables(pager, first, count, 0)?;
    pager.prepare(PageNo(first), count).map_err(|e| apply::errno_of(&e))?;
    let mut is_intact = true;
    let moved = pager.give_up(PageNo(first), count, || {
        replace(place).map_err(|error| {
            // A kernel may unmap what lies there, all of it, before it refuses. This call tells of holes, and a confined process may make it.
            let mut local = 0u8;
            is_intact =
                kernel(libc::SYS_mincore, [place, PAGE_BYTES, (&raw mut local).addr(), 0, 0, 0]) != Err(libc::ENOMEM);
            NotReplaced { error, is_intact }
        })
    });
    if moved.is_err() && is_intact {
        return moved;
    }
    for run in region_map.remove(first, count) {
        let (address, bytes) = apply::span(run);
        profile::unmapped(address, bytes);
    }
    if moved.is_err() {
        pager.take_back(PageNo(first), count).map_err(|e| apply::errno_of(&e))?;
        pager.protect(PageNo(first), count, libc::PROT_NONE).map_err(|e| apply::errno_of(&e))?;
    } else if !region_map.place_at(first, count, Attributes::plain(Kind::Foreign, protection & PROTECTION_BITS)) {
        return Err(libc::ENOMEM);
    }
    moved
}
