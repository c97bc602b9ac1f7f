//! The pager: its parts, and what they share.

use crate::account::Account;
use crate::copy_out;
use crate::evictor_start::EvictorStart;
use crate::inline_fault::{ScratchPool, Waiters};
use crate::kernel::Kernel;
use crate::maintenance::Maintenance;
use crate::pin::Pins;
use crate::prefetch_cache::PrefetchCache;
use crate::prefetch_driver::PrefetchDriver;
use crate::proportional_share::SharedBytes;
use crate::queues::{Locked, Queues};
use crate::read_ahead::ReadAheadQueue;
use crate::schedule::Point;
use crate::shared_budget::SharedBudget;
use crate::staging::Staging;
use crate::state::{Entry, State};
use crate::table::{ContentHash, PageTable};
use crate::tracer::{Trace, Tracer};
use crate::wp_range::WpRanges;
use hinterland_abi::{Ledger, ProcessRow};
use hinterland_backend::{Backend, BackendUsage, Location};
use hinterland_paging::{LANDING_PAGES, Scans};
use hinterland_policy::{Arrival, EvictionPolicy, Prefetcher};
use hinterland_sys::confinement::{self, Descriptors};
use hinterland_sys::gate::Gate;
use hinterland_sys::{Mapping, SysError, last_thread, thread};
use hinterland_units::{Budget, ByteCount, Foreign, PAGE_BYTES, PageBytes, PageNo};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex};
use twox_hash::XxHash3_128;

/// Exit code of a program that Hinterland had to end.
pub const FATAL_EXIT_CODE: i32 = 125;

/// Who serves faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultPath {
    /// Monitor threads, which read them from the userfaultfd.
    Monitor,
    /// The faulting thread itself, in a signal handler (`UFFD_FEATURE_SIGBUS`).
    Inline,
}

/// What a pager is made of.
pub struct Config {
    /// Who serves faults. Must be the path that the userfaultfd was opened for.
    pub path: FaultPath,
    /// First address of the far range.
    pub base: usize,
    /// Pages in the far range.
    pub pages: u32,
    /// Bound on local memory.
    pub local: Option<Budget>,
    /// Bound on local memory, store and metadata.
    pub ram: Option<Budget>,
    /// Where pages go.
    pub backend: Arc<dyn Backend>,
    /// Which pages go.
    pub policy: Box<dyn EvictionPolicy>,
    /// Which pages are prefetched.
    pub prefetcher: Box<dyn Prefetcher>,
    /// Bound on prefetched pages that are not known to be used; `None`: what the windows need.
    pub prefetch_cache_pages: Option<u32>,
    /// Where the figures go.
    pub row: &'static ProcessRow,
    /// Monitor threads: one, or several when a backend waits for a device.
    pub monitors: usize,
    /// Takes stock of the process's whole memory now and then; told the bytes of the pager's tables.
    pub census: fn(&ProcessRow, u64),
    /// The processor on which a thread of this process last ran. Asked by one monitor, not during a fork.
    pub processor_of: fn(u32) -> Option<usize>,
    /// Where the processes of a run share its budget; `None`: this process has the budget for itself. Inherited by forks.
    pub ledger: Option<&'static Ledger>,
    /// Looks at what other processes count of this one's memory, since a fork: of the far range, or, told so, of the pager's
    /// own mappings as well, which takes longer. `None`: it may not look.
    pub shared: fn(bool) -> Option<SharedBytes>,
    /// Called a few times a second from a thread that owns nothing of the pager's: gives memory back that the program freed.
    pub housekeeping: fn(),
    /// Records which pages the program touches. On the monitor path, with one monitor; nothing is prefetched then.
    pub trace: Option<Trace>,
}

/// See the crate.
pub struct Pager {
    pub(crate) path: FaultPath,
    pub(crate) pins: Pins,
    pub(crate) wp_ranges: WpRanges,
    pub(crate) waiters: Waiters,
    pub(crate) scratches: ScratchPool,
    pub(crate) base: usize,
    pub(crate) pages: u32,
    pub(crate) kernel: Kernel,
    pub(crate) table: PageTable,
    pub(crate) staging: Staging,
    pub(crate) account: Account,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) prefetch_driver: Mutex<PrefetchDriver>,
    pub(crate) read_ahead: ReadAheadQueue,
    pub(crate) prefetch_cache: PrefetchCache,
    pub(crate) gate: Gate,
    /// Bumped and woken when the evictor should look at the watermarks, in a process without a ledger (`asks`).
    pub(crate) evictor: AtomicU32,
    pub(crate) monitors: usize,
    pub(crate) census: fn(&ProcessRow, u64),
    pub(crate) processor_of: fn(u32) -> Option<usize>,
    pub(crate) housekeeping: fn(),
    /// No thread of the pager starts another one (`start_all`).
    threads_in_advance: AtomicBool,
    pub(crate) shared_budget: SharedBudget,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) shared: fn(bool) -> Option<SharedBytes>,
    /// Managed bytes at the last census.
    pub(crate) census_at: AtomicU64,
    pub(crate) evictor_start: EvictorStart,
    pub(crate) maintenance: Maintenance,
    /// Evictor and read-ahead thread run (or are about to).
    pub(crate) helpers_started: AtomicBool,
    /// The evictor sleeps.
    pub(crate) evictor_idle: AtomicBool,
    /// The budget is exceeded, because nothing can leave.
    pub(crate) overfull: AtomicBool,
    /// Times in a row that `--ram` was exceeded and the store could not shrink.
    pub(crate) ram_refusals: AtomicU32,
    /// How scattered victims leave: a state of `copy_out`.
    pub(crate) copies: AtomicU8,
    pub(crate) scans: Scans,
    /// Pages given up to other mappings.
    pub(crate) foreign_pages: AtomicU64,
    /// Stored copies of resident pages, while they cost RAM.
    pub(crate) retained_copies: AtomicU64,
    queues: Queues,
    policy_capacity: AtomicU64,
    row: AtomicPtr<ProcessRow>,
    /// Kernel ids of Hinterland's own threads.
    pub(crate) own_threads: [AtomicU32; OWN_THREADS_MAX],
}

/// Monitors, evictor, read-ahead, maintenance.
const OWN_THREADS_MAX: usize = 16;

/// Starts the thread that ends the process when no thread of the program is left: with the first of the pager's others.
pub(crate) fn watch_for_the_end() -> Result<(), SysError> {
    if !last_thread::can_watch() {
        return Ok(());
    }
    match thread::spawn(c"far-exit", || last_thread::watch()) {
        // A confined process: it ends with the last of all threads.
        Err(SysError { errno: libc::EAGAIN, .. }) if confinement::is_confined() => Ok(()),
        outcome => outcome,
    }
}

/// Memory that a thread of the pager works with: never shared, never far.
pub(crate) struct Scratch {
    landing: Mapping,
    pub(crate) victims: Vec<PageNo>,
    pub(crate) usage: Vec<BackendUsage>,
    /// Rounds since the figures of the backends were last published.
    pub(crate) rounds: u32,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let mut one = Scratch::several(1).unwrap_or_else(|error| panic!("no memory for a pager thread: {error}"));
        one.next().unwrap_or_else(|| unreachable!("one was asked for"))
    }

    /// As many as `count`, with one mapping for all.
    pub(crate) fn several(count: usize) -> Result<impl Iterator<Item = Scratch>, SysError> {
        let len = LANDING_PAGES * PAGE_BYTES;
        let all = Mapping::anonymous(count * len)?;
        Ok((0..count).map(move |index| Scratch {
            landing: Mapping { start: all.start + index * len, len },
            victims: Vec::with_capacity(256),
            usage: Vec::new(),
            rounds: 0,
        }))
    }

    /// The landing area, where fetched pages arrive before they are mapped.
    pub(crate) fn landing(&mut self) -> &mut [PageBytes; LANDING_PAGES] {
        // SAFETY: the mapping has this size, is page-aligned, initialised to zero, and belongs to this scratch alone.
        unsafe { &mut *self.landing.as_ptr().cast() }
    }
}

impl Pager {
    /// Registers the far range (which the caller reserved) and the staging memory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(config: Config, kernel: Kernel) -> Result<Pager, SysError> {
        let one_monitor = config.path == FaultPath::Monitor && config.monitors == 1;
        assert!(config.trace.is_none() || one_monitor, "a program is traced by one monitor");
        let pager = Pager {
            path: config.path,
            pins: Pins::new()?,
            wp_ranges: WpRanges::default(),
            waiters: Waiters::default(),
            scratches: ScratchPool::new(config.path)?,
            base: config.base,
            pages: config.pages,
            copies: copy_out::switch(config.path, kernel.features()),
            scans: Scans::default(),
            kernel,
            table: PageTable::new(config.pages)?,
            staging: Staging::new()?,
            account: Account::new(),
            backend: config.backend,
            prefetch_driver: Mutex::new(PrefetchDriver::new(config.prefetcher)),
            read_ahead: ReadAheadQueue::default(),
            prefetch_cache: PrefetchCache::new(config.prefetch_cache_pages),
            gate: Gate::new()?,
            evictor: AtomicU32::new(0),
            monitors: config.monitors,
            census: config.census,
            processor_of: config.processor_of,
            housekeeping: config.housekeeping,
            threads_in_advance: AtomicBool::new(false),
            shared_budget: SharedBudget::new(config.local, config.ram, config.ledger),
            tracer: config.trace.map(|trace| Tracer::new(trace, config.pages)).transpose()?,
            shared: config.shared,
            census_at: AtomicU64::new(0),
            evictor_start: EvictorStart::new(),
            maintenance: Maintenance::new(),
            helpers_started: AtomicBool::new(false),
            evictor_idle: AtomicBool::new(false),
            overfull: AtomicBool::new(false),
            ram_refusals: AtomicU32::new(0),
            foreign_pages: AtomicU64::new(0),
            retained_copies: AtomicU64::new(0),
            queues: Queues::new(config.policy),
            policy_capacity: AtomicU64::new(0),
            row: AtomicPtr::new(std::ptr::from_ref(config.row).cast_mut()),
            own_threads: [const { AtomicU32::new(0) }; OWN_THREADS_MAX],
        };
        pager.register_all(&[])?;
        pager.keep_from_children();
        let inside = pager.gate.enter();
        pager.update_budget();
        drop(inside);
        Ok(pager)
    }

    /// Starts the monitors; the other threads start when they are first needed: most processes never need them. On the
    /// inline path the evictor starts when there is memory enough (`evictor_start`).
    ///
    /// # Errors
    /// What pthread_create says.
    pub fn start(&'static self) -> Result<(), SysError> {
        self.forget_evictor();
        if self.path == FaultPath::Inline {
            self.start_evictor_when_needed()?;
        } else {
            for _ in 0..self.monitors {
                thread::spawn_needed(c"far-monitor", || self.run_monitor())?;
            }
            watch_for_the_end()?;
            if self.holds_more_than_floor() {
                self.start_helpers();
            }
        }
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
        self.start_evictor()?;
        self.start_helpers();
        self.start_maintenance();
        Ok(())
    }

    /// Starts evictor and read-ahead once.
    pub(crate) fn start_helpers(&'static self) {
        if self.helpers_started.swap(true, Relaxed) {
            return;
        }
        let evictor = match self.path {
            FaultPath::Monitor => self.start_evictor(),
            FaultPath::Inline => Ok(()),
        };
        match evictor.and_then(|()| thread::spawn(c"far-ahead", || self.run_read_ahead())) {
            Ok(()) => {}
            // While another thread is in exec, none can be started (`copy_fs` in kernel/fork.c). Until then faults reclaim by
            // themselves, and the next thread that needs them tries again.
            Err(SysError { errno: libc::EAGAIN, .. }) => self.helpers_started.store(false, Relaxed),
            Err(error) => self.fatal(&format!("the pager's threads cannot be started: {error}")),
        }
    }

    /// Before the program confines itself by a filter of system calls of its own: starts all that will be needed, and returns the
    /// descriptors that are used from then on.
    ///
    /// # Errors
    /// Why the pager could not live under a filter, for the user.
    pub fn prepare_confinement(&'static self) -> Result<Descriptors, String> {
        let Some(files) = self.backend.descriptors_if_confined() else {
            return Err(
                "such a filter cannot be made to allow what this far memory needs; compressed RAM or a file will do"
                    .into(),
            );
        };
        if self.tracer.is_some() {
            return Err("a trace is being recorded, which such a filter would end".into());
        }
        // Where threads are forbidden already, those that fault reclaim by themselves.
        let _ = self.start_evictor();
        self.start_helpers();
        let [uffd, memory] = self.kernel.descriptors();
        Ok(Descriptors { uffd, memory, files })
    }

    /// Ends the program with these words: what it is about to do cannot be served.
    pub fn refuse(&self, message: &str) -> ! {
        self.fatal(message)
    }

    /// Registers staging and far range, the latter without the `foreign` runs of pages.
    pub(crate) fn register_all(&self, foreign: &[(PageNo, u32)]) -> Result<(), SysError> {
        let staging = self.staging.moved_memory();
        self.kernel.register(staging.start, staging.len)?;
        if let Some(tracer) = &self.tracer {
            self.kernel.register(tracer.places().start, tracer.places().len)?;
        }
        let mut next = 0;
        for (first, count) in foreign.iter().copied().chain([(PageNo(self.pages), 0)]) {
            if first.0 > next {
                self.kernel.register(self.address(PageNo(next)), (first.0 - next) as usize * PAGE_BYTES)?;
            }
            next = first.0 + count;
        }
        Ok(())
    }

    /// Who serves faults.
    pub fn path(&self) -> FaultPath {
        self.path
    }

    /// The address of a page.
    #[inline]
    pub fn address(&self, page: PageNo) -> usize {
        self.base + page.index() * PAGE_BYTES
    }

    /// The far page that holds `address`.
    #[inline]
    pub fn page_of(&self, address: usize) -> Option<PageNo> {
        let index = address.wrapping_sub(self.base) / PAGE_BYTES;
        u32::try_from(index).ok().filter(|index| *index < self.pages).map(PageNo)
    }

    /// The figures of this process.
    pub fn row(&self) -> &'static ProcessRow {
        // SAFETY: always a `&'static ProcessRow`.
        unsafe { &*self.row.load(Relaxed) }
    }

    pub(crate) fn set_row(&self, row: &'static ProcessRow) {
        self.row.store(std::ptr::from_ref(row).cast_mut(), Relaxed);
    }

    /// The eviction policy. Held for short operations only, and inside the gate: the child of a fork must find it open.
    pub(crate) fn policy(&self) -> Locked<'_> {
        debug_assert!(self.gate.is_entered(), "the policy's lock was asked for outside the gate");
        self.queues.lock()
    }

    /// Tells the policy of arrivals, without waiting for its lock. The caller owns the pages (`Fetching` or `Changing`), and is
    /// inside the gate.
    pub(crate) fn arrive(&self, pages: impl ExactSizeIterator<Item = PageNo>, how: Arrival) {
        debug_assert!(self.gate.is_entered(), "an arrival was reported outside the gate");
        self.queues.arrived(pages, how);
    }

    /// Completes a page: ends its busy state and wakes the threads that wait for it.
    pub(crate) fn complete(&self, page: PageNo, to: Entry) {
        if self.table.complete(page, to) {
            self.wake(self.address(page), PAGE_BYTES);
        }
    }

    /// Lets the threads that wait for pages in `start .. start + len` look again.
    pub(crate) fn wake(&self, start: usize, len: usize) {
        match self.path {
            FaultPath::Monitor => self.kernel.uffd().wake(start, len),
            FaultPath::Inline => self.waiters.wake(),
        }
    }

    /// Counts pages that got content for the first time.
    pub(crate) fn count_touched(&self, pages: u64) {
        let row = self.row();
        row.touched_pages.fetch_add(pages, Relaxed);
        let bytes = pages * PAGE_BYTES as u64;
        let managed = row.managed_bytes.fetch_add(bytes, Relaxed) + bytes;
        let before = row.managed_peak_bytes.fetch_max(managed, Relaxed);
        const STEP: u64 = 1 << 20;
        if self.shared_budget.depends_on_touched() && managed > before && managed / STEP != before / STEP {
            self.update_budget();
        }
    }

    /// Counts pages that lost their content.
    pub(crate) fn count_untouched(&self, pages: u64) {
        self.row().managed_bytes.fetch_sub(pages * PAGE_BYTES as u64, Relaxed);
    }

    /// Adapts watermarks and policy to what store and program occupy now; returns the RAM beside local memory.
    pub(crate) fn update_budget(&self) -> ByteCount {
        let row = self.row();
        let touched = ByteCount(row.managed_peak_bytes.load(Relaxed));
        let beside = self.beside(touched);
        self.shared_budget.update(row, &self.account, touched.0, beside.0);
        row.local_budget_bytes.store(self.shared_budget.budget().bytes(), Relaxed);
        self.account.publish(row);
        let total = self.account.local().bytes() + beside.0;
        row.total_ram_peak_bytes.fetch_max(total, Relaxed);
        self.fit_policy();
        beside
    }

    /// Tells the policy of a bound that has changed by more than a little.
    pub(crate) fn fit_policy(&self) {
        let pages = self.account.budget().0;
        let before = self.policy_capacity.load(Relaxed);
        if before.abs_diff(pages) * 32 > before {
            self.policy_capacity.store(pages, Relaxed);
            let mut policy = self.policy();
            self.at(Point::PolicyHeld, PageNo(0));
            policy.resize(usize::try_from(pages).unwrap_or(usize::MAX));
        }
    }

    /// RAM beside local memory: store and tables.
    fn beside(&self, touched: ByteCount) -> ByteCount {
        ByteCount(self.backend.ram_bytes() + self.metadata_bytes(touched))
    }

    /// Bytes of the pager's tables: those of the page table follow what was touched.
    fn metadata_bytes(&self, touched: ByteCount) -> u64 {
        const TABLE_BYTES_PER_PAGE: u64 = 28;
        let pages = touched.0 / PAGE_BYTES as u64;
        let row = self.row();
        let bytes = pages * TABLE_BYTES_PER_PAGE + self.policy().metadata_bytes() as u64 + self.staging.idle_bytes();
        row.metadata_bytes.store(bytes, Relaxed);
        row.metadata_peak_bytes.fetch_max(bytes, Relaxed);
        bytes
    }

    /// Publishes what the backends hold.
    pub(crate) fn publish_backends(&self, usage: &mut Vec<BackendUsage>) {
        usage.clear();
        self.backend.usage(usage);
        let row = self.row();
        let count = usage.len().min(row.backends.len());
        for (backend, to) in usage.iter().zip(&row.backends) {
            if to.url.get() != backend.url {
                to.url.set(&backend.url);
            }
            to.bytes_in.store(backend.bytes_in, Relaxed);
            to.bytes_out.store(backend.bytes_out, Relaxed);
            to.stored_bytes.store(backend.stored_bytes, Relaxed);
            to.stored_peak_bytes.fetch_max(backend.stored_bytes, Relaxed);
            to.pages.store(backend.pages, Relaxed);
            to.pages_peak.fetch_max(backend.pages, Relaxed);
            to.ram_bytes.store(backend.ram_bytes, Relaxed);
            to.ram_peak_bytes.fetch_max(backend.ram_bytes, Relaxed);
            to.same_filled_pages.store(backend.same_filled_pages, Relaxed);
            to.plain_pages.store(backend.plain_pages, Relaxed);
            to.capacity_bytes.store(backend.capacity_bytes, Relaxed);
            to.losses.store(backend.losses, Relaxed);
            to.rebuilt_pages.store(backend.rebuilt_pages, Relaxed);
            to.hedged_loads.store(backend.hedged_loads, Relaxed);
            to.lacking_pages.store(backend.lacking_pages, Relaxed);
            to.last_pages.store(backend.last_pages, Relaxed);
            to.copied_pages.store(backend.copied_pages, Relaxed);
            to.absent.store(u64::from(backend.absent), Relaxed);
            to.needed.store(u64::from(backend.needed), Relaxed);
            to.encrypted.store(u64::from(backend.encrypted), Relaxed);
        }
        // Last: a reader would take a row without its URL for another tier.
        row.backend_count.store(u32::try_from(count).unwrap_or(0), Release);
    }

    /// Whether the stored copy of a page that was just fetched is retained, so that the page can be dropped without a write if it
    /// does not change. Free on an SSD; in RAM only for a small share of the budget, because every copy is RAM too.
    pub(crate) fn retains_copy(&self) -> bool {
        const SHARE: u64 = 32;
        if !self.backend.copies_cost_ram() {
            return true;
        }
        let retained = self.retained_copies.fetch_add(1, Relaxed);
        if retained < self.account.budget().0 / SHARE {
            return true;
        }
        self.retained_copies.fetch_sub(1, Relaxed);
        false
    }

    /// A retained copy is given up, or its page left: it does not count any more.
    pub(crate) fn forget_copies(&self, copies: u64) {
        if self.backend.copies_cost_ram() {
            self.retained_copies.fetch_sub(copies, Relaxed);
        }
    }

    /// Decides over the stored copy of a page that was fetched: retains it, or returns its location, to be freed once the page is
    /// completed.
    pub(crate) fn retain_or_free(&self, entry: Entry) -> (Entry, Option<Location>) {
        if self.retains_copy() { (entry, None) } else { (entry.without_location(), Some(entry.location())) }
    }

    /// Hash of a page's content (XXH3, 128 bits).
    pub(crate) fn hash(bytes: &PageBytes) -> ContentHash {
        ContentHash(XxHash3_128::oneshot(bytes))
    }

    /// Notes the calling thread as one of Hinterland's own.
    pub(crate) fn register_thread(&self) {
        let id = thread::id();
        let free = self.own_threads.iter().find(|cell| cell.compare_exchange(0, id, Relaxed, Relaxed).is_ok());
        assert!(free.is_some(), "more than {OWN_THREADS_MAX} threads serve one pager");
    }

    /// Forgets all of them, in the child of a fork.
    pub(crate) fn forget_threads(&self) {
        for cell in &self.own_threads {
            cell.store(0, Relaxed);
        }
    }

    pub(crate) fn is_own_thread(&self, id: u32) -> bool {
        id != 0 && self.own_threads.iter().any(|cell| cell.load(Relaxed) == id)
    }

    /// The state of a page, for tests and diagnosis.
    pub fn state(&self, page: PageNo) -> State {
        self.table.load(page).state()
    }

    /// Ends the program: a page cannot be proven right, or there is no place for one.
    pub(crate) fn fatal(&self, message: &str) -> ! {
        let row = self.row();
        // A node's own words may be in it.
        let message = Foreign(message).to_string();
        row.fatal.set(&message);
        // A launcher that reads the row says it; without one nobody else would.
        if row.pid.load(Relaxed) == 0 {
            thread::write_stderr(&format!("hinterland: {message}\n"));
        }
        thread::exit_now(FATAL_EXIT_CODE)
    }
}
