//! Pages whose content an allocator has given up, against their next owner: what it writes is not lost.

use super::{For, Stage, on_both_kernel_paths, on_both_paths};
use crate::State;
use crate::points::Point;
use hinterland_units::PageNo;
use std::sync::atomic::Ordering::Relaxed;

const PAGE: PageNo = PageNo(41);

impl Stage {
    /// A page with content that was given up waits in the swap cache.
    fn free_in_swap_cache(&self, page: PageNo) {
        self.write(page, 8);
        self.pager.freed(page, 1);
        while self.state(page) != State::SwapCached {
            self.evict(page);
        }
    }

    /// Evicts a page and writes it back until it is in this state.
    fn evict_until(&self, page: PageNo, state: State) {
        while self.state(page) != state {
            self.evict(page);
            self.reclaim(&[]);
        }
    }

    fn free_pages(&self) -> u64 {
        self.pager.row().evicted_free_pages.load(Relaxed)
    }

    fn must_be_zero(&self, page: PageNo) {
        self.reach(page, 0, false);
        // SAFETY: a readable page of the range.
        assert_eq!(unsafe { self.words(page).read_volatile() }, 0);
        self.wait_until_stable(page);
    }

    fn write_back(&self, page: PageNo) {
        while self.state(page) == State::SwapCached {
            self.reclaim(&[]);
        }
    }
}

#[test]
fn a_freed_page_that_leaves_is_dropped_without_being_stored() {
    on_both_paths(|stage| {
        stage.free_in_swap_cache(PAGE);
        let local = stage.pager.rooms.local.account.counted();
        stage.write_back(PAGE);
        assert_eq!((stage.state(PAGE), stage.stored_pages(), stage.free_pages()), (State::Untouched, 0, 1));
        assert!(stage.pager.rooms.local.account.counted() < local, "its frame is free");
        stage.must_be_zero(PAGE);
    });
}

#[test]
fn a_freed_page_that_is_reused_before_it_is_dropped_keeps_what_it_holds() {
    on_both_paths(|stage| {
        stage.free_in_swap_cache(PAGE);
        stage.pager.reused(PAGE, 1);
        stage.check(PAGE, 8);
        stage.send_far(PAGE, 9);
        assert_eq!((stage.stored_pages(), stage.free_pages()), (1, 0));
        // The copy of a page that is freed, comes back and leaves again is given up with the page.
        stage.pager.freed(PAGE, 1);
        stage.check(PAGE, 9);
        stage.evict_until(PAGE, State::Untouched);
        assert_eq!((stage.stored_pages(), stage.free_pages()), (0, 1));
    });
}

#[test]
fn what_is_written_to_a_page_that_is_reused_while_it_is_dropped_is_not_lost() {
    on_both_paths(|stage| {
        stage.free_in_swap_cache(PAGE);
        let aged = stage.hold(Point::Aged, PAGE);
        let drain = stage.beside(|s| s.reclaim(&[]));
        let aged = aged.reached();
        // It still counts as free for the drain, or it does not: the writer waits in both cases.
        let writer = stage.beside(|s| {
            s.pager.reused(PAGE, 1);
            s.write(PAGE, 9);
        });
        stage.must_wait(&writer, For::Page(PAGE));
        aged.release();
        drain.must_end();
        writer.must_end();
        stage.check(PAGE, 9);
        stage.evict_until(PAGE, State::Remote);
        stage.check(PAGE, 9);
    });
}

#[test]
fn what_is_written_to_a_page_that_was_found_free_is_not_lost() {
    on_both_paths(|stage| {
        stage.free_in_swap_cache(PAGE);
        let dropping = stage.hold(Point::Dropping, PAGE);
        let drain = stage.beside(|s| s.reclaim(&[]));
        let dropping = dropping.reached();
        stage.pager.reused(PAGE, 1);
        let writer = stage.beside(|s| s.write(PAGE, 9));
        stage.must_wait(&writer, For::Page(PAGE));
        dropping.release();
        drain.must_end();
        writer.must_end();
        assert_eq!(stage.free_pages(), 1);
        stage.check(PAGE, 9);
        stage.evict_until(PAGE, State::Remote);
        stage.check(PAGE, 9);
    });
}

#[test]
fn a_child_of_a_fork_knows_what_is_free() {
    on_both_kernel_paths(|stage| {
        stage.free_in_swap_cache(PAGE);
        let child = stage.fork(|s| {
            s.pager.reused(PAGE, 1);
            s.write(PAGE, 9);
            s.evict_until(PAGE, State::Remote);
            s.check(PAGE, 9);
        });
        child.must_be_well();
        stage.evict_until(PAGE, State::Untouched);
        stage.must_be_zero(PAGE);
    });
}
