//! Whose memory a page is: the site of the allocation that it belongs to, and how the faults there follow one another.
//!
//! Each page of the far range has a half-word: the number of its site, whether it was fetched before, and whether an allocation that was
//! noted has begun there. Allocations of at least `SAMPLED_BYTES` are all noted, smaller ones by their bytes: of so many bytes of a thread one,
//! which stands for all of them. A page of small objects belongs to the site whose object was noted there last. What is noted is also kept
//! by its address until it is freed, for its lifetime; then its pages belong to no site.
//!
//! All of this is the process's own, and a child of a fork has its parent's, as it has the memory.

use super::walk::{Registers, walk};
use super::{ONE_IN, profile};
use crate::errno::Preserved;
use crate::inline::thread::Thread;
use crate::region_map;
use hinterland_abi::profile::{Frame, SITE_FRAMES, SITES_MAX, Site, SiteKind, Waits, key_of_frames};
use hinterland_pager::{FAR_PAGES, Served, State};
use hinterland_sys::parts::{PART_PAGES, Parts};
use hinterland_sys::{Mapping, mem, thread};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::ops::{Range, RangeInclusive};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release,
};

/// Bytes of small allocations of which one is a sample; 64 pages.
const SAMPLED_BYTES: usize = ONE_IN as usize * PAGE_BYTES;
/// No more of one allocation is marked page by page: what is beyond belongs to no site.
const MARKED_BYTES_MAX: usize = 64 << 30;
/// In a page's word: it was fetched before.
const FETCHED: u16 = 1 << 15;
/// In a page's word: an allocation that was noted has begun there; it may be freed.
const BEGINS: u16 = 1 << 14;
/// The rest of a page's word: the number of its site, plus one; 0: nothing was noted there.
const SITE: u16 = BEGINS - 1;
/// In place of a site's number: what was noted there is freed.
const FREED: u16 = SITE;
/// Pages from one fault to the next that are taken for neighbours: the next fault of a walk is behind what was read ahead.
const NEIGHBOUR_PAGES: i64 = 64;

const _: () = assert!(SITES_MAX < FREED as usize);

static ACTIVE: AtomicBool = AtomicBool::new(false);
static PAGES: OnceLock<Mapping> = OnceLock::new();
/// What is writable of the words; the others are 0.
static PARTS: Parts = Parts::new(PART_PAGES as usize * size_of::<u16>());
/// Bytes that this process holds of each site.
static HELD: [AtomicU64; SITES_MAX] = [const { AtomicU64::new(0) }; SITES_MAX];

/// Reserves the words of the pages; they take memory where pages are allocated.
///
/// # Errors
/// There is no address space, in words.
pub fn begin() -> Result<(), String> {
    let mapping = Mapping::read_only(FAR_PAGES as usize * size_of::<u16>()).map_err(|error| error.to_string())?;
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
    match word_of(page.0)?.load(Relaxed) & SITE {
        FREED => None,
        number => usize::from(number).checked_sub(1),
    }
}

/// Has the words of an allocation's pages be writable. False: there is no memory for them.
fn make_writable(address: usize, bytes: usize) -> bool {
    let Some(mapping) = PAGES.get() else { return false };
    let pages = pages(address, bytes);
    let bytes = |pages: Range<usize>| pages.start * size_of::<u16>()..pages.end * size_of::<u16>();
    PARTS
        .make_writable(*pages.start(), pages.end() - pages.start() + 1, |pages| mapping.allow_writes(bytes(pages)))
        .is_ok()
}

/// The pages of an allocation belong to its site, of that number.
fn mark(address: usize, bytes: usize, number: usize) {
    if !make_writable(address, bytes) {
        return;
    }
    let site = u16::try_from(number + 1).unwrap_or(0);
    let mut begins = BEGINS;
    for word in words(address, bytes) {
        // Others that began in its first or last page are there all the same; another thread may note one there now.
        let _ = word.fetch_update(Relaxed, Relaxed, |there| Some(site | begins | there & BEGINS));
        begins = 0;
    }
}

/// The pages of an allocation that is freed belong to no site, where they were still its; but not those that it has in part, in which others of its
/// site may be. One that begins with a page shares the last one with none.
fn unmark(address: usize, bytes: usize, number: usize) {
    let site = u16::try_from(number + 1).unwrap_or(0);
    let is_alone = address.is_multiple_of(PAGE_BYTES) && bytes >= PAGE_BYTES;
    let first = address.next_multiple_of(PAGE_BYTES);
    let end =
        if is_alone { (address + bytes).next_multiple_of(PAGE_BYTES) } else { (address + bytes) & !(PAGE_BYTES - 1) };
    if first < end {
        for word in words(first, end - first) {
            let freed = |there: u16| (there & SITE == site).then_some(FREED | there & BEGINS);
            let _ = word.fetch_update(Relaxed, Relaxed, freed);
        }
    }
}

/// The words of the pages of an allocation, as far as they are kept.
fn words(address: usize, bytes: usize) -> impl Iterator<Item = &'static AtomicU16> {
    pages(address, bytes).filter_map(word_of)
}

fn pages(address: usize, bytes: usize) -> RangeInclusive<u32> {
    region_map::page_of(address)..=region_map::page_of(address + bytes.clamp(1, MARKED_BYTES_MAX) - 1)
}

/// An allocation that is watched until it is freed.
struct Life {
    /// 0: free; `BEING_MADE`.
    address: AtomicUsize,
    site: AtomicU32,
    bytes: AtomicUsize,
    /// Of its site's bytes, those that it stands for.
    stands_for: AtomicU64,
    born_ns: AtomicU64,
}

const BEING_MADE: usize = 1;
const LIVES: usize = 1 << 16;
/// Places for the lives whose addresses have one hash.
const WAYS: usize = 8;

static ALIVE: [Life; LIVES] = [const {
    Life {
        address: AtomicUsize::new(0),
        site: AtomicU32::new(0),
        bytes: AtomicUsize::new(0),
        stands_for: AtomicU64::new(0),
        born_ns: AtomicU64::new(0),
    }
}; LIVES];

impl Life {
    /// Takes the place, if it is free. False: it is not.
    fn take(&self) -> bool {
        self.address.compare_exchange(0, BEING_MADE, AcqRel, Relaxed).is_ok()
    }
}

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
        free(pointer.addr());
    }
}

/// mmap(2) has given the program accessible memory of its own.
pub(crate) fn mapped(address: usize, bytes: usize) {
    if ACTIVE.load(Relaxed) && region_map::contains(address) {
        note(SiteKind::Mapping, address, bytes, bytes);
    }
}

/// Pages of the program's are unmapped, or others are mapped in their place: they belong to no site, and what was mapped there ends.
pub(crate) fn unmapped(address: usize, bytes: usize) {
    if !ACTIVE.load(Relaxed) || !region_map::contains(address) {
        return;
    }
    let (first, count) = (region_map::page_of(address), bytes / PAGE_BYTES);
    for (page, word) in (first..).zip(words(address, bytes)) {
        if word.load(Relaxed) & BEGINS != 0 {
            end(region_map::address_of(page));
        }
    }
    forget(first, count);
}

/// Sets the words of pages to 0, without taking memory for words that are 0, nor writing to them.
fn forget(first: u32, count: usize) {
    let Some(mapping) = PAGES.get() else { return };
    let begin = mapping.start + first as usize * size_of::<u16>();
    let end = begin + count * size_of::<u16>();
    let whole = begin.next_multiple_of(PAGE_BYTES)..end - end % PAGE_BYTES;
    let is_whole = |word: usize| whole.contains(&word);
    // SAFETY: the words are this module's, whose mapping is never unmapped.
    let dropped = !whole.is_empty() && unsafe { mem::drop_pages(whole.start, whole.len()) }.is_ok();
    for word in (begin..end).step_by(size_of::<u16>()).filter(|word| !(dropped && is_whole(*word))) {
        // SAFETY: as in `word_of`.
        let word = unsafe { &*(word as *const AtomicU16) };
        if word.load(Relaxed) != 0 {
            word.store(0, Relaxed);
        }
    }
}

#[cold]
#[inline(never)]
fn sample(address: usize, bytes: usize) {
    if bytes >= SAMPLED_BYTES {
        return note(SiteKind::Heap, address, bytes, bytes);
    }
    let (bytes, thread) = (bytes.max(1), Thread::current());
    let mut countdown = Countdown { after: thread.sample_after.load(Relaxed), rest: thread.sample_rest.load(Relaxed) };
    let samples = countdown.count(bytes, |turn| hash(address, turn));
    thread.sample_after.store(countdown.after, Relaxed);
    thread.sample_rest.store(countdown.rest, Relaxed);
    if samples > 0 {
        note(SiteKind::Heap, address, bytes, samples * SAMPLED_BYTES);
    }
}

/// A number that does not follow from what the program does.
fn hash(address: usize, turn: usize) -> usize {
    usize::try_from(hinterland_abi::profile::key_of([address as u64, turn as u64, now_ns()])).unwrap_or(0)
}

/// Which bytes of a thread's small allocations are samples: of each `SAMPLED_BYTES` that follow one another one, any of them. So each byte
/// is one with the same probability, whatever it is allocated with, and an allocation stands for `SAMPLED_BYTES` for each of its samples.
#[derive(Default)]
struct Countdown {
    /// Bytes before the next sample.
    after: usize,
    /// From there to the end of the `SAMPLED_BYTES` that it is of; 0: nothing was allocated yet.
    rest: usize,
}

impl Countdown {
    /// The samples among the next `bytes`; `random`: numbers, by their turn.
    fn count(&mut self, bytes: usize, random: impl Fn(usize) -> usize) -> usize {
        let mut samples = 0;
        loop {
            if self.rest > 0 && self.after >= bytes {
                self.after -= bytes;
                return samples;
            }
            samples += usize::from(self.rest > 0);
            let next = random(samples) % SAMPLED_BYTES;
            self.after += self.rest + next;
            self.rest = SAMPLED_BYTES - next;
        }
    }
}

/// So many allocations of `bytes` have `all` bytes; where these are not whole ones, more or fewer by chance.
fn allocations(all: usize, bytes: usize, random: usize) -> usize {
    all / bytes + usize::from(random % bytes < all % bytes)
}

/// Notes an allocation, which stands for `stands_for` bytes of its site.
#[inline(never)]
fn note(kind: SiteKind, address: usize, bytes: usize, stands_for: usize) {
    let _errno = Preserved::new();
    let Some((number, site)) = site_here(kind) else { return };
    let (own, all) = (bytes as u64, stands_for as u64);
    site.allocations.fetch_add(allocations(stands_for, bytes, hash(address, 0)) as u64, Relaxed);
    site.bytes.fetch_add(all, Relaxed);
    site.bytes_max.fetch_max(own, Relaxed);
    mark(address, bytes, number);
    if let Some(life) = lives_at(address).iter().find(|life| life.take()) {
        life.site.store(u32::try_from(number).unwrap_or(0), Relaxed);
        life.bytes.store(bytes, Relaxed);
        life.stands_for.store(all, Relaxed);
        life.born_ns.store(now_ns(), Relaxed);
        life.address.store(address, Release);
        let held = HELD[number].fetch_add(all, Relaxed) + all;
        site.held_bytes_max.fetch_max(held, Relaxed);
    } else if let Some(profile) = profile() {
        profile.lives_without_room.fetch_add(1, Relaxed);
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

/// An allocation is freed.
#[inline(never)]
fn free(address: usize) {
    if word_of(region_map::page_of(address)).is_some_and(|word| word.load(Relaxed) & BEGINS != 0)
        && let Some((number, bytes)) = end(address)
    {
        unmark(address, bytes, number);
    }
}

/// The end of an allocation, if it was noted: its site's number, and its bytes.
fn end(address: usize) -> Option<(usize, usize)> {
    let life = lives_at(address).iter().find(|life| life.address.load(Relaxed) == address)?;
    let (number, bytes) = (life.site.load(Relaxed) as usize, life.bytes.load(Relaxed));
    let (stands_for, born_ns) = (life.stands_for.load(Relaxed), life.born_ns.load(Relaxed));
    life.address.compare_exchange(address, 0, AcqRel, Relaxed).ok()?;
    HELD[number].fetch_sub(stands_for, Relaxed);
    if let Some(site) = profile().and_then(|profile| profile.sites.get(number)) {
        site.lives.fetch_add(1, Relaxed);
        site.life_ns.fetch_add(now_ns().saturating_sub(born_ns), Relaxed);
    }
    Some((number, bytes))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift (Marsaglia 2003).
    fn next(state: &std::cell::Cell<u64>) -> usize {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        usize::try_from(x >> 16).unwrap()
    }

    #[test]
    fn sampled_bytes_and_allocations_are_as_many_as_there_are_whatever_their_size() {
        // Bytes, how often: from many small ones to a few that are nearly always a sample.
        let sites = [(16, 400_000), (1000, 30_000), (100_000, 3_000), (200_000, 3_000), (SAMPLED_BYTES - 1, 3_000)];
        let state = std::cell::Cell::new(0x9e37_79b9_7f4a_7c15);
        let mut left: Vec<usize> = sites.iter().map(|(_, times)| *times).collect();
        let mut seen = [(0, 0); 5];
        let mut countdown = Countdown::default();
        while left.iter().any(|left| *left > 0) {
            let site = next(&state) % sites.len();
            // In turns of several, as programs have them.
            for _ in 0..(sites[site].1 / 300).min(left[site]) {
                left[site] -= 1;
                let bytes = sites[site].0;
                let all = countdown.count(bytes, |_| next(&state)) * SAMPLED_BYTES;
                seen[site].0 += all;
                seen[site].1 += allocations(all, bytes, next(&state));
            }
        }
        for ((bytes, times), (all, counted)) in sites.into_iter().zip(seen) {
            // A sample or two in a hundred more or fewer, and some chance where there are few of them.
            let expected = bytes * times;
            let slack = expected / 50 + 40 * SAMPLED_BYTES;
            assert!(all.abs_diff(expected) < slack, "{bytes}: {all} bytes, not {expected}");
            assert!((counted * bytes).abs_diff(expected) < slack, "{bytes}: {counted} allocations, not {times}");
        }
    }

    #[test]
    fn a_threads_first_allocation_is_no_more_a_sample_than_others() {
        let state = std::cell::Cell::new(88_172_645_463_325_252);
        let threads = 10_000;
        let samples: usize = (0..threads).map(|_| Countdown::default().count(4096, |_| next(&state))).sum();
        let expected = threads * 4096 / SAMPLED_BYTES;
        assert!(samples.abs_diff(expected) < expected / 2, "{samples}, not {expected}");
    }

    #[test]
    fn freed_pages_belong_to_no_site_and_others_of_the_page_are_found_again() {
        let _ = begin();
        let page = |number: u32| PageNo(FAR_PAGES - 64 + number);
        let address = |number: u32| region_map::address_of(page(number).0);
        mark(address(0), 3 * PAGE_BYTES, 7);
        mark(address(2) + 64, PAGE_BYTES, 9);
        assert_eq!([0, 1, 2, 3].map(|number| site_of(page(number))), [Some(7), Some(7), Some(9), Some(9)]);
        unmark(address(0), 3 * PAGE_BYTES - 100, 7);
        assert_eq!([0, 1, 2, 3].map(|number| site_of(page(number))), [None, None, Some(9), Some(9)]);
        // Of two of one site in a page one is freed.
        mark(address(2) + 96, 32, 9);
        unmark(address(2) + 64, 32, 9);
        assert_eq!([2, 3].map(|number| site_of(page(number))), [Some(9); 2]);
        mark(address(2) + 64, 3 * PAGE_BYTES, 9);
        unmark(address(2) + 64, 3 * PAGE_BYTES, 9);
        assert_eq!(
            [2, 3, 4, 5].map(|number| site_of(page(number))),
            [Some(9), None, None, Some(9)],
            "it has them whole"
        );
        let begins = |number: u32| word_of(page(number).0).unwrap().load(Relaxed) & BEGINS != 0;
        assert!(begins(0) && !begins(1) && begins(2) && !begins(3));
        forget(page(1).0, 5);
        assert!(begins(0) && !begins(2));
    }
}
