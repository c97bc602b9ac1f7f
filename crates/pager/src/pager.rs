//! The pager: its rooms, put together in one place, and what the program's calls may ask of them.

use crate::config::Config;
use crate::copy_out::CopyOut;
use crate::departure::Departures;
use crate::evict_hints::EvictHints;
use crate::evictor::Evictor;
use crate::evictor_start::EvictorStart;
use crate::evictor_waker::EvictorWaker;
use crate::far_memory::FarMemory;
use crate::fault::Faults;
use crate::fault_path::FaultPath;
use crate::fork::Fork;
use crate::hints::Hints;
use crate::inline_fault::InlineFaults;
use crate::interval::{InForce, IntervalMode, Intervals};
use crate::kernel::Kernel;
use crate::local_memory::LocalMemory;
use crate::maintenance::Maintenance;
use crate::monitor::Monitors;
use crate::own_processors::OwnProcessors;
use crate::pages::Pages;
use crate::pin::{Pin, PinAccess, Pins};
use crate::pin_requests::PinRequestHandler;
use crate::pinning::Pinning;
use crate::prefetch_cache::PrefetchCache;
use crate::prefetch_driver::PrefetchDriver;
use crate::range_calls::{NotReplaced, RangeCalls};
use crate::read_ahead::ReadAhead;
use crate::reclaim::Reclaim;
use crate::report::Report;
use crate::shared_budget::SharedBudget;
use crate::staging::Staging;
use crate::state::State;
use crate::sys::mem::OwnMemory;
use crate::sys::thread::SignalsBlocked;
use crate::sys::{Uffd, keep};
use crate::tracer::Tracer;
use crate::wp_range::WpRanges;
use hinterland_abi::ProcessRow;
use hinterland_policy::tape::Tapes;
use hinterland_sys::SysError;
use hinterland_sys::confinement::Descriptors;
use hinterland_units::{PAGE_BYTES, PageCount, PageNo};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// See the crate.
///
/// Each room holds what is its own, and refers to the rooms below it that it works with.
pub struct Pager {
    pub(crate) pages: &'static Pages,
    far: &'static FarMemory,
    tracer: Option<&'static Tracer>,
    intervals: &'static Intervals,
    hints: &'static Hints,
    read_ahead: &'static ReadAhead,
    pub(crate) copy_out: &'static CopyOut,
    pins: &'static Pins,
    inline_faults: &'static InlineFaults,
    pinning: &'static Pinning,
    range: &'static RangeCalls,
    pub(crate) evictor: &'static EvictorStart,
    maintenance: &'static Maintenance,
    monitors: &'static Monitors,
    report: &'static Report,
    fork: Fork,
    /// No thread of the pager starts another one (`start_all`).
    threads_in_advance: AtomicBool,
    #[cfg(test)]
    pub(crate) rooms: TestRooms,
}

/// Rooms that only tests look into from above.
#[cfg(test)]
pub(crate) struct TestRooms {
    pub(crate) local: &'static LocalMemory,
    pub(crate) staging: &'static Staging,
    pub(crate) wp_ranges: &'static WpRanges,
    pub(crate) reclaim: &'static Reclaim,
    pub(crate) cache: &'static PrefetchCache,
    pub(crate) read_ahead: &'static ReadAhead,
    pub(crate) faults: &'static Faults,
}

/// A room lives as long as the process, whose threads work in it.
fn room<T: 'static>(room: T) -> &'static T {
    keep(room)
}

impl Pager {
    /// Registers the far range (which the caller reserved) and the staging memory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(config: Config, kernel: Kernel) -> Result<Pager, SysError> {
        let one_monitor = config.path == FaultPath::Monitor && config.monitors == 1;
        assert!(config.trace.is_none() || one_monitor, "a program is traced by one monitor");
        // Downwards, a room needs only those that are here before it.
        let (range, processors) = ((config.base, config.pages), OwnProcessors::new(config.cpus, config.ledger));
        let pages = room(Pages::new(config.path, range, kernel, config.row, config.decisions, processors)?);
        let staging = room(Staging::new(config.decisions)?);
        let pins = room(Pins::new()?);
        let wp_ranges = room(WpRanges::default());
        let shared_budget = SharedBudget::new(config.local, config.ram, config.ledger);
        let paths = config.paths.zip(config.ledger);
        let bound = config.local.into_iter().chain(config.ram).map(|bytes| bytes.0 / PAGE_BYTES as u64).min();
        let bound = PageCount(bound.unwrap_or(u64::MAX));
        let far = room(FarMemory::new(pages, config.backend, paths, config.copies, bound)?);
        let local = room(LocalMemory::new(pages, far, staging, shared_budget, config.policy));
        let waker = room(EvictorWaker::new(pages, config.ledger));

        let copy_out = room(CopyOut::new(pages, local, staging, pins, wp_ranges));
        let evict_hints = room(EvictHints::new(pages)?);
        let departures = room(Departures::new(pages, local, staging, pins, wp_ranges, copy_out, evict_hints));
        let tracer =
            config.trace.map(|trace| Tracer::new(trace, pages, local, staging, departures)).transpose()?.map(room);
        let reclaim = room(Reclaim::new(pages, local, far, staging, pins, departures, tracer));

        let driver = room(PrefetchDriver::new(pages, local, config.arbiter, tracer.is_some(), config.ledger));
        let cache =
            room(PrefetchCache::new(pages, local, far, staging, departures, driver, config.prefetch_cache_pages));
        let read_ahead = room(ReadAhead::new(pages, local, far, reclaim, cache, driver, waker)?);

        let faults =
            room(Faults::new(pages, local, far, staging, reclaim, tracer, driver, cache, read_ahead, config.watch));
        let inline_faults = room(InlineFaults::new(pages, local, read_ahead, faults, waker)?);
        let pinning = room(Pinning::new(pages, local, pins, wp_ranges, inline_faults));

        let maintenance = room(Maintenance::new(pages, far));
        let report = room(Report::new(pages, local, far, config.census));
        let pin_requests = PinRequestHandler::new(pages, pinning, waker);
        let evictor = room(Evictor::new(
            pages,
            local,
            reclaim,
            evict_hints,
            read_ahead,
            waker,
            pin_requests,
            maintenance,
            report,
            config.shared,
            config.housekeeping,
        ));
        let evictor = room(EvictorStart::new(pages, read_ahead, waker, evictor));
        let (count, processor_of) = (config.monitors, config.processor_of);
        let monitors =
            room(Monitors::new(pages, local, tracer, read_ahead, faults, waker, evictor, count, processor_of));

        let range = room(RangeCalls::new(pages, local, far, staging, tracer, pins, pinning, wp_ranges, evictor));
        let intervals = room(Intervals::new(pages, tracer, driver));
        let hints = room(Hints::new(pages, local, evict_hints, driver, read_ahead, waker));
        let fork = Fork {
            pages,
            local,
            far,
            evict_hints,
            pins,
            wp_ranges,
            tracer,
            intervals,
            driver,
            cache,
            read_ahead,
            inline_faults,
            pinning,
            waker,
            maintenance,
            evictor,
            range,
        };
        range.register_all()?;
        fork.keep_from_children();
        let inside = pages.gate.enter();
        local.update_budget();
        drop(inside);
        Ok(Pager {
            pages,
            far,
            tracer,
            intervals,
            hints,
            read_ahead,
            copy_out,
            pins,
            inline_faults,
            pinning,
            range,
            evictor,
            maintenance,
            monitors,
            report,
            fork,
            threads_in_advance: AtomicBool::new(false),
            #[cfg(test)]
            rooms: TestRooms { local, staging, wp_ranges, reclaim, cache, read_ahead, faults },
        })
    }

    /// Starts the monitors; the other threads start when they are first needed: most processes never need them. On the
    /// inline path the evictor starts when there is memory enough (`evictor_start`), in a child now if its parent had one.
    ///
    /// # Errors
    /// What pthread_create says.
    pub fn start(&'static self) -> Result<(), SysError> {
        self.report.write_paths();
        match self.pages.path {
            FaultPath::Inline => self.evictor.start_when_needed()?,
            FaultPath::Monitor => self.monitors.start()?,
        }
        self.evictor.start_inherited()?;
        if self.threads_in_advance.load(Relaxed) { self.start_all() } else { Ok(()) }
    }

    /// Starts all threads now, and in the children of forks with the first one: for a program with an allocator of its own, from which
    /// libc takes memory when it starts a thread. A thread of the pager that started another one would wait there for what only
    /// itself can serve, or for a lock of a thread that waits for it.
    ///
    /// # Errors
    /// What pthread_create says.
    pub fn start_all(&'static self) -> Result<(), SysError> {
        self.threads_in_advance.store(true, Relaxed);
        self.evictor.start()?;
        self.evictor.start_helpers();
        self.maintenance.start();
        Ok(())
    }

    /// Before the program confines itself by a filter of system calls of its own: starts all that will be needed, and returns the
    /// descriptors that are used from then on.
    ///
    /// # Errors
    /// Why the pager could not live under a filter, for the user.
    pub fn prepare_confinement(&'static self) -> Result<Descriptors, String> {
        let files = {
            // The child of a fork must find the backend's locks open.
            let _signals = SignalsBlocked::new();
            let _inside = self.pages.gate.enter();
            self.far.descriptors_if_confined()
        };
        let Some(files) = files else {
            return Err(
                "such a filter cannot be made to allow what this far memory needs; compressed RAM or a file will do"
                    .into(),
            );
        };
        if self.tracer.is_some() {
            return Err("a trace is being recorded, which such a filter would end".into());
        }
        // Where threads are forbidden already, those that fault reclaim by themselves.
        let _ = self.evictor.start();
        self.evictor.start_helpers();
        let [uffd, memory] = self.pages.kernel.descriptors();
        Ok(Descriptors { uffd, memory, files })
    }

    /// Ends the program with these words: what it is about to do cannot be served.
    pub fn refuse(&self, message: &str) -> ! {
        self.pages.fatal(message)
    }

    /// Which thread serves faults.
    pub fn path(&self) -> FaultPath {
        self.pages.path
    }

    /// The address of a page.
    #[inline]
    pub fn address(&self, page: PageNo) -> usize {
        self.pages.address(page)
    }

    /// The far page that holds `address`.
    #[inline]
    pub fn page_of(&self, address: usize) -> Option<PageNo> {
        self.pages.page_of(address)
    }

    /// The state of a page, for tests and diagnosis.
    pub fn state(&self, page: PageNo) -> State {
        self.pages.state(page)
    }

    /// The figures of this process.
    pub fn row(&self) -> &'static ProcessRow {
        self.pages.row()
    }

    /// Ends the program, with words of ours: there is no way on. Allocates nothing.
    pub fn end_with(&self, message: &str) -> ! {
        self.pages.end_with(message)
    }

    /// What a userfaultfd of this pager's child needs.
    pub fn kernel(&self) -> &Kernel {
        &self.pages.kernel
    }

    /// Whether this process is a copy that was made without our knowledge (a fork by an instruction of the program's own): it has no
    /// far memory, and the locks may belong to threads that are not there.
    pub fn is_escaped(&self) -> bool {
        self.pages.gate.is_escaped()
    }

    /// Ends a process that [`is_escaped`](Self::is_escaped): called where it would wait for a lock that no thread opens.
    pub fn refuse_escaped(&self) {
        self.pages.gate.refuse_escaped();
    }

    /// Writes the figures that are not kept current all the time, for a process that is about to end.
    pub fn report_now(&self) {
        self.report.write_now();
    }

    /// Serves a fault of the calling thread at `address`, which was a write or not. False: the address is not far, or the
    /// page there is another mapping's.
    ///
    /// For a signal handler in which all signals are blocked.
    pub fn serve_inline(&self, address: usize, write: bool) -> bool {
        self.inline_faults.serve(address, write)
    }

    /// Tracing begins, where there is to be any. `fault_cost`: measures what a fault costs the thread that it stops, in processor
    /// time; its own faults are not traced.
    pub fn begin_trace(&self, fault_cost: impl FnOnce() -> Duration) {
        if let Some(tracer) = self.tracer {
            tracer.begin(fault_cost);
        }
    }

    /// In a forked child whose threads have been started: it is recorded from here on, if its recorder says so. Call it on a near stack.
    pub fn begin_child_trace(&self) {
        if let Some(tracer) = self.tracer {
            tracer.begin_child();
        }
    }

    /// In a forked child: it follows these tapes from here on, its parent's no longer. Call it on a near stack.
    pub fn follow(&self, tapes: Tapes) {
        let _signals = SignalsBlocked::new();
        let _inside = self.pages.gate.enter();
        self.fork.driver.follow(tapes);
    }

    /// The program says that an interval begins in which it is to be recorded or prefetched; call it on a near stack. What is done: that
    /// of the outermost interval.
    pub fn begin_interval(&self, mode: IntervalMode) -> InForce {
        self.intervals.begin(mode)
    }

    /// The interval ends that began last; false: there is none.
    pub fn end_interval(&self) -> bool {
        self.intervals.end()
    }

    /// What the program says of the use it will make of its memory.
    pub fn hints(&self) -> &'static Hints {
        self.hints
    }

    /// The program ends: what was seen is written.
    pub fn end_trace(&self) {
        if let Some(tracer) = self.tracer {
            tracer.end();
        }
    }

    /// This process reads or writes the memory of others: they will want to do the same with its own.
    pub fn expect_pin_requests(&'static self) {
        self.evictor.expect_pin_requests();
    }

    /// From now on no page leaves by copy: the program has pages that a device writes to at any time. Call it before that
    /// begins, on a near stack: it waits for copies that are under way.
    pub fn departs_by_move_only(&self) {
        self.copy_out.end();
    }
}

/// Threads of the pager.
impl Pager {
    /// Makes a call while no thread of the pager is at work; those that were start again after it. What they owned is complete, so no page
    /// is busy but those of the program's own threads. On the monitor path no fault is served meanwhile: neither the call nor what
    /// starts a thread may touch far memory. Two threads do not do this at once.
    pub fn without_threads<R>(&'static self, call: impl FnOnce() -> R) -> R {
        self.stop_all_but_monitors();
        if self.pages.path == FaultPath::Monitor && self.monitors.stop().is_ok() {
            // What a monitor has started meanwhile.
            self.stop_all_but_monitors();
        }
        let result = call();
        self.monitors.resume();
        // Where one is refused, the next thread that needs it tries again.
        let evictor = self.evictor.resume();
        self.read_ahead.resume(evictor);
        self.maintenance.resume();
        let _ = self.pages.own_threads.resume_watch();
        result
    }

    /// Those first that start others.
    fn stop_all_but_monitors(&self) {
        self.evictor.stop();
        self.read_ahead.stop();
        self.maintenance.stop();
        self.pages.own_threads.stop_watch();
    }

    /// Whether `is_meant` holds for a thread of the pager, by its kernel id.
    pub fn any_thread(&self, mut is_meant: impl FnMut(u32) -> bool) -> bool {
        self.pages.own_threads.any(|id| id != 0 && is_meant(id))
    }
}

/// Calls of the program on ranges of pages.
impl Pager {
    /// Drops the content of `count` pages from `first`: they read as zero afterwards, their frames and far space are given
    /// back. The meaning of `MADV_DONTNEED`. Protection stays.
    pub fn discard(&self, first: PageNo, count: u32) {
        self.range.discard(first, count);
    }

    /// As [`Pager::discard`]: the pages are not mapped any more.
    pub fn unmap(&self, first: PageNo, count: u32) {
        self.range.unmap(first, count);
    }

    /// The program has a mapping of so many bytes that the far range has no room for.
    pub fn mapped_beyond(&self, bytes: usize) {
        self.pages.row().beyond_far_range_bytes.fetch_max(bytes as u64, Relaxed);
    }

    /// Drops the content of pages that are not mapped: those pages read as zero afterwards; mapped pages keep theirs. For
    /// memory that was freed: no thread will read it, and it must not take far space.
    pub fn drop_remote(&self, first: PageNo, count: u32) {
        self.range.drop_remote(first, count);
    }

    /// Drops the content of pages that are not mapped, and of all where frames are wanted: those read as zero afterwards. The meaning of
    /// `MADV_FREE`, which a write takes back; what is dropped at once needs no look at that.
    pub fn free_lazily(&self, first: PageNo, count: u32) {
        self.range.free_lazily(first, count);
    }

    /// The content of pages is not needed until [`Pager::reused`]: those that leave meanwhile are dropped, neither compressed nor stored, and
    /// read as zero afterwards; the others keep it. No lock and no system call. For memory that an allocator keeps for reuse.
    pub fn freed(&self, first: PageNo, count: u32) {
        self.pages.table.set_free(first, count, true);
    }

    /// What is written to pages from now on is needed.
    pub fn reused(&self, first: PageNo, count: u32) {
        self.pages.table.set_free(first, count, false);
    }

    /// Makes `count` pages from `first` read as zero in the cheapest way: overwrites those that are mapped, drops the rest.
    /// The pages must be readable and writable, and the caller their only user.
    pub fn zero(&self, first: PageNo, count: u32) {
        self.range.zero(first, count);
    }

    /// Moves the content of `count` pages from `from` to `to` (both read-write, not overlapping); what `to` held is dropped,
    /// `from` reads as zero afterwards. No page is fetched for it.
    pub fn relocate(&self, from: PageNo, to: PageNo, count: u32) {
        self.range.relocate(from, to, count);
    }

    /// Has memory for the entries of `count` pages from `first`, before something is mapped there otherwise than by [`Pager::protect`].
    ///
    /// # Errors
    /// `ENOMEM`: the limit on writable memory, or the process has too many mappings.
    pub fn prepare(&self, first: PageNo, count: u32) -> io::Result<()> {
        self.range.prepare(first, count)
    }

    /// Bytes of the pager's tables that become writable memory when `count` pages from `first` become accessible: for those before it none did.
    pub fn missing_table_bytes(&self, first: PageNo, count: u32) -> usize {
        self.pages.table.missing_bytes(first, count)
    }

    /// `mprotect` on far pages. `protection` is a set of `PROT_*` bits. Content stays, also of evicted pages.
    ///
    /// # Errors
    /// The kernel's.
    pub fn protect(&'static self, first: PageNo, count: u32, protection: i32) -> io::Result<()> {
        self.range.protect(first, count, protection)
    }

    /// Brings `count` pages in and locks them (`mlock`), until `unlock`. With `on_fault`, locks only those that are faulted in
    /// later (`MLOCK_ONFAULT`).
    ///
    /// # Errors
    /// The kernel's (`ENOMEM`: the limit on locked memory), and `ENOMEM` when they would not fit the budget.
    pub fn lock(&self, first: PageNo, count: u32, on_fault: bool) -> io::Result<()> {
        self.range.lock(first, count, on_fault)
    }

    /// Ends `lock`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unlock(&self, first: PageNo, count: u32) -> io::Result<()> {
        self.range.unlock(first, count)
    }

    /// Brings `count` pages in for a call of the kernel, `call` (address and bytes), which is made piece by piece.
    ///
    /// # Errors
    /// The call's; what came before it stays done.
    pub fn with_pages(
        &self,
        first: PageNo,
        count: u32,
        access: PinAccess,
        call: impl Fn(usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        self.range.with_pages(first, count, access, call)
    }

    /// Whether a page is local (the meaning of `mincore`).
    pub fn is_local(&self, page: PageNo) -> bool {
        !matches!(self.state(page), State::Untouched | State::Remote)
    }

    /// Drops the content of `count` pages from `first`, in place of which the program maps others: as [`Pager::discard`] for all that happens
    /// to them, but not the same mapping.
    pub fn empty(&self, first: PageNo, count: u32) {
        self.range.empty(first, count);
    }

    /// Hands a run of pages over to a mapping that is not ours (a file mapped with `MAP_FIXED` inside the far range), which `replace` puts in
    /// the place of theirs by one call: content dropped; the pager will not touch these pages until `take_back`. Meanwhile the pages are
    /// owned: a fault waits, and sees the one mapping or the other. Pages that were handed over before are left out.
    ///
    /// # Errors
    /// What `replace` says. If it left what was there, so are the pages; else they are without content, and it is to be followed by
    /// `take_back`.
    pub fn give_up<T, E>(
        &self,
        first: PageNo,
        count: u32,
        replace: impl FnOnce() -> Result<T, NotReplaced<E>>,
    ) -> Result<T, E> {
        self.range.give_up(first, count, replace)
    }

    /// Maps inaccessible anonymous memory over a run that was given up and manages it again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_back(&self, first: PageNo, count: u32) -> io::Result<()> {
        self.range.take_back(first, count)
    }

    /// Manages a run again that was given up, in whose place `replace` maps private anonymous memory, with this protection, by one call. Threads
    /// that touch it meanwhile see what was there, or what they find afterwards.
    ///
    /// # Errors
    /// The kernel's, or what `replace` says.
    pub fn take_back_open(
        &self,
        first: PageNo,
        count: u32,
        protection: i32,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.range.take_back_open(first, count, protection, replace)
    }

    /// Whether `count` pages may be locked in memory at once: not more than half of the budget.
    pub fn may_lock(&self, count: u32) -> bool {
        self.range.may_lock(count)
    }
}

/// Pins.
impl Pager {
    /// Brings the far pages of `len` bytes at `address` in, ready for `access`, and pins them until the guard is dropped.
    ///
    /// Parts outside the far range, and pages that the program may not touch, are left out: the kernel gives its answer.
    /// The caller has blocked the program's signals: a handler must not run while the fault path works.
    pub fn pin(&self, address: usize, len: usize, access: PinAccess) -> Pin<'_> {
        self.pinning.pin(address, len, access)
    }

    /// The same for a call whose frame is elsewhere than the code that pins for it.
    pub fn pin_for(&self, address: usize, len: usize, access: PinAccess, frame: usize) -> Pin<'_> {
        self.pinning.pin_for(address, len, access, frame)
    }

    /// A pin that does not belong to a call, on both paths: `sweep_pins` leaves it alone. For pages that the program may write.
    pub fn pin_for_good(&self, address: usize, len: usize) -> Pin<'_> {
        self.pinning.pin_for_good(address, len)
    }

    /// As `pin`, for pages that are local already and that the program may touch; `None` if one of them is not. Needs no
    /// blocked signals, because nothing is served.
    #[inline]
    pub fn pin_local(&self, address: usize, len: usize) -> Option<Pin<'_>> {
        self.pinning.pin_local(address, len)
    }

    /// Gives up the calling thread's pins of `frames`, by their addresses: a handler jumped out of their calls.
    pub fn sweep_pins(&self, frames: Range<usize>) {
        self.pins.sweep(frames);
    }

    /// From now on threads may have the same thread-local storage (clone(2) with `CLONE_VM` alone): their pins are told apart by the kernel's ids.
    pub fn threads_share_storage(&self) {
        self.pins.tell_owners_by_id();
    }

    /// Bytes that one call should pin at most.
    pub fn pin_piece(&self) -> usize {
        self.pinning.piece_bytes()
    }

    /// Pins the far pages of `len` bytes at `address` until `unpin_long_term`, or until their content is dropped or moved. For a
    /// thread of the program, which may be interrupted; the bytes are readable and writable. At most a quarter of the budget is
    /// pinned long-term: false, if these pages would be more.
    pub fn pin_long_term(&self, address: usize, len: usize) -> bool {
        self.pinning.pin_long_term(address, len)
    }

    /// Takes away what `pin_long_term` added.
    pub fn unpin_long_term(&self, address: usize, len: usize) {
        self.pinning.unpin_long_term(address, len);
    }
}

/// Forks.
impl Pager {
    /// Stops all work at a point where no page is busy. The caller forks next, and touches no far memory until then.
    /// The runs in `left` will not be part of the child (`MADV_DONTFORK`).
    pub fn freeze(&self, left: &[(PageNo, u32)]) {
        self.fork.freeze(left);
    }

    /// As `freeze`, for a thread whose stack is far: the pages of `stack` stay local and writable from before the gate is closed
    /// until `thaw`, and in the child. (Evicted, a page of it would be waited for for ever: the gate is closed.) False: one of
    /// them left before, and nothing is frozen; the caller touches them again.
    pub fn freeze_on(&self, stack: Range<usize>, left: &[(PageNo, u32)]) -> bool {
        self.fork.freeze_on(stack, left)
    }

    /// Goes on in the parent (or after a fork that failed).
    pub fn thaw(&self) {
        self.fork.thaw();
    }

    /// Goes on in the child: `uffd` and `memory` are the child's own, `row` its own row, with counters at zero. The runs in
    /// `left` are not part of the child (`MADV_DONTFORK`), those in `wiped` read as zero in it (`MADV_WIPEONFORK`).
    /// The caller starts the threads afterwards.
    ///
    /// # Errors
    /// The kernel's: the range cannot be registered. The child must end then, without touching far memory.
    pub fn begin_child(
        &self,
        uffd: Uffd,
        memory: OwnMemory,
        row: &'static ProcessRow,
        left: &[(PageNo, u32)],
        wiped: &[(PageNo, u32)],
    ) -> Result<(), SysError> {
        self.fork.begin_child(uffd, memory, row, left, wiped)
    }
}
