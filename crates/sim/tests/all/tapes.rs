//! Tapes, followed: what was planned from a trace is right for its replay.

use hinterland_policy::tape::set_pages_max;
use hinterland_sim::{Collector, FaultPath, LinkModel, ReplayStats, Setup, Workload, follow, reserve, simulate};
use hinterland_tape::compare::{Comparison, Verdict, write_sets};
use hinterland_tape::plan::{Case, Eviction, Life, PlanCosts, Recording, plan, shares};
use hinterland_tape::tape::{Tape, TapeHead, TapeWriter, ThreadTotals};
use hinterland_tape::{Cause, Discard, Head, Reference, Region, Trace, Writer, Written};
use hinterland_testkit::{Rng, patterns};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};

/// A trace of touches (thread, page), `gap_ns` apart, in microsets of so many touches, and the same as a workload.
fn traced(touches: &[(u32, u32)], gap_ns: u64, microset: u64) -> (Vec<u8>, Workload) {
    let head = Head { page_bytes: 4096, microset_pages: 1024, has_cpu_times: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    let mut collector = Collector::new(None);
    let mut times = [0_u64; 8];
    for ((thread, page), count) in touches.iter().zip(1..) {
        let cpu_ns = &mut times[*thread as usize];
        *cpu_ns += gap_ns;
        writer.touch(&Reference { thread: *thread, page: *page, cpu_ns: *cpu_ns, ..Reference::default() }).unwrap();
        collector.push(*thread, 0, *page, *cpu_ns).unwrap();
        if count % microset == 0 {
            writer.end_microset(Written::Unknown).unwrap();
        }
    }
    writer.finish().unwrap();
    (std::mem::take(writer.sink()), collector.finish().unwrap())
}

fn planned(trace: &[u8], local_pages: u64, eviction: Eviction) -> Vec<u8> {
    let head = TapeHead { microset_pages: 256, ..TapeHead::default() };
    let trace = Trace::open(trace).unwrap();
    let recording = Recording::read(&trace, None).unwrap();
    let mut bytes = Vec::new();
    let mut tape = TapeWriter::new(&mut bytes, &head, recording.regions()).unwrap();
    let mut sink = |thread, arrival, departure| tape.push(thread, arrival, departure);
    let cases = [Case { local_pages, reserve_pages: reserve(local_pages), eviction }];
    let plans = plan(&trace, &recording, &cases, &PlanCosts::default(), Some(&mut sink)).unwrap();
    let totals: Vec<ThreadTotals> = plans[0].threads.iter().map(ThreadTotals::from).collect();
    tape.finish(&totals).unwrap();
    bytes
}

fn setup(local_pages: u64, link: &str) -> Setup {
    let link: LinkModel = link.parse().unwrap();
    Setup::new(Budget::Bytes(ByteCount(local_pages * PAGE_BYTES as u64)), link)
}

fn followed(work: &Workload, setup: &Setup, tape: &[u8]) -> ReplayStats {
    let figures = follow(work, setup, &Tape::open(tape).unwrap(), &mut |_| {}).unwrap();
    let f = figures;
    let kinds = f.resident + f.first + f.minor + f.prefetch_hits + f.awaited + f.major;
    assert_eq!((f.references, kinds), (work.touches().len() as u64, f.references), "{f:?}");
    assert_eq!(f.link_bytes, (f.major + f.prefetched + f.evicted_dirty) * 4096, "{f:?}");
    assert!(f.on_time + f.late == f.used && f.used <= f.prefetched && f.late_ns <= f.stalled_ns, "{f:?}");
    assert!(f.local_peak <= setup.frames(work), "the budget did not hold: {f:?}");
    figures
}

fn of_one_thread(pages: &[u32]) -> Vec<(u32, u32)> {
    let mut pages = pages.to_vec();
    pages.dedup();
    pages.into_iter().map(|page| (0, page)).collect()
}

#[test]
fn a_tape_of_its_own_trace_leaves_no_major_fault() {
    for (pattern, pages) in patterns::all(1024) {
        for microset in [1, 256] {
            let (trace, work) = traced(&of_one_thread(&pages), 10_000, microset);
            for eviction in [Eviction::Lru, Eviction::Min] {
                let tape = planned(&trace, 1024, eviction);
                for path in [FaultPath::Monitor, FaultPath::Inline] {
                    let figures = followed(&work, &setup(1024, "rdma-25g").on(path), &tape);
                    // Inline, scattered victims leave in chunks of their own: of that the plan knows nothing.
                    let most = if path == FaultPath::Inline { figures.prefetched / 500 } else { 0 };
                    let of = format!("{pattern}, {eviction:?}, microsets of {microset}, {path:?}: {figures:?}");
                    assert!(figures.major <= most, "{of}");
                    assert_eq!(figures.used, figures.prefetched, "nothing is fetched in vain: {of}");
                }
            }
        }
    }
}

#[test]
fn the_link_carries_less_than_with_auto_and_with_lru_tapes_no_less_than_with_min() {
    for (pattern, pages) in patterns::all(1024) {
        let (trace, work) = traced(&of_one_thread(&pages), 10_000, 1);
        let setup = setup(1024, "tcp-10g");
        let [min, lru] = [Eviction::Min, Eviction::Lru].map(|e| followed(&work, &setup, &planned(&trace, 1024, e)));
        assert!(min.link_bytes <= lru.link_bytes, "{pattern}: {} {}", min.link_bytes, lru.link_bytes);
        let auto = simulate(&work, &setup, "s3-fifo", "auto", &mut |_| {}).unwrap();
        // `auto` maps zeros ahead of first touches, the tape does not.
        let (run_ns, first_ns) = (min.run_ns(), min.first * setup.costs.fault_ns);
        assert!(run_ns - first_ns <= auto.run_ns(), "{pattern}: {run_ns} ns, auto {}", auto.run_ns());
        assert!(min.link_bytes <= auto.link_bytes, "{pattern}: {} bytes, auto {}", min.link_bytes, auto.link_bytes);
    }
}

#[test]
fn a_tape_for_less_memory_serves_more_and_moves_no_more() {
    let (trace, work) = traced(&of_one_thread(&patterns::sequential_loop(4_096, 6)), 10_000, 64);
    let tape = planned(&trace, 1_024, Eviction::Min);
    let mut before = u64::MAX;
    for local_pages in [1_024, 1_536, 2_048, 3_072] {
        let figures = followed(&work, &setup(local_pages, "tcp-10g"), &tape);
        assert_eq!(figures.major, 0, "{local_pages}: {figures:?}");
        assert!(figures.link_bytes <= before, "{local_pages}: {} after {before}", figures.link_bytes);
        before = figures.link_bytes;
    }
}

#[test]
fn threads_follow_their_own_tapes() {
    // Each thread walks over 3000 pages of its own and over 1000 that both have, in turns of 64.
    let walk = |thread: u32, at: u32| {
        let page = at % 4_000;
        (thread, if page < 1_000 { 10_000 + page } else { thread * 20_000 + page })
    };
    let touches: Vec<(u32, u32)> = (0..400)
        .flat_map(|turn| (0..2).flat_map(move |thread| (0..64).map(move |at| walk(thread, turn * 64 + at))))
        .collect();
    let (trace, work) = traced(&touches, 10_000, 64);
    let setup = setup(2_048, "rdma-25g");
    let figures = followed(&work, &setup, &planned(&trace, 2_048, Eviction::Min));
    let without = simulate(&work, &setup, "min", "none", &mut |_| {}).unwrap();
    assert!(
        figures.major * 300 < without.major,
        "{} major faults, {} without: {figures:?}",
        figures.major,
        without.major
    );
}

#[test]
fn a_wrong_tape_costs_faults_and_a_foreign_one_is_refused() {
    let (trace, _) = traced(&of_one_thread(&patterns::sequential_loop(4_096, 4)), 10_000, 1);
    let tape = planned(&trace, 1_024, Eviction::Min);
    let backwards: Vec<u32> = (0..4).flat_map(|_| (0..4_096).rev()).collect();
    for other in [backwards, patterns::uniform(4_096, 65_536)] {
        let (_, work) = traced(&of_one_thread(&other), 10_000, 1);
        let setup = setup(1_024, "rdma-25g");
        let (figures, without) =
            (followed(&work, &setup, &tape), simulate(&work, &setup, "s3-fifo", "auto", &mut |_| {}).unwrap());
        assert!(figures.major > 0, "{figures:?}");
        assert!(figures.run_ns() * 10 <= without.run_ns() * 11, "with it {figures:?}, without {without:?}");
    }
    let (_, work) = traced(&of_one_thread(&[1, 2, 3]), 10_000, 1);
    let refused = follow(&work, &setup(1_024, "rdma-25g"), &Tape::open(&tape).unwrap(), &mut |_| {});
    assert!(refused.unwrap_err().to_string().contains("planned from another one"));
}

#[test]
fn tapes_for_what_processes_side_by_side_have_leave_fewer_faults_than_tapes_for_all() {
    const LOCAL_PAGES: u64 = 4_096;
    // Two processes of a run, which divide local memory evenly while both live.
    let processes = [patterns::sequential_loop(3_500, 6), patterns::uniform(3_500, 21_000)];
    let lives = [Life { begun_ns: 0, ended_ns: 9, pages: 3_500 }, Life { begun_ns: 1, ended_ns: 8, pages: 3_500 }];
    let shares = shares(LOCAL_PAGES, &lives);
    assert_eq!(shares, [2_048; 2]);
    for (pages, share) in processes.into_iter().zip(shares) {
        let (trace, work) = traced(&of_one_thread(&pages), 10_000, 1);
        let setup = setup(share, "rdma-25g");
        let by = |local_pages| followed(&work, &setup, &planned(&trace, local_pages, Eviction::Min));
        let (of_all, of_share) = (by(LOCAL_PAGES), by(share));
        let faults = |figures: &ReplayStats| figures.major + figures.awaited;
        assert!(faults(&of_share) * 10 < faults(&of_all), "for all: {of_all:?}, for its share: {of_share:?}");
        assert!(of_share.run_ns() < of_all.run_ns(), "for all: {of_all:?}, for its share: {of_share:?}");
        // Once the other one has ended, it has all: what was planned for less serves as well.
        let alone = followed(&work, &self::setup(LOCAL_PAGES, "rdma-25g"), &planned(&trace, share, Eviction::Min));
        assert_eq!(faults(&alone), 0, "{alone:?}");
    }
}

/// A program that allocates 1500 pages, writes to them, reads them, and gives them up, round after round; `told`: the trace says what is
/// given up and what is only read.
fn that_allocates(told: bool) -> (Vec<u8>, Workload) {
    let head = Head { page_bytes: 4096, microset_pages: 100, has_cpu_times: true, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    writer.region(&Region { name: "far".into(), pages: 1 << 30 }).unwrap();
    let mut cpu_ns = 0;
    for (_, pass) in (0..10).flat_map(|round| (0..3).map(move |pass| (round, pass))) {
        for page in 0..1_500 {
            cpu_ns += 10_000;
            writer.touch(&Reference { page, cpu_ns, is_first: told && pass == 0, ..Reference::default() }).unwrap();
            if page % 100 == 99 {
                let written = if pass == 0 { Written::All } else { Written::None };
                writer.end_microset(if told { written } else { Written::Unknown }).unwrap();
            }
        }
        if told && pass == 2 {
            writer.discard(&Discard { region: 0, page: 0, pages: 1_500, cause: Cause::Unmapped }).unwrap();
        }
    }
    writer.finish().unwrap();
    let trace = std::mem::take(writer.sink());
    let (mut entries, mut collector) = (Trace::open(&trace).unwrap().references(), Collector::new(None));
    while let Some(entry) = entries.next_entry() {
        collector.entry(&entry.unwrap()).unwrap();
    }
    (trace, collector.finish().unwrap())
}

#[test]
fn what_is_given_up_and_what_is_only_read_is_carried_less() {
    let ((trace, work), (old_trace, old_work)) = (that_allocates(true), that_allocates(false));
    let setup = setup(1_024, "rdma-25g");
    for (eviction, prefetcher) in [("s3-fifo", "none"), ("fifo", "auto"), ("lru", "none"), ("min", "none")] {
        let of = |work| simulate(work, &setup, eviction, prefetcher, &mut |_| {}).unwrap();
        let (told, not) = (of(&work), of(&old_work));
        assert_eq!(told.references, not.references);
        assert!(
            told.link_bytes * 3 < not.link_bytes * 2,
            "{eviction}: {} bytes, else {}",
            told.link_bytes,
            not.link_bytes
        );
        assert_eq!(told.first + told.zeros_ahead, told.first.max(15_000), "{eviction}: {told:?}");
    }
    for eviction in [Eviction::Lru, Eviction::Min] {
        let told = followed(&work, &setup, &planned(&trace, 1_024, eviction));
        let not = followed(&old_work, &setup, &planned(&old_trace, 1_024, eviction));
        assert!(told.link_bytes < not.link_bytes, "{eviction:?}: {} bytes, else {}", told.link_bytes, not.link_bytes);
        assert_eq!(told.major, 0, "{eviction:?}: {told:?}");
    }
}

/// A program of twelve phases of 900 pages, one after the other, round after round; a seed says in which order it touches a phase's pages.
fn permuted(seed: u64, rounds: u32) -> Vec<(u32, u32)> {
    let mut random = Rng(seed);
    let phase = |phase: u32| {
        let mut pages: Vec<u32> = (0..900).map(|at| phase * 1_000 + at).collect();
        for at in (1..900_u32).rev() {
            pages.swap(at as usize, random.below_u32(at + 1) as usize);
        }
        pages
    };
    let pages: Vec<u32> = (0..rounds).flat_map(|_| 0..12).flat_map(phase).collect();
    of_one_thread(&pages)
}

/// The unordered tape of two runs.
fn sets_of(runs: [&[(u32, u32)]; 2], local_pages: u64) -> Vec<u8> {
    let traces = runs.map(|touches| traced(touches, 10_000, 256).0);
    let traces = traces.each_ref().map(|trace| Trace::open(trace).unwrap());
    let comparison = Comparison::of(&traces, set_pages_max(local_pages)).unwrap();
    assert_eq!(comparison.verdict(), Verdict::Set);
    let mut tape = Vec::new();
    write_sets(&traces[0], &comparison, local_pages, "test", &mut tape).unwrap();
    tape
}

#[test]
fn the_sets_of_two_runs_serve_a_third_in_another_order() {
    let local_pages = 12 * 900 / 4;
    let tape = sets_of([&permuted(1, 6), &permuted(2, 6)], local_pages);
    let (_, work) = traced(&permuted(3, 6), 10_000, 256);
    for link in ["rdma-25g", "tcp-10g", "ssd"] {
        for path in [FaultPath::Monitor, FaultPath::Inline] {
            let setup = setup(local_pages, link).on(path);
            let sets = followed(&work, &setup, &tape);
            let of = |name| simulate(&work, &setup, "s3-fifo", name, &mut |_| {}).unwrap();
            let (none, auto) = (of("none"), of("auto"));
            let beside = format!("{link}, {path:?}: sets {sets:?}, auto {auto:?}");
            assert!(sets.major * 4 < auto.major.min(none.major), "{beside}");
            assert!(sets.run_ns() * 115 < auto.run_ns().min(none.run_ns()) * 100, "{beside}");
        }
    }
}

#[test]
fn a_set_of_other_pages_costs_hardly_anything() {
    let local_pages = 12 * 900 / 4;
    let tape = sets_of([&permuted(1, 6), &permuted(2, 6)], local_pages);
    // Two pages of each phase of the tape, and then others.
    let touches: Vec<(u32, u32)> = permuted(3, 6)
        .iter()
        .enumerate()
        .map(|(at, (thread, page))| (*thread, if at % 900 < 2 { *page } else { 11_999 - page + 20_000 }))
        .collect();
    let (_, work) = traced(&touches, 10_000, 256);
    let setup = setup(local_pages, "tcp-10g");
    let wrong = followed(&work, &setup, &tape);
    let auto = simulate(&work, &setup, "s3-fifo", "auto", &mut |_| {}).unwrap();
    assert!(wrong.run_ns() * 100 <= auto.run_ns() * 103, "{wrong:?}, auto {auto:?}");
    // An eighth of local memory for each phase that begins, of which there are few.
    assert!(wrong.prefetched <= auto.prefetched + 4 * local_pages / 8, "{wrong:?}, auto {auto:?}");
}
