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
//! Slots are reused last in, first out, so the frames behind them are as many as ever waited at one time.

use hinterland_policy::{Prefetch, PrefetchWindow, Unmapped, WINDOW_PART};

/// Slots: 4 MiB of prefetched pages can wait.
pub const KEY_SLOTS: u32 = 1024;
/// Pages that wait at most when a window leaves one of them unmapped: as many windows are under way.
const KEYS_MAX: u32 = 64;
/// When all of a window waits: this part of the budget, as the swap cache of victims has.
const BUDGET_PART: u64 = 32;
/// Pages at the old end that may be busy at this moment.
const TRIES: u32 = 4;

/// Pages that may wait when one more of what is `wanted` comes. `pages_max`: the user's bound.
pub fn waiting_pages_max(wanted: &Prefetch, budget_pages: u64, pages_max: Option<u32>) -> u32 {
    match wanted {
        // A tape has few key pages for each thread, which all come to theirs.
        Prefetch::Batch(_) => KEY_SLOTS,
        Prefetch::Hinted(_) | Prefetch::Window(PrefetchWindow { unmapped: Unmapped::Key(_), .. }) => KEYS_MAX,
        Prefetch::Block(_) | Prefetch::Window(PrefetchWindow { unmapped: Unmapped::All, .. }) => {
            let part = u32::try_from(budget_pages / BUDGET_PART).unwrap_or(u32::MAX).clamp(KEYS_MAX, KEY_SLOTS);
            part.min(pages_max.unwrap_or(u32::MAX))
        }
    }
}

/// Local memory of which a window may have a part: the budget, or less, such that four windows keep to the user's bound.
pub fn pages_for_windows(budget_pages: u64, pages_max: Option<u32>) -> u64 {
    pages_max.map_or(budget_pages, |most| budget_pages.min(u64::from(most) / 4 * WINDOW_PART))
}

/// A slot for a page that is going to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenSlot {
    /// Its number.
    pub slot: u32,
    /// It was never used before: its frame is not counted yet.
    pub fresh: bool,
}

/// What a body does to have a slot taken.
pub trait SlotBody {
    /// Works on the slots.
    fn slots<R>(&mut self, work: impl FnOnce(&mut CachedSlots) -> R) -> R;

    /// Gives the page of a slot back to far memory, unused. False: the page is just being used.
    fn give_back_unused(&mut self, slot: u32) -> bool;
}

/// A slot for one more page, if fewer than `bound` wait; else that of the page that has waited longest, or of one of the next ones,
/// where that is busy. One thread at a time.
pub fn take_slot(body: &mut impl SlotBody, bound: u32) -> Option<TakenSlot> {
    for skip in 0..TRIES {
        if let Some(taken) = body.slots(|slots| slots.take(bound)) {
            return Some(taken);
        }
        let oldest = body.slots(|slots| slots.oldest(skip))?;
        if body.give_back_unused(oldest) && body.slots(|slots| slots.remove(oldest)) {
            return Some(TakenSlot { slot: oldest, fresh: false });
        }
    }
    None
}

/// What became of an attempt to drop a page that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// No page is that old.
    NoMore,
    /// It stays: it belongs to the window that is arriving, or is just being used.
    Stays,
    /// It has left, with so many pages that were mapped beside it.
    With(u32),
}

/// Keeps to the user's bound when pages are about to arrive by which it would be exceeded by `beyond`: `drop` drops the page that has
/// waited longest but `skip`, and the pages mapped beside it.
pub fn make_room(mut beyond: u32, mut drop: impl FnMut(u32) -> Dropped) {
    let mut skip = 0;
    while beyond > 0 {
        match drop(skip) {
            Dropped::NoMore => return,
            Dropped::Stays => skip += 1,
            Dropped::With(mapped) => beyond = beyond.saturating_sub(mapped + 1),
        }
    }
}

/// The free slots, and the cached ones from the oldest to the newest.
#[derive(Debug)]
pub struct CachedSlots {
    /// Neighbours of each slot in the ring of cached ones, which begins and ends at the last index; a slot that is not cached points
    /// at itself.
    newer: Box<[u32]>,
    older: Box<[u32]>,
    free: Vec<u32>,
    /// Slots that were ever used.
    used: u32,
    cached: u32,
}

impl CachedSlots {
    /// So many slots, all free.
    pub fn new(slots: u32) -> CachedSlots {
        let ring: Box<[u32]> = (0..=slots).collect();
        CachedSlots { newer: ring.clone(), older: ring, free: Vec::with_capacity(slots as usize), used: 0, cached: 0 }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.newer.len() - 1).unwrap_or(u32::MAX)
    }

    /// Pages that wait.
    pub fn cached(&self) -> u32 {
        self.cached
    }

    /// A free slot, unless `bound` are cached.
    pub fn take(&mut self, bound: u32) -> Option<TakenSlot> {
        if self.cached >= bound.min(self.end()) {
            return None;
        }
        if let Some(slot) = self.free.pop() {
            return Some(TakenSlot { slot, fresh: false });
        }
        (self.used < self.end()).then(|| {
            self.used += 1;
            TakenSlot { slot: self.used - 1, fresh: true }
        })
    }

    /// Caches a slot that was taken: it is the newest.
    pub fn push(&mut self, slot: u32) {
        let (end, newest) = (self.end(), self.older[self.end() as usize]);
        (self.older[slot as usize], self.newer[slot as usize]) = (newest, end);
        self.newer[newest as usize] = slot;
        self.older[end as usize] = slot;
        self.cached += 1;
    }

    /// The cached slot that is the oldest but `skip`.
    pub fn oldest(&self, skip: u32) -> Option<u32> {
        self.iter().nth(skip as usize)
    }

    /// The cached slots from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let end = self.end();
        let next = move |slot: u32| Some(self.newer[slot as usize]).filter(|next| *next != end);
        std::iter::successors(next(end), move |slot| next(*slot))
    }

    /// Takes a slot out of the cached ones, for its next page. False: it is free already.
    pub fn remove(&mut self, slot: u32) -> bool {
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
    pub fn release(&mut self, slot: u32) -> bool {
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

    fn fresh(slot: u32) -> Option<TakenSlot> {
        Some(TakenSlot { slot, fresh: true })
    }

    fn reused(slot: u32) -> Option<TakenSlot> {
        Some(TakenSlot { slot, fresh: false })
    }

    #[test]
    fn the_oldest_goes_first_and_a_used_slot_is_free_at_once() {
        let mut slots = CachedSlots::new(3);
        for expected in 0..3 {
            assert_eq!(slots.take(3), fresh(expected));
            slots.push(expected);
        }
        assert_eq!(slots.take(3), None);
        assert_eq!([0, 1, 2, 3].map(|skip| slots.oldest(skip)), [Some(0), Some(1), Some(2), None]);
        slots.release(1);
        assert_eq!([0, 1].map(|skip| slots.oldest(skip)), [Some(0), Some(2)]);
        assert_eq!(slots.take(3), reused(1), "no frame more than before");
        assert!(slots.remove(0) && !slots.remove(0));
        slots.push(0);
        assert_eq!(slots.oldest(0), Some(2));
    }

    #[test]
    fn a_bound_below_what_is_held_gives_nothing() {
        let mut slots = CachedSlots::new(8);
        for _ in 0..4 {
            let slot = slots.take(4).unwrap().slot;
            slots.push(slot);
        }
        assert_eq!((slots.take(4), slots.take(2)), (None, None));
        slots.release(3);
        assert_eq!((slots.take(3), slots.take(4)), (None, reused(3)));
    }

    #[test]
    fn four_of_the_largest_windows_keep_to_a_bound() {
        let budget = 1 << 20;
        assert_eq!(pages_for_windows(budget, None), budget);
        for most in [256_u32, 1024, 1 << 30] {
            let window = pages_for_windows(budget, Some(most)) / WINDOW_PART;
            assert!(window * 4 <= most.into() && window > 0, "{window} of {most} pages");
        }
    }

    /// Slots whose pages are busy at this moment.
    struct Body(CachedSlots, Vec<u32>);

    impl SlotBody for Body {
        fn slots<R>(&mut self, work: impl FnOnce(&mut CachedSlots) -> R) -> R {
            work(&mut self.0)
        }

        fn give_back_unused(&mut self, slot: u32) -> bool {
            !self.1.contains(&slot)
        }
    }

    #[test]
    fn the_oldest_page_that_is_not_busy_makes_room() {
        let mut body = Body(CachedSlots::new(8), vec![0, 1]);
        for slot in 0..6 {
            assert_eq!(take_slot(&mut body, 6), fresh(slot));
            body.0.push(slot);
        }
        assert_eq!(take_slot(&mut body, 6), reused(2));
        body.0.push(2);
        body.1 = (0..8).collect();
        assert_eq!(take_slot(&mut body, 6), None, "after a few tries");
    }

    #[test]
    fn room_is_made_by_the_oldest_with_what_was_mapped_beside_them() {
        let beside = [5, 2, 9, 0];
        let mut left = Vec::new();
        make_room(8, |skip| {
            let waiting: Vec<u32> = (0..4).filter(|slot| !left.contains(slot)).collect();
            match waiting.get(skip as usize) {
                None => Dropped::NoMore,
                Some(0) => Dropped::Stays,
                Some(slot) => {
                    left.push(*slot);
                    Dropped::With(beside[*slot as usize])
                }
            }
        });
        assert_eq!(left, [1, 2], "three pages and ten: the first one stays");
    }
}
