//! Faults against each other and against read-ahead.

use super::losses::gives_once;
use super::{CACHE_PAGES, For, PAGES, Stage, on, on_both_kernel_paths, on_both_paths, on_both_paths_over};
use crate::points::Point;
use crate::scratch::Scratch;
use crate::sys::mem;
use crate::sys::thread::SignalsBlocked;
use crate::{FaultPath, State};
use hinterland_policy::{PrefetchWindow, Unmapped};
use hinterland_units::PageNo;
use std::sync::atomic::Ordering::Relaxed;

const PAGE: PageNo = PageNo(7);

#[test]
fn two_fetches_of_one_page_load_it_once() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, 1);
        let loaded = stage.hold(Point::Loaded, PAGE);
        let first = stage.beside(|s| s.check(PAGE, 1));
        let loaded = loaded.reached();
        let second = stage.beside(|s| s.check(PAGE, 1));
        stage.must_wait(&second, For::Page(PAGE));
        loaded.release();
        first.must_end();
        second.must_end();
        assert_eq!(stage.loaded_pages(), 1);
    });
}

#[test]
fn a_first_write_is_not_lost_under_another_first_touch() {
    on_both_paths(|stage| {
        let toucher = stage.hold(Point::FirstTouch, PAGE);
        let reader = stage.beside(|s| s.touch(PAGE));
        let toucher = toucher.reached();
        let writer = stage.beside(|s| s.write(PAGE, 2));
        stage.must_wait(&writer, For::Page(PAGE));
        toucher.release();
        reader.must_end();
        writer.must_end();
        stage.check(PAGE, 2);
    });
}

#[test]
fn a_late_fault_maps_no_zeros_over_a_page_that_leaves() {
    on_both_paths(|stage| {
        stage.write(PAGE, 3);
        let late = stage.hold(Point::Spurious, PAGE);
        let address = stage.pager.address(PAGE);
        let fault = hinterland_sys::Fault { address, write: false, write_protected: false, thread: 0 };
        let server = stage.beside(move |s| {
            let _inside = s.pager.pages.gate.enter();
            let _ = s.pager.rooms.faults.serve_page(PAGE, fault, &mut crate::scratch::Scratch::new());
        });
        let late = late.reached();
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Changing, "the evictor left the page to its owner");
        late.release();
        server.must_end();
        stage.check(PAGE, 3);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::SwapCached);
        stage.check(PAGE, 3);
    });
}

/// A thread that evicts holds the policy's lock for long; the policy learns of the page afterwards all the same.
#[test]
fn a_fault_does_not_wait_for_the_policy() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, 8);
        let held = stage.hold(Point::PolicyHeld, PageNo(0));
        let holder = stage.beside(Stage::fit_policy);
        let held = held.reached();
        stage.beside(|s| s.check(PAGE, 8)).must_end();
        held.release();
        holder.must_end();
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::SwapCached);
        stage.check(PAGE, 8);
    });
}

#[test]
fn a_demand_waits_for_the_read_ahead_of_its_page() {
    on_both_paths(|stage| {
        read_ahead(stage, |stage, ahead| {
            let reader = stage.beside(|s| s.check(PAGE, 4));
            stage.must_wait(&reader, For::Page(PAGE));
            ahead.release();
            reader.must_end();
            assert_eq!(stage.pager.row().major_faults.load(Relaxed), 0);
        });
    });
}

#[test]
fn a_discard_waits_for_the_read_ahead_of_its_page() {
    on_both_paths(|stage| {
        read_ahead(stage, |stage, ahead| {
            let discard = stage.beside(|s| s.pager.discard(PAGE, 2));
            stage.must_wait(&discard, For::Owner(PAGE));
            ahead.release();
            discard.must_end();
            stage.check(PAGE, 0);
            assert_eq!(stage.stored_pages(), 0, "no copy is left behind");
        });
    });
}

/// Parent and child both use pages that wait at a fork: each counts them as prefetched and as used.
#[test]
fn pages_that_wait_at_a_fork_count_on_both_sides() {
    on_both_kernel_paths(|stage| {
        let other = PageNo(PAGE.0 + 1);
        stage.pager.evictor.start_helpers();
        stage.send_far(PAGE, 1);
        stage.send_far(other, 2);
        stage.pager.rooms.read_ahead.request(PrefetchWindow {
            first: PAGE,
            step: 1,
            pages: 2,
            unmapped: Unmapped::All,
        });
        while stage.state(PAGE) != State::SwapCached || stage.state(other) != State::SwapCached {
            crate::sys::thread::yield_now();
        }
        let use_both = |s: &Stage| {
            s.check(PAGE, 1);
            s.check(other, 2);
            let row = s.pager.row();
            let [unmapped, used] =
                [&row.prefetched_unmapped_pages, &row.prefetch_hits_observed].map(|n| n.load(Relaxed));
            assert_eq!((unmapped, used), (2, 2));
        };
        stage.fork(use_both).must_be_well();
        use_both(stage);
    });
}

/// Two pages are prefetched and wait unmapped; their uses are seen, and take no slot more the second time. A page that is discarded
/// while it waits is not mixed up with the next one in its slot.
#[test]
fn pages_that_wait_tell_of_their_use_and_free_their_slots() {
    on_both_paths(|stage| {
        let other = PageNo(PAGE.0 + 1);
        stage.pager.evictor.start_helpers();
        let row = stage.pager.row();
        let mut local = Vec::new();
        for round in 0..4 {
            stage.send_far(PAGE, 10 + round);
            stage.send_far(other, 20 + round);
            stage.pager.rooms.read_ahead.request(PrefetchWindow {
                first: other,
                step: -1,
                pages: 2,
                unmapped: Unmapped::All,
            });
            while stage.state(PAGE) != State::SwapCached || stage.state(other) != State::SwapCached {
                crate::sys::thread::yield_now();
            }
            let majors = row.major_faults.load(Relaxed);
            if round == 2 {
                stage.pager.discard(other, 1);
            }
            stage.check(other, if round == 2 { 0 } else { 20 + round });
            stage.check(PAGE, 10 + round);
            assert_eq!(row.major_faults.load(Relaxed), majors);
            local.push(stage.pager.rooms.local.account.local());
        }
        assert_eq!(row.prefetch_hits_observed.load(Relaxed), 7, "all but the discarded one");
        assert_eq!(row.prefetch_hits.load(Relaxed), 7);
        assert_eq!(row.prefetch_wait_ns.iter().map(|count| count.load(Relaxed)).sum::<u64>(), 7);
        assert_eq!((local[0], local[0]), (local[1], local[2]), "the slots are used again");
    });
}

/// What a walk down to page 7 is expected at next, from page 10 on; page 9 is the key page.
const DOWN: PrefetchWindow =
    PrefetchWindow { first: PageNo(10), step: -1, pages: 4, unmapped: Unmapped::Key(PageNo(9)) };

#[test]
fn a_window_downwards_is_prefetched_whole_and_its_key_page_tells_of_all_of_it() {
    on_both_paths(|stage| {
        stage.pager.evictor.start_helpers();
        (7..=10).for_each(|page| stage.send_far(PageNo(page), page.into()));
        stage.pager.rooms.read_ahead.request(DOWN);
        let state = |page| stage.state(PageNo(page));
        // The key page stays unmapped; the others are mapped in no order that is promised.
        let arrived = [State::Resident, State::SwapCached, State::Resident, State::Resident];
        while [10, 9, 8, 7].map(state) != arrived {
            crate::sys::thread::yield_now();
        }
        (7..=10).for_each(|page| stage.check(PageNo(page), page.into()));
        // What was mapped behind the key page counts once the thread that mapped it has reported it.
        while stage.pager.row().prefetch_hits.load(Relaxed) != 4 {
            crate::sys::thread::yield_now();
        }
    });
}

/// Two batches of pages, as many as come at once from compressed memory each, from `PAGE` on.
const TWO_BATCHES: PrefetchWindow =
    PrefetchWindow { first: PAGE, step: 1, pages: 32, unmapped: Unmapped::Key(PageNo(PAGE.0 + 10)) };

#[test]
fn a_batch_is_on_its_way_before_the_one_before_it_is_mapped() {
    on_both_paths(|stage| {
        TWO_BATCHES.iter().for_each(|page| stage.send_far(page, page.0.into()));
        let (last, majors) = (PageNo(PAGE.0 + 31), || stage.pager.row().major_faults.load(Relaxed));
        let ahead = stage.hold(Point::ReadAheadClaimed, PAGE);
        stage.pager.evictor.start_helpers();
        let before = majors();
        stage.pager.rooms.read_ahead.request(TWO_BATCHES);
        let ahead = ahead.reached();
        assert_eq!([PAGE, last].map(|page| stage.state(page)), [State::Fetching; 2]);
        let reader = stage.beside(move |s| s.check(last, last.0.into()));
        stage.must_wait(&reader, For::Page(last));
        ahead.release();
        reader.must_end();
        TWO_BATCHES.iter().for_each(|page| stage.check(page, page.0.into()));
        assert_eq!(majors(), before);
    });
}

/// Has windows prefetched one after the other, each half as large as the bound.
fn prefetch_windows(stage: &Stage, unmapped: &[fn(PageNo) -> Unmapped]) -> Vec<PrefetchWindow> {
    let window = |(turn, unmapped): (u32, &fn(PageNo) -> Unmapped)| {
        let first = PageNo(PAGE.0 + turn * CACHE_PAGES / 2);
        PrefetchWindow { first, step: 1, pages: CACHE_PAGES / 2, unmapped: unmapped(PageNo(first.0 + 10)) }
    };
    let windows: Vec<PrefetchWindow> = (0..).zip(unmapped).map(window).collect();
    windows.iter().flat_map(PrefetchWindow::iter).for_each(|page| stage.send_far(page, page.0.into()));
    stage.pager.evictor.start_helpers();
    for (window, pages) in windows.iter().zip((1..).map(|count: u64| count * u64::from(CACHE_PAGES / 2))) {
        stage.pager.rooms.read_ahead.request(*window);
        while stage.pager.row().prefetched_pages.load(Relaxed) < pages {
            crate::sys::thread::yield_now();
        }
        window.iter().for_each(|page| stage.wait_until_stable(page));
    }
    windows
}

/// How many pages of each window are in a state.
fn count_in(stage: &Stage, windows: &[PrefetchWindow], state: State) -> Vec<usize> {
    windows.iter().map(|window| window.iter().filter(|page| stage.state(*page) == state).count()).collect()
}

#[test]
fn windows_beyond_the_bound_leave_the_oldest_first() {
    on_both_paths(|stage| {
        let windows = prefetch_windows(stage, &[Unmapped::Key as fn(PageNo) -> Unmapped; 3]);
        assert_eq!(count_in(stage, &windows, State::Resident), [0, 31, 31], "all but the key pages, which wait");
        assert_eq!(stage.pager.row().prefetch_unused_pages.load(Relaxed), 1);
        windows.iter().flat_map(PrefetchWindow::iter).for_each(|page| stage.check(page, page.0.into()));
    });
}

#[test]
fn pages_that_wait_singly_make_room_for_windows() {
    on_both_paths(|stage| {
        let all: fn(PageNo) -> Unmapped = |_| Unmapped::All;
        let windows = prefetch_windows(stage, &[all, all, Unmapped::Key, Unmapped::Key]);
        assert_eq!(count_in(stage, &windows, State::Resident), [0, 0, 31, 31]);
        assert_eq!(count_in(stage, &windows, State::SwapCached), [0, 0, 1, 1]);
        windows.iter().flat_map(PrefetchWindow::iter).for_each(|page| stage.check(page, page.0.into()));
    });
}

#[test]
fn pages_that_wait_and_whose_copies_are_lost_make_no_room() {
    on_both_paths_over(gives_once, |stage| {
        let all: fn(PageNo) -> Unmapped = |_| Unmapped::All;
        let windows = prefetch_windows(stage, &[all, all, Unmapped::Key, Unmapped::Key]);
        assert_eq!(count_in(stage, &windows[..2], State::SwapCached), [32, 32]);
        windows.iter().flat_map(PrefetchWindow::iter).for_each(|page| stage.check(page, page.0.into()));
    });
}

/// Requests a window before the read-ahead thread has begun with the one that it replaces, and helps.
fn request_late_and_help(stage: &Stage, window: PrefetchWindow) {
    let _signals = SignalsBlocked::new();
    let _inside = stage.pager.pages.gate.enter();
    let before = PrefetchWindow { first: PageNo(window.first.0 - 1), ..window };
    assert_eq!(stage.pager.rooms.read_ahead.request(before), None);
    let late = stage.pager.rooms.read_ahead.request(window);
    assert!(late.is_some());
    stage.pager.rooms.read_ahead.help(late, &mut Scratch::new());
}

#[test]
fn a_thread_prefetches_itself_what_read_ahead_is_late_with() {
    on(FaultPath::Inline, |stage| {
        let pages = || (0..48).map(|offset| PageNo(PAGE.0 + offset));
        pages().for_each(|page| stage.send_far(page, page.0.into()));
        let window = PrefetchWindow { first: PAGE, step: 1, pages: 48, unmapped: Unmapped::Key(PageNo(PAGE.0 + 2)) };
        request_late_and_help(stage, window);
        let count = |state| pages().filter(|page| stage.state(*page) == state).count();
        // As many as come in at once where loads cost processor time.
        assert_eq!([State::Resident, State::SwapCached, State::Remote].map(count), [15, 1, 32]);
        stage.pager.evictor.start_helpers();
        while stage.pager.row().prefetched_pages.load(Relaxed) < 48 {
            crate::sys::thread::yield_now();
        }
        pages().for_each(|page| stage.check(page, page.0.into()));
        let row = stage.pager.row();
        let used =
            [&row.major_faults, &row.prefetch_hits, &row.prefetch_hits_observed].map(|count| count.load(Relaxed));
        assert_eq!(used, [0, 48, 1], "those that either thread mapped count with the key page");
    });
}

/// The read-ahead thread empties the slot of a page that has waited longest while another thread looks for one.
#[test]
fn a_slot_that_is_emptied_is_taken_once() {
    on(FaultPath::Inline, |stage| {
        let all: fn(PageNo) -> Unmapped = |_| Unmapped::All;
        let mut windows = prefetch_windows(stage, &[all; 2]);
        let window = |turn: u32| PrefetchWindow {
            first: PageNo(PAGE.0 + 1 + (2 + turn) * CACHE_PAGES),
            step: 1,
            pages: 8,
            unmapped: Unmapped::All,
        };
        windows.extend([window(0), window(1)]);
        windows[2..].iter().flat_map(PrefetchWindow::iter).for_each(|page| stage.send_far(page, page.0.into()));
        let emptied = stage.hold(Point::SlotEmptied, PAGE);
        stage.pager.rooms.read_ahead.request(window(0));
        let emptied = emptied.reached();
        let helper = stage.beside(move |s| request_late_and_help(s, window(1)));
        stage.must_wait(&helper, For::Slot);
        emptied.release();
        helper.must_end();
        windows.iter().flat_map(PrefetchWindow::iter).for_each(|page| stage.wait_until_stable(page));
        // Those that waited leave their slots to others: were one taken twice, a page would show what another one holds.
        windows.iter().flat_map(PrefetchWindow::iter).for_each(|page| stage.check(page, page.0.into()));
    });
}

#[test]
fn zeros_ahead_of_a_walk_downwards_lie_where_they_belong() {
    on_both_paths(|stage| {
        let inside = stage.pager.pages.gate.enter();
        stage.pager.rooms.faults.zero_ahead(DOWN);
        drop(inside);
        let there = |page| {
            let page = PageNo(page);
            (stage.state(page) == State::Resident, mem::is_in_memory(stage.pager.address(page)))
        };
        assert_eq!([6, 7, 8, 9, 10, 11].map(there), [false, true, true, false, true, false].map(|is| (is, is)));
    });
}

/// Has `PAGE` and the key page behind it prefetched, and holds the read-ahead thread before they are mapped.
fn read_ahead(stage: &Stage, race: impl FnOnce(&Stage, crate::points::Hold)) {
    let key = PageNo(PAGE.0 + 1);
    stage.send_far(PAGE, 4);
    stage.send_far(key, 5);
    assert!(key.0 < PAGES);
    let ahead = stage.hold(Point::ReadAheadLoaded, PAGE);
    stage.pager.evictor.start_helpers();
    stage.pager.rooms.read_ahead.request(PrefetchWindow {
        first: PAGE,
        step: 1,
        pages: 2,
        unmapped: Unmapped::Key(key),
    });
    race(stage, ahead.reached());
}
