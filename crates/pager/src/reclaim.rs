//! Reclaim: victims leave the program in batches, age in the swap cache, and are written back.
//!
//! Any number of threads may reclaim at once: a batch belongs to the thread that took its chunk, and the pages in it to
//! the thread that made them busy.

use crate::asks::Held;
use crate::fault_path::FaultPath;
use crate::kernel::Stay;
use crate::pager::Pager;
use crate::schedule::Point;
use crate::scratch::Scratch;
use crate::shared_budget::DemandSampler;
use crate::staging::{ChunkNo, Kind};
use crate::state::{Entry, State};
use crate::table::ContentHash;
use hinterland_backend::{Location, Priority, StoreError};
use hinterland_paging::{
    CHUNK_SLOTS, Claim, PageStates, ReclaimBody, Residency, choose_unreferenced, choose_victims, reclaim_step,
};
use hinterland_sys::{mem, thread};
use hinterland_units::{ByteCount, PAGE_BYTES, PageBytes, PageNo};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Steps between two looks at the budget and two reports of the backends' figures.
const REPORT_STEPS: u32 = 16;
/// Times in a row that the store may be unable to shrink: another thread may be moving its pages out at that moment.
const RAM_REFUSALS_MAX: u32 = 64;
/// How long, and how often, a store is retried at far memory that others use, too. A node keeps what a process held for 200 ms after its end.
const ROOM_PATIENCE: Duration = Duration::from_secs(2);
const ROOM_PAUSE: Duration = Duration::from_millis(20);

/// Time between two calls of the housekeeping.
const TIDY_INTERVAL: Duration = Duration::from_millis(200);

/// What is in a staging slot.
enum Slot {
    /// A page that is ours to write back now.
    Claimed(PageNo),
    /// A page that somebody else works on; its frame must stay.
    Busy,
    /// Nobody's content.
    Stale,
}

/// What became of an attempt to make a page, as it was seen, a victim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// It is `Leaving`, and ours.
    Ours,
    /// The kernel works on it: it stays `Resident`.
    Pinned,
    /// It was not `Resident` but in this state.
    Not(State),
    /// It changed at that moment.
    Changed,
}

impl PageStates for &Pager {
    type Seen = Entry;

    fn look(&self, page: PageNo) -> Option<(Entry, Residency)> {
        let entry = (page.0 < self.pages.count).then(|| self.pages.table.load(page))?;
        Some((entry, Residency { epoch: entry.arrival_epoch(), referenced: entry.referenced() }))
    }

    fn claim(&mut self, page: PageNo) -> Claim {
        self.claim_named(page)
    }

    fn claim_as_seen(&mut self, page: PageNo, seen: Entry) -> bool {
        self.claim_victim(page, seen) == Attempt::Ours
    }
}

/// A step of reclaim in a thread with this scratch.
struct Step<'a>(&'a Pager, &'a mut Scratch);

impl ReclaimBody for Step<'_> {
    /// A chunk, the slots of it that were used, and the frames in them.
    type Chunk = (ChunkNo, u32, u32);
    type Done = ();

    fn take_oldest(&mut self, keep: usize) -> Option<Self::Chunk> {
        self.0.staging.take_oldest(keep)
    }

    fn fill(&mut self) -> Option<()> {
        self.0.fill(self.1).then_some(())
    }

    fn drain(&mut self, (chunk, used, frames): Self::Chunk) {
        self.0.drain(chunk, used, frames, self.1);
    }
}

impl Pager {
    /// Keeps local memory within its budget for ever: the body of the evictor thread.
    pub fn run_evictor(&'static self) -> ! {
        self.pages.own_threads.register();
        let mut scratch = Scratch::new();
        let mut tidied = Instant::now();
        let mut demand = DemandSampler::new();
        let mut held = Held::default();
        loop {
            let seen = self.bell().load(SeqCst);
            self.answer_asks(&mut held);
            if self.pages.path == FaultPath::Inline
                && (self.read_ahead.has_work() || self.local.above_high(&self.pages.gate.enter()))
            {
                self.start_helpers();
            }
            self.start_maintenance_if_needed();
            let look_again =
                demand.sample(&self.local.shared_budget, self.pages.row(), &self.local.account, self.shared);
            if look_again.is_some() {
                let _inside = self.pages.gate.enter();
                self.local.update_budget();
            }
            let mut worked = false;
            while self.local.account.above_low() {
                let inside = self.pages.gate.enter();
                worked = (worked || self.local.above_high(&inside)) && self.reclaim_step(&mut scratch);
                drop(inside);
                self.answer_asks(&mut held);
                if !worked {
                    break;
                }
            }
            self.report(&mut scratch);
            if tidied.elapsed() > TIDY_INTERVAL {
                (self.housekeeping)();
                tidied = Instant::now();
            }
            // Local memory is above the watermark and nothing can leave: retry soon, without spinning.
            let stuck = !worked && self.local.account.above_high();
            let pause = Duration::from_millis(if stuck { 2 } else { 200 }).min(look_again.unwrap_or(Duration::MAX));
            self.evictor_idle.store(true, SeqCst);
            self.wait_for_bell(seen, pause);
            self.evictor_idle.store(false, SeqCst);
        }
    }

    /// Lets the evictor look at the watermarks.
    pub(crate) fn wake_evictor(&self) {
        if self.evictor_idle.load(SeqCst) {
            self.ring_bell();
        }
    }

    fn report(&self, scratch: &mut Scratch) {
        let _inside = self.pages.gate.enter();
        self.local.update_budget();
        self.far.publish(&mut scratch.usage);
        self.take_census_if_grown();
    }

    /// Takes stock of the process's memory when it has grown by a quarter: the figures of the peak are wanted.
    fn take_census_if_grown(&self) {
        let managed = self.pages.row().managed_bytes.load(Relaxed);
        let last = self.census_at.load(Relaxed);
        if managed > last + last / 4 {
            self.census_at.store(managed, Relaxed);
            // Not under the policy's lock: a census reads files.
            let tables = self.local.policy().metadata_bytes() as u64;
            (self.census)(self.pages.row(), tables);
        }
    }

    /// Writes the figures that are not kept current all the time, for a process that is about to end.
    pub fn report_now(&self) {
        let _signals = thread::SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        self.local.update_budget();
        self.far.publish(&mut Vec::new());
        let tables = self.local.policy().metadata_bytes() as u64;
        (self.census)(self.pages.row(), tables);
    }

    /// One step towards free frames. False: nothing can be done.
    pub(crate) fn reclaim_step(&self, scratch: &mut Scratch) -> bool {
        scratch.rounds += 1;
        let reports = scratch.rounds.is_multiple_of(REPORT_STEPS);
        // Every page that leaves may make the store larger: `--ram` is looked at each time.
        if reports || self.local.shared_budget.bounds_ram() {
            let beside = self.local.update_budget();
            self.relieve_ram(beside);
        }
        if reports {
            self.far.publish(&mut scratch.usage);
        }
        reclaim_step(&mut Step(self, scratch), self.local.account.swap_cache()).is_some()
    }

    /// Under `--ram`, with local memory at its floor: the store itself must shrink.
    fn relieve_ram(&self, beside: ByteCount) {
        let touched = ByteCount(self.pages.row().managed_peak_bytes.load(Relaxed));
        let excess = self.local.shared_budget.store_excess(self.pages.row(), touched.0, beside.0);
        if excess == 0 || self.far.backend.shrink_ram(excess) > 0 {
            self.ram_refusals.store(0, Relaxed);
        } else if self.ram_refusals.fetch_add(1, Relaxed) >= RAM_REFUSALS_MAX {
            self.pages.fatal(&format!(
                "--ram is used up: {} beyond what it allows are needed for compressed pages; raise --ram, or add a file \
                 with --far file:PATH",
                ByteCount(excess)
            ));
        }
    }

    /// Takes a batch of victims out of the program into a chunk. False: there were none, or none could leave.
    fn fill(&self, scratch: &mut Scratch) -> bool {
        if self.stage_parked() > 0 {
            return true;
        }
        let copies = self.copies_out();
        choose_victims(
            &mut &*self,
            &mut *self.local.policy(),
            &self.local.account,
            &self.scans,
            copies,
            &mut scratch.victims,
        );
        self.take_victims_out(scratch)
    }

    /// Takes those of `pages` out of the program that are not known to be referenced.
    pub(crate) fn take_out_unreferenced(&self, mut pages: impl Iterator<Item = PageNo>, scratch: &mut Scratch) {
        while choose_unreferenced(&mut &*self, &mut *self.local.policy(), &mut pages, &mut scratch.victims) {
            self.take_victims_out(scratch);
        }
    }

    /// Takes a batch of victims, which are `Leaving`, out of the program. False: none could leave.
    fn take_victims_out(&self, scratch: &mut Scratch) -> bool {
        scratch.victims.sort_unstable();
        let copied = self.copy_victims_out(&mut scratch.victims);
        let moved = self.move_victims_out(&scratch.victims);
        copied + moved > 0
    }

    /// Takes victims out run by run; returns how many left.
    fn move_victims_out(&self, victims: &[PageNo]) -> u32 {
        if victims.is_empty() {
            return 0;
        }
        let Some(chunk) = self.staging.take_empty(Kind::Moved) else {
            victims.iter().for_each(|page| self.did_not_leave(*page, Stay::Pinned));
            return 0;
        };
        let mut left = 0;
        let mut next = 0;
        while next < victims.len() {
            let run = run_length(&victims[next..]);
            left += self.take_out_run(&victims[next..next + run], chunk, next);
            next += run;
        }
        if left == 0 {
            self.staging.give_empty(chunk);
        } else {
            let used = u32::try_from(victims.len()).unwrap_or(CHUNK_SLOTS);
            self.staging.push_full(chunk, used, left);
        }
        left
    }

    /// Makes a page that the policy named `Leaving`, if it is `Resident` and not pinned.
    pub(crate) fn claim_named(&self, page: PageNo) -> Claim {
        loop {
            match self.claim_victim(page, self.pages.table.load(page)) {
                Attempt::Changed => {}
                Attempt::Ours => return Claim::Ours,
                Attempt::Pinned => return Claim::Busy,
                Attempt::Not(state) => return if state.is_busy() { Claim::Busy } else { Claim::Gone },
            }
        }
    }

    /// Makes a `Resident` page `Leaving`, unless it is pinned.
    fn claim_victim(&self, page: PageNo, entry: Entry) -> Attempt {
        if entry.state() != State::Resident {
            return Attempt::Not(entry.state());
        }
        if self.pages.table.transition(page, entry, entry.with_state(State::Leaving)).is_err() {
            return Attempt::Changed;
        }
        self.pages.at(Point::Marked, page);
        if self.pins.cover(page) {
            self.pages.complete(page, entry);
            return Attempt::Pinned;
        }
        Attempt::Ours
    }

    /// Takes a run of neighbouring victims out; `offset` is the first one's place in the chunk. Returns how many left.
    fn take_out_run(&self, run: &[PageNo], chunk: ChunkNo, offset: usize) -> u32 {
        let slot_of = |index: usize| chunk.slot(u32::try_from(offset + index).unwrap_or(0));
        // A page that MOVE refuses is protected and copied: the end of a protected range around it would lift that protection.
        let _excluded =
            self.wp_ranges_may_be_open().then(|| self.wp_ranges.exclude(run[0].0, run[run.len() - 1].0 + 1));
        let mut left = 0;
        let mut next = 0;
        while next < run.len() {
            let (from, to) = (self.pages.address(run[next]), self.staging.address(slot_of(next)));
            self.pages.at(Point::Leaving, run[next]);
            // SAFETY: the pages are `Leaving` and ours, the chunk's slots are empty and ours.
            let (out, stay) = unsafe { self.pages.kernel.take_out(from, to, run.len() - next) };
            self.pages.at(Point::TakenOut, run[next]);
            for (index, page) in run.iter().enumerate().skip(next).take(out) {
                let slot = slot_of(index);
                self.pages.table.set_slot(*page, slot);
                self.staging.set_page(slot, Some(*page));
                let entry = self.pages.table.load(*page);
                self.pages.complete(*page, entry.with_state(State::SwapCached).with_prefetched(false));
                left += 1;
            }
            next += out;
            if let (Some(stay), Some(page)) = (stay, run.get(next)) {
                self.staging.set_page(slot_of(next), None);
                self.did_not_leave(*page, stay);
                next += 1;
            }
        }
        let counter = if self.pages.kernel.features().move_pages {
            &self.pages.row().moved_out_pages
        } else {
            &self.pages.row().copied_out_pages
        };
        counter.fetch_add(u64::from(left), Relaxed);
        left
    }

    pub(crate) fn did_not_leave(&self, page: PageNo, stay: Stay) {
        let entry = self.pages.table.load(page);
        match stay {
            Stay::Pinned => {
                self.pages.row().putback_pages.fetch_add(1, Relaxed);
                self.local.policy().putback(page);
                self.pages.complete(page, entry.with_state(State::Resident));
            }
            Stay::Missing => {
                if entry.copy_retained() {
                    self.far.forget_copies(1);
                    self.far.backend.free(&[entry.location()]);
                }
                self.local.policy().forgotten(page);
                self.pages.complete(page, Entry::new(State::Untouched));
                self.local.account.uncharge(1);
                self.local.count_untouched(1);
            }
        }
    }

    /// Writes back what is still in a chunk and frees its frames. A slot whose page is busy at this moment (a hit copies from
    /// it, a call moves it) keeps its frame, and the chunk is queued again for it.
    fn drain(&self, chunk: ChunkNo, used: u32, frames: u32, scratch: &mut Scratch) {
        let pages = &mut scratch.victims;
        pages.clear();
        let mut busy = Vec::new();
        for slot in (0..used).map(|index| chunk.slot(index)) {
            match self.claim_slot(slot) {
                Slot::Claimed(page) => pages.push(page),
                Slot::Busy => busy.push(slot),
                Slot::Stale => {}
            }
        }
        self.write_back(pages);
        let mut policy = self.local.policy();
        for page in pages.iter() {
            policy.written_back(*page);
        }
        drop(policy);
        self.free_slots(chunk, used, &busy);
        let still_used = u32::try_from(busy.len()).unwrap_or(CHUNK_SLOTS);
        self.local.account.uncharge(u64::from(frames - still_used));
        if busy.is_empty() {
            self.staging.give_empty(chunk);
        } else {
            self.staging.push_full(chunk, used, still_used);
        }
        self.local.publish();
    }

    /// Makes the page in a slot `WritingBack`.
    fn claim_slot(&self, slot: u32) -> Slot {
        let Some(page) = self.staging.page(slot) else { return Slot::Stale };
        let entry = self.pages.table.load(page);
        let here = self.pages.table.slot(page) == slot;
        if here && entry.state() == State::SwapCached {
            let claimed = self.pages.table.transition(page, entry, entry.with_state(State::WritingBack)).is_ok();
            return if claimed { Slot::Claimed(page) } else { Slot::Busy };
        }
        // A move gives the slot to its new page before it completes the old one: look again after looking at the old one.
        let moved = self.staging.page(slot) != Some(page);
        if moved || here && entry.state().is_busy() { Slot::Busy } else { Slot::Stale }
    }

    /// Frees the frames of a chunk's first `used` slots, except the `busy` ones (in order).
    fn free_slots(&self, chunk: ChunkNo, used: u32, busy: &[u32]) {
        let mut next = chunk.slot(0);
        let end = next + used;
        for stop in busy.iter().copied().chain([end]) {
            // Slots for copies keep their frames.
            if stop > next && chunk.kind() == Kind::Moved {
                let (start, len) = (self.staging.address(next), (stop - next) as usize * PAGE_BYTES);
                // SAFETY: nothing in these slots is anybody's content any more: their pages are stored, or were touched and
                // copied out.
                let freed = unsafe { mem::drop_pages(start, len) };
                assert!(freed.is_ok(), "staging memory cannot be freed: {freed:?}");
            }
            for slot in next..stop {
                self.staging.set_page(slot, None);
            }
            next = stop + 1;
        }
    }

    /// Stores the pages that changed, drops those that did not or are zero.
    fn write_back(&self, pages: &[PageNo]) {
        let row = self.pages.row();
        let mut freed: Vec<Location> = Vec::new();
        let mut dirty: Vec<(PageNo, Entry, ContentHash)> = Vec::with_capacity(pages.len());
        for page in pages {
            let entry = self.pages.table.load(*page);
            let bytes = self.staged(*page);
            if is_zero(bytes) {
                if entry.copy_retained() {
                    freed.push(entry.location());
                    self.far.forget_copies(1);
                }
                row.evicted_zero_pages.fetch_add(1, Relaxed);
                self.local.count_untouched(1);
                self.pages.complete(*page, Entry::new(State::Untouched));
                continue;
            }
            let hash = ContentHash::of(bytes);
            if entry.copy_retained() && hash == self.pages.table.hash(*page) {
                self.far.forget_copies(1);
                row.evicted_clean_pages.fetch_add(1, Relaxed);
                self.pages.complete(*page, entry.with_state(State::Remote));
            } else {
                dirty.push((*page, entry, hash));
            }
        }
        self.store(&dirty, &mut freed);
        self.far.backend.free(&freed);
    }

    /// The content of a page in the swap cache that the caller made `WritingBack`.
    fn staged(&self, page: PageNo) -> &PageBytes {
        // SAFETY: the slot is populated and page-aligned, and its content does not change while the page is busy and ours.
        unsafe { &*(self.staging.address(self.pages.table.slot(page)) as *const PageBytes) }
    }

    fn store(&self, dirty: &[(PageNo, Entry, ContentHash)], freed: &mut Vec<Location>) {
        if dirty.is_empty() {
            return;
        }
        self.pages.at(Point::WriteBack, dirty[0].0);
        let contents: Vec<&PageBytes> = dirty.iter().map(|(page, ..)| self.staged(*page)).collect();
        let mut stored: Vec<Result<Location, StoreError>> = dirty.iter().map(|_| Ok(Location(0))).collect();
        self.far.backend.store(&contents, Priority::WriteBack, &mut stored);
        self.store_what_others_left_no_room_for(&contents, &mut stored);
        for ((page, entry, hash), result) in dirty.iter().zip(stored) {
            let location = match result {
                Ok(location) => location,
                Err(error) => self.far_memory_full(&error),
            };
            if entry.copy_retained() {
                freed.push(entry.location());
                self.far.forget_copies(1);
            }
            self.pages.at(Point::Stored, *page);
            self.pages.table.set_hash(*page, *hash);
            self.pages.complete(*page, Entry::new(State::Remote).with_location(location));
        }
        self.pages.row().evicted_dirty_pages.fetch_add(dirty.len() as u64, Relaxed);
    }

    /// Retries for a while where other processes use the far memory, too: a node or pool keeps what a process held for a moment after
    /// its end.
    fn store_what_others_left_no_room_for(&self, contents: &[&PageBytes], stored: &mut [Result<Location, StoreError>]) {
        let begun = Instant::now();
        loop {
            let refused =
                |answer: &Result<Location, StoreError>| matches!(answer, Err(StoreError::Full { words: Some(_), .. }));
            let missing: Vec<usize> = (0..stored.len()).filter(|index| refused(&stored[*index])).collect();
            if missing.is_empty() || begun.elapsed() >= ROOM_PATIENCE {
                return;
            }
            thread::sleep(ROOM_PAUSE);
            let contents: Vec<&PageBytes> = missing.iter().map(|index| contents[*index]).collect();
            let mut again: Vec<Result<Location, StoreError>> = missing.iter().map(|_| Ok(Location(0))).collect();
            self.far.backend.store(&contents, Priority::WriteBack, &mut again);
            missing.into_iter().zip(again).for_each(|(index, answer)| stored[index] = answer);
        }
    }

    /// Far memory takes no more: the run ends, and says how much was needed.
    fn far_memory_full(&self, error: &StoreError) -> ! {
        if matches!(error, StoreError::Lost { .. }) {
            self.pages.fatal(&error.to_string());
        }
        let mut usage = Vec::new();
        self.far.publish(&mut usage);
        let held: u64 = usage.iter().map(|u| u.pages).sum::<u64>() * PAGE_BYTES as u64;
        let capacity: u64 = usage.iter().map(|u| u.capacity_bytes).sum();
        let managed = self.pages.row().managed_bytes.load(Relaxed);
        let local = self.local.shared_budget.budget().bytes();
        let (managed, local) = (ByteCount(managed), ByteCount(local));
        self.pages.fatal(&if matches!(error, StoreError::Full { words: Some(_), .. }) {
            format!(
                "far memory is used up: {error}; the program holds {managed} so far, of which {local} fit locally and {} are in far \
                 memory: give more with --far or --local; `hinterland node status URL` says who has the rest",
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

/// Pages at the start of `sorted` that are neighbours.
fn run_length(sorted: &[PageNo]) -> usize {
    let neighbours = sorted.windows(2).take_while(|pair| pair[1].0 == pair[0].0 + 1).count();
    neighbours + 1
}

/// Whether a page holds zeros only: the first words decide for almost every other page.
fn is_zero(bytes: &PageBytes) -> bool {
    bytes[..64] == [0; 64] && bytes.chunks_exact(64).all(|line| line == [0; 64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_gaps() {
        let pages: Vec<PageNo> = [3, 4, 5, 9, 10].into_iter().map(PageNo).collect();
        assert_eq!(run_length(&pages), 3);
        assert_eq!(run_length(&pages[3..]), 2);
        assert_eq!(run_length(&pages[4..]), 1);
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
}
