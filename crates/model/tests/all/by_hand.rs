//! Times of single accesses, step by step, on the machine of `plain`. The first load enters the window at 5 ticks and comes to memory then.

use super::{load, load_after, plain, run, stream};
use hinterland_model::{Counts, Parameters, Rate, Scheme, ns, replay};

/// Translation, a line on the bus, the DRAM.
const LOCAL: u64 = 10 + 64 + 100;
/// A request on the network, and half of the switch.
const THERE: u64 = 2 * 16 + 500;

fn ticks(lines: &[u32], scheme: Scheme) -> u64 {
    run(&stream(lines.iter().map(|line| load(*line)).collect()), scheme, &plain()).ticks
}

#[test]
fn one_access_takes_the_sum_of_its_steps() {
    let line = THERE + LOCAL + 2 * 64 + 500;
    let page = THERE + (10 + 4096 + 100) + 2 * 4096 + 500 + 4096 + LOCAL;
    let compressed = THERE + (10 + 4096 + 100) + 400 + 2 * 1024 + 500 + 400 + 4096 + LOCAL;
    // A quarter of the bandwidth: everything on network and remote bus takes four times as long.
    let line_in_its_share = (8 * 16 + 500) + (10 + 4 * 64 + 100) + 8 * 64 + 500;
    for (scheme, expected) in [
        (Scheme::Local, LOCAL),
        (Scheme::CacheLine, line),
        (Scheme::Remote, page),
        (Scheme::PageFree, line),
        (Scheme::CacheLinePage, line),
        (Scheme::Lc, compressed),
        (Scheme::Bp, line_in_its_share),
        (Scheme::Pq, line_in_its_share),
        (Scheme::DaeMon, line_in_its_share),
        (Scheme::Ours, line),
    ] {
        assert_eq!(ticks(&[7], scheme), expected, "{scheme:?}");
    }
}

#[test]
fn a_line_waits_behind_the_page_before_it_where_both_share_a_queue() {
    // Line and page of the first access, then the line of the second, are asked for in turn, 32 ticks each. The memory bus reads the first
    // line from 547 to 611, and the page behind it; the second line goes back when the page is sent.
    let page_read = 5 + 32 + 500 + 10 + 64 + 4096;
    let page_sent = page_read + 100 + 2 * 4096;
    let figures = run(&stream(vec![load(0), load(64)]), Scheme::CacheLinePage, &plain());
    assert_eq!(figures.ticks + 5, page_sent + 2 * 64 + 500);
}

#[test]
fn the_page_serves_all_that_wait_for_it() {
    // The second and third wait on the local bus for the one before.
    let one = ticks(&[7], Scheme::Remote);
    assert_eq!(ticks(&[7, 8, 9], Scheme::Remote), one + 2 * 64);
    let figures = run(&stream(vec![load(7), load(8), load(9)]), Scheme::Remote, &plain());
    assert_eq!((figures.counts.by_page, figures.counts.awaited, figures.counts.pages_arrived), (1, 2, 1));
    assert!((figures.hit_ratio() - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn a_page_is_free_with_its_first_line() {
    let misses = vec![load(0), load_after(1, 1)];
    let line = THERE + LOCAL + 2 * 64 + 500;
    let figures = run(&stream(misses), Scheme::PageFree, &plain());
    assert_eq!(figures.ticks, line + LOCAL);
    assert_eq!((figures.counts.by_line, figures.counts.local, figures.counts.down_bytes), (1, 1, 64));
}

#[test]
fn a_dependent_access_waits_for_the_data() {
    let misses = vec![load(0), load_after(64, 1), load_after(128, 2)];
    let one = ticks(&[7], Scheme::CacheLine);
    assert_eq!(run(&stream(misses), Scheme::CacheLine, &plain()).ticks, 3 * one);
}

#[test]
fn a_dirty_page_that_is_evicted_is_read_and_sent() {
    let parameters = Parameters { local_percent: 50, ..plain() };
    let mut third = load_after(128, 2);
    third.dirty_victim = 64;
    let misses = vec![load(0), load_after(64, 1), third, load_after(192, 3)];
    let figures = run(&stream(misses.clone()), Scheme::Remote, &parameters);
    // Page 0 leaves clean for page 2, page 1 dirty for page 3.
    assert_eq!((figures.counts.pages_written, figures.counts.pages_arrived), (1, 4));
    assert_eq!(figures.counts.up_bytes, 4 * 16 + 4096 + 16);
    assert_eq!(figures.counts.remote_bus_bytes, 5 * 4096);
    // Compressed on the network, whole on the bus.
    let figures = run(&stream(misses), Scheme::Lc, &parameters);
    assert_eq!((figures.counts.up_bytes, figures.counts.remote_bus_bytes), (4 * 16 + 1024 + 16, 5 * 4096));
}

#[test]
fn dirty_lines_without_a_local_page_go_out_as_lines() {
    let mut second = load_after(64, 1);
    second.dirty_victim = 200;
    let figures = run(&stream(vec![load(0), second]), Scheme::Remote, &plain());
    assert_eq!((figures.counts.lines_written, figures.counts.up_bytes), (1, 2 * 16 + 64 + 16));
}

#[test]
fn the_papers_machine_serves_a_line_of_a_quarter_link_in_153_ns() {
    // 42 cycles of lookups come before and count as no access cost: 16 B in 3.8 ns + 50 + 15 + 15 + 3.8 + 15.1 + 50 ns.
    let figures = replay(&stream(vec![load(0)]), &[1024], Scheme::CacheLine, &Parameters::paper());
    let sum = [16, 64].map(|bytes| Rate(4_250_000_000).ticks(bytes)).iter().sum::<u64>();
    let expected = sum + ns(100) + ns(30) + Rate(17_000_000_000).ticks(64);
    assert_eq!(figures.counts.access_ticks, expected);
    assert!((figures.access_ns() - 152.6).abs() < 0.1, "{}", figures.access_ns());
    assert_eq!(figures.ticks, expected + 42 * 20);
}

#[test]
fn memory_components_have_links_and_buses_of_their_own() {
    // Pages 0 and 1: on one component the second waits for the first on the network, on two for the local bus alone.
    let misses = || stream(vec![load(0), load(64)]);
    let one = run(&misses(), Scheme::Remote, &plain());
    let two = run(&misses(), Scheme::Remote, &Parameters { components: 2, ..plain() });
    let alone = ticks(&[7], Scheme::Remote);
    assert_eq!(one.ticks, alone + 2 * 4096);
    // It is written to local memory behind the first, whose line is read before its own: 64 ticks, of which 10 pass with its translation.
    assert_eq!(two.ticks, alone + 4096 + 64 - 10);
    assert_eq!(one.counts, Counts { access_ticks: one.counts.access_ticks, ..two.counts });
    // Pages 0 and 2 are on the same one.
    let far = stream(vec![load(0), load(128)]);
    assert_eq!(run(&far, Scheme::Remote, &Parameters { components: 2, ..plain() }).ticks, one.ticks);
}
