//! The prefetch cache: prefetched pages that wait, unmapped, for their first use. A list in order of arrival, with a bound (Leap
//! §4.3).
//!
//! ```text
//!   free slots ──► cached: oldest … newest ──► used: the slot is free at once (eager eviction)
//!                     │
//!                     └─ the list is full: the oldest page goes back to far memory, unused
//! ```
//!
//! With a bound of the user's (`--prefetch-cache`), the pages that were mapped beside a waiting page count, too, and leave with it.
//!
//! A page's slot is one of the key slots of `staging`. Slots are reused last in, first out, so the frames behind them are as many
//! as ever waited at one time; a slot's frame is counted as local from its first use on, whether a page waits in it or not.
//!
//! One thread at a time takes slots (`taking`): between the moment in which a page leaves its slot and that in which the slot is out
//! of the list, another one would take it for free, and have its page overwritten. A thread that serves a use frees the slot while
//! it still owns the page: a thread that finds the page busy does not touch the slot, and one that finds the page in a stable state
//! elsewhere knows that nothing points at the slot.

use crate::pager::{Pager, Scratch};
use crate::schedule::Point;
use crate::staging::KEY_SLOTS;
use crate::state::{Entry, State};
use hinterland_abi::bucket_of;
use hinterland_policy::{PrefetchWindow, Unmapped, WINDOW_PART};
use hinterland_units::{PAGE_BYTES, PageBytes, PageNo};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Pages that wait at most when a window leaves one of them unmapped: as many windows are under way.
pub const KEYS_MAX: u32 = 64;
/// When all of a window waits: this part of the budget, as the swap cache of victims has.
pub const BUDGET_PART: u64 = 32;

/// See the module. Slots by index among the key slots.
pub(crate) struct PrefetchCache {
    /// Locked by the thread that takes a slot, or empties one. Outside of the list's lock.
    taking: Mutex<()>,
    list: Mutex<List>,
    beside: Box<[Beside]>,
    /// Pages that may wait, or be mapped beside one that does; `None`: unbounded by the user.
    pages_max: Option<u32>,
    /// Pages that are loading and for which room was made.
    pending: AtomicU32,
    /// Zero of the times in `beside`.
    begun: Instant,
}

/// What is known of the page in a slot.
#[derive(Default)]
struct Beside {
    /// Pages that were mapped with it: used when it is.
    mapped: AtomicU32,
    /// When it arrived.
    since_ns: AtomicU64,
    /// The window whose key page it is.
    window: Mutex<Option<PrefetchWindow>>,
}

impl PrefetchCache {
    pub(crate) fn new(pages_max: Option<u32>) -> PrefetchCache {
        PrefetchCache {
            taking: Mutex::new(()),
            list: Mutex::new(List::new(KEY_SLOTS)),
            beside: (0..KEY_SLOTS).map(|_| Beside::default()).collect(),
            pages_max,
            pending: AtomicU32::new(0),
            begun: Instant::now(),
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("no thread panics while it holds the list of cached pages")
    }

    fn taking(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().expect("no thread panics while it takes a slot")
    }

    /// Local memory of which a window may have a part: a `budget`, or less, such that four windows keep to the user's bound.
    pub(crate) fn pages_for_windows(&self, budget: u64) -> u64 {
        self.pages_max.map_or(budget, |most| budget.min(u64::from(most) / 4 * WINDOW_PART))
    }

    /// Pages that wait, and those that were mapped beside them.
    fn pages(&self) -> u32 {
        let list = self.list();
        let mapped = list.slots().map(|slot| self.beside[slot as usize].mapped.load(Relaxed));
        list.cached + mapped.sum::<u32>()
    }

    /// Pages for which room was made ([`Pager::make_room_for_window`]) have arrived.
    pub(crate) fn arrived(&self, pages: usize) {
        if self.pages_max.is_some() {
            self.pending.fetch_sub(u32::try_from(pages).unwrap_or(0), Relaxed);
        }
    }

    fn window(&self, slot: u32) -> MutexGuard<'_, Option<PrefetchWindow>> {
        self.beside[slot as usize].window.lock().expect("no thread panics while it holds a window")
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Pager {
    /// Leaves a loaded page unmapped in the cache; `mapped` pages of its window were mapped before it, more may follow ([`Pager::mapped_with`]).
    /// False: no slot is free.
    ///
    /// The caller owns the page and has counted a frame for it.
    pub(crate) fn leave_unmapped(
        &self,
        page: PageNo,
        entry: Entry,
        bytes: &PageBytes,
        window: &PrefetchWindow,
        mapped: u32,
    ) -> bool {
        let Some((index, fresh)) = self.take_key_slot(window.unmapped) else { return false };
        let slot = self.staging.key_slot(index);
        // SAFETY: the slot is one page of ours, and no page points at it any more.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.staging.address(slot) as *mut u8, PAGE_BYTES) };
        if !fresh {
            self.account.uncharge(1);
        }
        let beside = &self.prefetch_cache.beside[index as usize];
        beside.mapped.store(mapped, Relaxed);
        beside.since_ns.store(self.prefetch_cache.now_ns(), Relaxed);
        *self.prefetch_cache.window(index) = matches!(window.unmapped, Unmapped::Key(_)).then_some(*window);
        self.table.set_slot(page, slot);
        self.staging.set_page(slot, Some(page));
        self.prefetch_cache.list().push(index);
        self.row().prefetched_unmapped_pages.fetch_add(1, Relaxed);
        self.complete(page, entry.with_state(State::SwapCached).with_prefetched(true));
        true
    }

    /// More pages were mapped with a page that was left waiting: they are used when it is, or were if it was.
    pub(crate) fn mapped_with(&self, page: PageNo, mapped: u32) {
        // No thread gives the slot to another page meanwhile.
        let _taking = self.prefetch_cache.taking();
        let (entry, slot) = (self.table.load(page), self.table.slot(page));
        match entry.state() {
            // A thread that uses the page in this moment takes the count away.
            State::SwapCached if entry.prefetched() && self.staging.is_key(slot) => {
                self.prefetch_cache.beside[self.staging.key_index(slot)].mapped.fetch_add(mapped, Relaxed);
            }
            State::Resident => {
                self.row().prefetch_hits.fetch_add(mapped.into(), Relaxed);
            }
            _ => {}
        }
    }

    /// A slot that no page points at, and whether it was never used before.
    fn take_key_slot(&self, window: Unmapped) -> Option<(u32, bool)> {
        /// Pages at the old end that may be busy at this moment.
        const TRIES: u32 = 4;
        let bound = match window {
            Unmapped::Key(_) => KEYS_MAX,
            Unmapped::All => {
                let part = self.account.budget().0 / BUDGET_PART;
                let part = u32::try_from(part).unwrap_or(u32::MAX).clamp(KEYS_MAX, KEY_SLOTS);
                part.min(self.prefetch_cache.pages_max.unwrap_or(u32::MAX))
            }
        };
        let _taking = self.prefetch_cache.taking();
        for skip in 0..TRIES {
            if let Some(taken) = self.prefetch_cache.list().take(bound) {
                return Some(taken);
            }
            let oldest = self.prefetch_cache.list().oldest(skip)?;
            if self.give_back_unused(self.staging.key_slot(oldest)) && self.prefetch_cache.list().remove(oldest) {
                return Some((oldest, false));
            }
        }
        None
    }

    /// Keeps to the user's bound when `pages` pages of a window are about to arrive: the page that has waited longest leaves, and with
    /// a key page the pages mapped beside it, unless they are of that window itself.
    pub(crate) fn make_room_for_window(&self, pages: usize, arriving: &PrefetchWindow, scratch: &mut Scratch) {
        let Some(most) = self.prefetch_cache.pages_max else { return };
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let pages = pages + self.prefetch_cache.pending.fetch_add(pages, Relaxed);
        let mut beyond = (self.prefetch_cache.pages() + pages).saturating_sub(most);
        let mut skip = 0;
        while beyond > 0 {
            let taking = self.prefetch_cache.taking();
            let Some(oldest) = self.prefetch_cache.list().oldest(skip) else { return };
            let window = *self.prefetch_cache.window(oldest);
            let mapped = self.prefetch_cache.beside[oldest as usize].mapped.load(Relaxed);
            let is_other = window.is_none_or(|window| window != *arriving);
            if !is_other || !self.give_back_unused(self.staging.key_slot(oldest)) {
                skip += 1;
                continue;
            }
            beyond = beyond.saturating_sub(1 + mapped);
            // False: the page was used in this moment, and so were those beside it.
            let is_released = self.prefetch_cache.list().release(oldest);
            drop(taking);
            if is_released {
                window.iter().for_each(|window| self.take_out_unreferenced(window.iter(), scratch));
            }
        }
    }

    /// Frees a slot from its page, which becomes `Remote` again, unused. False: the page is just being used.
    fn give_back_unused(&self, slot: u32) -> bool {
        let Some(page) = self.staging.page(slot) else { return true };
        let entry = self.table.load(page);
        if entry.state() != State::SwapCached || self.table.slot(page) != slot {
            // Used, discarded or moved: no page points here, unless a thread works on it at this moment (see `claim_slot`).
            return !entry.state().is_busy() && self.staging.page(slot) == Some(page);
        }
        if self.table.transition(page, entry, entry.with_state(State::Fetching).with_prefetched(false)).is_err() {
            return false;
        }
        self.staging.set_page(slot, None);
        let mapped = self.prefetch_cache.beside[self.staging.key_index(slot)].mapped.swap(0, Relaxed);
        self.row().prefetch_unused_pages.fetch_add(1, Relaxed);
        self.complete(page, entry.with_state(State::Remote).with_prefetched(false));
        self.wasted(page, mapped);
        self.at(Point::SlotEmptied, page);
        true
    }

    /// In the child of a fork, which has a row of its own: inherited pages that wait count there, too.
    pub(crate) fn count_inherited_prefetched(&self) {
        let cached = self.prefetch_cache.list().cached;
        self.row().prefetched_unmapped_pages.fetch_add(cached.into(), Relaxed);
    }

    /// The page in `slot` was used for the first time, and is mapped: counts it, and frees the slot at once. The caller owns the
    /// page.
    pub(crate) fn used(&self, slot: u32) {
        let index = self.staging.key_index(slot);
        let beside = &self.prefetch_cache.beside[index];
        let row = self.row();
        row.prefetch_hits.fetch_add(1 + u64::from(beside.mapped.swap(0, Relaxed)), Relaxed);
        row.prefetch_hits_observed.fetch_add(1, Relaxed);
        let waited_ns = self.prefetch_cache.now_ns().saturating_sub(beside.since_ns.load(Relaxed));
        row.prefetch_wait_ns[bucket_of(waited_ns)].fetch_add(1, Relaxed);
        // The slot goes on naming the page: until the page is completed, that tells a thread that takes slots that it is busy.
        self.prefetch_cache.list().release(u32::try_from(index).unwrap_or(KEY_SLOTS));
    }
}

/// The free slots, and the cached ones from the oldest to the newest.
struct List {
    /// Neighbours of each slot in the ring of cached ones, which begins and ends at the last index; a slot that is not cached points
    /// at itself.
    newer: Box<[u32]>,
    older: Box<[u32]>,
    free: Vec<u32>,
    /// Slots that were ever used.
    used: u32,
    cached: u32,
}

impl List {
    fn new(slots: u32) -> List {
        let ring: Box<[u32]> = (0..=slots).collect();
        List { newer: ring.clone(), older: ring, free: Vec::with_capacity(slots as usize), used: 0, cached: 0 }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.newer.len() - 1).unwrap_or(u32::MAX)
    }

    /// A free slot, unless `bound` are cached; and whether it was never used before.
    fn take(&mut self, bound: u32) -> Option<(u32, bool)> {
        if self.cached >= bound.min(self.end()) {
            return None;
        }
        if let Some(slot) = self.free.pop() {
            return Some((slot, false));
        }
        (self.used < self.end()).then(|| {
            self.used += 1;
            (self.used - 1, true)
        })
    }

    /// Caches a slot that was taken: it is the newest.
    fn push(&mut self, slot: u32) {
        let (end, newest) = (self.end(), self.older[self.end() as usize]);
        (self.older[slot as usize], self.newer[slot as usize]) = (newest, end);
        self.newer[newest as usize] = slot;
        self.older[end as usize] = slot;
        self.cached += 1;
    }

    /// The cached slot that is the oldest but `skip`.
    fn oldest(&self, skip: u32) -> Option<u32> {
        self.slots().nth(skip as usize)
    }

    /// The cached slots from the oldest to the newest.
    fn slots(&self) -> impl Iterator<Item = u32> {
        let end = self.end();
        let next = move |slot: u32| Some(self.newer[slot as usize]).filter(|next| *next != end);
        std::iter::successors(next(end), move |slot| next(*slot))
    }

    /// Takes a slot out of the cached ones, for its next page. False: it is free already.
    fn remove(&mut self, slot: u32) -> bool {
        let (older, newer) = (self.older[slot as usize], self.newer[slot as usize]);
        if newer == slot {
            return false;
        }
        self.newer[older as usize] = newer;
        self.older[newer as usize] = older;
        (self.older[slot as usize], self.newer[slot as usize]) = (slot, slot);
        self.cached -= 1;
        true
    }

    /// Takes a slot out of the cached ones and makes it free. False: it is free already.
    fn release(&mut self, slot: u32) -> bool {
        let was_cached = self.remove(slot);
        if was_cached {
            self.free.push(slot);
        }
        was_cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_a_used_slot_is_free_at_once() {
        let mut list = List::new(3);
        for expected in 0..3 {
            let (slot, fresh) = list.take(3).unwrap();
            assert!(fresh && slot == expected);
            list.push(slot);
        }
        assert_eq!(list.take(3), None);
        assert_eq!([0, 1, 2, 3].map(|skip| list.oldest(skip)), [Some(0), Some(1), Some(2), None]);
        list.release(1);
        assert_eq!([0, 1].map(|skip| list.oldest(skip)), [Some(0), Some(2)]);
        assert_eq!(list.take(3), Some((1, false)), "no frame more than before");
        assert!(list.remove(0) && !list.remove(0));
        list.push(0);
        assert_eq!(list.oldest(0), Some(2));
    }

    #[test]
    fn four_of_the_largest_windows_keep_to_a_bound() {
        let budget = 1 << 20;
        assert_eq!(PrefetchCache::new(None).pages_for_windows(budget), budget);
        for most in [256_u32, 1024, 1 << 30] {
            let window = PrefetchCache::new(Some(most)).pages_for_windows(budget) / WINDOW_PART;
            assert!(window * 4 <= most.into() && window > 0, "{window} of {most} pages");
        }
    }

    #[test]
    fn a_bound_below_what_is_held_gives_nothing() {
        let mut list = List::new(8);
        for _ in 0..4 {
            let slot = list.take(4).unwrap().0;
            list.push(slot);
        }
        assert_eq!((list.take(4), list.take(2)), (None, None));
        list.release(3);
        assert_eq!((list.take(3), list.take(4)), (None, Some((3, false))));
    }
}
