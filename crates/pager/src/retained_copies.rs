//! Stored copies of pages that are local again: which are retained, and which are dropped when far memory is short of room.
//!
//! ```text
//! loaded ─► retained, where there is room ─► the page leaves as it came: clean, nothing is compressed or stored
//!       └─► freed                        └─► dropped: the page leaves changed, or far memory is short of room
//! ```
//! No list names the copies: each page that is written back, discarded or moved would have to be taken out of it. A hand goes round the page table
//! instead, so a copy is dropped by chance, not by age.
//!
//! Invariant: a copy that is dropped for its room is that of a `Resident` page, so it is not all that there is of the page.

use crate::pages::{CHUNK_PAGES, Owned, Pages, Released};
use crate::points::Point;
use crate::state::State;
use hinterland_backend::{Backend, Location};
use hinterland_units::{CopyBound, PAGE_BYTES, PageCount, PageNo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The part of the local pages whose copies are retained where nothing else is said.
const SHARE: u64 = 32;
/// Below its peak by this part of it the store has room for copies: so none is retained for the time in which as many pages come as leave.
const PEAK_MARGIN: u64 = 32;
/// Chunks of the page table that are looked at on the way to a store that may as well take more RAM.
const CHUNKS_MAX: usize = 32;
/// Pages that must be freed beyond those that are stored, after far memory refused one, before copies are retained again.
const LACKING_PAGES: u64 = 1024;
/// Copies that are dropped at a time at most.
const DROPPED_MAX: u64 = 512;

/// See the module.
pub(crate) struct RetainedCopies {
    pages: &'static Pages,
    backend: Arc<dyn Backend>,
    bound: Option<CopyBound>,
    /// Copies of local pages, while some can take room.
    retained: AtomicU64,
    /// Local memory wants the RAM that copies take.
    ram_is_scarce: AtomicBool,
    /// The store takes more RAM than `--ram` leaves it, with local memory at its floor.
    ram_is_exceeded: AtomicBool,
    /// Pages that are still to be freed before copies are retained again.
    lacking: AtomicU64,
    /// The most RAM that the backends have taken, where the bound asks for it.
    peak_bytes: AtomicU64,
    /// The chunk of the page table that is looked at next.
    hand: AtomicU32,
    /// Chunks that the hand has passed since a copy in RAM was dropped, or one was retained that may be: as many as there are, none is left.
    passed: AtomicU32,
}

impl RetainedCopies {
    pub(crate) fn new(pages: &'static Pages, backend: Arc<dyn Backend>, bound: Option<CopyBound>) -> RetainedCopies {
        RetainedCopies {
            pages,
            backend,
            bound,
            retained: AtomicU64::new(0),
            ram_is_scarce: AtomicBool::new(false),
            ram_is_exceeded: AtomicBool::new(false),
            lacking: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            hand: AtomicU32::new(0),
            passed: AtomicU32::new(0),
        }
    }

    /// Whether the stored copy of a page that was just fetched is retained, so that the page can be dropped without a write if it
    /// does not change. Free on an SSD; where it takes room, only as far as the bound goes: in RAM every copy is RAM too, and one in a
    /// tier keeps another page below.
    pub(crate) fn retains(&self, owned: &Owned, local: PageCount) -> bool {
        if self.lacking.load(Relaxed) > 0 {
            return false;
        }
        if !self.backend.copies_take_room() {
            return true;
        }
        let retained = self.retained.fetch_add(1, Relaxed);
        if self.have_room(retained, local) || !self.backend.copy_takes_room(owned.was().location()) {
            self.passed.store(0, Relaxed);
            return true;
        }
        self.retained.fetch_sub(1, Relaxed);
        false
    }

    /// Whether there is room for one more beside those that are retained.
    fn have_room(&self, retained: u64, local: PageCount) -> bool {
        if self.ram_is_exceeded.load(Relaxed) {
            return false;
        }
        match self.bound {
            None => retained < local.0 / SHARE,
            Some(CopyBound::Percent(percent)) => retained < local.0.saturating_mul(percent.into()) / 100,
            Some(CopyBound::Peak) => {
                let peak = self.peak_bytes.load(Relaxed);
                !self.ram_is_scarce.load(Relaxed) && self.backend.ram_bytes() < peak - peak / PEAK_MARGIN
            }
        }
    }

    /// Retained copies are given up, or their pages left: they do not count any more.
    pub(crate) fn forget(&self, copies: u64) {
        if self.backend.copies_take_room() {
            // Copies that were retained while there was one path outside RAM were not counted.
            let fewer = |retained: u64| Some(retained.saturating_sub(copies));
            let _ = self.retained.fetch_update(Relaxed, Relaxed, fewer);
        }
    }

    /// So many pages are about to be stored: with the bound `peak`, copies are dropped for what they may take beyond it.
    pub(crate) fn make_way(&self, pages: usize) {
        let stored = || self.backend.ram_bytes() + (pages * PAGE_BYTES) as u64;
        if self.bound == Some(CopyBound::Peak) && stored() > self.peak_bytes.load(Relaxed) {
            self.drop_in_ram(pages as u64, CHUNKS_MAX);
        }
    }

    /// Pages were stored.
    pub(crate) fn stored(&self, pages: u64) {
        if self.bound == Some(CopyBound::Peak) {
            self.peak_bytes.fetch_max(self.backend.ram_bytes(), Relaxed);
        }
        if self.lacking.load(Relaxed) > 0 {
            let more = |lacking: u64| (lacking > 0).then_some((lacking + pages).min(LACKING_PAGES));
            let _ = self.lacking.fetch_update(Relaxed, Relaxed, more);
        }
    }

    /// Pages were freed.
    pub(crate) fn freed(&self, pages: u64) {
        if self.lacking.load(Relaxed) > 0 {
            let fewer = |lacking: u64| Some(lacking.saturating_sub(pages));
            let _ = self.lacking.fetch_update(Relaxed, Relaxed, fewer);
        }
    }

    /// Paths of far memory were added or taken away: there may be room again.
    pub(crate) fn paths_changed(&self) {
        self.lacking.store(0, Relaxed);
    }

    /// Whether local memory wants RAM that copies take: with the bound `peak` they are dropped then, some at a time.
    pub(crate) fn set_ram_scarce(&self, is_scarce: bool) {
        self.ram_is_scarce.store(is_scarce, Relaxed);
        if is_scarce && self.bound == Some(CopyBound::Peak) {
            self.drop_in_ram(DROPPED_MAX, CHUNKS_MAX);
        }
    }

    /// Far memory refused so many pages: drops as many copies, wherever they are, and has none be retained until there is room again. Returns how many;
    /// 0: there was none.
    pub(crate) fn drop_for_room(&self, pages: usize) -> u64 {
        self.lacking.fetch_max(LACKING_PAGES, Relaxed);
        self.drop_copies(pages as u64, usize::MAX, |_| true).0
    }

    /// Far memory takes so many bytes of RAM too much: drops copies in RAM, some at a time, and has none be retained there until it takes none too much.
    /// Whether it has dropped any, or has not looked everywhere yet.
    pub(crate) fn drop_for_ram(&self, bytes: u64) -> bool {
        if bytes > 0 || self.ram_is_exceeded.load(Relaxed) {
            self.ram_is_exceeded.store(bytes > 0, Relaxed);
        }
        let chunks = self.pages.table.chunk_count();
        if bytes == 0 || self.passed.load(Relaxed) >= chunks {
            return false;
        }
        self.drop_in_ram(bytes.div_ceil(PAGE_BYTES as u64).min(DROPPED_MAX), CHUNKS_MAX);
        self.passed.load(Relaxed) < chunks
    }

    fn drop_in_ram(&self, copies: u64, chunks: usize) {
        if self.retained.load(Relaxed) == 0 || !self.backend.copies_cost_ram() {
            self.passed.store(u32::MAX, Relaxed);
            return;
        }
        let begin = self.hand.load(Relaxed);
        let (dropped, all) = self.drop_copies(copies, chunks, |location| self.backend.copy_costs_ram(location));
        if dropped > 0 {
            self.passed.store(0, Relaxed);
        } else if all {
            self.passed.store(u32::MAX, Relaxed);
        } else {
            let end = self.hand.load(Relaxed);
            let chunks = if end >= begin { end - begin } else { self.pages.table.chunk_count() - begin + end };
            let more = |passed: u32| Some(passed.saturating_add(chunks));
            let _ = self.passed.fetch_update(Relaxed, Relaxed, more);
        }
    }

    /// Drops up to so many copies, for which it looks at so many chunks of the page table at most, and not more than once at each. Returns how many,
    /// and whether it has looked at all chunks.
    fn drop_copies(&self, copies: u64, chunks: usize, is_wanted: impl Fn(Location) -> bool) -> (u64, bool) {
        let (table, begin) = (&self.pages.table, self.hand.load(Relaxed));
        let mut dropped: Vec<Location> = Vec::new();
        let mut ahead = table.touched_chunks(begin, u32::MAX).chain(table.touched_chunks(0, begin));
        for chunk in ahead.by_ref().take(chunks) {
            let is_enough = |dropped: &Vec<Location>| dropped.len() as u64 >= copies;
            table.for_each_touched(PageNo(chunk * CHUNK_PAGES), CHUNK_PAGES, |page| {
                if !is_enough(&dropped) {
                    dropped.extend(self.drop_copy(page, &is_wanted).map(Released::location));
                }
            });
            self.hand.store(chunk + u32::from(!is_enough(&dropped)), Relaxed);
            if is_enough(&dropped) {
                break;
            }
        }
        let count = dropped.len() as u64;
        if count > 0 {
            self.backend.free(&dropped);
            self.freed(count);
            self.pages.row().dropped_copies.fetch_add(count, Relaxed);
        }
        (count, count < copies && ahead.next().is_none())
    }

    /// Has a page that is local be without its stored copy, if it has one that is wanted.
    fn drop_copy(&self, page: PageNo, is_wanted: impl Fn(Location) -> bool) -> Option<Released> {
        let entry = self.pages.table.load(page);
        if entry.state() != State::Resident || !entry.copy_retained() {
            return None;
        }
        let owned = self.pages.claim(page, entry, entry.with_state(State::Changing))?;
        if !is_wanted(entry.location()) {
            self.pages.complete_unchanged(owned);
            return None;
        }
        self.pages.at(Point::DropsCopy, page);
        self.forget(1);
        self.pages.complete_without_copy(owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::pages::{ContentHash, simulated_pages};
    use crate::state::Entry;
    use hinterland_backend::BackendUsage;

    const LOCAL: PageCount = PageCount(16);

    /// Far memory that takes as much RAM as a test says.
    #[derive(Default)]
    struct Ram {
        pages: AtomicU64,
        freed: AtomicU64,
    }

    impl Backend for Ram {
        fn free(&self, locations: &[Location]) {
            self.freed.fetch_add(locations.len() as u64, Relaxed);
        }
        fn copies_cost_ram(&self) -> bool {
            true
        }
        fn ram_bytes(&self) -> u64 {
            self.pages.load(Relaxed) * PAGE_BYTES as u64
        }
        fn usage(&self, _: &mut Vec<BackendUsage>) {}
    }

    fn copies(bound: Option<CopyBound>) -> (RetainedCopies, Arc<Ram>) {
        let (pages, ram) = (Box::leak(Box::new(simulated_pages())), Arc::new(Ram::default()));
        (RetainedCopies::new(pages, ram.clone(), bound), ram)
    }

    impl RetainedCopies {
        /// A far page comes back; whether its copy stays.
        fn fetch(&self, page: u32) -> bool {
            let (page, location) = (PageNo(page), Location(page.into()));
            let claim = || {
                let seen = self.pages.table.load(page);
                self.pages.claim(page, seen, seen.with_state(State::Fetching)).expect("no other thread is here")
            };
            assert!(self.pages.complete_stored(claim(), location, ContentHash::default()).is_none());
            let owned = claim();
            let (retained, arrived) = (self.retains(&owned, LOCAL), Account::default().arrive(1));
            if retained {
                self.pages.complete_resident(owned, arrived, false);
            } else {
                let _ = self.pages.complete_resident_alone(owned, arrived);
            }
            assert_eq!(self.pages.table.load(page).copy_retained(), retained);
            retained
        }

        fn dropped(&self) -> u64 {
            self.pages.row().dropped_copies.load(Relaxed)
        }
    }

    #[test]
    fn a_share_of_the_local_pages_has_copies() {
        let (copies, _) = copies(Some(CopyBound::Percent(12)));
        // 12 % of 16 pages are 1.92: one has a copy.
        assert_eq!([0, 1].map(|page| copies.fetch(page)), [true, false]);
        copies.forget(1);
        assert!(copies.fetch(2) && !copies.fetch(3));
        copies.forget(5);
        assert_eq!(copies.retained.load(Relaxed), 0, "no more are forgotten than there are");
        assert!([0, 100].map(CopyBound::Percent).map(|bound| self::copies(Some(bound)).0.fetch(0)) == [false, true]);
    }

    #[test]
    fn below_its_peak_the_store_has_room_for_copies_and_drops_them_at_it() {
        let (copies, ram) = copies(Some(CopyBound::Peak));
        ram.pages.store(100, Relaxed);
        copies.stored(100);
        assert!(!copies.fetch(0), "at its peak");
        ram.pages.store(50, Relaxed);
        assert!(copies.fetch(1) && copies.fetch(2));
        copies.make_way(50);
        assert_eq!(copies.dropped(), 0, "so many have room beside them");
        ram.pages.store(99, Relaxed);
        copies.make_way(2);
        assert_eq!((copies.dropped(), ram.freed.load(Relaxed), copies.retained.load(Relaxed)), (2, 2, 0));
        assert_eq!(copies.pages.state(PageNo(1)), State::Resident);
        assert!(!copies.pages.table.load(PageNo(1)).copy_retained());
    }

    #[test]
    fn copies_below_the_peak_give_way_to_local_memory() {
        let (copies, ram) = copies(Some(CopyBound::Peak));
        ram.pages.store(100, Relaxed);
        copies.stored(100);
        ram.pages.store(50, Relaxed);
        assert!(copies.fetch(0));
        copies.set_ram_scarce(true);
        assert!(copies.dropped() == 1 && !copies.fetch(1));
        copies.set_ram_scarce(false);
        assert!(copies.fetch(2));
    }

    #[test]
    fn after_a_refusal_none_is_retained_until_so_many_pages_are_freed() {
        let (copies, _) = copies(Some(CopyBound::Percent(100)));
        assert!((0..3).all(|page| copies.fetch(page)));
        assert_eq!([copies.drop_for_room(2), copies.drop_for_room(2), copies.drop_for_room(2)], [2, 1, 0]);
        assert!(!copies.fetch(3), "far memory is full");
        copies.freed(LACKING_PAGES);
        copies.stored(1);
        assert!(copies.fetch(4));
        copies.drop_for_room(8);
        copies.stored(2 * LACKING_PAGES);
        copies.freed(LACKING_PAGES);
        assert!(copies.fetch(5), "what is stored later is not owed");
        copies.drop_for_room(8);
        copies.paths_changed();
        assert!(copies.fetch(6), "a path was added");
    }

    #[test]
    fn while_the_store_takes_too_much_ram_copies_in_it_are_dropped_and_none_is_retained() {
        let (copies, _) = copies(Some(CopyBound::Percent(100)));
        assert!(copies.fetch(0) && copies.fetch(1));
        let more = 64 * PAGE_BYTES as u64;
        assert!(copies.drop_for_ram(more), "some were dropped");
        assert_eq!(copies.dropped(), 2);
        assert!(!copies.drop_for_ram(more) && !copies.drop_for_ram(more), "none is left");
        assert!(!copies.fetch(2));
        assert!(!copies.drop_for_ram(0) && copies.fetch(3));
        assert!(copies.drop_for_ram(more) && copies.dropped() == 3);
    }

    #[test]
    fn a_copy_is_dropped_of_no_page_that_is_not_local() {
        let (copies, _) = copies(Some(CopyBound::Percent(100)));
        assert!(copies.fetch(0));
        let far = Entry::new(State::Remote).with_location(Location(9));
        copies.pages.table.force(PageNo(0), far);
        copies.pages.table.force(PageNo(1), far.with_state(State::SwapCached));
        assert_eq!(copies.drop_for_room(8), 0);
        assert_eq!(copies.pages.table.load(PageNo(0)), far);
    }
}
