//! Whose memory a page is: the site of the allocation that it belongs to, and how the faults there follow one another.
//!
//! Each page of the far range has a half-word: the number of its site, and whether it was fetched before. Allocations of at least
//! `SAMPLED_BYTES` are all noted, smaller ones once in so many bytes of a thread, each for as many bytes as came since the last one; a page
//! of small objects belongs to the site whose object was noted there last. What is noted is also kept by its address until it is freed,
//! for its lifetime.

use super::walk::{Registers, walk};
use super::{ONE_IN, profile};
use crate::errno::Preserved;
use crate::inline::thread::Thread;
use crate::region_map;
use hinterland_abi::profile::{Frame, SITE_FRAMES, SITES_MAX, Site, SiteKind, Waits, key_of_frames};
use hinterland_pager::{FAR_PAGES, Served, State};
use hinterland_sys::{Mapping, thread};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed,
};

/// Bytes of small allocations of which one is noted; 64 pages.
const SAMPLED_BYTES: usize = ONE_IN as usize * PAGE_BYTES;
/// No more of one allocation is marked page by page: what is beyond belongs to no site.
const MARKED_BYTES_MAX: usize = 64 << 30;
/// In a page's word: it was fetched before.
const FETCHED: u16 = 1 << 15;
/// Pages from one fault to the next that are taken for neighbours: the next fault of a walk is behind what was read ahead.
const NEIGHBOUR_PAGES: i64 = 64;

const _: () = assert!(SITES_MAX < FETCHED as usize);

static ACTIVE: AtomicBool = AtomicBool::new(false);
static PAGES: OnceLock<Mapping> = OnceLock::new();

/// Reserves the words of the pages; they take memory where pages are allocated.
///
/// # Errors
/// There is no address space, in words.
pub fn begin() -> Result<(), String> {
    let mapping = Mapping::anonymous(FAR_PAGES as usize * size_of::<u16>()).map_err(|error| error.to_string())?;
    PAGES.get_or_init(|| mapping);
    Ok(())
}

/// From now on allocations are noted.
pub fn activate() {
    ACTIVE.store(true, Relaxed);
}

fn word_of(page: u32) -> Option<&'static AtomicU16> {
    let mapping = PAGES.get()?;
    // SAFETY: the mapping has a word for each page, is never unmapped, and any bits are valid in an atomic.
    Some(unsafe { &*(mapping.start as *const AtomicU16).add(page as usize) })
}

/// The site's number that a page belongs to.
pub fn site_of(page: PageNo) -> Option<usize> {
    usize::from(word_of(page.0)?.load(Relaxed) & !FETCHED).checked_sub(1)
}

/// An allocation that is watched until it is freed.
struct Life {
    /// 0: free; `BEING_MADE`.
    address: AtomicUsize,
    site: AtomicU32,
    bytes: AtomicU64,
    born_ns: AtomicU64,
}

const BEING_MADE: usize = 1;
const LIVES: usize = 1 << 16;
/// Places for the lives whose addresses have one hash.
const WAYS: usize = 8;

static ALIVE: [Life; LIVES] = [const {
    Life { address: AtomicUsize::new(0), site: AtomicU32::new(0), bytes: AtomicU64::new(0), born_ns: AtomicU64::new(0) }
}; LIVES];

fn lives_at(address: usize) -> &'static [Life] {
    let hash = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let first = usize::try_from(hash).unwrap_or(0) % (LIVES / WAYS) * WAYS;
    &ALIVE[first..first + WAYS]
}

fn now_ns() -> u64 {
    u64::try_from(thread::since_boot().as_nanos()).unwrap_or(u64::MAX)
}

/// malloc(3) or one of its family has given the program memory.
#[inline]
pub(crate) fn allocated(pointer: *mut libc::c_void, bytes: usize) {
    if ACTIVE.load(Relaxed) && region_map::contains(pointer.addr()) {
        sample(pointer.addr(), bytes);
    }
}

/// Memory of the program's is about to be freed.
#[inline]
pub(crate) fn released(pointer: *mut libc::c_void) {
    if ACTIVE.load(Relaxed) && region_map::contains(pointer.addr()) {
        end(pointer.addr());
    }
}

/// mmap(2) has given the program accessible memory of its own.
pub(crate) fn mapped(address: usize, bytes: usize) {
    if ACTIVE.load(Relaxed) && region_map::contains(address) {
        note(SiteKind::Mapping, address, bytes, bytes);
    }
}

/// What the program mapped, from this address on, is unmapped.
pub(crate) fn unmapped(address: usize) {
    if ACTIVE.load(Relaxed) && region_map::contains(address) {
        end(address);
    }
}

#[cold]
#[inline(never)]
fn sample(address: usize, bytes: usize) {
    if bytes >= SAMPLED_BYTES {
        return note(SiteKind::Heap, address, bytes, bytes);
    }
    let countdown = &Thread::current().sample_after;
    match countdown.load(Relaxed).checked_sub(bytes.max(1)) {
        Some(left) => countdown.store(left, Relaxed),
        None => {
            // Not after the same number of bytes each time: programs are regular, too.
            let drawn = hinterland_abi::profile::key_of([address as u64, now_ns()]) % SAMPLED_BYTES as u64;
            countdown.store(SAMPLED_BYTES / 2 + usize::try_from(drawn).unwrap_or(0), Relaxed);
            note(SiteKind::Heap, address, bytes.max(1), SAMPLED_BYTES);
        }
    }
}

/// Notes an allocation, which stands for `stands_for` bytes of its site.
#[inline(never)]
fn note(kind: SiteKind, address: usize, bytes: usize, stands_for: usize) {
    let _errno = Preserved::new();
    let Some((number, site)) = site_here(kind) else { return };
    let (own, all) = (bytes as u64, stands_for as u64);
    site.allocations.fetch_add((all / own).max(1), Relaxed);
    site.bytes.fetch_add(all, Relaxed);
    site.bytes_max.fetch_max(own, Relaxed);
    let held = site.held_bytes.fetch_add(all, Relaxed) + all;
    site.held_bytes_max.fetch_max(held, Relaxed);
    let pages = region_map::page_of(address)..=region_map::page_of(address + bytes.min(MARKED_BYTES_MAX) - 1);
    let word = u16::try_from(number + 1).unwrap_or(0);
    pages.filter_map(word_of).for_each(|page| page.store(word, Relaxed));
    for life in lives_at(address) {
        if life.address.compare_exchange(0, BEING_MADE, AcqRel, Relaxed).is_ok() {
            life.site.store(u32::try_from(number).unwrap_or(0), Relaxed);
            life.bytes.store(all, Relaxed);
            life.born_ns.store(now_ns(), Relaxed);
            life.address.store(address, std::sync::atomic::Ordering::Release);
            return;
        }
    }
}

/// The site of the call that is being made.
#[inline(always)]
fn site_here(kind: SiteKind) -> Option<(usize, &'static Site)> {
    let profile = profile()?;
    let mut frames = [Frame::default(); SITE_FRAMES];
    let here = Registers::here();
    let count = walk(here, &mut frames);
    let frames = &frames[..count];
    let key = key_of_frames(frames) ^ kind as u64;
    let entry = profile.sites.entry(key.max(1), |site| site.identify(kind, frames));
    if entry.is_none() {
        profile.sites_without_room.fetch_add(1, Relaxed);
    }
    entry
}

/// The end of an allocation, if it was noted.
#[inline(never)]
fn end(address: usize) {
    if word_of(region_map::page_of(address)).is_none_or(|word| word.load(Relaxed) == 0) {
        return;
    }
    let Some(life) = lives_at(address).iter().find(|life| life.address.load(Relaxed) == address) else { return };
    let (site, bytes, born_ns) = (life.site.load(Relaxed), life.bytes.load(Relaxed), life.born_ns.load(Relaxed));
    if life.address.compare_exchange(address, 0, AcqRel, Relaxed).is_err() {
        return;
    }
    if let Some(site) = profile().and_then(|profile| profile.sites.get(site as usize)) {
        site.lives.fetch_add(1, Relaxed);
        site.life_ns.fetch_add(now_ns().saturating_sub(born_ns), Relaxed);
        // A child of a fork frees what its parent counts, too.
        let _ = site.held_bytes.fetch_update(Relaxed, Relaxed, |held| Some(held.saturating_sub(bytes)));
    }
}

/// Threads of a site whose faults are told apart.
const CURSORS: usize = 4;
/// The last page of each, and the step to it.
static CURSOR: [[AtomicU64; CURSORS]; SITES_MAX] = [const { [const { AtomicU64::new(0) }; CURSORS] }; SITES_MAX];

/// Counts a fault.
pub fn count(waits: &Waits, fault: &Served, weight: u64) {
    let kind = match fault.was {
        State::Untouched => &waits.first_touches,
        State::Remote => &waits.fetches,
        _ => &waits.others,
    };
    kind.add(fault.wait_ns, weight);
}

/// Counts a fault on a site's memory, and how it follows the one before. Returns the site's number.
pub fn fault(fault: &Served) -> Option<usize> {
    let number = site_of(fault.page)?;
    let site = profile()?.sites.get(number)?;
    count(&site.waits, fault, 1);
    if fault.was == State::Untouched {
        return Some(number);
    }
    if fault.was == State::Remote
        && let Some(word) = word_of(fault.page.0)
        && word.fetch_or(FETCHED, Relaxed) & FETCHED == 0
    {
        site.fetched_pages.fetch_add(1, Relaxed);
    }
    let thread = fault.thread.unwrap_or_else(|| u32::try_from(thread::pointer() >> 12 & 0xffff).unwrap_or(0));
    let cursor = &CURSOR[number][thread as usize % CURSORS];
    let last = cursor.load(Relaxed);
    #[allow(clippy::cast_possible_truncation, reason = "the halves are taken out of the word")]
    let (page, step) = (last as u32, i64::from(((last >> 32) as u32).cast_signed()));
    let now = i64::from(fault.page.0) - i64::from(page);
    let now_word = u64::from(i32::try_from(now).unwrap_or(0).cast_unsigned());
    cursor.store(now_word << 32 | u64::from(fault.page.0), Relaxed);
    let follows = match now {
        _ if last == 0 => return Some(number),
        _ if now.abs() <= NEIGHBOUR_PAGES => &site.sequential,
        _ if now == step => &site.strided,
        _ => &site.irregular,
    };
    follows.fetch_add(1, Relaxed);
    Some(number)
}
