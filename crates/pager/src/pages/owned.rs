//! A page that a thread owns. Claiming it makes it busy, completing it consumes it: what is claimed and not completed does not leave
//! the hands of its owner unnoticed, and none is completed twice.
//!
//! What must come before the completion, and what after, is in the types:
//!
//! ```text
//! count ──► Arrived ──► complete_resident      before: once it is complete, the page may be dropped, and counted out
//! complete ──► Released ──► free               after: until then the table names the copy, which is all that there may be of the page
//! ```

use super::Pages;
use crate::account::Arrived;
use crate::pages::ContentHash;
use crate::slot::SwapCached;
use crate::state::{Entry, State};
use hinterland_backend::Location;
use hinterland_units::PageNo;

/// A page that the calling thread has made busy, and must complete.
#[must_use = "a page that is not completed stays busy: threads that wait for it wait for ever"]
#[derive(Debug)]
pub(crate) struct Owned {
    page: PageNo,
    was: Entry,
}

impl Owned {
    /// The page.
    #[inline]
    pub(crate) fn page(&self) -> PageNo {
        self.page
    }

    /// Its entry before it became busy.
    #[inline]
    pub(crate) fn was(&self) -> Entry {
        self.was
    }

    /// Its stored copy, if it has one, is given up before it is complete: the caller has other content for the page. Nothing but the owner looks at
    /// the copy of a busy page.
    pub(crate) fn give_up_copy(&mut self) -> Option<Released> {
        let old = released(self.was);
        self.was = self.was.without_location();
        old
    }

    #[inline]
    fn into_parts(self) -> (PageNo, Entry) {
        let parts = (self.page, self.was);
        std::mem::forget(self);
        parts
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A panic ends the process; the first one's words are the better ones.
        assert!(std::thread::panicking(), "{} was claimed and never completed (it was {:?})", self.page, self.was);
    }
}

/// A stored copy that is freed. A completion makes it, whose entry names it no longer, or the owner of a page that holds something else.
#[must_use = "a copy that is not freed takes far space for ever"]
#[derive(Debug)]
pub(crate) struct Released(Location);

impl Released {
    /// Where it is.
    pub(crate) fn location(self) -> Location {
        self.0
    }
}

impl Pages {
    /// Makes a page `busy` for the calling thread, if its entry still is as it was `seen`.
    #[inline]
    pub(crate) fn claim(&self, page: PageNo, seen: Entry, busy: Entry) -> Option<Owned> {
        debug_assert!(busy.state().is_busy());
        self.table.transition(page, seen, busy).is_ok().then(|| Owned { page, was: seen })
    }

    /// Notes the slot in which a page's content is, before others may see it there.
    #[inline]
    pub(crate) fn note_slot(&self, owned: &Owned, slot: impl Into<SwapCached>) {
        self.table.set_slot(owned.page, slot.into());
    }

    /// What a page, which had been in the swap cache, was there for; `None`: it had not.
    pub(crate) fn swap_cached(&self, owned: &Owned) -> Option<SwapCached> {
        let cached = self.look_swap_cached(owned.page, owned.was);
        let is_so = cached.is_some() == (owned.was.state() == State::SwapCached);
        assert!(is_so, "{} was {:?}, and its slot is of another kind", owned.page, owned.was);
        cached
    }

    /// As `swap_cached`, of a page that others may own, as its entry was `seen`; also `None` if it has changed meanwhile.
    pub(crate) fn look_swap_cached(&self, page: PageNo, seen: Entry) -> Option<SwapCached> {
        if seen.state() != State::SwapCached {
            return None;
        }
        let slot = self.table.slot(page);
        (seen.prefetched() == matches!(slot, SwapCached::Prefetched(_))).then_some(slot)
    }

    /// Whether the slot that was last noted for a page is this one.
    pub(crate) fn points_at(&self, page: PageNo, slot: impl Into<SwapCached>) -> bool {
        self.table.slot(page) == slot.into()
    }

    /// The page is as it was.
    pub(crate) fn complete_unchanged(&self, owned: Owned) {
        let (page, was) = owned.into_parts();
        self.complete(page, was);
    }

    /// The page is mapped, and has been counted. Its stored copy, if it has one, stays. `referenced`: it came back after it had been
    /// taken out as a victim.
    pub(crate) fn complete_resident(&self, owned: Owned, arrived: Arrived, referenced: bool) {
        let (page, was) = owned.into_parts();
        self.complete(page, resident(was, arrived, referenced));
    }

    /// The page is mapped, and has been counted. Its stored copy is given up.
    pub(crate) fn complete_resident_alone(&self, owned: Owned, arrived: Arrived) -> Option<Released> {
        let (page, was) = owned.into_parts();
        self.complete(page, resident(was, arrived, false).without_location());
        released(was)
    }

    /// The page is in the slot that was noted, and is there for what that says.
    pub(crate) fn complete_swap_cached(&self, owned: Owned) {
        let (page, was) = owned.into_parts();
        let prefetched = matches!(self.table.slot(page), SwapCached::Prefetched(_));
        self.complete(page, was.with_state(State::SwapCached).with_prefetched(prefetched));
    }

    /// The page is far, as its stored copy says.
    pub(crate) fn complete_remote(&self, owned: Owned) {
        let (page, was) = owned.into_parts();
        self.complete(page, Entry::new(State::Remote).with_location(was.location()));
    }

    /// The page is far, with this new copy and its hash. An old copy is given up.
    pub(crate) fn complete_stored(&self, owned: Owned, location: Location, hash: ContentHash) -> Option<Released> {
        let (page, was) = owned.into_parts();
        self.table.set_hash(page, hash);
        self.complete(page, Entry::new(State::Remote).with_location(location));
        released(was)
    }

    /// The page is far: its stored copy was changed to what it is, with this hash.
    pub(crate) fn complete_patched(&self, owned: Owned, hash: ContentHash) {
        let (page, was) = owned.into_parts();
        assert!(was.copy_retained(), "{page} has no copy that could be patched: {was:?}");
        self.table.set_hash(page, hash);
        self.complete(page, Entry::new(State::Remote).with_location(was.location()));
    }

    /// The page has no content. A stored copy is given up.
    pub(crate) fn complete_untouched(&self, owned: Owned) -> Option<Released> {
        let (page, was) = owned.into_parts();
        self.complete(page, Entry::new(State::Untouched));
        released(was)
    }

    /// The page holds a mapping of another kind. A stored copy is given up.
    pub(crate) fn complete_foreign(&self, owned: Owned) -> Option<Released> {
        let (page, was) = owned.into_parts();
        self.complete(page, Entry::new(State::Foreign));
        released(was)
    }

    /// The page is mapped as it was. Its stored copy, if it has one, is given up: it is not what the page holds, or its room is wanted.
    pub(crate) fn complete_without_copy(&self, owned: Owned) -> Option<Released> {
        let (page, was) = owned.into_parts();
        assert!(was.state() == State::Resident, "{page} may be nowhere but in its copy: {was:?}");
        self.complete(page, was.without_location());
        released(was)
    }

    /// All that a page was, `target` is now; the page has no content. The caller has moved the content, and dropped what `target` held,
    /// whose stored copy is given up.
    pub(crate) fn complete_moved(&self, owned: Owned, target: Owned) -> Option<Released> {
        let ((page, was), (target, replaced)) = (owned.into_parts(), target.into_parts());
        if was.copy_retained() {
            self.table.set_hash(target, self.table.hash(page));
        }
        self.complete(target, was.without_mark());
        self.complete(page, Entry::new(State::Untouched));
        released(replaced)
    }
}

/// The entry of a page that has just arrived.
fn resident(was: Entry, arrived: Arrived, referenced: bool) -> Entry {
    was.with_state(State::Resident).with_prefetched(false).arrived(arrived.epoch(), referenced)
}

fn released(was: Entry) -> Option<Released> {
    was.copy_retained().then(|| Released(was.location()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::decisions::Decisions;
    use crate::fault_path::FaultPath;
    use crate::kernel::Kernel;
    use crate::own_processors::OwnProcessors;
    use crate::slot::{ChunkNo, KeySlot, Kind};
    use crate::sys::Uffd;
    use crate::sys::mem::OwnMemory;
    use hinterland_abi::ProcessRow;
    use hinterland_sys::{FeatureSet, Features, Privilege};

    const PAGE: PageNo = PageNo(3);

    /// Pages on the inline path, where completion asks nothing of the kernel.
    pub(crate) fn pages() -> Pages {
        let features = Features::of(FeatureSet::All, Privilege::UserOnly, 0);
        let kernel = Kernel::new(features, Uffd::Simulated, OwnMemory::none());
        // SAFETY: a row of atomics is valid when zero.
        let row: &ProcessRow = Box::leak(unsafe { Box::<ProcessRow>::new_zeroed().assume_init() });
        let processors = OwnProcessors::new(None, None);
        Pages::new(FaultPath::Inline, (0x3300_0000_0000, 16), kernel, row, Decisions::default(), processors).unwrap()
    }

    fn claim(pages: &Pages, busy: State) -> Owned {
        let seen = pages.table.load(PAGE);
        pages.claim(PAGE, seen, seen.with_state(busy)).expect("nobody else claims it")
    }

    #[test]
    fn a_page_has_one_owner_and_a_copy_is_released_once_it_is_complete() {
        let pages = pages();
        let account = crate::account::Account::default();
        let seen = pages.table.load(PAGE);
        let owned = claim(&pages, State::Fetching);
        assert!(pages.claim(PAGE, seen, seen.with_state(State::Fetching)).is_none());
        pages.complete_resident(owned, account.arrive(1), false);
        assert_eq!((pages.state(PAGE), account.arrivals()), (State::Resident, 1));
        let owned = claim(&pages, State::Leaving);
        let slot = ChunkNo::after(Kind::Moved, 0).unwrap().slot(7);
        pages.note_slot(&owned, slot);
        pages.complete_swap_cached(owned);
        let entry = pages.table.load(PAGE);
        assert_eq!(pages.look_swap_cached(PAGE, entry), Some(SwapCached::Victim(slot)));
        assert_eq!(pages.look_swap_cached(PAGE, entry.with_prefetched(true)), None, "it has changed meanwhile");
        let hash = ContentHash::of(&[1; hinterland_units::PAGE_BYTES]);
        assert!(pages.complete_stored(claim(&pages, State::WritingBack), Location(5), hash).is_none());
        assert_eq!(
            (pages.state(PAGE), pages.table.hash(PAGE), pages.points_at(PAGE, slot)),
            (State::Remote, hash, true)
        );
        assert_eq!(pages.look_swap_cached(PAGE, pages.table.load(PAGE)), None, "its slot is of the past");
        let owned = claim(&pages, State::Changing);
        let (target, empty) = (PageNo(4), pages.table.load(PageNo(4)));
        let target_owned = pages.claim(target, empty, empty.with_state(State::Changing)).unwrap();
        assert!(pages.complete_moved(owned, target_owned).is_none(), "the target was empty");
        assert_eq!((pages.state(PAGE), pages.table.load(target).location()), (State::Untouched, Location(5)));
        assert_eq!(pages.table.hash(target), hash);
        let entry = pages.table.load(target);
        let owned = pages.claim(target, entry, entry.with_state(State::Fetching)).unwrap();
        let released = pages.complete_resident_alone(owned, account.arrive(1)).expect("it had a copy");
        assert_eq!(released.location(), Location(5));
        assert!(!pages.table.load(target).copy_retained());
    }

    /// A resident page that leaves to `slot`.
    fn leave_to(pages: &Pages, slot: impl Into<SwapCached>) -> Entry {
        let account = crate::account::Account::default();
        pages.complete_resident(claim(pages, State::Fetching), account.arrive(1), false);
        let owned = claim(pages, State::Leaving);
        assert_eq!(pages.swap_cached(&owned), None, "it is mapped");
        pages.note_slot(&owned, slot);
        pages.complete_swap_cached(owned);
        pages.table.load(PAGE)
    }

    #[test]
    fn what_a_page_in_the_swap_cache_is_there_for_follows_from_its_slot() {
        let pages = pages();
        let slots = [
            SwapCached::Victim(ChunkNo::after(Kind::Copied, 3).unwrap().slot(9)),
            SwapCached::Prefetched(KeySlot::at(5)),
            SwapCached::Parked,
        ];
        for slot in slots {
            let entry = leave_to(&pages, slot);
            assert_eq!(entry.prefetched(), matches!(slot, SwapCached::Prefetched(_)));
            assert_eq!(pages.look_swap_cached(PAGE, entry), Some(slot));
            let owned = claim(&pages, State::Changing);
            assert_eq!(pages.swap_cached(&owned), Some(slot));
            assert!(pages.complete_untouched(owned).is_none());
        }
    }

    #[test]
    #[should_panic(expected = "its slot is of another kind")]
    fn a_mark_and_a_slot_that_disagree_are_seen() {
        let pages = pages();
        leave_to(&pages, SwapCached::Parked);
        let owned = claim(&pages, State::Changing);
        pages.note_slot(&owned, KeySlot::at(0));
        let _ = pages.swap_cached(&owned);
    }

    #[test]
    #[should_panic(expected = "claimed and never completed")]
    fn a_forgotten_completion_is_seen() {
        drop(claim(&pages(), State::Fetching));
    }
}
