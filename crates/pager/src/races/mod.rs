//! Races, each forced: one side is held at a point (`points`), the other does its part, and what must hold is checked. That a
//! thread waits is seen in what the pager and the kernel note of it (`waits`), not in time that passes.
//! `docs/races.md` lists them: the two sides, and what would go wrong.
//!
//! A stage is a pager whose policy names the victims that the test names, so that nothing leaves by itself. Every race runs on
//! both fault paths, unless it is about one of them.

mod calls;
mod copies;
mod faults;
mod forks;
mod freed;
mod hints;
mod leaving;
mod losses;
mod overwrites;
mod patches;
mod pins;
mod retained_copies;
mod waits;

use crate::blocked::TestThread;
use crate::points::{Hold, Point};
use crate::scratch::Scratch;
use crate::sys::mem::OwnMemory;
use crate::sys::simulated::{Chances, Current, current, simulate};
use crate::sys::thread::SignalsBlocked;
use crate::sys::{Mapping, Uffd, keep, thread};
use crate::{Config, Decisions, FaultPath, Kernel, Pager, State};
use hinterland_abi::ProcessRow;
use hinterland_backend::{Backend, CodecName, Compressed};
use hinterland_paging::Urgency;
use hinterland_policy::{Arbiter, Arrival, EvictionPolicy, PrefetchWindow, Prefetcher, Request, Thread};
use hinterland_sys::uffd::feature;
use hinterland_sys::{FeatureSet, Features, Privilege};
use hinterland_testkit::sigbus;
use hinterland_units::{ByteCount, PAGE_BYTES, PageCount, PageNo};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, RwLock};
use waits::For;

const PAGES: u32 = 1024;
/// The bound on prefetched pages that are not known to be used.
const CACHE_PAGES: u32 = 64;
const WORDS: usize = PAGE_BYTES / 8;

/// Names the pages that a test wants to leave.
#[derive(Clone, Default)]
struct Script {
    wanted: Arc<Mutex<Vec<PageNo>>>,
    /// What it was told: pages that arrived, and those that are to be forgotten.
    told: Arc<Mutex<Vec<(PageNo, bool)>>>,
    /// How often it was told, as the prefetcher, that a page which was read ahead was used, or was not.
    heard: Arc<AtomicUsize>,
}

impl EvictionPolicy for Script {
    fn arrived(&mut self, page: PageNo, _: Arrival) {
        self.told.lock().unwrap().push((page, true));
    }
    fn forgotten(&mut self, page: PageNo) {
        self.told.lock().unwrap().push((page, false));
    }
    fn victims(&mut self, count: usize, out: &mut Vec<PageNo>) {
        let mut wanted = self.wanted.lock().unwrap();
        let count = count.min(wanted.len());
        out.extend(wanted.drain(..count));
    }
    fn putback(&mut self, _: PageNo) {}
    fn written_back(&mut self, _: PageNo) {}
    fn resize(&mut self, _: usize) {}
    fn resident(&self) -> usize {
        0
    }
    fn metadata_bytes(&self) -> usize {
        0
    }
}

/// Reads nothing ahead.
impl Prefetcher for Script {
    fn requested(&mut self, _: PageNo, request: Request, _: Thread) -> Option<PrefetchWindow> {
        self.heard.fetch_add(usize::from(request == Request::PrefetchHit), Relaxed);
        None
    }
    fn wasted(&mut self, _: PageNo, _: u32) {
        self.heard.fetch_add(1, Relaxed);
    }
}

/// A pager of a test's own.
#[derive(Clone)]
struct Stage {
    pager: &'static Pager,
    script: Script,
    backend: Arc<dyn Backend>,
    loaded_before: Arc<AtomicU64>,
}

/// Runs a race on both fault paths, of the kernel and of the simulated machine.
fn on_both_paths(race: impl Fn(&Stage) + Send + Sync + 'static) {
    on_both_paths_over(compressed, race);
}

/// As `on_both_paths`, over this far memory.
fn on_both_paths_over(far: fn() -> Arc<dyn Backend>, race: impl Fn(&Stage) + Send + Sync + 'static) {
    let race = Arc::new(race);
    on_both_kernel_paths_over(far, &*race);
    on_simulated(FaultPath::Monitor, far, Arc::clone(&race));
    on_simulated(FaultPath::Inline, far, race);
}

/// The usual far memory of a stage.
fn compressed() -> Arc<dyn Backend> {
    Arc::new(Compressed::new("compressed:64M".into(), CodecName::Lz4, 64 << 20).unwrap())
}

/// Runs a race that needs more than one process, or a device, on both fault paths.
fn on_both_kernel_paths(race: impl Fn(&Stage)) {
    on_both_kernel_paths_over(compressed, race);
}

/// As `on_both_kernel_paths`, over this far memory.
fn on_both_kernel_paths_over(far: fn() -> Arc<dyn Backend>, race: impl Fn(&Stage)) {
    on_over(FaultPath::Monitor, far, &race);
    on_over(FaultPath::Inline, far, race);
}

/// Runs a race on the simulated machine, in some orders of the steps that it does not force.
fn on_simulated(path: FaultPath, far: fn() -> Arc<dyn Backend>, race: Arc<impl Fn(&Stage) + Send + Sync + 'static>) {
    for seed in 0..3 {
        let race = Arc::clone(&race);
        let report = simulate(seed, Chances::default(), move |current| race(&Stage::simulated(path, far(), current)));
        assert!(report.failure.is_none(), "simulated, {path:?}, seed {seed}: {}", report.failure.unwrap_or_default());
    }
}

/// Runs a race on one path; skips it where userfaultfd cannot be used.
fn on(path: FaultPath, race: impl Fn(&Stage)) {
    on_over(path, compressed, race);
}

/// As `on`, over this far memory.
fn on_over(path: FaultPath, far: fn() -> Arc<dyn Backend>, race: impl Fn(&Stage)) {
    match Stage::new(path, far()) {
        Some(stage) => race(&stage),
        None => eprintln!("skipped: no privilege to serve faults of system calls (userfaultfd)"),
    }
}

/// This process is the child of a test.
static IN_CHILD: AtomicBool = AtomicBool::new(false);

/// Has panics say what they are in children of tests, too. Not changed in the child: another test's panic may have held the lock
/// of the hook when the process was copied.
fn hear_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IN_CHILD.load(Relaxed) {
                thread::write_stderr(&format!("in the child: {panic}\n"));
            } else {
                usual(panic);
            }
        }));
    });
}

fn row() -> &'static ProcessRow {
    // SAFETY: a row of atomics is valid when zero.
    Box::leak(unsafe { Box::<ProcessRow>::new_zeroed().assume_init() })
}

fn open(path: FaultPath, features: Features) -> Uffd {
    match path {
        FaultPath::Monitor => Uffd::open(features.monitor_bits()).unwrap(),
        FaultPath::Inline => Uffd::open_user_only(features.inline_bits()).unwrap(),
    }
}

/// The page's word at `index` when it holds `seed`; seed 0 is the page of zeros.
fn word(seed: u64, index: usize) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(1 + index as u64 % 7)
}

impl Stage {
    fn new(path: FaultPath, backend: Arc<dyn Backend>) -> Option<Stage> {
        static NEXT: AtomicUsize = AtomicUsize::new(0x3400_0000_0000);
        hear_children();
        let features = Features::probe(FeatureSet::All);
        if features.privilege != Privilege::Kernel {
            return None;
        }
        let base = NEXT.fetch_add(1 << 30, Relaxed);
        Mapping::reserve_at(base, PAGES as usize * PAGE_BYTES).unwrap();
        let kernel = Kernel::new(features, open(path, features), OwnMemory::open().unwrap());
        let stage = Stage::of(path, backend, base, kernel);
        let pager = stage.pager;
        if path == FaultPath::Inline {
            sigbus::serve(|address, write| pager.serve_inline(address, write));
        }
        pager.start().unwrap();
        Some(stage)
    }

    /// On the simulated machine.
    fn simulated(path: FaultPath, backend: Arc<dyn Backend>, current: &Current) -> Stage {
        let bits = feature::PAGEFAULT_FLAG_WP | feature::SIGBUS | feature::THREAD_ID | feature::MOVE;
        let features = Features::of(FeatureSet::All, Privilege::Kernel, bits).with_vectors();
        let far_range = Mapping::anonymous(PAGES as usize * PAGE_BYTES).unwrap();
        current.with(|state| state.machine.memory.reserve(far_range.start, far_range.len));
        let kernel = Kernel::new(features, Uffd::Simulated, OwnMemory::open().unwrap());
        let stage = Stage::of(path, backend, far_range.start, kernel);
        let pager = stage.pager;
        if path == FaultPath::Inline {
            let handler = Arc::new(|address, write| pager.serve_inline(address, write));
            current.with(|state| state.machine.handler = Some(handler));
        }
        pager.start().unwrap();
        stage
    }

    fn of(path: FaultPath, backend: Arc<dyn Backend>, base: usize, kernel: Kernel) -> Stage {
        let (script, row) = (Script::default(), row());
        let config = Config {
            path,
            base,
            pages: PAGES,
            local: Some(ByteCount(64 << 20)),
            ram: None,
            backend: Arc::clone(&backend),
            paths: None,
            copies: None,
            policy: Box::new(script.clone()),
            arbiter: Arbiter::new(Box::new(script.clone())),
            prefetch_cache_pages: Some(CACHE_PAGES),
            row,
            // A point may hold one of them.
            monitors: 3,
            cpus: None,
            census: |_, _| {},
            processor_of: |_| None,
            housekeeping: || {},
            trace: None,
            watch: None,
            decisions: Decisions::default(),
            ledger: None,
            shared: |_| None,
        };
        let pager = keep(Pager::new(config, kernel).unwrap());
        pager.protect(PageNo(0), PAGES, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        Stage { pager, script, backend, loaded_before: Arc::default() }
    }

    fn hold(&self, point: Point, page: PageNo) -> Hold {
        Hold::next(self.pager.address(PageNo(0)), point, page)
    }

    fn state(&self, page: PageNo) -> State {
        self.pager.state(page)
    }

    fn words(&self, page: PageNo) -> *mut u64 {
        assert!(page.0 < PAGES);
        self.pager.address(page) as *mut u64
    }

    fn write(&self, page: PageNo, seed: u64) {
        for index in 0..WORDS {
            self.reach(page, index, true);
            // SAFETY: a read-write page of the range that the race lets this thread write.
            unsafe { self.words(page).add(index).write_volatile(word(seed, index)) };
        }
        self.wait_until_stable(page);
    }

    /// On the simulated machine, a thread reaches a word before it uses it.
    fn reach(&self, page: PageNo, index: usize, write: bool) {
        if let Some(current) = current() {
            current.reach(self.words(page).addr() + 8 * index, write);
        }
    }

    /// Reads a word; what it reads depends on who is first.
    fn touch(&self, page: PageNo) {
        self.reach(page, 0, false);
        // SAFETY: a readable page of the range.
        let _ = unsafe { self.words(page).read_volatile() };
    }

    /// A thread goes on as soon as its page is mapped; that is a moment before the page's state says so.
    fn wait_until_stable(&self, page: PageNo) {
        while self.state(page) == State::Fetching {
            thread::yield_now();
        }
    }

    /// Ends the test if a page does not hold what it should.
    fn check(&self, page: PageNo, seed: u64) {
        for index in 0..WORDS {
            self.reach(page, index, false);
            // SAFETY: a readable page of the range.
            let value = unsafe { self.words(page).add(index).read_volatile() };
            assert_eq!(value, word(seed, index), "{page}, word {index}, seed {seed}, {:?}", self.state(page));
        }
        self.wait_until_stable(page);
    }

    /// One step of the evictor's, in the calling thread: with victims, they go to the swap cache; without, the oldest of those is
    /// written back.
    fn reclaim(&self, victims: &[PageNo]) {
        self.script.wanted.lock().unwrap().extend(victims);
        let _signals = thread::SignalsBlocked::new();
        let inside = self.pager.pages.gate.enter();
        self.pager.rooms.reclaim.step(Urgency::Now, &mut Scratch::new());
        drop(inside);
    }

    /// Takes a page out, to the swap cache.
    fn evict(&self, page: PageNo) {
        self.reclaim(&[page]);
    }

    /// Changes the bound, so that this thread tells the policy and holds its lock.
    fn fit_policy(&self) {
        let _signals = SignalsBlocked::new();
        let _inside = self.pager.pages.gate.enter();
        self.pager.rooms.local.account.set_bound(PageCount(PAGES.into()), PageCount(PAGES.into()));
        self.pager.rooms.local.fit_policy();
    }

    /// Makes a page with content `Remote`.
    fn send_far(&self, page: PageNo, seed: u64) {
        self.write(page, seed);
        while self.state(page) != State::Remote {
            // A message of the first fault that is read late brings the page back once.
            self.evict(page);
            self.reclaim(&[]);
        }
        let (_, loaded) = self.traffic();
        self.loaded_before.store(loaded, Relaxed);
    }

    /// Does something in another thread.
    fn beside(&self, work: impl FnOnce(&Stage) + Send + 'static) -> TestThread {
        let stage = self.clone();
        TestThread::spawn(move || work(&stage))
    }

    /// Pages that the backend holds, and that it has given out.
    fn traffic(&self) -> (u64, u64) {
        let mut usage = Vec::new();
        self.backend.usage(&mut usage);
        (usage[0].pages, usage[0].bytes_out / PAGE_BYTES as u64)
    }

    /// Pages that the backend holds.
    fn stored_pages(&self) -> u64 {
        self.traffic().0
    }

    /// Pages that the backend has given out since the last `send_far`.
    fn loaded_pages(&self) -> u64 {
        self.traffic().1 - self.loaded_before.load(Relaxed)
    }

    /// Forks; the child runs `body` and ends well if that does not panic.
    fn fork(&self, body: impl FnOnce(&Stage)) -> Child {
        self.pager.freeze(&[]);
        let forking = FORKS.write().unwrap();
        // SAFETY: the child works with this pager alone, allocates through libc (which is made for it), and leaves by exit_now.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork failed");
        drop(forking);
        if pid != 0 {
            self.pager.thaw();
            return Child { pid };
        }
        let features = *self.pager.kernel().features();
        let (uffd, memory) = (open(self.pager.path(), features), OwnMemory::open().unwrap());
        self.pager.begin_child(uffd, memory, row(), &[], &[]).unwrap();
        self.pager.start().unwrap();
        IN_CHILD.store(true, Relaxed);
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(self))).is_ok();
        thread::exit_now(if well { 0 } else { 101 })
    }
}

/// A fork in one test shares the pages of all others with its child, and a shared page cannot be moved (`EBUSY`): a test that moves some
/// by itself holds this for reading.
static FORKS: RwLock<()> = RwLock::new(());

/// A forked child.
struct Child {
    pid: libc::pid_t,
}

impl Child {
    fn id(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }, self.pid);
        status
    }

    fn must_be_well(self) {
        assert_eq!(self.wait(), 0, "the child found something wrong (its message is above)");
    }

    fn kill(self) {
        // SAFETY: our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
        assert_eq!(libc::WTERMSIG(self.wait()), libc::SIGKILL);
    }
}
