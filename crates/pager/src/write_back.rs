//! Write-back: what has aged in the swap cache goes to the backend, and its frames are freed.
//!
//! Any number of threads may do this at once: a chunk belongs to the thread that took it, and the pages in it to the thread that
//! made them `WritingBack`.

use crate::far_memory::FarMemory;
use crate::local_memory::LocalMemory;
use crate::pages::{ContentHash, Owned, Pages, Released};
use crate::points::Point;
use crate::scratch::Scratch;
use crate::slot::{ChunkNo, ChunkSlot, Kind, SwapCached};
use crate::staging::Staging;
use crate::state::State;
use crate::sys::{Instant, mem, thread};
use hinterland_backend::{FullCause, GranuleSet, Location, Patch, StoreError, names_nodes};
use hinterland_paging::{CHUNK_SLOTS, Step};
use hinterland_units::{ByteCount, PAGE_BYTES, PageBytes};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long, and how often, a store is retried at far memory that others use, too. A node keeps what a process held for 200 ms after its end.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);
const ROOM_PAUSE: Duration = Duration::from_millis(20);

/// What is in a staging slot.
enum Slot {
    /// A page that is ours to write back now.
    Claimed(Owned),
    /// A page that another thread works on; its frame must stay.
    Busy,
    /// Unused content.
    Stale,
}

/// A page that is not as its stored copy, or has none any more, and its hash.
struct Dirty {
    page: Owned,
    hash: ContentHash,
    /// What differs, if the copy is to be patched.
    changed: Option<GranuleSet>,
}

/// See the module.
pub(crate) struct WriteBack {
    pages: &'static Pages,
    local: &'static LocalMemory,
    far: &'static FarMemory,
    staging: &'static Staging,
}

impl WriteBack {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        far: &'static FarMemory,
        staging: &'static Staging,
    ) -> WriteBack {
        WriteBack { pages, local, far, staging }
    }

    /// Writes back what is still in a chunk and frees its frames. A slot whose page is busy at this moment (a hit copies from
    /// it, a call moves it) keeps its frame, and the chunk is queued again for it.
    pub(crate) fn drain(&self, chunk: ChunkNo, used: u32, frames: u32, scratch: &mut Scratch) {
        let Scratch { named: pages, owned, .. } = scratch;
        pages.clear();
        let mut busy = Vec::new();
        for index in 0..used {
            match self.claim_slot(chunk.slot(index)) {
                Slot::Claimed(page) => {
                    pages.push(page.page());
                    owned.push(page);
                }
                Slot::Busy => busy.push(index),
                Slot::Stale => {}
            }
        }
        self.write_back(owned);
        let mut policy = self.local.policy();
        for page in pages.iter() {
            policy.written_back(*page);
        }
        policy.turn.note(|| Step::WrittenBack { pages: pages.clone() });
        drop(policy);
        self.free_slots(chunk, used, &busy);
        let still_used = u32::try_from(busy.len()).unwrap_or(CHUNK_SLOTS);
        self.local.account.uncharge(u64::from(frames - still_used));
        if busy.is_empty() {
            self.staging.give_empty(chunk);
        } else {
            self.staging.push_full(chunk, None, used, still_used);
        }
        self.local.publish();
    }

    /// Makes the page in a slot `WritingBack`.
    fn claim_slot(&self, slot: ChunkSlot) -> Slot {
        let Some(page) = self.staging.page(slot) else { return Slot::Stale };
        let entry = self.pages.table.load(page);
        if self.pages.look_swap_cached(page, entry) == Some(SwapCached::Victim(slot)) {
            let claimed = self.pages.claim(page, entry, entry.with_state(State::WritingBack));
            return claimed.map_or(Slot::Busy, Slot::Claimed);
        }
        let points_here = self.pages.points_at(page, slot);
        // A move gives the slot to its new page before it completes the old one: look again after looking at the old one.
        let moved = self.staging.page(slot) != Some(page);
        if moved || points_here && entry.state().is_busy() { Slot::Busy } else { Slot::Stale }
    }

    /// Frees the frames of a chunk's first `used` slots, except those at the `busy` indices (in order).
    fn free_slots(&self, chunk: ChunkNo, used: u32, busy: &[u32]) {
        let mut next = 0;
        for stop in busy.iter().copied().chain([used]) {
            // Slots for copies keep their frames.
            if stop > next && chunk.kind() == Kind::Moved {
                let (start, len) = (self.staging.address(chunk.slot(next)), (stop - next) as usize * PAGE_BYTES);
                // SAFETY: nothing in these slots is anybody's content any more: their pages are stored, or were touched and
                // copied out.
                let freed = unsafe { mem::drop_pages(start, len) };
                assert!(freed.is_ok(), "staging memory cannot be freed: {freed:?}");
            }
            for index in next..stop {
                self.staging.set_page(chunk.slot(index), None);
            }
            next = stop + 1;
        }
    }

    /// Stores the pages that changed, and those whose stored copies are lost, drops those that did not, are zero, or hold what the heap has freed (see `Pager::freed`).
    fn write_back(&self, pages: &mut Vec<Owned>) {
        let row = self.pages.row();
        let mut freed: Vec<Released> = Vec::new();
        let mut clean: Vec<Owned> = Vec::new();
        let mut dirty: Vec<Dirty> = Vec::with_capacity(pages.len());
        let has_losses = self.far.has_losses();
        for page in pages.drain(..) {
            let has_copy = page.was().copy_retained();
            let bytes = self.staged(&page);
            self.pages.at(Point::Aged, page.page());
            let is_free = self.pages.table.is_free(page.page());
            if is_free || is_zero(bytes) {
                if has_copy {
                    self.far.copies.forget(1);
                }
                self.pages.at(Point::Dropping, page.page());
                let counter = if is_free { &row.evicted_free_pages } else { &row.evicted_zero_pages };
                counter.fetch_add(1, Relaxed);
                self.local.count_untouched(1);
                freed.extend(self.pages.complete_untouched(page));
                continue;
            }
            let hash = ContentHash::of(bytes);
            let is_lost = || has_losses && self.far.has_lost(&page);
            if has_copy && hash == self.pages.table.hash(page.page()) && !is_lost() {
                clean.push(page);
            } else {
                let changed = self.far.changed(&page, bytes);
                dirty.push(Dirty { page, hash, changed });
            }
        }
        self.leave_clean(clean);
        let dirty = self.patch(dirty);
        self.store(dirty, &mut freed);
        self.far.free_all(freed);
    }

    /// Pages leave as their stored copies are.
    fn leave_clean(&self, clean: Vec<Owned>) {
        if clean.is_empty() {
            return;
        }
        self.far.leave_clean(&clean.iter().map(|page| (page, self.staged(page))).collect::<Vec<_>>());
        self.pages.row().evicted_clean_pages.fetch_add(clean.len() as u64, Relaxed);
        clean.into_iter().for_each(|page| self.pages.complete_remote(page));
    }

    /// The content of a victim. It does not change while the page is owned.
    fn staged<'a>(&self, page: &'a Owned) -> &'a PageBytes {
        let Some(SwapCached::Victim(slot)) = self.pages.swap_cached(page) else {
            unreachable!("{page:?} is written back and was no victim")
        };
        // SAFETY: the slot is populated and page-aligned, and its content does not change while the page is busy and ours.
        unsafe { &*(self.staging.address(slot) as *const PageBytes) }
    }

    /// Has what changed of pages written over their stored copies, where that is known and can be done; returns the others. Of a copy that could not
    /// be patched it is not known what it is: it is freed when its page is stored anew.
    fn patch(&self, mut dirty: Vec<Dirty>) -> Vec<Dirty> {
        let Some(first) = dirty.iter().find(|dirty| dirty.changed.is_some()) else { return dirty };
        self.pages.at(Point::Patch, first.page.page());
        dirty.sort_by_key(|dirty| dirty.changed.is_none());
        let known = dirty.iter().map_while(|dirty| Some((dirty, dirty.changed?)));
        let patches: Vec<Patch<'_>> = known
            .map(|(Dirty { page, .. }, granules)| Patch {
                location: page.was().location(),
                page: self.staged(page),
                granules,
            })
            .collect();
        let patched = self.far.patch(&patches);
        let mut left = Vec::with_capacity(dirty.len());
        let (mut pages, mut bytes) = (0, 0);
        for (at, Dirty { page, hash, changed }) in dirty.into_iter().enumerate() {
            let Some(granules) = changed.filter(|_| patched[at]) else {
                left.push(Dirty { page, hash, changed: None });
                continue;
            };
            self.far.copies.forget(1);
            self.pages.at(Point::Patched, page.page());
            self.pages.complete_patched(page, hash);
            (pages, bytes) = (pages + 1, bytes + granules.bytes() as u64);
        }
        let row = self.pages.row();
        row.evicted_dirty_pages.fetch_add(pages, Relaxed);
        row.patched_pages.fetch_add(pages, Relaxed);
        row.patched_bytes.fetch_add(bytes, Relaxed);
        left
    }

    fn store(&self, mut dirty: Vec<Dirty>, freed: &mut Vec<Released>) {
        let Some(first) = dirty.first() else { return };
        self.pages.at(Point::WriteBack, first.page.page());
        let mut stored: Vec<Result<Location, StoreError>> = dirty.iter().map(|_| Ok(Location(0))).collect();
        self.far.store(&self.contents(&dirty), &mut stored);
        if !those(&stored, lacks_room).is_empty() {
            self.free_what_is_old(&mut dirty, freed);
            let contents = self.contents(&dirty);
            self.store_in_the_room_of_copies(&contents, &mut stored);
            self.store_what_others_left_no_room_for(&contents, &mut stored);
        }
        let pages = dirty.len() as u64;
        for (Dirty { page, hash, .. }, result) in dirty.into_iter().zip(stored) {
            let location = match result {
                Ok(location) => location,
                Err(error) => self.far_memory_full(&error),
            };
            if page.was().copy_retained() {
                self.far.copies.forget(1);
            }
            self.pages.at(Point::Stored, page.page());
            freed.extend(self.pages.complete_stored(page, location, hash));
        }
        self.pages.row().evicted_dirty_pages.fetch_add(pages, Relaxed);
    }

    fn contents<'a>(&self, dirty: &'a [Dirty]) -> Vec<&'a PageBytes> {
        dirty.iter().map(|dirty| self.staged(&dirty.page)).collect()
    }

    /// Frees the stored copies of pages that have changed before these are stored, and what was to be freed afterwards.
    fn free_what_is_old(&self, dirty: &mut [Dirty], freed: &mut Vec<Released>) {
        let old: Vec<Released> = dirty.iter_mut().filter_map(|dirty| dirty.page.give_up_copy()).collect();
        self.far.copies.forget(old.len() as u64);
        self.far.free_all(old);
        self.far.free_all(std::mem::take(freed));
    }

    /// Stores again what found no room: then in that of stored copies of local pages, which are dropped for it, until all is stored or no copy is left.
    fn store_in_the_room_of_copies(&self, contents: &[&PageBytes], stored: &mut [Result<Location, StoreError>]) {
        loop {
            self.store_again(&those(stored, lacks_room), contents, stored);
            let missing = those(stored, lacks_room).len();
            if missing == 0 || self.far.copies.drop_for_room(missing) == 0 {
                return;
            }
        }
    }

    /// Stores those that are missing.
    fn store_again(&self, missing: &[usize], contents: &[&PageBytes], stored: &mut [Result<Location, StoreError>]) {
        let contents: Vec<&PageBytes> = missing.iter().map(|index| contents[*index]).collect();
        let mut again: Vec<Result<Location, StoreError>> = missing.iter().map(|_| Ok(Location(0))).collect();
        self.far.store(&contents, &mut again);
        missing.iter().zip(again).for_each(|(index, answer)| stored[*index] = answer);
    }

    /// Retries for a while where other processes use the far memory, too: a node or pool keeps what a process held for a moment after
    /// its end.
    fn store_what_others_left_no_room_for(&self, contents: &[&PageBytes], stored: &mut [Result<Location, StoreError>]) {
        let begun = Instant::now();
        loop {
            let missing = those(stored, may_find_room);
            if missing.is_empty() || begun.elapsed() >= ROOM_TIMEOUT {
                return;
            }
            thread::sleep(ROOM_PAUSE);
            self.store_again(&missing, contents, stored);
        }
    }

    /// Far memory takes no more: the run ends, and says how much was needed, or what else the error is.
    fn far_memory_full(&self, error: &StoreError) -> ! {
        if !is_full(error) {
            self.pages.fatal(&error.to_string());
        }
        let mut usage = Vec::new();
        self.far.publish(&mut usage);
        let held: u64 = usage.iter().map(|u| u.pages).sum::<u64>() * PAGE_BYTES as u64;
        let capacity: u64 = usage.iter().map(|u| u.capacity_bytes).sum();
        let managed = self.pages.row().managed_bytes.load(Relaxed);
        let local = self.local.shared_budget.budget().bytes();
        let (managed, local) = (ByteCount(managed), ByteCount(local));
        self.pages.fatal(&if let StoreError::Full { cause: FullCause::Others(_), url, .. } = error {
            let rest = if names_nodes(url) { "; `hinterland node status URL` lists the tenants that hold the rest" } else { "" };
            format!(
                "far memory is used up: {error}; the program holds {managed} so far, of which {local} fit locally and {} are in far \
                 memory: give more with --far or --local{rest}",
                ByteCount(held),
            )
        } else if let StoreError::Full { cause: FullCause::Memory, .. } = error {
            format!(
                "far memory is used up: {error}; the program holds {managed} so far, of which {local} fit locally and {} are in far \
                 memory: raise the limit, or keep far memory in a file (--far file:)",
                ByteCount(held),
            )
        } else {
            format!(
                "far memory is used up: {error}; the program holds {managed} so far, {local} fit locally, the other {} need more than \
                 the {} allowed: give more with --far or --local",
                ByteCount(managed.0.saturating_sub(local.0).max(held)),
                ByteCount(capacity),
            )
        })
    }
}

/// Whether a page holds zeros only: the first words decide for almost every other page.
fn is_zero(bytes: &PageBytes) -> bool {
    bytes[..64] == [0; 64] && bytes.chunks_exact(64).all(|line| line == [0; 64])
}

/// The pages that were refused for such an error.
fn those(stored: &[Result<Location, StoreError>], why: impl Fn(&StoreError) -> bool) -> Vec<usize> {
    (0..stored.len()).filter(|index| stored[*index].as_ref().is_err_and(&why)).collect()
}

/// Whether a page may be stored soon that was refused now: others give some of their far memory back. What is this process's alone is not waited for.
fn may_find_room(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { cause: FullCause::Others(_), .. })
}

/// Whether an error says that there is no room, where other pages may give up some.
fn lacks_room(error: &StoreError) -> bool {
    is_full(error) && !matches!(error, StoreError::Incompressible { .. })
}

/// Whether an error says that there is no room: more far memory would help.
fn is_full(error: &StoreError) -> bool {
    match error {
        StoreError::Full { .. } | StoreError::Incompressible { .. } => true,
        // A full disk, a quota, `ulimit -f`; and no number is left for a further slab or stripe.
        StoreError::Device { errno, .. } => [libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EOVERFLOW].contains(errno),
        StoreError::Lost { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_waited_for_where_others_may_give_some_back() {
        let full = |cause| StoreError::Full { url: "store".into(), cause, used_bytes: 1, capacity_bytes: 1 };
        assert!(may_find_room(&full(FullCause::Others("takes no more".into()))));
        assert!(![full(FullCause::Capacity), full(FullCause::Memory)].iter().any(may_find_room));
    }

    #[test]
    fn one_bit_is_not_zero() {
        let mut page = [0; PAGE_BYTES];
        assert!(is_zero(&page));
        for at in [0, 63, 64, 4095] {
            page[at] = 1;
            assert!(!is_zero(&page), "{at}");
            page[at] = 0;
        }
    }

    #[test]
    fn a_device_without_room_is_full_and_one_that_fails_is_not() {
        let device = |errno| is_full(&StoreError::Device { url: String::new(), errno });
        assert!([libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::EOVERFLOW].into_iter().all(device));
        assert!(![libc::EIO, libc::EAGAIN, libc::EROFS].into_iter().any(device));
    }
}
