//! Read-ahead: brings windows of pages in before the program asks for them, in a thread of its own.
//!
//! Either all pages of a window are mapped at once except the key page, which waits in a key slot: its fault tells that the
//! program has come that far (3PO §3.3 calls this page the key page), counts the window as used and asks for the next one. Or
//! all of them wait (`held`), and each tells of its use.
//!
//! ```text
//!   claim 1 ── load 1 ── claim 2 ── map 1 ── load 2 ── claim 3 ── map 2 ──
//!                        the program goes on at once when its page is mapped: what it wants next is on its way already
//! ```
//!
//! Where the thread comes too late, because the program's threads have the processors or walk more streams than it can follow, a thread that
//! serves its own faults brings in the next pages of its window itself (`help_ahead`, decision 0046).

mod turns;

use crate::pager::{FaultPath, LANDING_PAGES, Pager, Scratch};
use crate::schedule::Point;
use crate::state::{Entry, State};
use hinterland_backend::{LoadError, LoadItem, Location, Priority};
use hinterland_policy::{AheadWindow, Arrival, Unmapped};
use hinterland_sys::gate::{futex_wait, futex_wake};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;
pub use turns::{Coming, Pushed, Turns};

/// Pages brought in at once when loading costs processor time: small, so that the first ones are mapped early.
const BATCH_PAGES: usize = 16;

/// Pages that a thread of the program brings in by itself at once: it waits for them, for a part of what it would wait for one after the other.
const HELP_PAGES: usize = 32;

/// Pages brought in at once otherwise, at least.
const WINDOW_BATCH_PAGES: usize = 64;

/// The part of local memory that one batch may take: what a few steps of reclaim free.
const BATCH_PART: u64 = 64;

/// Pages of a window that are brought in at once when loading costs a delay: half of them, so that the delay is paid twice, and the
/// program has the first half while the second comes. Never so many that a small `budget_pages` has no frames for them at once.
pub fn window_batch_pages(window_pages: u32, budget_pages: u64) -> usize {
    let frames = usize::try_from(budget_pages / BATCH_PART).unwrap_or(LANDING_PAGES);
    (window_pages as usize / 2).min(frames).clamp(WINDOW_BATCH_PAGES, LANDING_PAGES)
}

/// Cuts a batch, which is in order of address, into what is mapped by one call each: neighbours, and single pages that stay unmapped.
/// First comes what the program is expected at first.
pub fn runs_of<T>(batch: &[T], page: impl Fn(&T) -> PageNo, window: &AheadWindow) -> Vec<Range<usize>> {
    let waits = |item: &T| window.leaves_unmapped(page(item));
    let mut end = 0;
    let runs = batch.chunk_by(|a, b| page(a).0 + 1 == page(b).0 && !waits(a) && !waits(b)).map(|run| {
        end += run.len();
        end - run.len()..end
    });
    let mut runs: Vec<Range<usize>> = runs.collect();
    if window.step < 0 {
        runs.reverse();
    }
    runs
}

/// Steps of reclaim that the read-ahead thread makes for the frames of one batch.
pub const FRAMES_STEPS_MAX: u32 = 4;

/// Windows on their way to the read-ahead thread.
#[derive(Default)]
pub(crate) struct AheadQueue {
    turns: Mutex<Turns>,
    /// Windows that have pages left to claim, to be read without the lock.
    pending: AtomicU32,
    signal: AtomicU32,
}

impl AheadQueue {
    /// Works on the windows.
    fn with<T>(&self, work: impl FnOnce(&mut Turns) -> T) -> T {
        let mut turns = self.turns.lock().expect("no thread panics while it holds the queue");
        let result = work(&mut turns);
        self.pending.store(u32::try_from(turns.waiting()).unwrap_or(u32::MAX), Relaxed);
        result
    }

    /// Asks for a window.
    fn push(&self, window: AheadWindow) -> Pushed {
        let pushed = self.with(|turns| turns.push(window));
        self.signal.fetch_add(1, SeqCst);
        futex_wake(&self.signal);
        pushed
    }

    /// Whether windows wait.
    pub(crate) fn has_work(&self) -> bool {
        self.pending.load(Relaxed) > 0
    }

    /// Drops all windows (in the child of a fork).
    pub(crate) fn clear(&self) {
        self.with(Turns::clear);
    }
}

/// Pages of one window that come in at once.
#[derive(Default)]
struct Batch {
    /// In order of address: what they were.
    pages: Vec<(PageNo, Entry)>,
    /// The window; none: nothing is claimed.
    of: Option<Coming>,
    freed: Vec<Location>,
}

impl Pager {
    /// Asks the read-ahead thread for a window. The window's number, if that thread has not got through the one before: see `help_ahead`.
    pub(crate) fn ask_ahead(&self, window: AheadWindow) -> Option<u64> {
        match self.ahead.push(window) {
            Pushed::Behind => None,
            Pushed::AndDropped => {
                self.row().prefetch_windows_dropped.fetch_add(1, Relaxed);
                None
            }
            Pushed::InPlaceOf(number) => Some(number),
        }
    }

    /// Brings pages of a window in, in the thread that would fault on each of them, if the read-ahead thread is late. Only where
    /// threads serve themselves: a monitor has others to serve.
    pub(crate) fn help_ahead(&self, late: Option<u64>, scratch: &mut Scratch) {
        let Some(number) = late.filter(|_| self.path == FaultPath::Inline && !self.gate.is_closing()) else { return };
        let mut batch = Batch::default();
        self.claim_of(&mut batch, |turns| turns.get(number).copied(), HELP_PAGES);
        let Some(of) = batch.of.filter(|_| !batch.pages.is_empty()) else { return };
        let pages = batch.pages.len() as u64;
        // To make room is for others: this thread has its page, and is to go on.
        if self.take_free_frames(pages) {
            self.load_ahead(&batch, of, scratch);
            self.map_ahead(&mut batch, of, scratch);
        } else {
            self.refuse_ahead(of);
            batch.pages.iter().for_each(|(page, entry)| self.settle(*page, *entry));
        }
    }

    /// Brings windows in for ever: the body of the read-ahead thread.
    pub fn run_ahead(&self) -> ! {
        self.register_thread();
        let mut scratch = Scratch::new();
        let (mut batch, mut next) = (Batch::default(), Batch::default());
        loop {
            let seen = self.ahead.signal.load(SeqCst);
            // Inside the gate: the child of a fork must find the queue's lock open, and every page settled.
            let inside = self.gate.enter();
            self.claim_ahead(&mut batch);
            let had_work = batch.of.is_some();
            while let Some(of) = batch.of {
                self.bring(&mut batch, of, &mut next, &mut scratch);
                if self.above_high(&inside) {
                    self.wake_evictor();
                }
                std::mem::swap(&mut batch, &mut next);
            }
            drop(inside);
            if !had_work {
                futex_wait(&self.ahead.signal, seen);
            }
        }
    }

    /// Brings a batch in, and claims the next one before it is mapped; none while a fork waits.
    fn bring(&self, batch: &mut Batch, of: Coming, next: &mut Batch, scratch: &mut Scratch) {
        let has_frames = self.frames_for(batch.pages.len() as u64, scratch);
        if has_frames {
            self.load_ahead(batch, of, scratch);
            self.at(Point::AheadLoaded, batch.pages[0].0);
        } else {
            self.refuse_ahead(of);
        }
        next.of = None;
        if !self.gate.is_closing() {
            self.claim_ahead(next);
        }
        self.at(Point::AheadClaimed, batch.pages[0].0);
        if has_frames {
            self.map_ahead(batch, of, scratch);
        } else {
            batch.pages.iter().for_each(|(page, entry)| self.settle(*page, *entry));
        }
    }

    fn refuse_ahead(&self, of: Coming) {
        self.ahead.with(|turns| turns.remove(of.number));
        self.row().prefetch_windows_refused.fetch_add(1, Relaxed);
    }

    /// Makes the next far pages that are wanted `Fetching`, all of one window.
    fn claim_ahead(&self, batch: &mut Batch) {
        loop {
            self.claim_of(batch, Turns::take_turn, usize::MAX);
            if batch.of.is_none() || !batch.pages.is_empty() {
                return;
            }
        }
    }

    /// Makes far pages of the window that `which` says `Fetching`, as many as come in at once, and at most `pages_max`.
    fn claim_of(&self, batch: &mut Batch, which: impl FnOnce(&mut Turns) -> Option<Coming>, pages_max: usize) {
        batch.pages.clear();
        batch.of = self.ahead.with(which);
        let Some(Coming { window, number, mut offset, .. }) = batch.of else { return };
        let most = self.batch_pages(&window).min(pages_max);
        while batch.pages.len() < most && offset < window.pages {
            let page = window.page(offset).filter(|page| page.0 < self.pages);
            batch.pages.extend(page.and_then(|page| self.claim_remote(page)));
            offset += 1;
        }
        // Another thread may have come further meanwhile.
        self.ahead.with(|turns| turns.update(number, |coming| coming.offset = coming.offset.max(offset)));
        if window.step < 0 {
            batch.pages.reverse();
        }
    }

    fn batch_pages(&self, window: &AheadWindow) -> usize {
        // Windows beyond the usual one exist only where loads were measured to take long, or where somebody asked for them.
        let is_usual = window.pages as usize <= WINDOW_BATCH_PAGES;
        if is_usual && self.backend.copies_cost_ram() {
            BATCH_PAGES
        } else {
            window_batch_pages(window.pages, self.account.budget().0)
        }
    }

    fn claim_remote(&self, page: PageNo) -> Option<(PageNo, Entry)> {
        let entry = self.table.load(page);
        let claimed = entry.state() == State::Remote
            && self.table.transition(page, entry, entry.with_state(State::Fetching).with_prefetched(true)).is_ok();
        claimed.then_some((page, entry))
    }

    /// Counts frames for a batch, reclaiming a little for it. False: memory is too tight to read ahead.
    fn frames_for(&self, pages: u64, scratch: &mut Scratch) -> bool {
        for _ in 0..FRAMES_STEPS_MAX {
            if self.take_free_frames(pages) {
                return true;
            }
            self.reclaim_step(scratch);
        }
        self.account.try_take(pages)
    }

    /// Counts frames that are free, or that others leave to this process.
    fn take_free_frames(&self, pages: u64) -> bool {
        self.account.try_take(pages) || self.grow(pages) && self.account.try_take(pages)
    }

    fn load_ahead(&self, batch: &Batch, of: Coming, scratch: &mut Scratch) {
        self.make_room_ahead(batch.pages.len(), &of.window, scratch);
        // Not on the stack, which may be a small one of the program's where a system call asks for its pages.
        let mut results: Vec<Option<Result<(), LoadError>>> = batch.pages.iter().map(|_| None).collect();
        let landing = scratch.landing();
        let mut items: Vec<LoadItem<'_>> = batch
            .pages
            .iter()
            .zip(landing.iter_mut())
            .map(|((_, entry), into)| LoadItem { location: entry.location(), into })
            .collect();
        let begun = Instant::now();
        self.backend.load(&mut items, Priority::Prefetch, &mut |index, result| {
            results[index] = Some(result.map(drop));
        });
        drop(items);
        self.timed(u32::try_from(batch.pages.len()).unwrap_or(u32::MAX), begun);
        for ((page, entry), (bytes, result)) in batch.pages.iter().zip(landing.iter_mut().zip(results)) {
            let result = result.unwrap_or_else(|| panic!("the backend did not answer for {page}"));
            self.verify(*page, *entry, bytes, result);
        }
    }

    /// Maps a loaded batch run by run but for the pages that stay unmapped.
    fn map_ahead(&self, batch: &mut Batch, of: Coming, scratch: &mut Scratch) {
        let (landing, window) = (scratch.landing(), of.window);
        // What batches of the same window before this one left to be told.
        let told_later = |coming: &mut Coming| std::mem::take(&mut coming.mapped);
        let mut mapped = self.ahead.with(|turns| turns.update(of.number, told_later)).unwrap_or(0);
        let mut has_key = of.has_key;
        batch.freed.clear();
        for run in runs_of(&batch.pages, |(page, _)| *page, &window) {
            let (page, entry) = batch.pages[run.start];
            let landed = &landing[run.start];
            if window.leaves_unmapped(page) && self.hold(page, entry, landed, &window, mapped) {
                self.row().prefetched_pages.fetch_add(1, Relaxed);
                (mapped, has_key) = (0, true);
            } else {
                mapped += self.map_run(&batch.pages[run], landed.as_ptr(), &mut batch.freed);
            }
        }
        let told_now = |coming: &mut Coming| {
            coming.has_key |= has_key;
            coming.mapped += mapped;
            let is_told = coming.has_key && matches!(window.unmapped, Unmapped::Key(_));
            if is_told { std::mem::take(&mut coming.mapped) } else { 0 }
        };
        let told = self.ahead.with(|turns| turns.update(of.number, told_now));
        let told = told.unwrap_or(if has_key { mapped } else { 0 });
        if let (Unmapped::Key(key), 1..) = (window.unmapped, told) {
            self.mapped_with(key, told);
        }
        self.held.came(batch.pages.len());
        self.came_ahead(&batch.pages);
        self.backend.free(&batch.freed);
        self.account.publish(self.row());
    }

    fn map_run(&self, run: &[(PageNo, Entry)], from: *const u8, freed: &mut Vec<Location>) -> u32 {
        // SAFETY: the landing pages hold the verified content of these pages, which are missing and ours.
        let mapped = unsafe { self.kernel.map_copy(self.address(run[0].0), from, run.len()) };
        let there = mapped.map_or_else(|partial| partial.done / PAGE_BYTES, |()| run.len());
        self.arrive(run[..there].iter().map(|(page, _)| *page), Arrival::Ahead);
        let epoch = self.account.arrive(there as u64);
        for (page, entry) in &run[..there] {
            let (settled, location) = self.keep_or_free(entry.with_state(State::Resident).arrived(epoch, false));
            freed.extend(location);
            self.settle(*page, settled);
        }
        for (page, entry) in &run[there..] {
            self.account.give(1);
            self.settle(*page, *entry);
        }
        self.row().prefetched_pages.fetch_add(there as u64, Relaxed);
        u32::try_from(there).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_in_the_order_in_which_the_program_is_expected() {
        let window =
            |step, key| AheadWindow { first: PageNo(10), step, pages: 8, unmapped: Unmapped::Key(PageNo(key)) };
        let up: Vec<PageNo> = [10, 11, 12, 13, 15, 16].map(PageNo).into();
        assert_eq!(runs_of(&up, |page| *page, &window(1, 12)), [0..2, 2..3, 3..4, 4..6]);
        let down: Vec<PageNo> = [3, 4, 6, 7, 8, 9, 10].map(PageNo).into();
        assert_eq!(runs_of(&down, |page| *page, &window(-1, 8)), [5..7, 4..5, 2..4, 0..2]);
        let waiting = AheadWindow { unmapped: Unmapped::All, ..window(1, 0) };
        assert_eq!(runs_of(&up[..2], |page| *page, &waiting), [0..1, 1..2]);
    }
}
