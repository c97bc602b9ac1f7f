//! The region map: which pages of the far range are mapped, by whom and how; and its lock.
//!
//! The whole range is reserved and registered once and never unmapped: "mapping" is choosing a run of pages and changing
//! their protection, so the registration never gets lost. The lock is a word, not a pthread mutex, so that the child of a
//! fork can simply open it; signals are blocked while it is held, because programs map memory in signal handlers.
//! Order of locks: the far heap's, then this, then the pager's. The monitor thread never takes it.

mod free;
#[cfg(test)]
mod model_test;
mod runs;

pub use runs::{Attributes, ForkRule, Kind, Locked, RegionMap, Run};

use crate::errno::Preserved;
use hinterland_pager::{FAR_BASE, FAR_BITS, FAR_PAGES};
use hinterland_sys::gate::{futex_wait, futex_wake};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU32, Ordering};

/// The far range's addresses.
pub const FAR_RANGE: Range<usize> = FAR_BASE..FAR_BASE + FAR_PAGES as usize * PAGE_BYTES;

/// Pages at each end of the far range in which nothing is placed unasked: 64 GiB.
const END_PAGES: u32 = 1 << 24;

/// Whether an address lies in the far range.
#[inline]
pub fn contains(address: usize) -> bool {
    const PIECES: usize = (FAR_PAGES as usize * PAGE_BYTES) >> FAR_BITS;
    (address >> FAR_BITS).wrapping_sub(FAR_BASE >> FAR_BITS) < PIECES
}

/// The page of a far address.
#[inline]
pub fn page_of(address: usize) -> u32 {
    debug_assert!(contains(address));
    #[allow(clippy::cast_possible_truncation, reason = "the far range has fewer than 2^32 pages")]
    let page = ((address - FAR_BASE) / PAGE_BYTES) as u32;
    page
}

/// The first address of a page.
#[inline]
pub fn address_of(page: u32) -> usize {
    FAR_BASE + page as usize * PAGE_BYTES
}

/// How a range of addresses lies to the far range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeRelation {
    /// Apart from it.
    Outside,
    /// Inside: first page and number of pages.
    Inside(u32, u32),
    /// Across one of its ends.
    Across,
}

/// Where `address .. address + bytes` lies, widened to whole pages; `address` must be the start of a page.
pub fn relation_of(address: usize, bytes: usize) -> RangeRelation {
    let Range { start, end } = FAR_RANGE;
    // What wraps around the end of all addresses, the kernel refuses.
    let Some(last) = address.checked_add(bytes) else { return RangeRelation::Outside };
    if bytes == 0 || address >= end || last <= start {
        return RangeRelation::Outside;
    }
    if address < start || last > end {
        return RangeRelation::Across;
    }
    u32::try_from(bytes.div_ceil(PAGE_BYTES))
        .map_or(RangeRelation::Across, |count| RangeRelation::Inside(page_of(address), count))
}

/// The region map and its lock word: 0 unlocked, 1 locked, 2 locked with waiters.
struct Guarded {
    word: AtomicU32,
    region_map: UnsafeCell<RegionMap>,
    /// The holder's signal mask from before, while a fork holds the lock.
    fork_mask: UnsafeCell<u64>,
}

// SAFETY: `region_map` and `fork_mask` are used only by the holder of the lock in `word`.
unsafe impl Sync for Guarded {}

static REGION_MAP: Guarded = Guarded {
    word: AtomicU32::new(0),
    region_map: UnsafeCell::new(RegionMap::closed()),
    fork_mask: UnsafeCell::new(0),
};

/// Holds the lock, with signals blocked, until it is dropped.
pub struct RegionMapGuard {
    mask: u64,
}

/// Takes the lock.
pub fn lock() -> RegionMapGuard {
    let _errno = Preserved::new();
    let mask = set_signal_mask(u64::MAX);
    let word = &REGION_MAP.word;
    if word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        while word.swap(2, Ordering::Acquire) != 0 {
            crate::escaped::refuse();
            futex_wait(word, 2);
        }
    }
    RegionMapGuard { mask }
}

impl Deref for RegionMapGuard {
    type Target = RegionMap;
    fn deref(&self) -> &RegionMap {
        // SAFETY: the lock is held.
        unsafe { &*REGION_MAP.region_map.get() }
    }
}

impl DerefMut for RegionMapGuard {
    fn deref_mut(&mut self) -> &mut RegionMap {
        // SAFETY: the lock is held, and `self` is borrowed exclusively.
        unsafe { &mut *REGION_MAP.region_map.get() }
    }
}

impl Drop for RegionMapGuard {
    fn drop(&mut self) {
        let _errno = Preserved::new();
        if REGION_MAP.word.swap(0, Ordering::Release) == 2 {
            futex_wake(&REGION_MAP.word);
        }
        set_signal_mask(self.mask);
    }
}

/// Sets the calling thread's signal mask, the two that libc keeps for itself included; returns the old one.
fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let (new, old_ptr) = (&raw const mask, &raw mut old);
    // SAFETY: both masks are 8 bytes, as the kernel's sigset_t is. The raw call, because libc's refuses its own signals.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old_ptr, size_of::<u64>()) };
    old
}

/// Makes the whole range free. Called once, when it is reserved and registered.
pub fn init() {
    lock().open(FAR_PAGES, END_PAGES);
}

/// Takes the lock for a fork: no other thread changes the region map while the process is copied.
pub fn lock_for_fork() {
    let held = ManuallyDrop::new(lock());
    // SAFETY: the lock is held, until `unlock_after_fork`.
    unsafe { *REGION_MAP.fork_mask.get() = held.mask };
}

/// The part of `start .. end` around `address` that lies in one run of ours with `address` and may be written to.
pub fn writable_around(address: usize, start: usize, end: usize) -> Option<Range<usize>> {
    let run = contains(address).then(|| lock().run_at(page_of(address))).flatten()?;
    let ours = run.attributes.kind != Kind::Foreign && run.attributes.protection & libc::PROT_WRITE != 0;
    ours.then(|| start.max(address_of(run.first))..end.min(address_of(run.end())))
}

/// Opens the lock that `lock_for_fork` took, in the parent or in the child.
pub fn unlock_after_fork() {
    drop(ManuallyDrop::into_inner(held_for_fork()));
}

/// The region map, for the child of a fork or its parent before `unlock_after_fork`.
fn held_for_fork() -> ManuallyDrop<RegionMapGuard> {
    assert_ne!(REGION_MAP.word.load(Ordering::Relaxed), 0, "the region map is read around a fork without its lock");
    // SAFETY: the lock is held since `lock_for_fork`, by this thread (in a child: by the thread that this one copies).
    ManuallyDrop::new(RegionMapGuard { mask: unsafe { *REGION_MAP.fork_mask.get() } })
}

/// Calls `each` for every run of pages of ours that a forked child does not get as a copy. Between `lock_for_fork` and
/// `unlock_after_fork`.
pub fn for_each_fork_flag(mut each: impl FnMut(PageNo, u32, ForkRule)) {
    let special = |run: &Run| run.attributes.fork_rule() != ForkRule::Copy && run.attributes.kind != Kind::Foreign;
    for run in held_for_fork().runs().filter(special) {
        each(PageNo(run.first), run.count, run.attributes.fork_rule());
    }
}

/// Frees the runs that a forked child did not get, once they are mapped again, inaccessible and without content; nothing is locked in memory
/// there (fork(2)). In the child, before `unlock_after_fork`.
pub fn forget_after_fork(left: &[(PageNo, u32)]) {
    let mut region_map = held_for_fork();
    for &(first, count) in left {
        region_map.remove(first.0, count);
    }
    let locked: Vec<Run> = region_map.runs().filter(|run| run.attributes.locked != Locked::No).collect();
    for run in locked {
        region_map.update(run.first, run.count, |attributes| attributes.locked = Locked::No);
    }
}
