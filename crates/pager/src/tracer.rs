//! The tracer (3PO §3.1): at most a microset of pages is mapped at a time, so that every page a program comes back to is a
//! fault, and is seen.
//!
//! ```text
//!               fault: the page joins the microset
//!   parked ──────────────────────────────────────────► mapped
//!   (SwapCached, at its own place     MOVE              (Resident)
//!    in a second range)  ◄────────────────────────────────┘
//!                         the microset is full: all its pages at once, MOVE, run by run
//! ```
//!
//! Parking moves the frame, not the content: a page's place in the second range has the same offset as the page, so runs of pages
//! leave with one call and no slot has to be found or given back. Pages that MOVE cannot take (read-only ones, those shared with
//! a forked process, locked ones) go the other ways that `Kernel::take_out` knows. When local memory is scarce, parked pages go on
//! into staging chunks, and from there to the backends, as all victims do.
//!
//! One microset serves all threads, because they share the page table: a page that one thread has touched is not seen when
//! another touches it in the same microset. A child of a fork is recorded elsewhere, or not at all. Its pages are parked as its parent's
//! were; those that were mapped are parked before it goes on.
//!
//! Invariant: outside the tracer's lock, every `Resident` page that the tracer saw arrive is in `mapped`, but for those that were allocated
//! outside of intervals (`interval`).

mod clock;
mod contents;
mod interval;

use crate::departure::{Claimed, Departures};
use crate::forward_progress::ForwardProgress;
use crate::kernel::NotEvicted;
use crate::local_memory::LocalMemory;
use crate::pages::{Outcome, Owned, Pages, run_length};
use crate::points::Point;
use crate::slot::{Kind, SwapCached};
use crate::staging::Staging;
use crate::state::{Entry, State};
use crate::sys::sync::{Mutex, MutexGuard};
use crate::sys::{Mapping, mem, thread};
use clock::Clocks;
use contents::Contents;
use hinterland_paging::CHUNK_SLOTS;
use hinterland_policy::Arrival;
use hinterland_sys::{Fault, SysError};
use hinterland_units::{PAGE_BYTES, PageBytes, PageNo};
use interval::{Allocations, Phase};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::vec::Drain;

/// A microset takes this part of the run's budget at most.
const BUDGET_PART: u64 = 2;

/// Why the content of pages is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiscardCause {
    /// The program freed them: what is not mapped is dropped.
    Freed,
    /// They read as zero from now on.
    Discarded,
    /// They are not mapped any more, or something else is.
    Unmapped,
    /// Their content is at other pages.
    Moved,
}

/// Receives what the tracer sees. Called by one thread at a time: those that serve faults, and the program's where it gives pages up.
pub trait Recorder: Send {
    /// Thread `thread` (its kernel id), which had taken `cpu_ns` of processor time, faults left out, touches `page` for the first
    /// time in this microset; `is_first`: the page had no content. False: nothing more can be recorded, and tracing ends.
    fn touched(&mut self, page: PageNo, thread: u32, cpu_ns: u64, is_first: bool) -> bool;

    /// The content of `count` pages from `first` is given up; some of them may have none. False: as above.
    fn discarded(&mut self, first: PageNo, count: u32, cause: DiscardCause) -> bool;

    /// The microset is whole; `written`: a bit for each touch of it, the lowest of the first byte first: the page was written to
    /// meanwhile, or may have been. False: as above.
    fn microset_ended(&mut self, written: &[u8]) -> bool;

    /// The program says which part of it is to be recorded: what came until now is forgotten. False: as above.
    fn begin_again(&mut self) -> bool;

    /// The program's `number`-th interval begins, from 1. False: as above.
    fn interval_began(&mut self, number: u32) -> bool;

    /// The program ends: nothing more will come.
    fn finished(&mut self);

    /// This process is a forked child: what is open must be closed, and nothing more be written there. Whether the child is recorded,
    /// elsewhere; `has_intervals`: from the next interval on that it begins itself.
    fn begin_child(&mut self, has_intervals: bool) -> bool;
}

/// How a program is to be traced.
pub struct Trace {
    /// Pages that may be mapped at a time; at least 1.
    pub microset_pages: u32,
    /// Where it goes.
    pub recorder: Box<dyn Recorder>,
}

/// Takes a range of pages out of a set, page by page or by a look at all of it, which its capacity takes: whichever is less.
fn forget(set: &mut HashSet<PageNo>, first: PageNo, count: u32) {
    let range = first.0..first.0.saturating_add(count);
    if range.len() < set.capacity() {
        for page in range {
            set.remove(&PageNo(page));
        }
    } else {
        set.retain(|page| !range.contains(&page.0));
    }
}

/// See the module.
pub(crate) struct Tracer {
    pages: &'static Pages,
    local: &'static LocalMemory,
    staging: &'static Staging,
    departures: &'static Departures,
    places: Mapping,
    active: AtomicBool,
    parked: AtomicU64,
    /// No page from here on was ever parked.
    end: AtomicU32,
    /// Where the search for parked pages goes on, when they must leave.
    next: AtomicU32,
    microset: Mutex<Microset>,
}

struct Microset {
    trace: Trace,
    /// Touched in this microset.
    members: HashSet<PageNo>,
    /// The touches of it, in order: a page that was discarded meanwhile is there twice.
    touches: Vec<PageNo>,
    contents: Contents,
    /// Pages that may be mapped: the members, what `mremap` moved, and what could not leave.
    mapped: Vec<PageNo>,
    /// Pages in `mapped` from which on it is looked through.
    mapped_max: usize,
    progress: ForwardProgress,
    clocks: Clocks,
    phase: Phase,
    allocations: Allocations,
}

impl Tracer {
    /// A second range for as many pages.
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub(crate) fn new(
        trace: Trace,
        pages: &'static Pages,
        local: &'static LocalMemory,
        staging: &'static Staging,
        departures: &'static Departures,
    ) -> Result<Tracer, SysError> {
        assert!(trace.microset_pages > 0, "a microset has a page at least");
        let microset = Microset {
            trace,
            members: HashSet::new(),
            touches: Vec::new(),
            contents: Contents::default(),
            mapped: Vec::new(),
            mapped_max: KEPT_PAGES,
            progress: ForwardProgress::default(),
            clocks: Clocks::default(),
            phase: Phase::default(),
            allocations: Allocations::default(),
        };
        Ok(Tracer {
            pages,
            local,
            staging,
            departures,
            places: Mapping::anonymous(pages.count as usize * PAGE_BYTES)?,
            active: AtomicBool::new(false),
            parked: AtomicU64::new(0),
            end: AtomicU32::new(0),
            next: AtomicU32::new(0),
            microset: Mutex::new(microset),
        })
    }

    /// The second range, which must be registered for MOVE to fill it.
    pub(crate) fn places(&self) -> Mapping {
        self.places
    }

    fn place(&self, page: PageNo) -> usize {
        self.places.start + page.index() * PAGE_BYTES
    }

    fn microset(&self) -> MutexGuard<'_, Microset> {
        self.microset.lock().expect("no thread panics while it holds the microset: a panic ends the process")
    }
}

impl Microset {
    /// Notes a touch; false when the recorder has had enough.
    fn note(&mut self, page: PageNo, thread: u32, is_first: bool) -> bool {
        if !self.members.insert(page) {
            return true;
        }
        // Pages that are discarded and touched again and again.
        if self.mapped.len() >= self.mapped_max {
            self.mapped.sort_unstable();
            self.mapped.dedup();
            self.mapped_max = 2 * self.mapped.len() + KEPT_PAGES;
        }
        self.mapped.push(page);
        self.touches.push(page);
        self.contents.mapped(page, is_first);
        let shown_ns = self.clocks.show(thread);
        self.trace.recorder.touched(page, thread, shown_ns, is_first)
    }

    /// This process is a forked child, with one thread. Whether it is recorded.
    fn begin_child(&mut self) -> bool {
        let has_intervals = self.phase != Phase::Whole;
        if has_intervals {
            self.phase = Phase::Between;
        }
        self.members.clear();
        self.touches.clear();
        self.progress = ForwardProgress::default();
        self.clocks.begin_child();
        self.trace.recorder.begin_child(has_intervals)
    }

    /// The microset is whole. False: as above.
    fn end(&mut self) -> bool {
        let mut written = vec![0; self.touches.len().div_ceil(8)];
        for (index, page) in self.touches.drain(..).enumerate() {
            written[index / 8] |= u8::from(self.contents.is_written(page)) << (index % 8);
        }
        self.members.clear();
        self.trace.recorder.microset_ended(&written)
    }
}

impl Tracer {
    /// Tracing begins. `fault_cost`: measures what a fault costs the thread that it stops, in processor
    /// time; its own faults are not traced.
    pub(crate) fn begin(&self, fault_cost: impl FnOnce() -> Duration) {
        let fault_ns = u64::try_from(fault_cost().as_nanos()).unwrap_or(0);
        let _signals = thread::SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        self.microset().clocks.begin(fault_ns);
        self.active.store(true, Relaxed);
    }

    /// A fault is about to be served: its page joins the microset, for which the last one may have to end.
    pub(crate) fn fault(&self, page: PageNo, fault: Fault) {
        if !self.active.load(Relaxed) {
            return;
        }
        let state = self.pages.table.load(page).state();
        if !matches!(state, State::Untouched | State::SwapCached | State::Remote)
            || self.pages.own_threads.contain(fault.thread)
        {
            return;
        }
        let mut microset = self.microset();
        if !self.admits(&mut microset, page, state == State::Untouched) {
            return;
        }
        microset.progress.fault(fault.thread, page, || thread::code_position_of(fault.thread));
        let bound =
            u64::from(microset.trace.microset_pages).min(self.local.shared_budget.budget().0 / BUDGET_PART).max(1);
        let full = microset.touches.len() as u64 >= bound && !microset.members.contains(&page);
        let goes_on = !full || self.end_microset(&mut microset);
        if !(goes_on && microset.note(page, fault.thread, state == State::Untouched)) {
            self.active.store(false, Relaxed);
        }
        microset.clocks.count_fault(fault.thread);
    }

    /// Ends the microset and parks its pages, but for those that a thread needs to get on: they begin the next one.
    fn end_microset(&self, microset: &mut Microset) -> bool {
        microset.progress.microset_ended();
        let retained: Vec<(u32, PageNo)> =
            microset.progress.retained().filter(|(_, page)| microset.members.contains(page)).collect();
        let mut pages = std::mem::take(&mut microset.mapped);
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|page| retained.iter().all(|(_, other)| other != page));
        self.park(&mut pages, &mut microset.contents);
        let mut goes_on = microset.end();
        for (thread, page) in retained {
            goes_on &= microset.note(page, thread, false);
        }
        // What could not leave is tried again, but not ever more of it.
        pages.truncate(microset.trace.microset_pages as usize);
        microset.mapped.append(&mut pages);
        goes_on
    }

    /// Parks pages; what is left in `pages` could not leave.
    fn park(&self, pages: &mut Vec<PageNo>, contents: &mut Contents) {
        let mut claimed = Vec::with_capacity(pages.len());
        pages.retain(|page| match self.departures.claim_named(*page) {
            Claimed::Ours(owned) => {
                claimed.push(owned);
                false
            }
            Claimed::Busy => true,
            Claimed::Gone => false,
        });
        let mut policy = self.local.policy();
        claimed.iter().for_each(|owned| policy.forgotten(owned.page()));
        drop(policy);
        let mut claimed = claimed.drain(..);
        while !claimed.as_slice().is_empty() {
            let run = run_length(claimed.as_slice(), Owned::page);
            self.park_run(&mut claimed, run, pages, contents);
        }
    }

    /// Parks the next `run` pages, which are neighbours and `Leaving`.
    fn park_run(&self, claimed: &mut Drain<'_, Owned>, run: usize, stayed: &mut Vec<PageNo>, contents: &mut Contents) {
        let mut next = 0;
        while next < run {
            let first = claimed.as_slice()[0].page();
            self.pages.at(Point::Leaving, first);
            // SAFETY: the pages are `Leaving` and ours, and their places are empty: a page is at its place or elsewhere.
            let (out, why) =
                unsafe { self.pages.kernel.take_out(self.pages.address(first), self.place(first), run - next) };
            for owned in claimed.by_ref().take(out) {
                // SAFETY: the page's content is at its place, and stays there while the page is busy and ours.
                contents.parked(owned.page(), unsafe { &*(self.place(owned.page()) as *const PageBytes) });
                self.pages.note_slot(&owned, SwapCached::Parked);
                self.parked.fetch_add(1, Relaxed);
                self.pages.complete_swap_cached(owned);
            }
            if out > 0 {
                self.end.fetch_max(first.0 + u32::try_from(out).unwrap_or(0), Relaxed);
            }
            next += out;
            if let Some(why) = why.filter(|_| next < run)
                && let Some(owned) = claimed.next()
            {
                if why == NotEvicted::Pinned {
                    stayed.push(owned.page());
                }
                self.local.did_not_leave(owned, why);
                next += 1;
            }
        }
    }

    /// Whether a page is parked.
    fn is_parked(&self, owned: &Owned) -> bool {
        self.pages.swap_cached(owned) == Some(SwapCached::Parked)
    }

    /// A parked page is touched: its frame moves back.
    pub(crate) fn unpark(&self, page: PageNo, entry: Entry) -> Outcome {
        let Some(owned) = self.pages.claim(page, entry, entry.with_state(State::Fetching)) else {
            return Outcome::Again;
        };
        if !self.is_parked(&owned) {
            self.pages.complete_unchanged(owned);
            return Outcome::Again;
        }
        self.pages.at(Point::Hit, page);
        let address = self.pages.address(page);
        // SAFETY: the page is ours and missing in the program; its place holds its content.
        let (back, why) = unsafe { self.pages.kernel.take_out(self.place(page), address, 1) };
        if back == 1 {
            self.parked.fetch_sub(1, Relaxed);
            self.pages.row().minor_faults.fetch_add(1, Relaxed);
            let arrived = self.local.arrive(std::iter::once(page), Arrival::SwapCacheHit);
            self.pages.complete_resident(owned, arrived, true);
        } else if why == Some(NotEvicted::Missing) {
            self.pages.fatal(&format!("{page} is not where it was parked; the program is ended"));
        } else if mem::is_in_memory(address) {
            self.pages.fatal(&format!("{page} is mapped although its content is parked; the program is ended"));
        } else {
            // The mapping is gone behind our back: the program gets the kernel's answer when it faults again.
            self.pages.complete_unchanged(owned);
        }
        self.pages.wake(address, PAGE_BYTES);
        Outcome::Served
    }

    /// Local memory is scarce: takes parked pages into a staging chunk, from which they leave as all victims do. Returns how
    /// many.
    pub(crate) fn stage_parked(&self) -> u32 {
        if self.parked.load(Relaxed) == 0 {
            return 0;
        }
        let mut pages = Vec::with_capacity(CHUNK_SLOTS as usize);
        self.claim_parked(&mut pages);
        if pages.is_empty() {
            return 0;
        }
        let Some(chunk) = self.staging.take_empty(Kind::Moved) else {
            pages.into_iter().for_each(|owned| self.pages.complete_unchanged(owned));
            return 0;
        };
        let mut staged = 0;
        let used = u32::try_from(pages.len()).unwrap_or(CHUNK_SLOTS);
        for (index, owned) in (0..).zip(pages) {
            let page = owned.page();
            let slot = chunk.slot(index);
            // SAFETY: the page is `Changing` and ours, its content at its place; the slot is empty and ours.
            let (out, _) = unsafe { self.pages.kernel.take_out(self.place(page), self.staging.address(slot), 1) };
            if out == 1 {
                self.pages.note_slot(&owned, slot);
                self.staging.set_page(slot, Some(page));
                self.parked.fetch_sub(1, Relaxed);
                staged += 1;
            }
            self.pages.complete_unchanged(owned);
        }
        if staged == 0 {
            self.staging.give_empty(chunk);
        } else {
            self.staging.push_full(chunk, None, used, staged);
        }
        staged
    }

    /// Makes up to a chunk of parked pages `Changing`, going round and round the range.
    fn claim_parked(&self, pages: &mut Vec<Owned>) {
        /// Pages of the range that are looked at between two looks at how many were found.
        const STEP_PAGES: u32 = 512;
        let end = self.end.load(Relaxed);
        let begun = self.next.load(Relaxed).min(end);
        let steps = (begun..end).step_by(STEP_PAGES as usize).chain((0..begun).step_by(STEP_PAGES as usize));
        for first in steps {
            if pages.len() == CHUNK_SLOTS as usize {
                return;
            }
            self.pages.table.for_each_touched(PageNo(first), STEP_PAGES, |page| {
                let entry = self.pages.table.load(page);
                let seems_parked = self.pages.look_swap_cached(page, entry) == Some(SwapCached::Parked);
                if pages.len() == CHUNK_SLOTS as usize || !seems_parked {
                    return;
                }
                if let Some(owned) = self.pages.claim(page, entry, entry.with_state(State::Changing)) {
                    if self.is_parked(&owned) {
                        pages.push(owned);
                    } else {
                        self.pages.complete_unchanged(owned);
                    }
                }
                self.next.store(page.0 + 1, Relaxed);
            });
        }
    }

    /// Drops the content of those of the claimed pages that are parked; returns how many frames that freed.
    pub(crate) fn drop_parked(&self, claimed: &[Owned]) -> u64 {
        let parked: Vec<PageNo> = claimed.iter().filter(|owned| self.is_parked(owned)).map(Owned::page).collect();
        for run in parked.chunk_by(|one, next| one.0 + 1 == next.0) {
            // SAFETY: the caller owns these pages and drops their content, which is at their places.
            unsafe { self.pages.kernel.drop_pages(self.place(run[0]), run.len() * PAGE_BYTES) };
        }
        self.parked.fetch_sub(parked.len() as u64, Relaxed);
        parked.len() as u64
    }

    /// Moves a parked page's content to the place of another page, which the caller owns, too.
    pub(crate) fn move_parked(&self, owned: &Owned, target: &Owned) {
        let page = owned.page();
        // SAFETY: the caller owns both pages; the target has no content, at its place neither.
        let moved = unsafe { self.pages.kernel.relocate(self.place(page), self.place(target.page()), 1) };
        if let Err(error) = moved {
            self.pages.fatal(&format!("{page} cannot be moved from where it was parked: {error}"));
        }
        self.pages.note_slot(target, SwapCached::Parked);
        self.end.fetch_max(target.page().0 + 1, Relaxed);
    }

    /// The program gives the content of pages up.
    pub(crate) fn discarded(&self, first: PageNo, count: u32, cause: DiscardCause) {
        if !self.active.load(Relaxed) {
            return;
        }
        let mut microset = self.microset();
        if cause != DiscardCause::Freed {
            forget(&mut microset.members, first, count);
        }
        if !microset.trace.recorder.discarded(first, count, cause) {
            self.active.store(false, Relaxed);
        }
    }

    /// A page has become another one (`mremap`): if it is mapped, it leaves with the microset, too.
    pub(crate) fn moved(&self, from: PageNo, target: PageNo, is_mapped: bool) {
        if !self.active.load(Relaxed) {
            return;
        }
        let mut microset = self.microset();
        microset.allocations.moved(from, target);
        microset.contents.moved(from, target);
        if !is_mapped || microset.allocations.is_outside(target) {
            return;
        }
        self.remember(&mut microset, target);
    }

    /// A page is mapped, or about to be, and leaves with the microset.
    fn remember(&self, microset: &mut Microset, page: PageNo) {
        // A program that moves the same pages to and fro leaves many behind that are not mapped any more.
        if microset.mapped.len() >= microset.mapped_max {
            microset.mapped.sort_unstable();
            microset.mapped.dedup();
            microset.mapped.retain(|page| self.pages.table.load(*page).state() == State::Resident);
            microset.mapped_max = 2 * microset.mapped.len() + KEPT_PAGES;
        }
        microset.mapped.push(page);
    }

    /// See `Pager::end_trace`.
    pub(crate) fn end(&self) {
        let _signals = thread::SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        let mut microset = self.microset();
        if self.active.swap(false, Relaxed) {
            microset.trace.recorder.finished();
        }
    }

    /// This process is a forked child, whose pager is not ready: nothing is recorded until `begin_child`.
    pub(crate) fn leave(&self) {
        self.active.store(false, Relaxed);
    }

    /// See `Pager::begin_child_trace`.
    pub(crate) fn begin_child(&self) {
        let _signals = thread::SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        let mut microset = self.microset();
        if !microset.begin_child() {
            return;
        }
        if microset.phase == Phase::Whole {
            let mut pages = std::mem::take(&mut microset.mapped);
            pages.sort_unstable();
            pages.dedup();
            self.park(&mut pages, &mut microset.contents);
            microset.mapped.append(&mut pages);
        }
        self.active.store(true, Relaxed);
    }
}

/// Pages that are remembered as mapped before they are looked through, beyond twice those that were.
const KEPT_PAGES: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_discarded_leave_a_small_set_and_a_large_one() {
        for (pages, first, count) in
            [(1_000, 10, 1), (1_000, 999, 7), (10, 3, 1_000_000), (10, u32::MAX - 1, 9), (0, 0, 5)]
        {
            let mut set: HashSet<PageNo> = (0..pages).chain([u32::MAX - 1]).map(PageNo).collect();
            let mut left = set.clone();
            left.retain(|page| page.0 < first || page.0 - first >= count);
            forget(&mut set, PageNo(first), count);
            assert_eq!(set, left, "{count} of {pages} from {first}");
        }
    }
}
