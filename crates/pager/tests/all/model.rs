//! Random page operations by several threads against a plain-memory model, on a real userfaultfd.
//!
//! Every page's content follows from one number that the model keeps; each read checks the whole page. Groups of pages are
//! locked by the thread that works on them, but eviction, write-back and read-ahead run beside, under a budget of an
//! eighth of the memory, with tiny limits that force the rare paths.

use crate::traced;
use hinterland_abi::ProcessRow;
use hinterland_backend::{Backend, CodecName, Compressed, Recompression, Reference};
use hinterland_pager::{
    Config, Decisions, FaultPath, HintSite, Kernel, LATER, Leave, LoopRange, LoopState, Pager, PinAccess, State,
};
use hinterland_policy::tape::{PageSet, SetSource, TapeArrival, TapeDeparture, TapeLookahead, TapeSource, ThreadTape};
use hinterland_policy::{Arbiter, EvictionPolicy, Granularity};
use hinterland_sys::mem::OwnMemory;
use hinterland_sys::{FeatureSet, Features, Mapping, Privilege, Uffd};
use hinterland_testkit::{Rng, sigbus};
use hinterland_units::{ByteCount, PAGE_BYTES, PageNo};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GROUP_PAGES: u32 = 64;
const GROUPS: u32 = 512;
const PAGES: u32 = GROUP_PAGES * GROUPS;
const THREADS: u64 = 3;

/// What a page should hold: nothing, or words derived from a seed; or, after `drop_remote` or `freed`, either of both.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Zero,
    Words(u64),
    Either(u64),
}

fn word(seed: u64, index: usize) -> u64 {
    // Half of the page compresses, half does not.
    if index.is_multiple_of(2) { seed } else { Rng(seed ^ index as u64).next_u64() }
}

struct Arena {
    pager: &'static Pager,
    /// Loops that give hints.
    loops: Option<[LoopState; 2]>,
    /// Where system calls read from and write to.
    file: OwnedFd,
}

impl Arena {
    fn words(&self, page: PageNo) -> *mut u64 {
        self.pager.address(page) as *mut u64
    }

    fn write(&self, page: PageNo, seed: u64) {
        for index in 0..PAGE_BYTES / 8 {
            // SAFETY: the page is read-write far memory of the group that this thread holds.
            unsafe { self.words(page).add(index).write_volatile(word(seed, index)) };
        }
    }

    /// As `write`, by a system call that reads a file into the page.
    fn write_by_kernel(&self, page: PageNo, seed: u64) {
        let mut bytes = [0; PAGE_BYTES];
        for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&word(seed, index).to_ne_bytes());
        }
        let offset = i64::from(page.0) * 4096;
        let _pin = self.pager.pin(self.pager.address(page), PAGE_BYTES, PinAccess::Write);
        // SAFETY: the buffer is readable, the page is read-write far memory of the group that this thread holds.
        let done = unsafe {
            let written = libc::pwrite(self.file.as_raw_fd(), bytes.as_ptr().cast(), PAGE_BYTES, offset);
            assert_eq!(written, 4096);
            libc::pread(self.file.as_raw_fd(), self.words(page).cast(), PAGE_BYTES, offset)
        };
        assert_eq!(done, 4096, "{page}: {}", std::io::Error::last_os_error());
    }

    /// As `check`, by a system call that writes the page to a file first.
    fn check_by_kernel(&self, page: PageNo, model: &mut Model) {
        let offset = i64::from(page.0) * 4096;
        let pin = self.pager.pin(self.pager.address(page), PAGE_BYTES, PinAccess::Read);
        let mut bytes = [0u64; PAGE_BYTES / 8];
        // SAFETY: the page is readable, the buffer writable.
        let done = unsafe {
            let written = libc::pwrite(self.file.as_raw_fd(), self.words(page).cast(), PAGE_BYTES, offset);
            assert_eq!(written, 4096, "{page}: {}", std::io::Error::last_os_error());
            libc::pread(self.file.as_raw_fd(), bytes.as_mut_ptr().cast(), PAGE_BYTES, offset)
        };
        drop(pin);
        assert_eq!(done, 4096);
        self.check(page, model);
        let (Model::Words(seed) | Model::Either(seed)) = *model else { return };
        assert!(
            bytes.iter().enumerate().all(|(index, seen)| *seen == word(seed, index)),
            "{page} as the kernel saw it"
        );
    }

    fn check(&self, page: PageNo, model: &mut Model) {
        // SAFETY: as in `write`.
        let read = |index: usize| unsafe { self.words(page).add(index).read_volatile() };
        if let Model::Either(seed) = *model {
            *model = if read(0) == 0 { Model::Zero } else { Model::Words(seed) };
        }
        for index in 0..PAGE_BYTES / 8 {
            let expected = match *model {
                Model::Zero => 0,
                Model::Words(seed) | Model::Either(seed) => word(seed, index),
            };
            assert_eq!(read(index), expected, "{page}, word {index}, {model:?}, {:?}", self.pager.state(page));
        }
    }
}

fn group_page(group: u32, index: u32) -> PageNo {
    PageNo(group * GROUP_PAGES + index)
}

/// A sub-range of a group.
fn part(random: &mut Rng) -> (u32, u32) {
    let first = random.below_u32(GROUP_PAGES);
    (first, 1 + random.below_u32(GROUP_PAGES - first))
}

/// Some bytes, most of them far: any address, any length.
fn bytes_somewhere(arena: &Arena, random: &mut Rng) -> (usize, usize) {
    let page = PageNo(random.below_u32(PAGES));
    let any = usize::try_from(random.next_u64()).unwrap();
    let length = [0, 1, any % PAGE_BYTES, any % (70 * PAGE_BYTES), any][random.below_u32(5) as usize];
    let address = if random.below_u32(8) == 0 { any } else { arena.pager.address(page) + any % PAGE_BYTES };
    (address, length)
}

/// Says something of the use of some bytes, true or not.
fn hint(arena: &Arena, loops: &[LoopState], random: &mut Rng) {
    let hints = arena.pager.hints();
    let (address, length) = bytes_somewhere(arena, random);
    let site = HintSite { key: 1 + u64::from(random.below_u32(40)), name: &|| "here".into() };
    let of = &loops[random.below_u32(2) as usize];
    let addresses = [address, bytes_somewhere(arena, random).0, bytes_somewhere(arena, random).0];
    match random.below_u32(11) {
        0..3 => hints.fetch_all(site, addresses.into_iter(), length),
        3 => hints.evict(address, length % (64 * PAGE_BYTES), Leave::Now),
        4 => hints.evict(address, length % (64 * PAGE_BYTES), Leave::Soon),
        5 => hints.keep(address, length),
        6 => hints.release(address, length),
        7 => hints.loop_fetch(of, site, addresses.into_iter(), length),
        8 => {
            let iterations = random.next_u64() % 10_000;
            let ahead = hints.loop_begin(of, site, LoopRange { address, len: length, iterations });
            assert!(ahead <= iterations.max(1), "{ahead} of {iterations}");
        }
        9 => {
            let iterations = random.next_u64() % 10_000;
            let (soon, (all, len)) = (LoopRange { address, len: length, iterations }, bytes_somewhere(arena, random));
            let all = LoopRange { address: all, len, iterations: random.next_u64() };
            let ahead = hints.loop_search(of, site, soon, all);
            assert!(ahead <= iterations.max(1) || ahead == LATER, "{ahead} of {iterations}");
        }
        _ => hints.loop_end(of, site, random.next_u64() % 10_000),
    }
}

fn operate(arena: &Arena, groups: &[Mutex<Vec<Model>>], random: &mut Rng, operations: u32) {
    let mut done = 0;
    while done < operations {
        if let Some(loops) = &arena.loops {
            hint(arena, loops, random);
        }
        let group = random.below_u32(GROUPS);
        let Ok(mut models) = groups[group as usize].try_lock() else { continue };
        let (first, count) = part(random);
        let range = first..first + count;
        done += count;
        match random.below_u32(13) {
            0..4 => range.for_each(|i| {
                let seed = random.next_u64() | 1;
                match random.below_u32(4) {
                    0 => arena.write_by_kernel(group_page(group, i), seed),
                    _ => arena.write(group_page(group, i), seed),
                }
                models[i as usize] = Model::Words(seed);
            }),
            4..8 => range.for_each(|i| match random.below_u32(4) {
                0 => arena.check_by_kernel(group_page(group, i), &mut models[i as usize]),
                _ => arena.check(group_page(group, i), &mut models[i as usize]),
            }),
            8 => {
                arena.pager.discard(group_page(group, first), count);
                models[first as usize..(first + count) as usize].fill(Model::Zero);
            }
            9 => {
                arena.pager.drop_remote(group_page(group, first), count);
                may_be_zero(&mut models[first as usize..(first + count) as usize]);
            }
            10 => {
                arena.pager.freed(group_page(group, first), count);
                // Others evict meanwhile.
                (0..random.below_u32(100)).for_each(|_| std::thread::yield_now());
                arena.pager.reused(group_page(group, first), count);
                may_be_zero(&mut models[first as usize..(first + count) as usize]);
            }
            11 => protect_and_read(arena, group_page(group, first), count, &mut models[first as usize..]),
            _ => {
                let other = random.below_u32(GROUPS);
                if other == group {
                    continue;
                }
                let Ok(mut target) = groups[other as usize].try_lock() else { continue };
                arena.pager.relocate(group_page(group, first), group_page(other, first), count);
                for i in range {
                    target[i as usize] = std::mem::replace(&mut models[i as usize], Model::Zero);
                }
            }
        }
    }
}

/// Nobody needed what pages held.
fn may_be_zero(models: &mut [Model]) {
    for model in models {
        if let Model::Words(seed) = *model {
            *model = Model::Either(seed);
        }
    }
}

/// Pages that are read-only for a while may be evicted meanwhile.
fn protect_and_read(arena: &Arena, first: PageNo, count: u32, models: &mut [Model]) {
    arena.pager.protect(first, count, libc::PROT_READ).unwrap();
    std::thread::yield_now();
    for (index, model) in (0..count).zip(models) {
        arena.check(PageNo(first.0 + index), model);
    }
    arena.pager.protect(first, count, libc::PROT_READ | libc::PROT_WRITE).unwrap();
}

/// What a test runs with.
struct Case {
    base: usize,
    path: FaultPath,
    set: FeatureSet,
    backend: Arc<dyn Backend>,
    policy: &'static str,
    prefetcher: &'static str,
    seed: u64,
    /// Page operations of each thread.
    operations: u32,
    /// Traced in microsets of so many pages.
    microset_pages: Option<u32>,
    /// Threads follow tapes of pages at random.
    tapes: Option<Order>,
    /// Threads give hints at random.
    hints: bool,
    /// How much comes to a thread that waits.
    granularity: Granularity,
}

impl Case {
    /// The test with the number `test`, in a range and with a seed of its own.
    fn new(test: usize, path: FaultPath, set: FeatureSet, backend: Arc<dyn Backend>) -> Case {
        let operations = std::env::var("HINTERLAND_TEST_MODEL_OPERATIONS").map_or(50_000, |n| n.parse().unwrap());
        let (base, seed) = (0x3500_0000_0000 + (test << 36), 100 * test as u64);
        Case {
            base,
            path,
            set,
            backend,
            policy: "s3-fifo",
            prefetcher: "next-n",
            seed,
            operations,
            microset_pages: None,
            tapes: None,
            hints: false,
            granularity: Granularity::Page,
        }
    }

    fn with(self, policy: &'static str, prefetcher: &'static str) -> Case {
        Case { policy, prefetcher, ..self }
    }

    fn traced(self, microset_pages: u32) -> Case {
        Case { prefetcher: "none", microset_pages: Some(microset_pages), ..self }
    }

    /// Twice as many operations, in which a thread leaves its tape and comes back.
    fn following_tapes(self) -> Case {
        Case { tapes: Some(Order::Ordered), operations: 2 * self.operations, ..self }
    }

    fn following_sets(self) -> Case {
        Case { tapes: Some(Order::Sets), ..self }
    }

    fn by(self, granularity: Granularity) -> Case {
        Case { granularity, ..self }
    }

    fn hinted(self) -> Case {
        Case { hints: true, ..self }
    }

    /// The prefetcher, or tapes before it, and what evicts.
    fn arbiter(&self) -> (Arbiter, Box<dyn EvictionPolicy>) {
        let policy = hinterland_policy::make(self.policy, 4096).unwrap();
        let prefetcher = hinterland_policy::make_prefetcher(self.prefetcher, Some(32)).unwrap();
        match self.tapes {
            None => (Arbiter::new(prefetcher).with_blocks(self.granularity), policy),
            Some(Order::Ordered) => {
                let tapes = (0..THREADS).map(|thread| random_tape(self.seed + 50 + thread));
                Arbiter::following(prefetcher, policy, TapeSource::new(tapes, TapeLookahead::default()))
            }
            Some(Order::Sets) => {
                let mut random = Rng(self.seed + 50);
                Arbiter::following(prefetcher, policy, SetSource::new((0..2_000).map(|_| random_set(&mut random))))
            }
        }
    }

    /// A tenth of the operations, but 15,000, for far memory that takes its time, and for traces, whose pages are unmapped again and again.
    fn short(self) -> Case {
        Case { operations: (self.operations / 10).max(15_000), ..self }
    }
}

/// What a tape of pages at random has.
#[derive(Clone, Copy)]
enum Order {
    Ordered,
    Sets,
}

/// A set of a third of all pages: most requests speak for the next ones, so that phases begin all the time.
fn random_set(random: &mut Rng) -> PageSet {
    PageSet::of(
        (0..GROUPS).map(|_| (PageNo(random.below_u32(PAGES - GROUP_PAGES)), 1 + random.below_u32(GROUP_PAGES / 2))),
    )
}

/// A tape of pages at random; most requests are on it soon, and it is wrong all the time.
fn random_tape(seed: u64) -> ThreadTape {
    let pages = move || {
        let mut random = Rng(seed);
        (0..500_000).map(move |position| (position, PageNo(random.below_u32(PAGES))))
    };
    let arrivals = pages().map(|(position, page)| TapeArrival { position, page, own: page.0 % 8 > 0, interval: 0 });
    let departures = pages().map(|(position, page)| {
        let position = position + 1_000;
        TapeDeparture { position, page, used_until: position - 500, next_use: Some(position + page.0 % 5_000) }
    });
    ThreadTape { arrivals: Box::new(arrivals), departures: Box::new(departures), ahead_pages: 200 }
}

/// A pager on a far range of its own.
fn pager(case: &Case, features: Features) -> &'static Pager {
    let range = Mapping::reserve_at(case.base, PAGES as usize * PAGE_BYTES).unwrap();
    let uffd = match case.path {
        FaultPath::Monitor => Uffd::open(features.monitor_bits()),
        FaultPath::Inline => Uffd::open_user_only(features.inline_bits()),
    };
    let kernel = Kernel::new(features, uffd.unwrap(), OwnMemory::open().unwrap());
    // SAFETY: a row of atomics is valid when zero.
    let row: &'static ProcessRow = Box::leak(unsafe { Box::<ProcessRow>::new_zeroed().assume_init() });
    let (arbiter, policy) = case.arbiter();
    let config = Config {
        path: case.path,
        base: range.start,
        pages: PAGES,
        local: Some(ByteCount(16 << 20)),
        ram: None,
        backend: Arc::clone(&case.backend),
        paths: None,
        copies: None,
        policy,
        arbiter,
        prefetch_cache_pages: None,
        row,
        monitors: 1,
        cpus: None,
        census: |_, _| {},
        processor_of: |_| None,
        housekeeping: || {},
        trace: case.microset_pages.map(traced::trace),
        watch: None,
        decisions: Decisions::default(),
        ledger: None,
        shared: |_| None,
    };
    let pager: &'static Pager = Box::leak(Box::new(Pager::new(config, kernel).unwrap()));
    pager.protect(PageNo(0), PAGES, libc::PROT_READ | libc::PROT_WRITE).unwrap();
    if case.path == FaultPath::Inline {
        sigbus::serve(|address, write| pager.serve_inline(address, write));
    }
    pager.start().unwrap();
    pager.begin_trace(|| Duration::ZERO);
    pager
}

fn run(case: &Case) {
    let Case { path, prefetcher, seed, operations, microset_pages, .. } = *case;
    let features = Features::probe(case.set);
    let able = match path {
        FaultPath::Monitor => features.privilege == Privilege::Kernel,
        FaultPath::Inline => !matches!(features.privilege, Privilege::None(_)),
    };
    if !able {
        eprintln!("skipped: no privilege to serve faults ({path:?}, userfaultfd)");
        return;
    }
    // SAFETY: the name is a C string; the descriptor is new.
    let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC)) };
    // SAFETY: atomics are valid when zero.
    let loops = case.hints.then(|| unsafe { std::mem::zeroed() });
    let arena = Arena { pager: pager(case, features), loops, file };
    let groups: Vec<Mutex<Vec<Model>>> =
        (0..GROUPS).map(|_| Mutex::new(vec![Model::Zero; GROUP_PAGES as usize])).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (arena, groups) = (&arena, &groups);
            scope.spawn(move || operate(arena, groups, &mut Rng(seed + thread), operations));
        }
    });
    for (group, models) in (0..GROUPS).zip(&groups) {
        for (index, model) in (0..GROUP_PAGES).zip(models.lock().unwrap().iter_mut()) {
            arena.check(group_page(group, index), model);
        }
    }
    if let Some(microset_pages) = microset_pages {
        arena.pager.end_trace();
        let mapped = (0..PAGES).filter(|page| arena.pager.state(PageNo(*page)) == State::Resident).count();
        assert!(mapped <= 2 * microset_pages as usize, "{mapped} pages are mapped");
    }
    let row = arena.pager.row();
    let peak = row.resident_managed_peak_bytes.load(Relaxed);
    let [asked, came, used] =
        [&row.blocks_asked, &row.block_pages, &row.block_used_pages].map(|counter| counter.load(Relaxed));
    let by_blocks = case.granularity != Granularity::Page;
    // How many arrive before the program has fetched them itself is the scheduler's.
    assert!(if by_blocks { asked > 100 && came > 0 && used > 0 } else { asked == 0 }, "{asked} of {came}, {used} used");
    let [by_block, size] = [&row.block_faults, &row.block_size_pages].map(|counter| counter.load(Relaxed));
    match case.granularity {
        Granularity::Page | Granularity::Both => assert_eq!(by_block, 0),
        Granularity::Block => assert!(by_block > 100, "{by_block} faults waited for a block"),
        Granularity::Auto => {}
    }
    assert_eq!(size > 0, by_blocks, "{size} pages of a block");
    let demanded = row.major_faults.load(Relaxed) + used;
    assert!(demanded > 1000, "paging happened: {demanded}");
    assert!(peak <= 17 << 20, "the budget held: {peak}");
    let [unmapped, observed, unused] =
        [&row.prefetched_unmapped_pages, &row.prefetch_hits_observed, &row.prefetch_unused_pages]
            .map(|c| c.load(Relaxed));
    assert!(observed + unused <= unmapped, "{observed} used + {unused} given up of {unmapped}");
    assert!(prefetcher != "next-n-line" || observed > 1000 && unused > 1000, "{observed} used, {unused} given up");
    if case.hints {
        let figures = [
            &row.hint_fetched_pages,
            &row.hint_evicted_pages,
            &row.hint_kept_pages,
            &row.hint_loops,
            &row.hint_plain_loops,
        ];
        assert!(figures.iter().all(|figure| figure.load(Relaxed) > 0), "{figures:?}");
    }
    if matches!(case.tapes, Some(Order::Sets)) {
        let [batches, begun] = [&row.tape_batches, &row.tape_phases_begun].map(|counter| counter.load(Relaxed));
        assert!(batches > 0 && begun > 10, "{batches} batches of {begun} phases");
    }
    if matches!(case.tapes, Some(Order::Ordered)) {
        let [batches, left] = [&row.tape_batches, &row.tape_left].map(|counter| counter.load(Relaxed));
        assert!(batches > 0, "no batch was asked for");
        assert!(left > 0 || operations < 100_000, "a thread leaves a tape of random pages at some time");
    }
    if path == FaultPath::Inline && features.drop_vector() {
        assert!(row.copied_out_pages.load(Relaxed) > 1000, "scattered victims left by copy");
    }
    arena.pager.discard(PageNo(0), PAGES);
    assert_eq!(row.managed_bytes.load(Relaxed), 0, "all far space is given back");
}

fn reference() -> Arc<dyn Backend> {
    Arc::new(Reference::new("reference:1G".into(), 1 << 30).unwrap())
}

fn compressed() -> Arc<dyn Backend> {
    Arc::new(Compressed::new("compressed:1G".into(), CodecName::Lz4, 1 << 30).unwrap())
}

/// Tiers of which the first takes its time and refuses one page in twenty.
fn slow_and_failing() -> Arc<dyn Backend> {
    let first = "reference:1G?delay_us=20&jitter_us=200&fault=store:0.05&seed=5";
    hinterland_backend::open(&[first.into(), "compressed:1G".into()]).unwrap()
}

/// A small file before a large one.
fn tiers() -> Arc<dyn Backend> {
    hinterland_backend::open(&["file:/var/tmp?size=2M".into(), "file:/var/tmp?size=1G".into()]).unwrap()
}

use FaultPath::{Inline, Monitor};

#[test]
fn moves_with_compressed_memory() {
    run(&Case::new(0, Monitor, FeatureSet::All, compressed()));
}

#[test]
fn moves_with_the_reference() {
    run(&Case::new(1, Monitor, FeatureSet::V6_8, reference()).with("fifo", "next-n-line"));
}

#[test]
fn write_protect_and_copy_on_older_kernels() {
    run(&Case::new(2, Monitor, FeatureSet::V6_1, compressed()).with("second-chance", "leap"));
}

#[test]
fn the_oldest_kernels() {
    run(&Case::new(3, Monitor, FeatureSet::V5_15, compressed()).with("2q", "readahead-vma"));
}

#[test]
fn slow_and_failing_far_memory() {
    run(&Case::new(4, Monitor, FeatureSet::All, slow_and_failing()).with("s3-fifo", "leap").short());
}

#[test]
fn two_tiers() {
    let tiers = tiers();
    run(&Case::new(26, Monitor, FeatureSet::All, tiers.clone()).with("s3-fifo", "auto").short());
    assert_promoted(&*tiers);
}

#[test]
fn inline_two_tiers() {
    let tiers = tiers();
    run(&Case::new(27, Inline, FeatureSet::All, tiers.clone()).with("fifo", "none").short());
    assert_promoted(&*tiers);
}

fn assert_promoted(tiers: &dyn Backend) {
    let mut rows = Vec::new();
    tiers.usage(&mut rows);
    assert!(rows[0].promoted_pages > 0 && rows[0].demoted_pages > 0, "{rows:?}");
}

#[test]
fn inline_moves_with_compressed_memory() {
    run(&Case::new(5, Inline, FeatureSet::All, compressed()).with("s3-fifo", "readahead"));
}

#[test]
fn inline_moves_with_the_reference() {
    run(&Case::new(6, Inline, FeatureSet::V6_8, reference()).with("fifo", "next-n"));
}

#[test]
fn inline_write_protect_and_copy_on_older_kernels() {
    run(&Case::new(7, Inline, FeatureSet::V6_1, compressed()).with("2q", "leap-per-thread"));
}

#[test]
fn inline_slow_and_failing_far_memory() {
    run(&Case::new(8, Inline, FeatureSet::All, slow_and_failing()).with("s3-fifo", "next-n-line").short());
}

#[test]
fn traced_with_compressed_memory() {
    run(&Case::new(9, Monitor, FeatureSet::All, compressed()).traced(64).short());
}

#[test]
fn traced_page_by_page() {
    run(&Case::new(10, Monitor, FeatureSet::V6_8, reference()).with("fifo", "none").traced(1).short());
}

#[test]
fn traced_on_older_kernels() {
    run(&Case::new(11, Monitor, FeatureSet::V6_1, compressed()).traced(100).short());
}

#[test]
fn following_tapes() {
    run(&Case::new(12, Monitor, FeatureSet::All, compressed()).following_tapes());
}

#[test]
fn inline_following_tapes() {
    run(&Case::new(13, Inline, FeatureSet::V6_8, reference()).with("2q", "leap").following_tapes());
}

#[test]
fn following_tapes_with_slow_and_failing_far_memory() {
    run(&Case::new(14, Inline, FeatureSet::V6_1, slow_and_failing()).following_tapes().short());
}

#[test]
fn hinted() {
    run(&Case::new(15, Monitor, FeatureSet::All, compressed()).hinted().short());
}

#[test]
fn inline_hinted() {
    run(&Case::new(16, Inline, FeatureSet::All, compressed()).with("2q", "none").hinted().short());
}

#[test]
fn hinted_with_slow_and_failing_far_memory() {
    run(&Case::new(17, Inline, FeatureSet::V6_1, slow_and_failing()).with("fifo", "auto").hinted().short());
}

/// The maintenance thread compresses again what stays, from one pass to the next, while its pages come and go.
fn run_recompressing(test: usize, path: FaultPath) {
    let backend = Compressed::new("compressed:1G".into(), CodecName::Lz4, 1 << 30).unwrap();
    let always = Recompression { longest_wait: Duration::ZERO, late: Duration::MAX };
    let backend: Arc<dyn Backend> = Arc::new(backend.recompressing(always));
    run(&Case::new(test, path, FeatureSet::All, Arc::clone(&backend)).short());
    let mut rows = Vec::new();
    backend.usage(&mut rows);
    assert!(rows[0].bytes_in == 0 || rows[0].recompressed_pages > 1000, "{rows:?}");
}

#[test]
fn moves_with_recompression() {
    run_recompressing(18, Monitor);
}

#[test]
fn inline_moves_with_recompression() {
    run_recompressing(19, Inline);
}

#[test]
fn by_blocks_behind_their_pages() {
    run(&Case::new(20, Monitor, FeatureSet::All, compressed()).with("s3-fifo", "auto").by(Granularity::Auto).short());
}

#[test]
fn inline_by_blocks_behind_their_pages() {
    run(&Case::new(21, Inline, FeatureSet::All, slow_and_failing()).with("2q", "none").by(Granularity::Both).short());
}

#[test]
fn by_blocks_alone() {
    run(&Case::new(22, Monitor, FeatureSet::V6_1, compressed()).with("fifo", "none").by(Granularity::Block).short());
}

#[test]
fn inline_by_blocks_alone() {
    run(&Case::new(23, Inline, FeatureSet::All, slow_and_failing()).by(Granularity::Block).short());
}

#[test]
fn following_sets() {
    run(&Case::new(24, Monitor, FeatureSet::All, compressed()).following_sets().short());
}

#[test]
fn inline_following_sets() {
    run(&Case::new(25, Inline, FeatureSet::V6_8, slow_and_failing()).with("2q", "auto").following_sets().short());
}
