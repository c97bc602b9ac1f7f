//! The prefetch cache: prefetched pages that wait unmapped. Order and bounds are [`hinterland_paging`]'s, as in the pager.

use crate::answers::Answers;
use crate::machine::Machine;
use crate::page::{Marks, State};
use hinterland_paging::{
    CachedSlots, Dropped, GiveBack, KEY_SLOTS, PendingWindow, SlotBody, TakenSlot, WINDOWS_WAITING_MAX,
    choose_unreferenced, make_room, take_slot, waiting_pages_max,
};
use hinterland_policy::{Prefetch, Source};
use hinterland_units::PageNo;
use std::collections::HashMap;

/// Pages of a usual window.
const USUAL_PAGES: u32 = 64;

/// What is known of a page that waits.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// By slot of the trace.
    page: u32,
    /// Pages that were mapped with it: used when it is, as the runtime infers.
    mapped: u32,
    /// Whose key page it is.
    key_of: Option<Prefetch>,
    /// The source that asked for it.
    source: Source,
}

/// The pages that wait.
#[derive(Debug)]
pub(crate) struct PrefetchCache {
    slots: CachedSlots,
    /// By slot of the cache.
    waiting: Vec<Waiting>,
    /// Where a page waits, by slot of the trace.
    places: HashMap<u32, u32>,
    /// Pages that are loading and for which room was made.
    pending: u32,
}

impl Default for PrefetchCache {
    fn default() -> PrefetchCache {
        PrefetchCache {
            slots: CachedSlots::new(KEY_SLOTS),
            waiting: vec![Waiting::default(); KEY_SLOTS as usize],
            places: HashMap::new(),
            pending: 0,
        }
    }
}

impl PrefetchCache {
    /// Pages that wait, and those that were mapped beside them.
    fn pages(&self) -> u32 {
        self.slots.iter().map(|slot| 1 + self.waiting[slot as usize].mapped).sum()
    }

    /// More pages were mapped with a page that waits.
    pub(crate) fn mapped_with(&mut self, page: Option<u32>, mapped: u32) {
        let place = page.and_then(|page| self.places.get(&page));
        let place = place.unwrap_or_else(|| panic!("the page in slot {page:?} does not wait"));
        self.waiting[*place as usize].mapped += mapped;
    }

    /// Whether a page waits.
    pub(crate) fn has(&self, page: u32) -> bool {
        self.places.contains_key(&page)
    }

    /// A page is used: its frame is free for the next at once. Returns its place, how many pages were mapped with it, and which source asked
    /// for it.
    fn release(&mut self, page: u32) -> (u32, u32, Source) {
        let place = self.places.remove(&page).unwrap_or_else(|| panic!("the page in slot {page} does not wait"));
        self.slots.release(place);
        let Waiting { mapped, source, .. } = self.waiting[place as usize];
        (place, mapped, source)
    }

    /// A page that waits is no more: its place is found empty when it is the oldest.
    pub(crate) fn forget(&mut self, page: u32) {
        self.places.remove(&page);
    }

    /// A page that waits has another address.
    pub(crate) fn moved(&mut self, from: u32, to: u32) {
        if let Some(place) = self.places.remove(&from) {
            self.waiting[place as usize].page = to;
            self.places.insert(to, place);
        }
    }

    /// Pages for which room was made have arrived, or are not going to.
    pub(crate) fn arrived(&mut self, pages: u32) {
        self.pending = self.pending.saturating_sub(pages);
    }
}

impl SlotBody for Machine<'_> {
    fn slots<R>(&mut self, work: impl FnOnce(&mut CachedSlots) -> R) -> R {
        work(&mut self.prefetch_cache.slots)
    }

    fn give_back_unused(&mut self, slot: u32) -> bool {
        match self.answers.as_mut().map_or(GiveBack::Unused, Answers::give_back) {
            GiveBack::Unused => {}
            GiveBack::Stale => return true,
            GiveBack::Busy => return false,
        }
        let Waiting { page: oldest, mapped, source, .. } = self.prefetch_cache.waiting[slot as usize];
        // It was given up while it waited.
        if self.prefetch_cache.places.get(&oldest) != Some(&slot) {
            return true;
        }
        self.prefetch_cache.places.remove(&oldest);
        let page = &mut self.pages[oldest as usize];
        assert_eq!(page.state, State::PrefetchCached, "the page in slot {oldest} waits");
        page.state = State::Remote;
        page.marks.set(Marks::PREFETCHED, false);
        self.arbiter.wasted(source, self.work.page(oldest), mapped + 1);
        true
    }
}

impl Machine<'_> {
    /// Leaves a page unmapped in the cache, with which `mapped` others were mapped, if there is room; the bound on pages that wait, and
    /// its slot.
    pub(crate) fn leave_unmapped(&mut self, page: u32, wanted: &Prefetch, mapped: u32) -> (u32, Option<TakenSlot>) {
        let bound = waiting_pages_max(wanted, self.account.budget().0, self.setup.prefetch_cache_pages);
        let Some(taken) = take_slot(self, bound) else { return (bound, None) };
        if !taken.fresh {
            self.account.uncharge(1);
        }
        let key_of = wanted.key().map(|_| wanted.clone());
        let (mapped, source) = (mapped + self.arbiter.answers_for(wanted), wanted.source());
        self.prefetch_cache.waiting[taken.slot as usize] = Waiting { page, mapped, key_of, source };
        let before = self.prefetch_cache.places.insert(page, taken.slot);
        assert!(before.is_none(), "the page in slot {page} waits twice");
        self.prefetch_cache.slots.push(taken.slot);
        self.figures.prefetched_unmapped += 1;
        let page = &mut self.pages[page as usize];
        page.state = State::PrefetchCached;
        page.marks.set(Marks::DISPLACED, false);
        (bound, Some(taken))
    }

    /// A page that waits is used: its place in the cache, and how many pages were mapped with it.
    pub(crate) fn waiting_is_used(&mut self, page: u32) -> (u32, u32) {
        let (place, mapped, source) = self.prefetch_cache.release(page);
        self.arbiter.used(source, self.work.page(page), mapped + 1);
        (place, mapped)
    }

    /// Keeps to the user's bound when pages of a window are about to arrive.
    pub(crate) fn make_room_for_window(&mut self, pages: u32, arriving: &Prefetch) {
        let beyond = self.expect(pages);
        make_room(beyond, |skip| self.drop_oldest(skip, arriving));
    }

    /// Pages are about to arrive; returns by how many the user's bound would be exceeded.
    pub(crate) fn expect(&mut self, pages: u32) -> u32 {
        let Some(most) = self.setup.prefetch_cache_pages else { return 0 };
        self.prefetch_cache.pending += pages;
        (self.prefetch_cache.pages() + self.prefetch_cache.pending).saturating_sub(most)
    }

    /// Drops the page that has waited longest but `skip`, and the pages mapped beside it. That they leave costs nothing here.
    fn drop_oldest(&mut self, skip: u32, arriving: &Prefetch) -> Dropped {
        let (oldest, dropped) = self.drop_waiting(skip, arriving);
        let Some((mapped, key_of)) = dropped else {
            return if oldest.is_some() { Dropped::Stays } else { Dropped::NoMore };
        };
        if let Some(wanted) = key_of {
            let mut pages = wanted.iter();
            while let (mut victims, true) = self.choose_unreferenced(&mut pages) {
                self.push_chunks(&mut victims);
            }
        }
        Dropped::With(mapped)
    }

    /// The slot of the page that has waited longest but `skip`; if it could be dropped, how many pages are mapped beside it, and of what.
    pub(crate) fn drop_waiting(
        &mut self,
        skip: u32,
        arriving: &Prefetch,
    ) -> (Option<u32>, Option<(u32, Option<Prefetch>)>) {
        let Some(oldest) = self.prefetch_cache.slots.oldest(skip) else { return (None, None) };
        let Waiting { mapped, key_of, .. } = self.prefetch_cache.waiting[oldest as usize].clone();
        if key_of.as_ref() == Some(arriving) || !self.give_back_unused(oldest) {
            return (Some(oldest), None);
        }
        self.prefetch_cache.slots.release(oldest);
        (Some(oldest), Some((mapped, key_of)))
    }

    /// Takes those out of some of the pages that are not known to be in use; false: there were none to look at.
    pub(crate) fn choose_unreferenced(&mut self, pages: &mut impl Iterator<Item = PageNo>) -> (Vec<PageNo>, bool) {
        let (mut states, policy) = self.states();
        let mut victims = Vec::new();
        let goes_on = choose_unreferenced(&mut states, policy, pages, &mut victims);
        (victims, goes_on)
    }

    /// The user's bound holds, but for the pages of windows that are under way: those mapped before the key page are counted when it is
    /// there.
    pub(crate) fn check_prefetch_cache(&self, of: &PendingWindow) {
        let Some(most) = self.setup.prefetch_cache_pages.filter(|_| cfg!(debug_assertions)) else { return };
        let (pages, under_way) =
            (self.prefetch_cache.pages(), of.wanted.pages().max(USUAL_PAGES) * WINDOWS_WAITING_MAX);
        assert!(pages <= most + under_way, "{pages} prefetched pages wait, or are mapped beside one that does");
    }
}
