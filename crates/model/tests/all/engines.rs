//! The rules of DaeMon's engines (§4), one by one.

use super::{load, load_after, plain, run, stream};
use hinterland_model::{Miss, Parameters, Rate, Scheme, Stream};

/// A load that replaces a dirty line.
fn load_replacing(line: u32, dirty_victim: u32) -> Miss {
    Miss { dirty_victim, ..load(line) }
}

#[test]
fn the_first_access_asks_for_both_and_the_next_waits_for_a_page_that_moves() {
    let figures = run(&stream(vec![load(0), load(1)]), Scheme::Pq, &plain());
    let counts = figures.counts;
    assert_eq!((counts.lines_asked, counts.pages_asked, counts.by_line, counts.awaited), (1, 1, 1, 1));
}

#[test]
fn a_line_is_sent_for_a_page_in_the_queue_while_its_buffer_is_emptier() {
    // Page 0 moves; pages 1 to 9 wait in the queue. Each access has asked for a line, so 10 of 128 against 10 of 256: the line buffer is
    // fuller, and the second line of page 9 isn't sent. With a line buffer of 1024 it is.
    let mut misses: Vec<Miss> = (0..10).map(|page| load(page * 64)).collect();
    misses.push(load(9 * 64 + 1));
    let stream = stream(misses);
    let counts = run(&stream, Scheme::Pq, &plain()).counts;
    assert_eq!((counts.lines_asked, counts.awaited), (10, 1));
    let emptier = Parameters { inflight_sub_blocks: 1024, ..plain() };
    assert_eq!(run(&stream, Scheme::Pq, &emptier).counts.lines_asked, 11);
    // BP asks always.
    assert_eq!(run(&stream, Scheme::Bp, &plain()).counts.lines_asked, 11);
}

#[test]
fn a_full_page_buffer_means_lines_only() {
    let parameters = Parameters { inflight_pages: 2, ..plain() };
    let stream = stream((0..6).map(|page| load(page * 64)).collect());
    let counts = run(&stream, Scheme::Pq, &parameters).counts;
    assert_eq!((counts.pages_asked, counts.pages_refused, counts.by_line), (2, 4, 6));
    assert_eq!(run(&stream, Scheme::Bp, &parameters).counts.pages_asked, 6);
}

#[test]
fn an_access_waits_when_both_buffers_are_full() {
    let parameters = Parameters { inflight_pages: 1, inflight_sub_blocks: 1, ..plain() };
    let counts = run(&stream((0..3).map(|page| load(page * 64)).collect()), Scheme::Pq, &parameters).counts;
    assert!(counts.accesses_blocked >= 2, "{counts:?}");
    assert_eq!(counts.accesses, 3);
    // A full line buffer alone: the page is asked for.
    let parameters = Parameters { inflight_sub_blocks: 1, ..plain() };
    let counts = run(&stream((0..3).map(|page| load(page * 64)).collect()), Scheme::Pq, &parameters).counts;
    assert_eq!((counts.lines_asked, counts.pages_asked, counts.accesses_blocked), (1, 3, 0));
}

/// Twenty lines of a page are blocked behind another page; those that find it local when it has come ask for nothing whose coming would let the next one go.
#[test]
fn what_was_blocked_and_is_local_now_keeps_none_behind_it_waiting() {
    let parameters = Parameters { inflight_pages: 1, inflight_sub_blocks: 1, ..plain() };
    let lines = [0].into_iter().chain(64..84).chain([128, 192]);
    let stream = stream(lines.map(load).collect());
    for scheme in [Scheme::Pq, Scheme::Ours] {
        let counts = run(&stream, scheme, &parameters).counts;
        assert_eq!(
            (counts.accesses, counts.accesses_blocked),
            (23, 22),
            "{scheme:?}: each is blocked once, {counts:?}"
        );
        assert!(counts.pages_asked + counts.pages_refused <= counts.accesses, "{scheme:?}: {counts:?}");
    }
}

#[test]
fn the_page_cancels_lines_in_the_queue_and_late_ones_are_ignored() {
    // Lines have a thousandth of the link: the first is on its way when its page comes, the second still waits in the queue.
    let parameters = Parameters { line_share_percent: 1, network_rate: Rate(7_200_000_000), ..plain() };
    let counts = run(&stream(vec![load(0), load(1)]), Scheme::Bp, &parameters).counts;
    assert_eq!((counts.lines_asked, counts.lines_cancelled, counts.lines_late, counts.by_line), (2, 2, 1, 0));
    assert_eq!(counts.down_bytes, 4096 + 64);
}

#[test]
fn dirty_lines_wait_for_their_page_up_to_the_threshold() {
    // Page 0 is on its way while 8 of its lines leave the LLC with accesses of page 1: they wait for it, and it comes dirty.
    let mut misses = vec![load(0)];
    misses.extend((0..8).map(|line| load_replacing(64 + line, 10 + line)));
    let counts = run(&stream(misses.clone()), Scheme::Pq, &plain()).counts;
    assert_eq!((counts.pages_throttled, counts.lines_written, counts.pages_arrived), (0, 0, 2));
    // The ninth flushes them all, what comes is stale, and the page is asked for again.
    misses.push(load_replacing(80, 30));
    let counts = run(&stream(misses.clone()), Scheme::Pq, &plain()).counts;
    assert_eq!((counts.pages_throttled, counts.lines_written), (1, 9));
    assert_eq!((counts.pages_asked_again, counts.pages_asked, counts.pages_arrived), (1, 3, 2));
    // Remote has no dirty unit: its page takes them all.
    let counts = run(&stream(misses), Scheme::Remote, &plain()).counts;
    assert_eq!((counts.pages_throttled, counts.lines_written), (0, 0));
}

#[test]
fn a_full_dirty_buffer_throttles_the_page_that_needs_it() {
    let parameters = Parameters { dirty_lines: 2, ..plain() };
    let misses = vec![load(0), load_replacing(64, 1), load_replacing(65, 2), load_replacing(66, 3)];
    let counts = run(&stream(misses), Scheme::Pq, &parameters).counts;
    assert_eq!((counts.pages_throttled, counts.lines_written), (1, 3));
}

#[test]
fn pages_leave_the_queue_at_the_pace_of_their_share() {
    // Three quarters of the network carry a page in 10,923 ticks. The first page is issued at 5, so the second, known at 10, at 10,928: read
    // at 17,043, just when the first has been sent.
    let issued = 5 + 10_923;
    let read = issued + 43 + 500 + 10 + 5_462 + 100;
    let first_sent = 5 + 43 + 500 + 10 + 5_462 + 100 + 10_923;
    assert_eq!(read, first_sent);
    // The third access asks when the page moves, and waits for it.
    let misses = vec![load(0), load(64), Miss { after_cycles: 1000, ..load_after(65, 2) }];
    let figures = run(&stream(misses), Scheme::Pq, &plain());
    assert_eq!(figures.counts.lines_asked, 2);
    assert_eq!(figures.ticks + 5, read + 10_923 + 500 + 4096 + 10 + 64 + 100);
}

#[test]
fn no_page_is_issued_while_the_packet_buffer_is_full() {
    // One frame, and every page comes dirty: the local bus writes one page and reads another for each that comes, which is more than the
    // network brings meanwhile. Pages pile up in the packet buffer until the controller stops.
    let mut misses = vec![load(0)];
    misses.extend((1..40).map(|page| load_replacing(page * 64, page * 64 - 59)));
    misses.push(Miss { after_cycles: 11_500, ..load_after(39 * 64 + 1, 40) });
    let stream = stream(misses);
    let fast = Parameters { network_rate: Rate(720_000_000_000), local_percent: 1, ..plain() };
    let lines = |packet_buffer_bytes| {
        let parameters = Parameters { packet_buffer_bytes, ..fast.clone() };
        run(&stream, Scheme::Pq, &parameters).counts.lines_asked
    };
    assert_eq!((lines(4096), lines(1 << 20)), (41, 40));
}

#[test]
fn pages_are_paced_by_the_slower_of_network_and_memory_bus() {
    // The page share of a slow remote memory bus takes 54,614 ticks for a page, the network 10,923: the second page is issued after the
    // former, so that a line of it can still be asked for.
    let parameters = Parameters { dram_rate: Rate(7_200_000_000), ..plain() };
    let misses = vec![load(0), load(64), Miss { after_cycles: 900, ..load_after(65, 2) }];
    assert_eq!(run(&stream(misses), Scheme::Pq, &parameters).counts.lines_asked, 3);
}

#[test]
fn where_shares_are_lent_a_line_is_asked_for_if_it_comes_before_its_page() {
    // PQ asks for no line of a page that was issued. That comes, foreseen, at 5 + 1110 + 2 × 4096 + 2 × 1024 + 400 = 11,755, a line 1,334 after its request.
    let counts = |after_cycles| {
        let late = Miss { after_cycles, ..load_after(2, 1) };
        run(&stream(vec![load(0), load(1), late]), Scheme::Ours, &plain()).counts
    };
    // The first is done at 1,339, so the last asks at 1,339 + 20 cycles each.
    let (sooner, later) = (counts(450), counts(500));
    assert_eq!((sooner.lines_asked, sooner.by_line, sooner.awaited), (3, 3, 0));
    assert_eq!((later.lines_asked, later.by_line, later.awaited, later.pages_asked), (2, 2, 1, 1));
}

#[test]
fn where_shares_are_lent_either_granularity_has_what_the_other_leaves() {
    // A slow link, of which a line takes 1,280 ticks. One page fits into the buffer, so lines serve all: DaeMon's have a quarter of it.
    let slow = Parameters { network_rate: Rate(3_600_000_000), ..plain() };
    let ticks = |stream: &Stream, parameters: &Parameters| {
        [Scheme::DaeMon, Scheme::Ours].map(|scheme| run(stream, scheme, parameters).ticks)
    };
    let apart = stream((0..1000).map(|page| Miss { instructions: 200, ..load(page * 64) }).collect());
    let [kept, lent] = ticks(&apart, &Parameters { inflight_pages: 1, ..slow.clone() });
    assert!(2 * lent < kept, "lines: {lent} where lent, {kept} where kept");
    // No line fits into its buffer but one: pages serve the others, DaeMon's with three quarters.
    let [kept, lent] = ticks(
        &apart,
        &Parameters { inflight_sub_blocks: 1, inflight_pages: 2000, packet_buffer_bytes: 1 << 30, ..slow },
    );
    assert!(lent * 100 < kept * 90, "pages: {lent} where lent, {kept} where kept");
}

#[test]
fn lent_shares_are_faster_where_lines_are_needed_and_where_pages_are() {
    // One line of each of 4,000 pages; and 400 pages, line by line.
    let far_apart = stream((0..4000).map(|page| Miss { instructions: 40, ..load(page * 64) }).collect());
    let in_order = stream((0..400 * 64).map(|line| Miss { instructions: 40, ..load(line) }).collect());
    let paper = Parameters { local_percent: 20, ..Parameters::paper() };
    for stream in [far_apart, in_order] {
        let [fixed, ours] = [Scheme::DaeMon, Scheme::Ours].map(|scheme| run(&stream, scheme, &paper).ticks);
        assert!(ours * 100 < fixed * 95, "{ours} with ours, {fixed} with a quarter");
    }
}
