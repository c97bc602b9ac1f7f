//! Replays so small that their figures can be worked out by hand.

use hinterland_sim::{
    Collector, Costs, Duplex, FaultPath, LinkModel, LinkShare, ReplayStats, Setup, Workload, pages_in_order, simulate,
};
use hinterland_tape::{Entry, Reference};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};

/// Local pages: the fewest. Watermarks at 192 and 128, four chunks of 64; the swap cache keeps none (256/32/64).
const LOCAL: u64 = 256;

/// A page takes 100 ns on the link and 10 µs more.
fn setup(costs: Costs) -> Setup {
    let link = LinkModel {
        name: "test".into(),
        latency_ns: 10_000,
        bits_per_second: 327_680_000_000,
        duplex: Duplex::Full,
        share: LinkShare::Strict,
    };
    let local = Budget::Bytes(ByteCount(LOCAL * PAGE_BYTES as u64));
    // No windows: no zeros ahead of first touches.
    Setup { costs, window_pages_max: Some(0), ..Setup::new(local, link) }
}

fn costs() -> Costs {
    Costs { fault_ns: 1_000, major_extra_ns: 500, ..Costs::of(FaultPath::Inline) }
}

/// Touches of pages, each at a time in ns.
fn at(touches: impl IntoIterator<Item = (u64, u32)>) -> Workload {
    let mut collector = Collector::new(None);
    for (cpu_ns, page) in touches {
        collector.push(0, 0, page, cpu_ns).unwrap();
    }
    collector.finish().unwrap()
}

fn played(work: &Workload, setup: &Setup, eviction: &str, prefetcher: &str) -> ReplayStats {
    simulate(work, setup, eviction, prefetcher, &mut |_| {}).unwrap()
}

#[test]
fn what_fits_costs_its_first_touches() {
    let work = pages_in_order((0..3).flat_map(|_| 0..190), 10_000).unwrap();
    for eviction in ["fifo", "s3-fifo", "lru", "min"] {
        let figures = played(&work, &setup(costs()), eviction, "none");
        assert_eq!((figures.first, figures.resident, figures.major), (190, 380, 0), "{eviction}");
        assert_eq!((figures.stalled_ns, figures.link_bytes), (190 * 1_000, 0), "{eviction}");
        assert_eq!(figures.run_ns(), 570 * 10_000 + 190_000);
    }
}

#[test]
fn what_a_forked_child_has_of_its_parent_is_fetched() {
    let mut collector = Collector::new(Some(10_000)).forked(true);
    for page in (0..2).flat_map(|_| 0..4_096) {
        collector.entry(&Entry::Touch(Reference { page, is_first: page < 96, ..Reference::default() })).unwrap();
    }
    let work = collector.finish().unwrap();
    for eviction in ["fifo", "lru"] {
        let figures = played(&work, &setup(costs()), eviction, "none");
        assert_eq!(figures.first, 96, "{eviction}: {figures:?}");
        assert!(figures.major >= 4_000 + 3_000, "{eviction}: {figures:?}");
    }
}

/// First touches of `pages`, a millisecond apart, so that the evictor is long done with each batch.
fn filled(pages: u32) -> Vec<(u64, u32)> {
    (0..pages).map(|page| (u64::from(page + 1) * 1_000_000, page)).collect()
}

#[test]
fn the_evictor_starts_above_the_high_watermark_and_stops_at_the_low_one() {
    // At 193 frames: two chunks are filled and drained one after the other (the swap cache keeps none), until 65 are left.
    let work = at(filled(193));
    let figures = played(&work, &setup(costs()), "fifo", "none");
    assert_eq!((figures.evicted_dirty, figures.local_peak, figures.direct_reclaims), (128, 193, 0));
    let figures = played(&at(filled(192)), &setup(costs()), "fifo", "none");
    assert_eq!(figures.evicted_dirty, 0);
}

#[test]
fn a_major_fault_waits_for_one_page_and_its_latency() {
    let mut touches = filled(193);
    // Page 0 is stored and gone. Then it is there.
    touches.extend([(500_000_000, 0), (500_000_001, 0), (600_000_000, 192)]);
    let figures = played(&at(touches), &setup(costs()), "fifo", "none");
    assert_eq!((figures.first, figures.major, figures.resident), (193, 1, 2));
    assert_eq!(figures.stalled_ns, 193 * 1_000 + (1_000 + 500 + 10_000 + 100));
    assert_eq!(figures.link_bytes, (128 + 1) * 4096);
    assert_eq!(figures.pollution, 0);
}

#[test]
fn a_victim_that_is_touched_before_it_is_written_back_comes_back_without_the_link() {
    // Write-back takes the evictor a second a page: the first batch is still in the swap cache when page 0 is touched.
    let slow = Costs { write_back_page_ns: 1_000_000_000, move_run_ns: 0, move_page_ns: 0, ..costs() };
    let mut touches = filled(193);
    touches.extend([(193_500_000, 0)]);
    let figures = played(&at(touches), &setup(slow), "fifo", "none");
    // It is being stored by then: that has to end first, and then it is remote.
    assert_eq!((figures.minor, figures.major), (0, 1));
    assert!(figures.stalled_ns > 63_900_000_000, "{figures:?}");
    // Of 4096 frames the swap cache keeps two chunks (4096 / 32 / 64). Above 4032, four are filled and two of them drained
    // until at most 3968 are left: pages 0 to 127 are remote, 128 to 255 are not yet.
    let local = Budget::Bytes(ByteCount(4096 * PAGE_BYTES as u64));
    let work = at(filled(4033).into_iter().chain([(5_000_000_000, 130), (5_000_000_001, 130), (6_000_000_000, 127)]));
    let figures = played(&work, &Setup { local, ..setup(costs()) }, "fifo", "none");
    assert_eq!((figures.minor, figures.major, figures.resident), (1, 1, 1));
    assert_eq!(figures.stalled_ns, 4034 * 1_000 + 11_600);
}

#[test]
fn a_clean_page_leaves_without_the_link() {
    let mut touches = filled(193);
    touches.push((500_000_000, 0));
    touches.extend((0..400).map(|at| (600_000_000 + u64::from(at) * 1_000_000, 1_000 + at)));
    let clean = Setup { written_percent: 0, ..setup(costs()) };
    let figures = played(&at(touches), &clean, "fifo", "none");
    assert_eq!((figures.major, figures.evicted_clean), (1, 1), "page 0, which came back and left again");
    assert_eq!(figures.link_bytes, (figures.evicted_dirty + 1) * 4096);
}

/// 300 pages written one after the other, then 0, 1, 2, … read with `gap_ns` in between, prefetched by next-n-line.
fn read_ahead(gap_ns: u64) -> ReplayStats {
    let mut touches = filled(300);
    touches.extend((0..9).map(|page| (1_000_000_000 + u64::from(page) * gap_ns, page)));
    let setup = Setup { window_pages_max: Some(8), ..setup(costs()) };
    played(&at(touches), &setup, "fifo", "next-n-line")
}

#[test]
fn prefetched_pages_are_in_time_or_late_by_what_is_left() {
    // The fault on page 0 asks for pages 1 to 8, which wait unmapped; a millisecond later all are there.
    let slow = read_ahead(1_000_000);
    assert_eq!((slow.major, slow.prefetched, slow.prefetched_unmapped, slow.prefetch_hits), (1, 8, 8, 8), "{slow:?}");
    assert_eq!((slow.used, slow.on_time, slow.late, slow.late_ns), (8, 8, 0, 0));
    assert_eq!((slow.accuracy(), slow.timely()), (Some(1.0), Some(1.0)));
    // Without time in between, page 1 is under way when it is wanted.
    let fast = read_ahead(0);
    assert_eq!((fast.major, fast.prefetch_hits, fast.used), (1, 8, 8), "{fast:?}");
    assert!(fast.late >= 1 && fast.late_ns > 0, "{fast:?}");
    // Demand goes first (100 + 10,000 ns, and 1,500 of the pager's); the batch is sent behind it, and mapping begins when all
    // eight have come, at 900 + 10,000: before the program asks. Page n waits for 760 n.
    assert!(fast.late_ns < 8 * 760, "{fast:?}");
    assert!(fast.stalled_ns < slow.stalled_ns + 8 * 760, "{fast:?}");
}

#[test]
fn a_budget_in_percent_follows_what_is_touched_from_its_floor_on() {
    let share = Setup { local: Budget::PercentOfTouched(50), ..setup(costs()) };
    let floor = u32::try_from(Budget::FLOOR.0 / PAGE_BYTES as u64).unwrap();
    let fits = at(filled(floor - 64));
    assert_eq!(played(&fits, &share, "fifo", "none").link_bytes, 0);
    let figures = played(&at(filled(4 * floor)), &share, "fifo", "none");
    assert!(
        figures.local_peak <= u64::from(2 * floor) && figures.local_peak > u64::from(2 * floor) * 9 / 10,
        "{figures:?}"
    );
}
