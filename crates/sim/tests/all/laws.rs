//! What holds for every replay, whatever the workload: nothing is lost or counted twice, and the same seed gives the same figures.

use hinterland_policy::{EVICTION_POLICIES, PREFETCHERS};
use hinterland_sim::{
    Blocks, Collector, FaultPath, Granularity, LinkModel, REFERENCES, ReplayStats, Setup, Workload, pages_in_order,
    simulate,
};
use hinterland_testkit::patterns;
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn local(pages: u64) -> Budget {
    Budget::Bytes(ByteCount(pages * PAGE_BYTES as u64))
}

fn played(work: &Workload, setup: &Setup, eviction: &str, prefetcher: &str) -> ReplayStats {
    simulate(work, setup, eviction, prefetcher, &mut |_| {}).expect("a possible combination")
}

/// Scans up and down, strides, hot sets and jumps, by several threads in several regions.
fn some_program(seed: u64) -> Workload {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut collector = Collector::new(None);
    let mut cpu_ns = [0; 3];
    for _ in 0..random.random_range(20..60) {
        let thread = random.random_range(0..3_u32);
        let region = random.random_range(0..2);
        let (base, pages, step) = (
            random.random_range(2_000..4_000_i64),
            random.random_range(1..2_000_i64),
            *[-3, -1, 1, 1, 1, 2, 10, 0].get(random.random_range(0..8)).expect("eight"),
        );
        let gap_ns = 10_u64.pow(random.random_range(0..6));
        for at in 0..pages {
            let page = if step == 0 { random.random_range(0..3_000) } else { base + at * step };
            cpu_ns[thread as usize] += random.random_range(0..=gap_ns);
            let page = u32::try_from(page.rem_euclid(20_000)).expect("small");
            collector.push(thread, region, page, cpu_ns[thread as usize]).expect("short");
        }
    }
    collector.finish().expect("not empty")
}

fn some_setup(random: &mut SmallRng) -> Setup {
    let link = ["rdma-25g", "tcp-10g", "ssd", "0ns:100Gb/s", "1ms:100Mb/s"][random.random_range(0..5)];
    let link: LinkModel = link.parse().expect("a link");
    Setup {
        written_percent: *[0, 30, 100].get(random.random_range(0..3)).expect("three"),
        seed: random.random(),
        window_pages_max: [None, None, Some(0), Some(512)][random.random_range(0..4)],
        prefetch_cache_pages: [None, Some(256), Some(1024)][random.random_range(0..3)],
        blocks: Blocks {
            granularity: [Granularity::Page, Granularity::Block, Granularity::Both, Granularity::Auto]
                [random.random_range(0..4)],
            pages: [None, Some(1), Some(32), Some(512)][random.random_range(0..4)],
        },
        ..Setup::new(local(random.random_range(256..3_000)), link)
    }
}

fn holds(figures: &ReplayStats, work: &Workload, setup: &Setup, what: &str) {
    let f = figures;
    assert_eq!(f.references, work.touches().len() as u64, "{what}");
    let kinds = f.resident + f.first + f.minor + f.prefetch_hits + f.awaited + f.major;
    assert_eq!(kinds, f.references, "{what}: {f:?}");
    assert_eq!(f.link_bytes, (f.major + f.prefetched + f.evicted_dirty) * 4096, "{what}: {f:?}");
    assert!(f.on_time + f.late == f.used && f.used <= f.prefetched, "{what}: {f:?}");
    assert!(f.prefetch_hits <= f.prefetched_unmapped && f.prefetched_unmapped <= f.prefetched, "{what}: {f:?}");
    assert!(f.pollution <= f.major && f.late_ns <= f.stalled_ns, "{what}: {f:?}");
    assert!(f.local_peak <= setup.frames(work), "{what}: the budget did not hold: {f:?}");
    let came = f.first + f.zeros_ahead + f.major + f.prefetched;
    assert!(f.evicted_dirty + f.evicted_clean + f.evicted_zero <= came, "{what}: more left than came: {f:?}");
    let waits = f.first + f.minor + f.prefetch_hits + f.major;
    assert!(f.stalled_ns >= waits * setup.costs.fault_ns + f.major * setup.link.latency_ns, "{what}: {f:?}");
    assert_eq!(f.cpu_ns, work.cpu_ns(), "{what}");
    // What was fetched and not used is as it was.
    assert!(setup.written_percent < 100 || f.evicted_clean <= f.prefetched - f.used, "{what}: {f:?}");
}

#[test]
fn every_touch_is_of_one_kind_and_every_page_on_the_link_has_a_reason() {
    let mut seen = ReplayStats::default();
    for seed in 0..10 {
        let work = some_program(seed);
        let mut random = SmallRng::seed_from_u64(seed + 1_000);
        for eviction in EVICTION_POLICIES {
            for prefetcher in PREFETCHERS {
                let setup = some_setup(&mut random);
                let what = format!("seed {seed}, {eviction}, {prefetcher}, {setup:?}");
                let figures = played(&work, &setup, eviction, prefetcher);
                holds(&figures, &work, &setup, &what);
                let asks = prefetcher != "none" || setup.blocks.granularity != Granularity::Page;
                assert!(asks || figures.prefetched == 0, "{what}: {figures:?}");
                seen.late += figures.late;
                seen.awaited += figures.awaited;
                seen.pollution += figures.pollution;
                seen.direct_reclaims += figures.direct_reclaims;
                seen.evicted_zero += figures.evicted_zero;
                seen.evicted_clean += figures.evicted_clean;
                seen.hits_inferred += figures.hits_inferred;
            }
        }
        for reference in REFERENCES {
            let setup = some_setup(&mut random);
            holds(
                &played(&work, &setup, reference, "none"),
                &work,
                &setup,
                &format!("seed {seed}, {reference}, {setup:?}"),
            );
        }
    }
    let rare = [
        seen.late,
        seen.awaited,
        seen.pollution,
        seen.direct_reclaims,
        seen.evicted_zero,
        seen.evicted_clean,
        seen.hits_inferred,
    ];
    assert!(rare.iter().all(|count| *count > 0), "the programs are too tame to test anything: {seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_seed_others() {
    let work = some_program(7);
    let setup = Setup { written_percent: 50, ..Setup::new(local(600), "tcp-10g".parse().expect("a link")) };
    for (eviction, prefetcher) in [("s3-fifo", "leap"), ("2q", "next-n"), ("lru", "none"), ("min", "none")] {
        let first = played(&work, &setup, eviction, prefetcher);
        assert_eq!(first, played(&work, &setup, eviction, prefetcher));
        let other = played(&work, &Setup { seed: 2, ..setup.clone() }, eviction, prefetcher);
        assert_ne!(first, other, "{eviction}, {prefetcher}");
    }
}

#[test]
fn nothing_has_fewer_major_faults_than_min_without_prefetching() {
    for (pattern, trace) in patterns::all(1024) {
        let work = pages_in_order(trace, 1_000).expect("not empty");
        let setup = Setup::new(local(1024), "rdma-25g".parse().expect("a link"));
        let best = played(&work, &setup, "min", "none");
        for eviction in EVICTION_POLICIES.iter().chain(&["lru"]) {
            let figures = played(&work, &setup, eviction, "none");
            assert!(best.major <= figures.major, "{eviction}, {pattern}: {} < {}", figures.major, best.major);
            assert_eq!(best.first, figures.first + figures.zeros_ahead - figures.evicted_zero, "{eviction}, {pattern}");
        }
    }
}

/// Random touches of twice the local memory, which fill the main queue; then `rounds` over every other page of a column of four
/// fifths of it, with a new page now and then: a table is gathered in the order of another column.
fn gathering(local: u32, rounds: u32) -> Workload {
    let mut random = SmallRng::seed_from_u64(1);
    let (first, half) = (local * 2, local * 4 / 5 / 2);
    let mut touched: Vec<u32> = (0..local * 16).map(|_| random.random_range(0..local * 2)).collect();
    for step in 0..rounds * half {
        let (round, at) = (step / half, step % half);
        touched.push(first + at * 2 + round % 2);
        if step % 16 == 0 {
            touched.push(local * 3 + step / 16);
        }
    }
    pages_in_order(touched, 1_000).expect("short")
}

#[test]
fn a_loop_that_fits_comes_to_rest_though_its_pages_leave_beside_victims() {
    const ROUNDS: u32 = 240;
    for local_pages in [2_048, 8_192] {
        let work = gathering(local_pages, ROUNDS);
        for fault_path in [FaultPath::Monitor, FaultPath::Inline] {
            for eviction in ["s3-fifo", "2q"] {
                let setup =
                    Setup { fault_path, ..Setup::new(local(local_pages.into()), "rdma-25g".parse().expect("a link")) };
                let before = played(&gathering(local_pages, 0), &setup, eviction, "none").major;
                let faults = played(&work, &setup, eviction, "none").major - before;
                let touches = u64::from(local_pages * 4 / 5 / 2 * ROUNDS);
                // Inline, scattered victims leave in chunks of their own, and fewer pages are in as many chunks.
                let percent = if fault_path == FaultPath::Inline { 22 } else { 20 };
                assert!(
                    faults * 100 <= touches * percent,
                    "{local_pages} {fault_path:?} {eviction}: {faults} of {touches} touches"
                );
            }
        }
    }
}

/// Twelve walks, a page of each in turn: one thread cannot read ahead for all of them in time.
#[test]
fn a_thread_whose_window_is_late_fetches_the_next_pages_itself() {
    let mut collector = Collector::new(None);
    for touch in 0..120_000_u32 {
        let (walk, at) = (touch % 12, touch / 12);
        collector.push(walk, 0, walk * 10_000 + at % 2_500, u64::from(at) * 200).expect("short");
    }
    let work = collector.finish().expect("not empty");
    let setup = Setup::new(local(12_000), "tcp-10g".parse().expect("a link"));
    let figures = |path| played(&work, &setup.clone().on(path), "s3-fifo", "streams");
    let [inline, monitor] = [FaultPath::Inline, FaultPath::Monitor].map(figures);
    assert_eq!(monitor.prefetched_by_faults, 0, "a monitor has others to serve");
    assert!(inline.prefetched_by_faults * 50 > inline.prefetched, "{inline:?}");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let work = pages_in_order(0..10, 1).expect("not empty");
    let setup = Setup::new(local(1024), "ssd".parse().expect("a link"));
    let refusal = |setup: &Setup, eviction: &str, prefetcher: &str| {
        simulate(&work, setup, eviction, prefetcher, &mut |_| {}).expect_err("impossible").to_string()
    };
    assert!(refusal(&setup, "random", "none").contains("'random' is no eviction policy; there are fifo"));
    assert!(refusal(&setup, "fifo", "markov").contains("'markov' is no prefetcher; there are auto, none"));
    assert!(refusal(&setup, "min", "leap").contains("goes with prefetcher none"));
    assert!(refusal(&Setup { local: local(255), ..setup.clone() }, "fifo", "none").contains("fewer than the 256"));
    assert!(refusal(&Setup { written_percent: 101, ..setup }, "fifo", "none").contains("101 of 100"));
}
