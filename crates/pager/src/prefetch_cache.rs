//! The prefetch cache over real pages: its order and its bounds are [`hinterland_paging`]'s.
//!
//! A page's slot is one of the key slots of `staging`; a slot's frame is counted as local from its first use on, whether a page waits
//! in it or not.
//!
//! One thread at a time takes slots (`taking`): between the moment in which a page leaves its slot and that in which the slot is out
//! of the list, another one would take it for free, and have its page overwritten. A thread that serves a use frees the slot while
//! it still owns the page: a thread that finds the page busy does not touch the slot, and one that finds the page in a stable state
//! elsewhere knows that nothing points at the slot.

use crate::decisions::Answers;
use crate::departure::Departures;
use crate::far_memory::FarMemory;
use crate::local_memory::LocalMemory;
use crate::pages::{Owned, Pages};
use crate::points::Point;
use crate::prefetch_driver::PrefetchDriver;
use crate::scratch::Scratch;
use crate::slot::{KeySlot, SwapCached};
use crate::staging::Staging;
use crate::state::State;
use crate::sys::Instant;
use crate::sys::sync::{Mutex, MutexGuard};
use hinterland_abi::bucket_of;
use hinterland_paging::{
    CachedSlots, Dropped, GiveBack, KEY_SLOTS, KeyPageState, SlotBody, Step, TakenSlot, make_room, pages_for_windows,
    take_slot, waiting_pages_max,
};
use hinterland_policy::{Prefetch, Source};
use hinterland_units::{PAGE_BYTES, PageBytes, PageNo};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// See the module. Slots by index among the key slots.
pub(crate) struct PrefetchCache {
    pages: &'static Pages,
    local: &'static LocalMemory,
    far: &'static FarMemory,
    staging: &'static Staging,
    departures: &'static Departures,
    driver: &'static PrefetchDriver,
    /// Locked by the thread that takes a slot, or empties one. Outside of the list's lock.
    taking: Mutex<()>,
    list: Mutex<CachedSlots>,
    records: Box<[SlotRecord]>,
    /// Pages that may wait, or be mapped beside one that does; `None`: unbounded by the user.
    pages_max: Option<u32>,
    /// Pages that are loading and for which room was made.
    pending: AtomicU32,
    /// Zero of the times in `records`.
    begun: Instant,
}

/// What is known of the page in a slot.
#[derive(Default)]
struct SlotRecord {
    /// Pages that were mapped with it: used when it is.
    mapped: AtomicU32,
    /// When it arrived.
    since_ns: AtomicU64,
    /// The source that asked for it, as [`SlotRecord::word`] writes it.
    source: AtomicU32,
    /// Whose key page it is.
    key_of: Mutex<Option<Prefetch>>,
}

impl SlotRecord {
    /// A source in a word.
    fn word(source: Source) -> u32 {
        match source {
            Source::Prefetcher => 0,
            Source::Blocks => 1,
            Source::Tape => 2,
            Source::Hints(site) => 3 + u32::from(site),
            Source::Inherited => u32::MAX,
        }
    }

    fn source(&self) -> Source {
        match self.source.load(Relaxed) {
            0 => Source::Prefetcher,
            1 => Source::Blocks,
            2 => Source::Tape,
            u32::MAX => Source::Inherited,
            word => Source::Hints(u16::try_from(word - 3).unwrap_or(u16::MAX)),
        }
    }
}

impl PrefetchCache {
    #[allow(clippy::too_many_arguments, reason = "one for each room that it works with")]
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        far: &'static FarMemory,
        staging: &'static Staging,
        departures: &'static Departures,
        driver: &'static PrefetchDriver,
        pages_max: Option<u32>,
    ) -> PrefetchCache {
        PrefetchCache {
            pages,
            local,
            far,
            staging,
            departures,
            driver,
            taking: Mutex::new(()),
            list: Mutex::new(CachedSlots::new(KEY_SLOTS)),
            records: (0..KEY_SLOTS).map(|_| SlotRecord::default()).collect(),
            pages_max,
            pending: AtomicU32::new(0),
            begun: Instant::now(),
        }
    }

    fn list(&self) -> MutexGuard<'_, CachedSlots> {
        self.list.lock().expect("no thread panics while it holds the list of cached pages")
    }

    fn taking(&self) -> MutexGuard<'_, ()> {
        self.taking.lock().expect("no thread panics while it takes a slot")
    }

    /// Local pages of which a window may have a part.
    pub(crate) fn pages_for_windows(&self) -> u64 {
        pages_for_windows(self.local.account.budget().0, self.pages_max)
    }

    /// Pages that wait, and those that were mapped beside them.
    fn unused_pages(&self) -> u32 {
        let list = self.list();
        let mapped = list.iter().map(|slot| self.records[slot as usize].mapped.load(Relaxed));
        list.cached() + mapped.sum::<u32>()
    }

    /// Pages for which room was made ([`PrefetchCache::make_room_for_window`]) have arrived.
    pub(crate) fn arrived(&self, pages: usize) {
        if self.pages_max.is_some() {
            self.pending.fetch_sub(u32::try_from(pages).unwrap_or(0), Relaxed);
        }
    }

    fn key_of(&self, slot: u32) -> MutexGuard<'_, Option<Prefetch>> {
        self.records[slot as usize].key_of.lock().expect("no thread panics while it holds a window")
    }

    fn record(&self, slot: KeySlot) -> &SlotRecord {
        &self.records[slot.index() as usize]
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Leaves a loaded page unmapped in the cache; `mapped` pages of its window were mapped before it, more may follow ([`PrefetchCache::mapped_with`]).
    /// The page itself, if no slot is free.
    ///
    /// The caller has counted a frame for it.
    pub(crate) fn leave_unmapped(
        &self,
        owned: Owned,
        bytes: &PageBytes,
        wanted: &Prefetch,
        mapped: u32,
    ) -> Result<(), Owned> {
        let (turn, mut gave_back) = (self.pages.decisions.turn(), self.pages.decisions.answers());
        let bound = waiting_pages_max(wanted, self.local.account.budget().0, self.pages_max);
        let taken = self.take_key_slot(bound, &mut gave_back);
        let slot = taken.map(|taken| (taken.slot, taken.fresh));
        let before = taken.map_or(0, |_| self.driver.answers_for(wanted));
        turn.note(|| Step::Waits { page: owned.page(), gave_back: gave_back.take(), bound, slot, mapped });
        let Some(TakenSlot { slot: index, fresh }) = taken else { return Err(owned) };
        let slot = KeySlot::at(index);
        // SAFETY: the slot is one page of ours, and no page points at it any more.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.staging.address(slot) as *mut u8, PAGE_BYTES) };
        if !fresh {
            self.local.account.uncharge(1);
        }
        let record = &self.records[index as usize];
        record.mapped.store(mapped + before, Relaxed);
        record.source.store(SlotRecord::word(wanted.source()), Relaxed);
        record.since_ns.store(self.now_ns(), Relaxed);
        *self.key_of(index) = wanted.key().map(|_| wanted.clone());
        self.pages.note_slot(&owned, slot);
        self.staging.set_page(slot, Some(owned.page()));
        self.list().push(index);
        self.pages.row().prefetched_unmapped_pages.fetch_add(1, Relaxed);
        self.pages.complete_swap_cached(owned);
        Ok(())
    }

    /// More pages were mapped with a page that was left waiting: they are used when it is, or were if it was. Where it is.
    pub(crate) fn mapped_with(&self, page: PageNo, mapped: u32) -> KeyPageState {
        // No thread gives the slot to another page meanwhile.
        let _taking = self.taking();
        let entry = self.pages.table.load(page);
        if let Some(SwapCached::Prefetched(slot)) = self.pages.look_swap_cached(page, entry) {
            // A thread that uses the page in this moment takes the count away.
            self.record(slot).mapped.fetch_add(mapped, Relaxed);
            return KeyPageState::Waiting;
        }
        if entry.state() != State::Resident {
            return KeyPageState::Elsewhere;
        }
        self.pages.row().prefetch_hits.fetch_add(mapped.into(), Relaxed);
        KeyPageState::Resident
    }

    /// A slot that no page points at.
    fn take_key_slot(&self, bound: u32, gave_back: &mut Answers<GiveBack>) -> Option<TakenSlot> {
        let _taking = self.taking();
        take_slot(&mut Taking { cache: self, gave_back }, bound)
    }

    /// Keeps to the user's bound when pages of a window are about to arrive: the page that has waited longest leaves, and with
    /// a key page the pages mapped beside it, unless they are of that window itself.
    pub(crate) fn make_room_for_window(&self, pages: usize, arriving: &Prefetch, scratch: &mut Scratch) {
        let Some(most) = self.pages_max else { return };
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let turn = self.pages.decisions.turn();
        let all = pages + self.pending.fetch_add(pages, Relaxed);
        let beyond = (self.unused_pages() + all).saturating_sub(most);
        turn.note(|| Step::Room { pages, beyond });
        drop(turn);
        make_room(beyond, |skip| self.drop_oldest(skip, arriving, scratch));
        self.pages.decisions.turn().note(|| Step::MadeRoom { beyond });
    }

    /// Drops the page that has waited longest but `skip`, and the pages mapped beside it.
    fn drop_oldest(&self, skip: u32, arriving: &Prefetch, scratch: &mut Scratch) -> Dropped {
        let (turn, mut gave_back) = (self.pages.decisions.turn(), self.pages.decisions.answers());
        let oldest = self.list().oldest(skip);
        let dropped = oldest.map(|oldest| self.drop_slot(oldest, arriving, &mut gave_back));
        let with = dropped.as_ref().and_then(|dropped| dropped.as_ref().map(|(mapped, _)| *mapped));
        turn.note(|| Step::Dropped { skip, gave_back: gave_back.take(), slot: oldest, with });
        drop(turn);
        match dropped {
            None => Dropped::NoMore,
            Some(None) => Dropped::Stays,
            Some(Some((mapped, key_of))) => {
                key_of.iter().for_each(|wanted| self.departures.take_out_unreferenced(wanted.iter(), scratch));
                Dropped::With(mapped)
            }
        }
    }

    /// Drops the page in a slot, unless it is the key page of what is arriving, or is just being used; how many pages were mapped beside it, and
    /// of what they are, if it was not used in this moment.
    fn drop_slot(
        &self,
        slot: u32,
        arriving: &Prefetch,
        gave_back: &mut Answers<GiveBack>,
    ) -> Option<(u32, Option<Prefetch>)> {
        let _taking = self.taking();
        let key_of = self.key_of(slot).clone();
        let mapped = self.records[slot as usize].mapped.load(Relaxed);
        let is_other = key_of.as_ref() != Some(arriving);
        if !is_other || !(Taking { cache: self, gave_back }).give_back_unused(slot) {
            return None;
        }
        // False: the page was used in this moment, and so were those beside it.
        let is_released = self.list().release(slot);
        Some((mapped, key_of.filter(|_| is_released)))
    }

    /// Frees a slot from its page, which becomes `Remote` again, unused, unless it is just being used. A page whose stored copy is lost waits on:
    /// its slot has all that there is of it.
    fn empty_key_slot(&self, slot: KeySlot) -> GiveBack {
        let Some(page) = self.staging.page(slot) else { return GiveBack::Stale };
        let entry = self.pages.table.load(page);
        if self.pages.look_swap_cached(page, entry) != Some(SwapCached::Prefetched(slot)) {
            // Used, discarded or moved: no page points here, unless a thread works on it at this moment (see `claim_slot`).
            let is_stale = !entry.state().is_busy() && self.staging.page(slot) == Some(page);
            return if is_stale { GiveBack::Stale } else { GiveBack::Busy };
        }
        let busy = entry.with_state(State::Fetching).with_prefetched(false);
        let Some(owned) = self.pages.claim(page, entry, busy) else { return GiveBack::Busy };
        if self.far.has_losses() && self.far.has_lost(&owned) {
            self.pages.complete_unchanged(owned);
            return GiveBack::Busy;
        }
        self.staging.set_page(slot, None);
        let mapped = self.record(slot).mapped.swap(0, Relaxed);
        self.pages.row().prefetch_unused_pages.fetch_add(1, Relaxed);
        self.pages.complete_remote(owned);
        self.driver.wasted(self.record(slot).source(), page, mapped);
        self.pages.at(Point::SlotEmptied, page);
        GiveBack::Unused
    }

    /// In the child of a fork, which has a row of its own: inherited pages that wait count there, too, but for no place that gives hints, and
    /// for no other source: those of the parent's have other numbers there.
    pub(crate) fn count_inherited(&self) {
        let list = self.list();
        self.pages.row().prefetched_unmapped_pages.fetch_add(list.cached().into(), Relaxed);
        for record in list.iter().map(|slot| &self.records[slot as usize]) {
            if matches!(record.source(), Source::Hints(_)) {
                record.source.store(SlotRecord::word(Source::Inherited), Relaxed);
                record.mapped.store(0, Relaxed);
            }
        }
    }

    /// The page in `slot` was used for the first time, and is mapped: counts it, and frees the slot at once. The caller owns the
    /// page. Whether the prefetcher and the tapes are to hear of it: what came for hints tells them nothing.
    pub(crate) fn used(&self, slot: KeySlot) -> bool {
        let record = self.record(slot);
        let row = self.pages.row();
        let (turn, page) = (self.pages.decisions.turn(), self.staging.page(slot));
        let (mapped, source) = (record.mapped.swap(0, Relaxed), record.source());
        row.prefetch_hits.fetch_add(1 + u64::from(mapped), Relaxed);
        row.prefetch_hits_observed.fetch_add(1, Relaxed);
        let waited_ns = self.now_ns().saturating_sub(record.since_ns.load(Relaxed));
        row.prefetch_wait_ns[bucket_of(waited_ns)].fetch_add(1, Relaxed);
        // The slot goes on naming the page: until the page is completed, that tells a thread that takes slots that it is busy.
        self.list().release(slot.index());
        let page = page.unwrap_or(PageNo(u32::MAX));
        self.driver.used(source, page, mapped);
        turn.note(|| Step::Used { page, slot: slot.index(), mapped });
        !matches!(source, Source::Hints(_) | Source::Inherited)
    }
}

/// A thread that takes a slot, or empties one.
struct Taking<'a> {
    cache: &'a PrefetchCache,
    gave_back: &'a mut Answers<GiveBack>,
}

impl SlotBody for Taking<'_> {
    fn slots<R>(&mut self, work: impl FnOnce(&mut CachedSlots) -> R) -> R {
        work(&mut self.cache.list())
    }

    fn give_back_unused(&mut self, slot: u32) -> bool {
        let became = self.cache.empty_key_slot(KeySlot::at(slot));
        self.gave_back.put(became);
        became != GiveBack::Busy
    }
}
