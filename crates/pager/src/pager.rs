//! The pager: its parts, and what they share.

use crate::copy_out;
use crate::evictor_start::EvictorStart;
use crate::far_memory::FarMemory;
use crate::fault_path::FaultPath;
use crate::kernel::Kernel;
use crate::local_memory::LocalMemory;
use crate::maintenance::Maintenance;
use crate::own_threads::watch_for_the_end;
use crate::pages::Pages;
use crate::pin::Pins;
use crate::prefetch_cache::PrefetchCache;
use crate::prefetch_driver::PrefetchDriver;
use crate::proportional_share::SharedBytes;
use crate::read_ahead::ReadAheadQueue;
use crate::scratch::ScratchPool;
use crate::shared_budget::SharedBudget;
use crate::staging::Staging;
use crate::state::State;
use crate::tracer::{Trace, Tracer};
use crate::wp_range::WpRanges;
use hinterland_abi::{Ledger, ProcessRow};
use hinterland_backend::Backend;
use hinterland_paging::Scans;
use hinterland_policy::{EvictionPolicy, Prefetcher};
use hinterland_sys::confinement::Descriptors;
use hinterland_sys::{SysError, thread};
use hinterland_units::{Budget, PAGE_BYTES, PageNo};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

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
    pub(crate) pages: &'static Pages,
    pub(crate) far: &'static FarMemory,
    pub(crate) staging: &'static Staging,
    pub(crate) local: &'static LocalMemory,
    pub(crate) pins: Pins,
    pub(crate) wp_ranges: WpRanges,
    pub(crate) scratches: ScratchPool,
    pub(crate) prefetch_driver: Mutex<PrefetchDriver>,
    pub(crate) read_ahead: ReadAheadQueue,
    pub(crate) prefetch_cache: PrefetchCache,
    /// Bumped and woken when the evictor should look at the watermarks, in a process without a ledger (`asks`).
    pub(crate) evictor: AtomicU32,
    pub(crate) monitors: usize,
    pub(crate) census: fn(&ProcessRow, u64),
    pub(crate) processor_of: fn(u32) -> Option<usize>,
    pub(crate) housekeeping: fn(),
    /// No thread of the pager starts another one (`start_all`).
    threads_in_advance: AtomicBool,
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
}

/// A part of the pager: it lives as long as the process, whose threads work in it.
fn for_ever<T>(part: T) -> &'static T {
    Box::leak(Box::new(part))
}

impl Pager {
    /// Registers the far range (which the caller reserved) and the staging memory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(config: Config, kernel: Kernel) -> Result<Pager, SysError> {
        let one_monitor = config.path == FaultPath::Monitor && config.monitors == 1;
        assert!(config.trace.is_none() || one_monitor, "a program is traced by one monitor");
        let pages = for_ever(Pages::new(config.path, config.base, config.pages, kernel, config.row)?);
        let far = for_ever(FarMemory::new(pages, config.backend));
        let staging = for_ever(Staging::new()?);
        let shared_budget = SharedBudget::new(config.local, config.ram, config.ledger);
        let local = for_ever(LocalMemory::new(pages, far, staging, shared_budget, config.policy));
        let pager = Pager {
            pages,
            far,
            staging,
            local,
            pins: Pins::new()?,
            wp_ranges: WpRanges::default(),
            scratches: ScratchPool::new(config.path)?,
            copies: copy_out::switch(config.path, pages.kernel.features()),
            scans: Scans::default(),
            prefetch_driver: Mutex::new(PrefetchDriver::new(config.prefetcher)),
            read_ahead: ReadAheadQueue::default(),
            prefetch_cache: PrefetchCache::new(config.prefetch_cache_pages),
            evictor: AtomicU32::new(0),
            monitors: config.monitors,
            census: config.census,
            processor_of: config.processor_of,
            housekeeping: config.housekeeping,
            threads_in_advance: AtomicBool::new(false),
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
        };
        pager.register_all(&[])?;
        pager.keep_from_children();
        let inside = pages.gate.enter();
        local.update_budget();
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
        if self.pages.path == FaultPath::Inline {
            self.start_evictor_when_needed()?;
        } else {
            for _ in 0..self.monitors {
                thread::spawn_needed(c"far-monitor", || self.run_monitor())?;
            }
            watch_for_the_end()?;
            if self.local.holds_more_than_floor() {
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
        let evictor = match self.pages.path {
            FaultPath::Monitor => self.start_evictor(),
            FaultPath::Inline => Ok(()),
        };
        match evictor.and_then(|()| thread::spawn(c"far-ahead", || self.run_read_ahead())) {
            Ok(()) => {}
            // While another thread is in exec, none can be started (`copy_fs` in kernel/fork.c). Until then faults reclaim by
            // themselves, and the next thread that needs them tries again.
            Err(SysError { errno: libc::EAGAIN, .. }) => self.helpers_started.store(false, Relaxed),
            Err(error) => self.pages.fatal(&format!("the pager's threads cannot be started: {error}")),
        }
    }

    /// Before the program confines itself by a filter of system calls of its own: starts all that will be needed, and returns the
    /// descriptors that are used from then on.
    ///
    /// # Errors
    /// Why the pager could not live under a filter, for the user.
    pub fn prepare_confinement(&'static self) -> Result<Descriptors, String> {
        let Some(files) = self.far.backend.descriptors_if_confined() else {
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
        let [uffd, memory] = self.pages.kernel.descriptors();
        Ok(Descriptors { uffd, memory, files })
    }

    /// Ends the program with these words: what it is about to do cannot be served.
    pub fn refuse(&self, message: &str) -> ! {
        self.pages.fatal(message)
    }

    /// Registers staging and far range, the latter without the `foreign` runs of pages.
    pub(crate) fn register_all(&self, foreign: &[(PageNo, u32)]) -> Result<(), SysError> {
        let staging = self.staging.moved_memory();
        self.pages.kernel.register(staging.start, staging.len)?;
        if let Some(tracer) = &self.tracer {
            self.pages.kernel.register(tracer.places().start, tracer.places().len)?;
        }
        let mut next = 0;
        for (first, count) in foreign.iter().copied().chain([(PageNo(self.pages.count), 0)]) {
            if first.0 > next {
                self.pages.kernel.register(self.pages.address(PageNo(next)), (first.0 - next) as usize * PAGE_BYTES)?;
            }
            next = first.0 + count;
        }
        Ok(())
    }

    /// Who serves faults.
    pub fn path(&self) -> FaultPath {
        self.pages.path
    }

    /// The state of a page, for tests and diagnosis.
    pub fn state(&self, page: PageNo) -> State {
        self.pages.state(page)
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

    /// The figures of this process.
    pub fn row(&self) -> &'static ProcessRow {
        self.pages.row()
    }
}
