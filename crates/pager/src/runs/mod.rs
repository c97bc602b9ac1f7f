//! Whole runs of a pager on the simulated machine (`sys::simulated`), against a model of what each page holds.
//!
//! Threads of a program load, store, drop, move, protect and pin pages at random, give hints by hand and in loops, and fork; monitors, evictor
//! and read-ahead run beside them, in a budget of two thirds of the memory. The path of faults, the kernel's features, what the kernel does
//! unforeseeably, policies and far memory are drawn from the seed, and so is the thread that goes on at each step: a seed replays the
//! whole run. After each load and store the whole page is compared with the model.
//!
//! A failure prints the seed and the last steps. `HINTERLAND_TEST_SEEDS=FIRST..END` runs other seeds, `HINTERLAND_TEST_FULL` more.

mod any_page;
mod case;
mod far;
mod program;
mod reference;

use crate::pager::Pager;
use crate::sys::simulated::{Current, Report, current, simulate};
use crate::sys::{Mapping, Uffd, keep, mem::OwnMemory};
use crate::{Config, FaultPath, Kernel, LoopState};
use case::Case;
use far::Far;
use hinterland_abi::ProcessRow;
use hinterland_paging::{BOUND_MIN, Urgency};
use hinterland_policy::Arbiter;
use hinterland_units::{ByteCount, PAGE_BYTES, PageNo};
use program::Program;
use reference::Reference;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Pages of the program.
const PAGES: u32 = 192;
/// Frames that are in use elsewhere, so that the smallest bound is tight.
const ELSEWHERE: u64 = BOUND_MIN.0 / 2 - 4;
/// Threads of the program.
const THREADS: usize = 3;

/// A pager of a run's own.
fn pager(case: &Case, current: &Current, far: &Arc<Far>) -> &'static Pager {
    let far_range = Mapping::anonymous(PAGES as usize * PAGE_BYTES).expect("address space");
    current.with(|state| state.machine.memory.reserve(far_range.start, far_range.len));
    let kernel = Kernel::new(case.features(), Uffd::Simulated, OwnMemory::open().expect("there is one"));
    // SAFETY: a row of atomics is valid when zero.
    let row: &'static ProcessRow = keep(unsafe { std::mem::zeroed() });
    let config = Config {
        path: case.path,
        base: far_range.start,
        pages: PAGES,
        local: Some(ByteCount(BOUND_MIN.bytes())),
        ram: None,
        backend: Arc::clone(far) as _,
        paths: None,
        copies: case.copies,
        policy: case.evicts(),
        arbiter: Arbiter::new(hinterland_policy::make_prefetcher(case.prefetcher, Some(8)).expect("there is one")),
        prefetch_cache_pages: case.prefetch_cache_pages,
        row,
        monitors: case.monitors,
        cpus: None,
        census: |_, _| {},
        processor_of: |_| None,
        housekeeping: || {},
        trace: None,
        watch: None,
        ledger: None,
        decisions: crate::Decisions::default(),
        shared: |_| None,
    };
    let pager = keep(Pager::new(config, kernel).expect("a simulated kernel refuses nothing"));
    pager.protect(PageNo(0), PAGES, libc::PROT_READ | libc::PROT_WRITE).expect("nor this");
    if case.path == FaultPath::Inline {
        let handler = Arc::new(|address, write| pager.serve_inline(address, write));
        current.with(|state| state.machine.handler = Some(handler));
    }
    pager.rooms.local.account.charge(ELSEWHERE);
    pager.start().expect("threads start");
    pager.start_all().expect("threads start");
    pager
}

/// The run of a seed; `overwrites`: threads say of pages that they overwrite them, too.
fn run(seed: u64, overwrites: bool) -> Report {
    let case = Case { overwrites, ..Case::of(seed) };
    let mut report = simulate(seed, case.chances, move |current| {
        let far = Arc::new(Far::new(&case));
        let pager = pager(&case, current, &far);
        let reference = Arc::new(Mutex::new(Reference::new()));
        // SAFETY: states consist of atomics, which are valid when zero.
        let loops: &'static [LoopState; 2] = keep(unsafe { std::mem::zeroed() });
        let threads: Vec<usize> = (0..THREADS)
            .map(|number| {
                let (far, reference) = (Arc::clone(&far), Arc::clone(&reference));
                current.spawn("program", move || Program::new(number, case, pager, far, reference, loops).run())
            })
            .collect();
        threads.into_iter().for_each(|thread| current.join(thread));
        let mut last = Program::new(THREADS, case, pager, Arc::clone(&far), reference, loops);
        (0..PAGES).map(PageNo).for_each(|page| last.check(page));
        all_is_given_back(pager, current, &far);
    });
    if let Some(failure) = &mut report.failure {
        *failure = format!("seed {seed}, {case:?}: {failure}");
    }
    report
}

#[test]
fn what_is_pinned_long_term_is_counted_by_the_page() {
    let case = Case::of(0);
    let report = simulate(0, case.chances, move |current| {
        let pager = pager(&case, current, &Arc::new(Far::new(&case)));
        let most = u32::try_from(pager.rooms.local.shared_budget.budget().0 / 4).expect("few pages");
        let pin = |word: u32| pager.pin_long_term(pager.address(PageNo(word / 2)) + 64 * (word % 2) as usize, 40);
        assert!((0..2 * most).all(pin), "two in each page, on a quarter of the budget");
        assert!(!pin(2 * most), "one page more");
        assert!(pin(2 * most - 1), "a page that has some");
    });
    assert_eq!(report.failure, None);
}

/// A program without content takes no far memory and no frames.
fn all_is_given_back(pager: &'static Pager, current: &Current, far: &Far) {
    pager.discard(PageNo(0), PAGES);
    assert_eq!(pager.row().managed_bytes.load(Relaxed), 0, "pages without content are managed");
    let account = &pager.rooms.local.account;
    // Beside the evictor, that may have a chunk in its hands.
    let mut scratch = crate::scratch::Scratch::new();
    for _ in 0..1000 {
        let inside = pager.pages.gate.enter();
        pager.rooms.reclaim.step(Urgency::Now, &mut scratch);
        drop(inside);
        current.yield_now("waits for the evictor");
        if far.stored_pages() == 0 && account.local().0 <= ELSEWHERE {
            break;
        }
    }
    assert_eq!(far.stored_pages(), 0, "far memory holds pages that nobody has");
    if pager.row().prefetched_unmapped_pages.load(Relaxed) == 0 {
        assert_eq!(account.local().0, ELSEWHERE, "frames are counted that nobody has");
    }
}

/// The seeds to run.
fn seeds() -> std::ops::Range<u64> {
    match std::env::var("HINTERLAND_TEST_SEEDS") {
        Ok(range) => {
            let (first, end) = range.split_once("..").expect("HINTERLAND_TEST_SEEDS is FIRST..END");
            first.parse().expect("a number")..end.parse().expect("a number")
        }
        Err(_) if std::env::var_os("HINTERLAND_TEST_FULL").is_some_and(|value| value == "1") => 0..5_000,
        Err(_) => 0..200,
    }
}

#[test]
fn every_page_holds_what_the_program_put_there() {
    all_must_be_well(seeds(), false);
}

#[test]
fn every_page_that_is_overwritten_holds_what_the_program_put_there() {
    // Half as many: the same operations, and one more.
    let seeds = seeds();
    all_must_be_well(seeds.start..seeds.start + (seeds.end - seeds.start).div_ceil(2), true);
}

fn all_must_be_well(seeds: std::ops::Range<u64>, overwrites: bool) {
    let (mut steps, mut first) = (0, None);
    for seed in seeds.clone() {
        let report = run(seed, overwrites);
        steps += report.steps;
        if let Some(failure) = report.failure {
            first = Some(failure);
            break;
        }
    }
    assert!(first.is_none(), "{}", first.unwrap_or_default());
    eprintln!("{} seeds, {steps} steps", seeds.count());
}

#[test]
fn a_seed_replays_its_run() {
    for seed in [1, 2, 3, 4, 5, 6] {
        let (once, again) = (run(seed, seed % 2 == 0), run(seed, seed % 2 == 0));
        assert_eq!(once, again, "seed {seed}");
        assert!(once.steps > 1000);
    }
    assert_ne!(run(1, false).digest, run(2, false).digest);
    assert!(current().is_none());
}
