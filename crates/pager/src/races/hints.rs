//! Hints, against what happens to their pages meanwhile.

use super::{FORKS, For, PAGES, Stage, compressed, on, on_both_kernel_paths, on_both_paths, on_simulated};
use crate::hint_ring::Run;
use crate::points::Point;
use crate::state::Entry;
use crate::{FATAL_EXIT_CODE, FaultPath, HintSite, LATER, Leave, LoopRange, LoopState, State};
use hinterland_paging::BOUND_MIN;
use hinterland_policy::{Prefetch, TapeBatch};
use hinterland_units::{PAGE_BYTES, PageCount, PageNo};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const PAGE: PageNo = PageNo(21);
const SITE: HintSite<'static> = HintSite { key: 7, name: &|| String::new() };

impl Stage {
    fn fetch(&self, page: PageNo) {
        // As where memory is scarce: the evictor starts the thread that reads ahead.
        self.pager.start_all().unwrap();
        self.pager.hints().fetch(SITE, self.pager.address(page), PAGE_BYTES);
    }

    /// Says that a page will not be used, and does what the evictor does then.
    fn give_up(&self, page: PageNo) {
        self.pager.hints().evict(self.pager.address(page), PAGE_BYTES, Leave::Soon);
        self.reclaim(&[]);
    }

    fn wait_for(&self, page: PageNo, state: State) {
        let begun = Instant::now();
        while self.state(page) != state {
            assert!(begun.elapsed() < Duration::from_secs(60), "{page} is {:?}", self.state(page));
            crate::sys::thread::yield_now();
        }
    }
}

#[test]
fn a_hinted_page_comes_without_a_fault_of_the_program() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, 1);
        let before = stage.pager.row().major_faults.load(Relaxed);
        stage.fetch(PAGE);
        stage.wait_for(PAGE, State::Resident);
        stage.check(PAGE, 1);
        let row = stage.pager.row();
        assert_eq!((row.major_faults.load(Relaxed) - before, stage.loaded_pages()), (0, 1));
        assert_eq!(row.hint_fetched_pages.load(Relaxed), 1);
    });
}

/// What a loop begins with is looked at page by page, so that none is missed; all of a long range only here and there.
#[test]
fn a_search_learns_by_one_question_whether_its_beginning_is_far_or_what_may_follow() {
    on_both_paths(|stage| {
        // SAFETY: a state consists of atomics, which are valid when zero.
        let state: LoopState = unsafe { std::mem::zeroed() };
        let ask = |few: u32, all: u32| {
            let range = |pages: u32| LoopRange {
                address: stage.pager.address(PAGE),
                len: pages as usize * PAGE_BYTES,
                iterations: u64::from(pages),
            };
            stage.pager.hints().loop_search(&state, SITE, range(few), range(all))
        };
        let (soon, later) = (PageNo(PAGE.0 + 5), PageNo(PAGE.0 + 660));
        stage.send_far(later, 21);
        assert_eq!([ask(16, 640), ask(16, 16), ask(16, 704)], [0, 0, LATER]);
        stage.send_far(soon, 21);
        assert!((1..=16).contains(&ask(16, 704)), "a page that is not among the samples of all");
        assert!((1..=16).contains(&ask(16, 16)));
        for page in [soon, later] {
            stage.check(page, 21);
            stage.wait_for(page, State::Resident);
        }
        assert_eq!(ask(16, 704), 0);
    });
}

#[test]
fn a_fault_waits_for_a_hinted_page_that_is_on_its_way() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, 2);
        let loaded = stage.hold(Point::ReadAheadLoaded, PAGE);
        stage.fetch(PAGE);
        let loaded = loaded.reached();
        let reader = stage.beside(|s| s.check(PAGE, 2));
        stage.must_wait(&reader, For::Page(PAGE));
        loaded.release();
        reader.must_end();
        assert_eq!(stage.loaded_pages(), 1);
    });
}

#[test]
fn a_page_is_dropped_while_it_is_fetched_for_a_hint() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, 3);
        let loaded = stage.hold(Point::ReadAheadLoaded, PAGE);
        stage.fetch(PAGE);
        let loaded = loaded.reached();
        let dropper = stage.beside(|s| s.pager.discard(PAGE, 1));
        stage.must_wait(&dropper, For::Owner(PAGE));
        loaded.release();
        dropper.must_end();
        stage.check(PAGE, 0);
        assert_eq!(stage.stored_pages(), 0);
    });
}

#[test]
fn a_page_that_is_touched_on_its_way_out_comes_back() {
    on_both_kernel_paths(|stage| {
        let _no_forks = FORKS.read().unwrap();
        stage.write(PAGE, 4);
        let out = stage.hold(Point::TakenOut, PAGE);
        let evictor = stage.beside(|s| s.give_up(PAGE));
        let out = out.reached();
        let writer = stage.beside(|s| s.write(PAGE, 5));
        stage.must_wait(&writer, For::Page(PAGE));
        out.release();
        evictor.must_end();
        writer.must_end();
        assert_eq!(stage.state(PAGE), State::Resident);
        stage.check(PAGE, 5);
    });
}

/// A page that leaves before the policy has been told of its arrival would be in its record for ever.
#[test]
fn the_policy_is_told_of_an_arrival_before_a_hinted_departure() {
    on_both_kernel_paths(|stage| {
        let _no_forks = FORKS.read().unwrap();
        let held = stage.hold(Point::PolicyHeld, PageNo(0));
        let teller = stage.beside(Stage::fit_policy);
        let held = held.reached();
        stage.write(PAGE, 6);
        stage.wait_for(PAGE, State::Resident);
        let leaving = stage.hold(Point::Marked, PAGE);
        let evictor = stage.beside(|s| s.give_up(PAGE));
        leaving.reached().release();
        held.release();
        teller.must_end();
        evictor.must_end();
        let told: Vec<bool> =
            stage.script.told.lock().unwrap().iter().filter(|(page, _)| *page == PAGE).map(|(_, came)| *came).collect();
        assert_eq!(told, [true, false]);
        stage.check(PAGE, 6);
    });
}

/// A page is kept with all pages from `first` on, and once more with all pages, of which a quarter has room.
fn stays_until_it_is_released_twice(first: PageNo, page: PageNo) {
    on_both_kernel_paths(|stage| {
        let hints = stage.pager.hints();
        let from = |first: PageNo| (stage.pager.address(first), (PAGES - first.0) as usize * PAGE_BYTES);
        let [(part, part_len), (all, len)] = [first, PageNo(0)].map(from);
        stage.fit_policy(); // to all of these pages
        stage.write(page, 7);
        hints.keep(part, part_len);
        hints.keep(all, len);
        hints.release(all, len);
        stage.evict(page);
        assert_eq!(stage.state(page), State::Resident, "it is released once");
        hints.release(part, part_len);
        stage.evict(page);
        assert_ne!(stage.state(page), State::Resident);
        stage.check(page, 7);
    });
}

/// As by two threads that run one loop.
#[test]
fn what_is_kept_twice_and_has_no_room_for_all_of_it_stays_until_it_is_released_twice() {
    stays_until_it_is_released_twice(PageNo(0), PAGE);
}

/// As by a thread that keeps part of what another one keeps.
#[test]
fn what_is_kept_behind_pages_that_have_no_room_stays_until_it_is_released_twice() {
    stays_until_it_is_released_twice(PageNo(PAGES - PAGES / 4), PageNo(PAGES - 1));
}

#[test]
fn what_is_kept_before_the_process_has_grown_stays_once_it_has() {
    on_both_kernel_paths(|stage| {
        let (local, last) = (&stage.pager.rooms.local, PageNo(PAGES / 5));
        local.account.set_bound(BOUND_MIN, PageCount(PAGES.into()));
        stage.pager.hints().keep(stage.pager.address(PageNo(0)), (last.0 + 1) as usize * PAGE_BYTES);
        let kept = (0..PAGES).filter(|page| local.keeps(PageNo(*page))).count();
        assert!((60..=68).contains(&kept), "{kept} of a budget of 256");
        stage.fit_policy(); // to all of these pages
        stage.write(last, 7);
        stage.evict(last);
        assert_eq!(stage.state(last), State::Resident);
        stage.check(last, 7);
    });
}

#[test]
fn what_is_kept_stays_until_it_is_released_as_often_and_leaves_in_a_child() {
    on_both_kernel_paths(|stage| {
        let hints = stage.pager.hints();
        let (at, next) = (stage.pager.address(PAGE), PageNo(PAGE.0 + 1));
        stage.write(PAGE, 7);
        stage.write(next, 8);
        hints.keep(at, 1);
        hints.keep(at, PAGE_BYTES);
        stage.give_up(PAGE);
        stage.evict(PAGE);
        hints.release(at, 1);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "it is released once");
        let child = stage.fork(|s| {
            s.evict(PAGE);
            assert_ne!(s.state(PAGE), State::Resident, "a child keeps nothing");
            s.check(PAGE, 7);
        });
        child.must_be_well();
        let _no_forks = FORKS.read().unwrap();
        hints.release(at, 1);
        stage.evict(PAGE);
        assert_ne!(stage.state(PAGE), State::Resident);
        // Also while it is not accessible.
        hints.keep(at, 1);
        stage.pager.protect(PAGE, 1, libc::PROT_NONE).unwrap();
        hints.release(at, 1);
        stage.pager.protect(PAGE, 1, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        stage.check(PAGE, 7);
        stage.evict(PAGE);
        assert_ne!(stage.state(PAGE), State::Resident);
        // What is dropped is forgotten.
        hints.keep(stage.pager.address(next), 1);
        stage.pager.discard(next, 1);
        stage.write(next, 9);
        stage.evict(next);
        assert_ne!(stage.state(next), State::Resident);
        stage.check(PAGE, 7);
        stage.check(next, 9);
    });
}

#[test]
fn hints_that_wait_in_a_parent_are_not_a_childs() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 10);
        stage.pager.hints().evict(stage.pager.address(PAGE), PAGE_BYTES, Leave::Soon);
        let child = stage.fork(|s| {
            s.reclaim(&[]);
            assert_eq!(s.state(PAGE), State::Resident);
        });
        child.must_be_well();
        let _no_forks = FORKS.read().unwrap();
        stage.reclaim(&[]);
        assert_ne!(stage.state(PAGE), State::Resident);
        stage.check(PAGE, 10);
    });
}

#[test]
fn a_touch_of_a_section_that_there_is_not_ends_the_program() {
    on_both_kernel_paths(|stage| {
        let child = stage.fork(|s| {
            s.pager.pages.table.force(PAGE, Entry(Entry::new(State::Sectioned).0 | 5 << 16));
            s.check(PAGE, 0);
        });
        assert_eq!(libc::WEXITSTATUS(child.wait()), FATAL_EXIT_CODE);
    });
}

/// The pages that hints name are local, so that no batch comes of them: a thread that waits for another page looks at few of them, and a
/// monitor at none.
#[test]
fn a_fault_looks_at_few_of_the_hints_that_wait() {
    const HINTED: Run = Run { first: PageNo(100), pages: 900, tag: 0 };
    on_both_paths(|stage| {
        (0..HINTED.pages).for_each(|at| stage.touch(PageNo(HINTED.first.0 + at)));
        stage.send_far(PAGE, 11);
        let idle = stage.hold(Point::ReadAheadIdle, PageNo(0));
        stage.pager.start_all().unwrap();
        let idle = idle.reached();
        (0..10).for_each(|_| assert!(stage.pager.rooms.read_ahead.hint(HINTED)));
        stage.check(PAGE, 11);
        let looked_at = 10 * HINTED.pages - stage.pager.rooms.read_ahead.take_hinted_pages();
        let expected = if stage.pager.path() == FaultPath::Inline { 512 } else { 0 };
        assert_eq!(looked_at, expected);
        idle.release();
    });
}

/// A thread that faults takes hints while the read-ahead thread goes to sleep: what it does not fetch itself comes all the same.
#[test]
fn hints_that_a_fault_has_taken_wake_the_thread_that_reads_ahead() {
    let race = |stage: &Stage| {
        let (hinted, waited_for) = ((0..40).map(|at| PageNo(PAGE.0 + at)), PageNo(PAGE.0 + 100));
        hinted.clone().chain([waited_for]).for_each(|page| stage.send_far(page, 12));
        let idle = stage.hold(Point::ReadAheadIdle, PageNo(0));
        stage.pager.start_all().unwrap();
        let idle = idle.reached();
        stage.pager.hints().fetch(SITE, stage.pager.address(PAGE), 40 * PAGE_BYTES);
        stage.check(waited_for, 12);
        let is_far = |page: &PageNo| stage.state(*page) == State::Remote;
        assert!(hinted.clone().any(|page| is_far(&page)), "the thread that faults fetches a part");
        idle.release();
        let begun = Instant::now();
        while hinted.clone().any(|page| is_far(&page)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "hinted pages stay far");
            crate::sys::thread::yield_now();
        }
        hinted.for_each(|page| stage.check(page, 12));
    };
    on(FaultPath::Inline, race);
    on_simulated(FaultPath::Inline, compressed, Arc::new(race));
}

/// The same where the pages that the fault has looked at are local, so that it has made nothing of them: the rest comes.
#[test]
fn hints_that_a_fault_has_left_wake_the_thread_that_reads_ahead() {
    const LOCAL: Run = Run { first: PageNo(100), pages: 512, tag: 0 };
    on(FaultPath::Inline, |stage| {
        let (hinted, waited_for) = (PageNo(LOCAL.first.0 + LOCAL.pages), PAGE);
        (0..LOCAL.pages).for_each(|at| stage.touch(PageNo(LOCAL.first.0 + at)));
        [hinted, waited_for].into_iter().for_each(|page| stage.send_far(page, 12));
        let idle = stage.hold(Point::ReadAheadIdle, PageNo(0));
        stage.pager.start_all().unwrap();
        let idle = idle.reached();
        assert!(stage.pager.rooms.read_ahead.hint(Run { pages: LOCAL.pages + 1, ..LOCAL }));
        stage.check(waited_for, 12);
        assert_eq!(stage.state(hinted), State::Remote, "the fault has not come to it");
        idle.release();
        stage.wait_for(hinted, State::Resident);
        stage.check(hinted, 12);
    });
}

/// Else it would be claimed while it is the thread's that found no frames, and passed over.
#[test]
fn a_page_that_finds_no_frame_is_far_before_its_batch_can_be_claimed_again() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, 14);
        stage.pager.start_all().unwrap();
        let account = &stage.pager.rooms.local.account;
        let all = account.budget().0;
        account.charge(all);
        let refused = stage.hold(Point::ReadAheadClaimed, PAGE);
        let pages = vec![PAGE].into();
        stage.pager.rooms.read_ahead.request(Prefetch::Batch(TapeBatch { pages, key: None, thread: 0 }));
        let refused = refused.reached();
        assert_eq!(stage.pager.row().prefetch_windows_refused.load(Relaxed), 1);
        assert_eq!(stage.state(PAGE), State::Remote);
        account.uncharge(all);
        refused.release();
        stage.check(PAGE, 14);
    });
}

/// In a child places that give hints are numbered anew: what waits there for a place of its parent's is of none.
#[test]
fn what_waits_for_a_parents_hints_counts_for_no_place_of_a_child() {
    const PAGES: u32 = 16;
    on_both_kernel_paths(|stage| {
        (0..PAGES).for_each(|at| stage.send_far(PageNo(PAGE.0 + at), 13));
        stage.pager.start_all().unwrap();
        stage.pager.hints().fetch(SITE, stage.pager.address(PAGE), PAGES as usize * PAGE_BYTES);
        let key = PageNo(PAGE.0 + PAGES - 1);
        stage.wait_for(key, State::SwapCached);
        let child = stage.fork(|s| {
            (0..PAGES).for_each(|at| s.check(PageNo(PAGE.0 + at), 13));
            let row = s.pager.row();
            assert_eq!((row.prefetch_hits_observed.load(Relaxed), row.hint_used_pages.load(Relaxed)), (1, 0));
            assert_eq!(s.script.heard.load(Relaxed), 0, "the prefetcher has not asked for it");
        });
        child.must_be_well();
        stage.check(key, 13);
        assert_eq!(stage.pager.row().hint_used_pages.load(Relaxed), u64::from(PAGES));
    });
}
