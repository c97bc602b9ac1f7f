//! Serving faults: what a fault on a page in each state does. On which thread, `monitor` and `inline_fault` say.

use crate::far_memory::FarMemory;
use crate::local_memory::LocalMemory;
use crate::pages::{Outcome, Pages};
use crate::prefetch_cache::PrefetchCache;
use crate::prefetch_driver::PrefetchDriver;
use crate::read_ahead::ReadAhead;
use crate::reclaim::Reclaim;
use crate::schedule::Point;
use crate::scratch::Scratch;
use crate::staging::Staging;
use crate::state::{Entry, State};
use crate::tracer::Tracer;
use hinterland_abi::bucket_of;
use hinterland_backend::{LoadItem, Priority};
use hinterland_paging::{ZERO_PAGES, is_timed};
use hinterland_policy::{Arrival, PrefetchWindow, Request};
use hinterland_sys::Fault;
use hinterland_sys::uffd::Partial;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Zeros to map at first touches.
#[repr(align(4096))]
struct Zeros([u8; ZERO_PAGES * PAGE_BYTES]);
static ZEROS: Zeros = Zeros([0; ZERO_PAGES * PAGE_BYTES]);

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
    ) -> Faults {
        Faults { pages, local, far, staging, reclaim, tracer, driver, cache, read_ahead }
    }

    /// Counts a fault that was served, and that began then.
    pub(crate) fn count(&self, begin: Instant) {
        let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let row = self.pages.row();
        row.stall_ns.fetch_add(ns, Relaxed);
        row.fault_max_ns.fetch_max(ns, Relaxed);
        row.fault_ns[bucket_of(ns)].fetch_add(1, Relaxed);
    }

    /// Counts a fault that has to wait for a busy page, if that is being prefetched.
    pub(crate) fn count_late(&self, busy: Entry) {
        if busy.state() == State::Fetching && busy.prefetched() {
            self.pages.row().prefetch_late_faults.fetch_add(1, Relaxed);
        }
    }

    /// One attempt to serve a fault.
    pub(crate) fn serve_page(&self, page: PageNo, fault: Fault, scratch: &mut Scratch) -> Outcome {
        let entry = self.pages.table.load(page);
        match entry.state() {
            State::Untouched => self.first_touch(page, entry, fault, scratch),
            State::Resident => self.spurious(page, entry, fault),
            State::SwapCached => self.swap_cache_hit(page, entry, fault, scratch),
            State::Remote => self.fetch(page, entry, fault, scratch),
            State::Leaving if self.pages.own_threads.contain(fault.thread) => self.dropped_behind_us(page),
            State::Fetching | State::Leaving | State::WritingBack | State::Changing => Outcome::Busy(entry),
            State::Foreign | State::Sectioned => {
                self.pages.wake(self.pages.address(page), PAGE_BYTES);
                Outcome::Served
            }
        }
    }

    /// A page without content: it gets zeros, and so do the next ones when the program walks upwards.
    fn first_touch(&self, page: PageNo, entry: Entry, fault: Fault, scratch: &mut Scratch) -> Outcome {
        self.reclaim.charge_frames(1, scratch);
        let busy = entry.with_state(State::Fetching);
        if self.pages.table.transition(page, entry, busy).is_err() {
            self.local.account.uncharge(1);
            return Outcome::Again;
        }
        let window = self.driver.requested(page, Request::FirstTouch, fault);
        self.pages.row().first_touch_faults.fetch_add(1, Relaxed);
        self.pages.at(Point::FirstTouch, page);
        // SAFETY: the page has no content to lose and is ours; the zeros are readable.
        let mapped = unsafe { self.pages.kernel.map_copy(self.pages.address(page), ZEROS.0.as_ptr(), 1) };
        self.complete_zeros(&[page], mapped);
        if let Some(window) = window {
            self.zero_ahead(window);
        }
        Outcome::Served
    }

    /// Maps zeros ahead of the program, as far as frames are free.
    pub(crate) fn zero_ahead(&self, window: PrefetchWindow) {
        let mut run: Vec<PageNo> = Vec::with_capacity(ZERO_PAGES);
        for offset in 0..=window.pages {
            let page = window.page(offset).filter(|page| page.0 < self.pages.count && offset < window.pages);
            let entry = page.map(|page| (page, self.pages.table.load(page)));
            let claimed = entry.filter(|(page, entry)| {
                !window.leaves_unmapped(*page)
                    && self.pages.table.is_open(*page)
                    && entry.state() == State::Untouched
                    && run.len() < ZERO_PAGES
                    && self.local.account.try_charge(1)
            });
            let claimed = claimed.filter(|(page, entry)| {
                let ours = self.pages.table.transition(*page, *entry, entry.with_state(State::Fetching)).is_ok();
                if !ours {
                    self.local.account.uncharge(1);
                }
                ours
            });
            if let Some((page, _)) = claimed {
                run.push(page);
            } else if !run.is_empty() {
                // Of a walk downwards the last page came first.
                run.sort_unstable();
                // SAFETY: these pages have no content to lose and are ours; there are zeros for a full run.
                let mapped =
                    unsafe { self.pages.kernel.map_copy(self.pages.address(run[0]), ZEROS.0.as_ptr(), run.len()) };
                self.complete_zeros(&run, mapped);
                run.clear();
            }
        }
    }

    /// Completes a run of pages after zeros were mapped there.
    fn complete_zeros(&self, run: &[PageNo], mapped: Result<(), Partial>) {
        let there = match mapped {
            Ok(()) => run.len(),
            // Somebody else's page is there already (raw system calls): it is resident, whatever it holds.
            Err(Partial { done, errno: libc::EEXIST }) => done / PAGE_BYTES + 1,
            // Unmapped or unmappable behind our back: the program faults again and gets the kernel's answer.
            Err(partial) => {
                self.end_if_forbidden(run[0]);
                partial.done / PAGE_BYTES
            }
        };
        self.local.arrive(run[..there.min(run.len())].iter().copied(), Arrival::FirstTouch);
        // Before the pages are completed: once they are, they may be dropped, and counted out.
        self.local.count_touched(there as u64);
        let epoch = self.local.account.arrive(there as u64);
        for (index, page) in run.iter().enumerate() {
            let resident = Entry::new(State::Resident).arrived(epoch, false);
            self.pages.complete(*page, if index < there { resident } else { Entry::new(State::Untouched) });
        }
        self.local.account.uncharge((run.len() - there) as u64);
        self.local.publish();
        if there < run.len() || mapped.is_err() {
            self.pages.wake(self.pages.address(run[0]), run.len() * PAGE_BYTES);
        }
    }

    /// The page is mapped by now; or it is write-protected; or the program dropped it by a call that we did not see.
    ///
    /// The page is made busy for it: unowned, it could be taken out between the look at its state and the call, and zeros
    /// would be mapped over content that is in the swap cache, or a page be written to while it is copied out.
    fn spurious(&self, page: PageNo, entry: Entry, fault: Fault) -> Outcome {
        if self.pages.table.transition(page, entry, entry.with_state(State::Changing)).is_err() {
            return Outcome::Again;
        }
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
        self.pages.complete(page, entry);
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
        if let Some(tracer) = self.tracer.filter(|tracer| tracer.is_parked(page)) {
            return tracer.unpark(page, entry);
        }
        self.reclaim.charge_frames(1, scratch);
        // It is being prefetched no more: a thread that waits for it now is not late.
        if self.pages.table.transition(page, entry, entry.with_state(State::Fetching).with_prefetched(false)).is_err() {
            self.local.account.uncharge(1);
            return Outcome::Again;
        }
        if self.tracer.is_some_and(|tracer| tracer.is_parked(page)) {
            self.local.account.uncharge(1);
            self.pages.complete(page, entry);
            return Outcome::Again;
        }
        let slot = self.pages.table.slot(page);
        self.pages.at(Point::Hit, page);
        // SAFETY: the slot holds this page's content until the page is completed; the page is missing in the program.
        let mapped =
            unsafe { self.pages.kernel.map_copy(self.pages.address(page), self.staging.address(slot) as *const u8, 1) };
        if let Err(partial) = mapped {
            self.refused(page, entry, partial);
            return Outcome::Served;
        }
        let request = if entry.prefetched() {
            self.cache.used(slot);
            Request::PrefetchHit
        } else {
            self.pages.row().minor_faults.fetch_add(1, Relaxed);
            self.staging.set_page(slot, None);
            Request::Minor
        };
        let epoch = self.local.account.arrive(1);
        let resident = entry.with_state(State::Resident).with_prefetched(false).arrived(epoch, !entry.prefetched());
        let (resident, freed) = if entry.prefetched() {
            self.far.retain_or_free(resident, self.local.account.budget())
        } else {
            (resident, None)
        };
        let how = if entry.prefetched() { Arrival::Demand } else { Arrival::SwapCacheHit };
        self.local.arrive(std::iter::once(page), how);
        self.pages.complete(page, resident);
        self.far.backend.free(freed.as_slice());
        let late = self.request_prefetch(page, request, fault);
        self.read_ahead.help(late, scratch);
        Outcome::Served
    }

    /// The page is in a backend: the program waits for it.
    fn fetch(&self, page: PageNo, entry: Entry, fault: Fault, scratch: &mut Scratch) -> Outcome {
        self.reclaim.charge_frames(1, scratch);
        if self.pages.table.transition(page, entry, entry.with_state(State::Fetching)).is_err() {
            self.local.account.uncharge(1);
            return Outcome::Again;
        }
        let late = self.request_prefetch(page, Request::Major, fault);
        let landing = &mut scratch.landing()[0];
        let begun = is_timed(self.pages.row().major_faults.load(Relaxed)).then(Instant::now);
        let mut result = Ok(());
        self.far.backend.load(
            &mut [LoadItem { location: entry.location(), into: landing }],
            Priority::Demand,
            &mut |_, r| {
                result = r.map(drop);
            },
        );
        if let Some(begun) = begun {
            self.driver.timed(1, begun, self.cache.pages_for_windows());
        }
        self.far.verify(page, entry, landing, result);
        self.pages.at(Point::Loaded, page);
        // SAFETY: the landing page holds the verified content; the page is missing in the program and ours.
        let mapped = unsafe { self.pages.kernel.map_copy(self.pages.address(page), landing.as_ptr(), 1) };
        if let Err(partial) = mapped {
            self.refused(page, entry, partial);
            return Outcome::Served;
        }
        self.pages.row().major_faults.fetch_add(1, Relaxed);
        let resident = entry.with_state(State::Resident).arrived(self.local.account.arrive(1), false);
        let (resident, freed) = self.far.retain_or_free(resident, self.local.account.budget());
        self.local.arrive(std::iter::once(page), Arrival::Demand);
        self.pages.complete(page, resident);
        self.far.backend.free(freed.as_slice());
        self.read_ahead.help(late, scratch);
        Outcome::Served
    }

    /// The kernel would not map a page whose content we hold: the page goes back to where it was.
    fn refused(&self, page: PageNo, before: Entry, partial: Partial) {
        if partial.errno == libc::EEXIST {
            self.pages.fatal(&format!("{page} is mapped although its content is far; the program is ended"));
        }
        self.end_if_forbidden(page);
        // The mapping is gone behind our back: the program gets the kernel's answer when it faults again.
        self.local.account.uncharge(1);
        self.pages.complete(page, before);
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

    /// Tells the prefetcher of a request for far memory, and asks for the window that it names: see `ReadAhead::request`.
    fn request_prefetch(&self, page: PageNo, request: Request, fault: Fault) -> Option<u64> {
        self.driver.requested(page, request, fault).and_then(|window| self.read_ahead.request(window))
    }
}
