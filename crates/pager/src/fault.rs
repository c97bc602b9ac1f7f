//! Serving faults: what a fault on a page in each state does. On which thread, `monitor` and `inline_fault` say.

use crate::account::Arrived;
use crate::far_memory::FarMemory;
use crate::fault_path::FaultPath;
use crate::local_memory::LocalMemory;
use crate::pages::{Outcome, Owned, Pages, Released, neighbours, run_length};
use crate::points::Point;
use crate::prefetch_cache::PrefetchCache;
use crate::prefetch_driver::PrefetchDriver;
use crate::read_ahead::ReadAhead;
use crate::reclaim::Reclaim;
use crate::scratch::Scratch;
use crate::slot::{ChunkSlot, KeySlot, StagingSlot, SwapCached};
use crate::staging::Staging;
use crate::state::{Entry, State};
use crate::sys::Instant;
use crate::sys::thread;
use crate::sys::uffd::Partial;
use crate::tracer::Tracer;
use crate::watch::{CodePosition, FaultWatch, Served};
use hinterland_abi::bucket_of;
use hinterland_backend::{LoadItem, Priority};
use hinterland_paging::{Step, ZERO_PAGES, claim_zeros, is_timed, late_window};
use hinterland_policy::{Arrival, Prefetch, PrefetchWindow, Request};
use hinterland_sys::Fault;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::atomic::Ordering::Relaxed;

/// Zeros to map at first touches.
#[repr(align(4096))]
struct Zeros([u8; ZERO_PAGES * PAGE_BYTES]);
static ZEROS: Zeros = Zeros([0; ZERO_PAGES * PAGE_BYTES]);

/// A thread that waits longer for a page whose prefetch is under way is held up: 3PO counts such *delayed hits* (§5).
const LATE_NS: u64 = 2_000;

/// See the module.
pub(crate) struct Faults {
    pages: &'static Pages,
    local: &'static LocalMemory,
    far: &'static FarMemory,
    staging: &'static Staging,
    reclaim: &'static Reclaim,
    tracer: Option<&'static Tracer>,
    driver: &'static PrefetchDriver,
    cache: &'static PrefetchCache,
    read_ahead: &'static ReadAhead,
    watch: Option<&'static dyn FaultWatch>,
}

/// A fault that is being served, as its watcher will hear of it.
pub(crate) struct Watched {
    watch: &'static dyn FaultWatch,
    page: PageNo,
    was: State,
    thread: Option<u32>,
    position: Option<CodePosition>,
}

impl Watched {
    /// It has been served, in so much time.
    pub(crate) fn served(self, wait_ns: u64) {
        let Watched { watch, page, was, thread, position } = self;
        watch.served(Served { page, was, thread, position, wait_ns });
    }
}

/// What became of an attempt to claim a page ahead of its first touch.
enum Blank {
    Claimed(Owned),
    /// It has content, or the program may not touch it.
    Not,
    /// No frame is free for it.
    Unaffordable,
    /// It changed at that moment.
    Changed,
}

impl Faults {
    #[allow(clippy::too_many_arguments, reason = "one for each room that it works with")]
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        far: &'static FarMemory,
        staging: &'static Staging,
        reclaim: &'static Reclaim,
        tracer: Option<&'static Tracer>,
        driver: &'static PrefetchDriver,
        cache: &'static PrefetchCache,
        read_ahead: &'static ReadAhead,
        watch: Option<&'static dyn FaultWatch>,
    ) -> Faults {
        Faults { pages, local, far, staging, reclaim, tracer, driver, cache, read_ahead, watch }
    }

    /// A fault of a thread that waits for a monitor, or (`None`) of the calling one, is about to be served.
    pub(crate) fn watch(&self, page: PageNo, thread: Option<u32>) -> Option<Watched> {
        let watch = self.watch?;
        if thread.is_some_and(|thread| self.pages.own_threads.contain(thread)) {
            return None;
        }
        let position = thread.and_then(|thread| watch.position_of(thread));
        Some(Watched { watch, page, was: self.pages.table.load(page).state(), thread, position })
    }

    /// Counts a fault that was served, and that began then; returns the time that it took, in nanoseconds.
    pub(crate) fn count(&self, begin: Instant) -> u64 {
        let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let row = self.pages.row();
        row.stall_ns.fetch_add(ns, Relaxed);
        row.fault_max_ns.fetch_max(ns, Relaxed);
        row.fault_ns[bucket_of(ns)].fetch_add(1, Relaxed);
        ns
    }

    /// Counts a fault that has to wait for a busy page, if that is being prefetched; whether it is.
    pub(crate) fn count_late(&self, busy: Entry) -> bool {
        let is_late = busy.state() == State::Fetching && busy.prefetched();
        if is_late {
            self.pages.row().prefetch_late_faults.fetch_add(1, Relaxed);
        }
        is_late
    }

    /// Counts such a fault once more, if it took long.
    pub(crate) fn count_late_for(&self, ns: u64) {
        if ns > LATE_NS {
            self.pages.row().prefetch_long_late_faults.fetch_add(1, Relaxed);
        }
    }

    /// One attempt to serve a fault.
    pub(crate) fn serve_page(&self, page: PageNo, fault: Fault, scratch: &mut Scratch) -> Outcome {
        let entry = self.pages.table.load(page);
        match entry.state() {
            State::Untouched => self.first_touch(page, entry, fault, scratch),
            State::Resident => self.spurious(page, entry, fault),
            State::SwapCached => self.swap_cache_hit(page, entry, fault, scratch),
            State::Remote if self.is_overwritten(entry, fault) => self.overwrite(page, entry, scratch),
            State::Remote => self.fetch(page, entry, fault, scratch),
            State::Leaving if self.pages.own_threads.contain(fault.thread) => self.dropped_behind_us(page),
            State::Fetching | State::Leaving | State::WritingBack | State::Changing => Outcome::Busy(entry),
            State::Foreign => {
                self.pages.wake(self.pages.address(page), PAGE_BYTES);
                Outcome::Served
            }
            // A touch that is not served would fault for ever.
            State::Sectioned => self.pages.fatal(&format!(
                "{page} is held by cache section {}, which there is not; the program is ended",
                entry.owner()
            )),
        }
    }

    /// A page without content: it gets zeros, and so do the next ones when the program walks upwards.
    fn first_touch(&self, page: PageNo, entry: Entry, fault: Fault, scratch: &mut Scratch) -> Outcome {
        let Some(owned) = self.claim_charged(page, entry, scratch) else { return Outcome::Again };
        let wanted = self.driver.requested(page, Request::FirstTouch, fault);
        self.pages.row().first_touch_faults.fetch_add(1, Relaxed);
        self.pages.at(Point::FirstTouch, page);
        self.map_zeros(page, std::iter::once(owned));
        wanted.batches.into_iter().for_each(|batch| self.read_ahead.request_batch(batch));
        if let Some(window) = wanted.window {
            self.zero_ahead(window);
        }
        Outcome::Served
    }

    /// Charges a frame for a page and claims it; `None`: it changed meanwhile.
    fn claim_charged(&self, page: PageNo, entry: Entry, scratch: &mut Scratch) -> Option<Owned> {
        self.reclaim.charge_frames(1, scratch);
        // A page that was being prefetched is so no more: a thread that waits for it now is not late.
        let owned = self.pages.claim(page, entry, entry.with_state(State::Fetching).with_prefetched(false));
        if owned.is_none() {
            self.local.account.uncharge(1);
        }
        owned
    }

    /// Maps zeros ahead of the program, as far as frames are free.
    pub(crate) fn zero_ahead(&self, window: PrefetchWindow) {
        let (turn, mut answers) = (self.pages.decisions.turn(), self.pages.decisions.answers());
        let mut claimed = claim_zeros(
            &window,
            |page| {
                let claimed = self.claim_blank(page);
                answers.put(match &claimed {
                    Blank::Not => 0,
                    Blank::Claimed(_) | Blank::Unaffordable => 1,
                    Blank::Changed => 2,
                });
                if let Blank::Claimed(owned) = claimed { Some(owned) } else { None }
            },
            Owned::page,
        );
        let pages = || claimed.iter().map(Owned::page).collect();
        turn.note(|| Step::Zeros { window: window.into(), answers: answers.take(), pages: pages() });
        drop(turn);
        let mut claimed = claimed.drain(..);
        while let Some(first) = claimed.as_slice().first().map(Owned::page) {
            let run = run_length(claimed.as_slice(), Owned::page).min(ZERO_PAGES);
            self.map_zeros(first, claimed.by_ref().take(run));
        }
    }

    /// Charges a frame for a page without content, and claims it.
    fn claim_blank(&self, page: PageNo) -> Blank {
        let entry = (page.0 < self.pages.count).then(|| self.pages.table.load(page));
        let is_blank = |entry: &Entry| entry.state() == State::Untouched && self.pages.table.is_open(page);
        let Some(entry) = entry.filter(is_blank) else { return Blank::Not };
        if !self.local.account.try_charge(1) {
            return Blank::Unaffordable;
        }
        match self.pages.claim(page, entry, entry.with_state(State::Fetching)) {
            Some(owned) => Blank::Claimed(owned),
            None => {
                self.local.account.uncharge(1);
                Blank::Changed
            }
        }
    }

    /// Maps zeros at a run of pages that have no content, `first` and its neighbours, and completes them.
    fn map_zeros(&self, first: PageNo, run: impl ExactSizeIterator<Item = Owned>) {
        let (start, pages) = (self.pages.address(first), run.len());
        // SAFETY: these pages have no content to lose and are ours; there are zeros for a full run.
        let mapped = unsafe { self.pages.kernel.map_copy(start, ZEROS.0.as_ptr(), pages) };
        let there = match mapped {
            Ok(()) => pages,
            // Somebody else's page is there already (raw system calls): it is resident, whatever it holds.
            Err(Partial { done, errno: libc::EEXIST }) => (done / PAGE_BYTES + 1).min(pages),
            // Unmapped or unmappable behind our back: the program faults again and gets the kernel's answer.
            Err(partial) => {
                self.end_if_forbidden(first);
                partial.done / PAGE_BYTES
            }
        };
        let arrived = self.local.arrive(neighbours(first, there), Arrival::FirstTouch);
        for (index, owned) in run.enumerate() {
            if index < there {
                self.pages.complete_resident(owned, arrived, false);
            } else {
                self.pages.complete_unchanged(owned);
            }
        }
        self.local.account.uncharge((pages - there) as u64);
        self.local.publish();
        if there < pages || mapped.is_err() {
            self.pages.wake(start, pages * PAGE_BYTES);
        }
    }

    /// The page is mapped by now; or it is write-protected; or the program dropped it by a call that we did not see.
    ///
    /// The page is made busy for it: unowned, it could be taken out between the look at its state and the call, and zeros
    /// would be mapped over content that is in the swap cache, or a page be written to while it is copied out.
    fn spurious(&self, page: PageNo, entry: Entry, fault: Fault) -> Outcome {
        let Some(owned) = self.pages.claim(page, entry, entry.with_state(State::Changing)) else {
            return Outcome::Again;
        };
        let address = self.pages.address(page);
        self.pages.row().spurious_faults.fetch_add(1, Relaxed);
        self.pages.at(Point::Spurious, page);
        if fault.write_protected {
            // Lifting it is right: only a page that is `Leaving` is meant to be protected.
            let _ = self.pages.kernel.uffd().write_protect(address, PAGE_BYTES, false);
        }
        // SAFETY: a missing page in state Resident was dropped by the program: zeros are its content. A page that is there
        // stays as it is (EEXIST).
        if unsafe { self.pages.kernel.map_copy(address, ZEROS.0.as_ptr(), 1) }.is_err() {
            self.end_if_forbidden(page);
        }
        self.pages.complete_unchanged(owned);
        self.pages.wake(address, PAGE_BYTES);
        Outcome::Served
    }

    /// One of our own threads faults on a page that it is taking out: the program dropped it by a call that we did not see,
    /// so zeros are its content.
    fn dropped_behind_us(&self, page: PageNo) -> Outcome {
        let address = self.pages.address(page);
        // SAFETY: the page is missing, and it is ours to fill.
        let _ = unsafe { self.pages.kernel.map_copy(address, ZEROS.0.as_ptr(), 1) };
        self.pages.wake(address, PAGE_BYTES);
        Outcome::Served
    }

    /// The page's frame is still in a staging slot (or it was prefetched there).
    fn swap_cache_hit(&self, page: PageNo, entry: Entry, fault: Fault, scratch: &mut Scratch) -> Outcome {
        if self.pages.look_swap_cached(page, entry) == Some(SwapCached::Parked) {
            return self.tracer.expect("it parked the page").unpark(page, entry);
        }
        let Some(owned) = self.claim_charged(page, entry, scratch) else { return Outcome::Again };
        let request = match self.pages.swap_cached(&owned) {
            Some(SwapCached::Victim(slot)) => self.victim_hit(owned, slot),
            Some(SwapCached::Prefetched(slot)) => self.prefetch_hit(owned, slot),
            // Parked, a moment ago.
            Some(SwapCached::Parked) | None => {
                self.local.account.uncharge(1);
                self.pages.complete_unchanged(owned);
                return Outcome::Again;
            }
        };
        let Some(request) = request else { return Outcome::Served };
        let (late, _) = self.request_prefetch(page, request, fault);
        self.read_ahead.help(late, scratch);
        Outcome::Served
    }

    /// A victim is touched before it was written back: it is in use.
    fn victim_hit(&self, owned: Owned, slot: ChunkSlot) -> Option<Request> {
        let owned = self.map_from(owned, slot)?;
        self.pages.row().minor_faults.fetch_add(1, Relaxed);
        self.staging.set_page(slot, None);
        let arrived = self.local.arrive(std::iter::once(owned.page()), Arrival::SwapCacheHit);
        self.pages.complete_resident(owned, arrived, true);
        Some(Request::Minor)
    }

    /// A prefetched page that waited unmapped is used. `None`: no source counts it.
    fn prefetch_hit(&self, owned: Owned, slot: KeySlot) -> Option<Request> {
        let owned = self.map_from(owned, slot)?;
        let tells = self.cache.used(slot);
        let arrived = self.local.arrive(std::iter::once(owned.page()), Arrival::Demand);
        let released = self.complete_fetched(owned, arrived);
        self.far.free(released);
        tells.then_some(Request::PrefetchHit)
    }

    /// Maps a copy of what a page's slot holds. `None`: the kernel would not.
    fn map_from(&self, owned: Owned, slot: impl StagingSlot) -> Option<Owned> {
        let (address, from) = (self.pages.address(owned.page()), self.staging.address(slot));
        self.pages.at(Point::Hit, owned.page());
        // SAFETY: the slot holds this page's content until the page is completed; the page is missing in the program.
        match unsafe { self.pages.kernel.map_copy(address, from as *const u8, 1) } {
            Ok(()) => Some(owned),
            Err(partial) => {
                self.refused(owned, partial);
                None
            }
        }
    }

    /// Whether a fault is a write of the thread that has marked the page to be overwritten. (What is brought for a call of the kernel's has
    /// no mark any more: `Pinning`, `Hints::take_back`. An instruction that reads and writes is a write here: the kernel tells no more of it.)
    fn is_overwritten(&self, entry: Entry, fault: Fault) -> bool {
        let Some(overwriter) = self.pages.overwriters.overwriter(entry).filter(|_| fault.write) else { return false };
        match (self.pages.path, fault.thread) {
            (FaultPath::Inline, 0) => thread::id() == overwriter,
            (_, thread) => thread == overwriter,
        }
    }

    /// The page's first byte of all is being written: zeros stand for the others until they are, and the stored copy is given up.
    fn overwrite(&self, page: PageNo, entry: Entry, scratch: &mut Scratch) -> Outcome {
        let Some(owned) = self.claim_charged(page, entry, scratch) else { return Outcome::Again };
        self.pages.at(Point::Overwriting, page);
        // SAFETY: one page of zeros; the page is missing in the program and ours.
        let mapped = unsafe { self.pages.kernel.map_copy(self.pages.address(page), ZEROS.0.as_ptr(), 1) };
        if let Err(partial) = mapped {
            self.refused(owned, partial);
            return Outcome::Served;
        }
        self.pages.row().hint_overwritten_pages.fetch_add(1, Relaxed);
        let arrived = self.local.arrive(std::iter::once(page), Arrival::Demand);
        let released = self.pages.complete_resident_alone(owned, arrived);
        self.far.free(released);
        Outcome::Served
    }

    /// The page is in a backend: the program waits for it.
    fn fetch(&self, page: PageNo, entry: Entry, fault: Fault, scratch: &mut Scratch) -> Outcome {
        if self.read_ahead.comes_with_block(page, scratch) {
            self.pages.row().block_faults.fetch_add(1, Relaxed);
            return Outcome::Again;
        }
        let Some(owned) = self.claim_charged(page, entry, scratch) else { return Outcome::Again };
        let (late, is_on_tape) = self.request_prefetch(page, Request::Major, fault);
        let waits = self.driver.waits();
        let landing = &mut scratch.landing()[0];
        let begun = is_timed(self.pages.row().major_faults.load(Relaxed)).then(Instant::now);
        let mut result = Ok(());
        self.far.load(&mut [LoadItem { location: entry.location(), into: landing }], Priority::Demand, &mut |_, r| {
            result = r.map(drop);
        });
        drop(waits);
        if let Some(begun) = begun {
            self.driver.timed(1, begun, || self.cache.pages_for_windows());
        }
        self.far.verify(&owned, landing, result);
        self.pages.at(Point::Loaded, page);
        // SAFETY: the landing page holds the verified content; the page is missing in the program and ours.
        let mapped = unsafe { self.pages.kernel.map_copy(self.pages.address(page), landing.as_ptr(), 1) };
        if let Err(partial) = mapped {
            self.refused(owned, partial);
            return Outcome::Served;
        }
        self.pages.row().major_faults.fetch_add(1, Relaxed);
        let released = self.complete_fetched(owned, self.local.arrive(std::iter::once(page), Arrival::Demand));
        self.far.free(released);
        // Hints are looked at once the program has its page.
        let hinted = if is_on_tape { None } else { self.read_ahead.late_hints(page) };
        self.read_ahead.help(hinted.or(late), scratch);
        Outcome::Served
    }

    /// Completes a page that was fetched, with its stored copy if that is to be retained.
    fn complete_fetched(&self, owned: Owned, arrived: Arrived) -> Option<Released> {
        if self.far.copies.retains(&owned, self.local.account.budget()) {
            self.pages.complete_resident(owned, arrived, false);
            return None;
        }
        self.pages.complete_resident_alone(owned, arrived)
    }

    /// The kernel would not map a page whose content we hold: the page goes back to where it was.
    fn refused(&self, owned: Owned, partial: Partial) {
        let page = owned.page();
        if partial.errno == libc::EEXIST {
            self.pages.fatal(&format!("{page} is mapped although its content is far; the program is ended"));
        }
        self.end_if_forbidden(page);
        // The mapping is gone behind our back: the program gets the kernel's answer when it faults again.
        self.local.account.uncharge(1);
        self.pages.complete_unchanged(owned);
        self.pages.wake(self.pages.address(page), PAGE_BYTES);
    }

    /// Ends the program when the kernel takes no request any more: a fault would be tried again for ever.
    fn end_if_forbidden(&self, page: PageNo) {
        if let Err(error) = self.pages.kernel.takes_requests(self.pages.address(page)) {
            self.pages.fatal(&format!(
                "far memory cannot be served any more: {error}: a filter of system calls forbids it, which the program has installed past \
                 libc's functions; the program is ended"
            ));
        }
    }

    /// Tells the arbiter of a request for far memory, and asks for what it names. The number of what the read-ahead thread is late with, but
    /// for hints: see `ReadAhead::help`; and whether the thread is on its tape.
    fn request_prefetch(&self, page: PageNo, request: Request, fault: Fault) -> (Option<u64>, bool) {
        let wanted = self.driver.requested(page, request, fault);
        wanted.batches.into_iter().for_each(|batch| self.read_ahead.request_batch(batch));
        if let Some(block) = wanted.block {
            self.read_ahead.request(Prefetch::Block(block));
        }
        let passed = wanted.window.and_then(|window| self.read_ahead.request(window));
        let late = late_window(request, wanted.is_on_tape, passed, || self.read_ahead.late_batch(page));
        (late, wanted.is_on_tape)
    }
}
