//! Stored copies of local pages that are dropped because far memory is full, against what works on these pages meanwhile: no page loses its
//! content, and no copy is freed twice.

use super::{For, Stage, on_both_paths_over};
use crate::State;
use crate::points::Point;
use hinterland_backend::{Backend, Reference};
use hinterland_units::PageNo;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Pages whose copies fill far memory.
const PAGES: [PageNo; 4] = [PageNo(60), PageNo(61), PageNo(70), PageNo(600)];
/// A page that finds no room.
const OTHER: PageNo = PageNo(360);

/// Far memory that has room for so many pages.
fn tight() -> Arc<dyn Backend> {
    let bytes = PAGES.len() as u64 * 4096;
    Arc::new(Reference::new(format!("reference:{bytes}"), bytes).unwrap())
}

impl Stage {
    /// All pages are local, and their copies fill far memory.
    fn fill_with_copies(&self) {
        PAGES.iter().zip(1..).for_each(|(page, seed)| self.send_far(*page, seed));
        self.check_all();
        assert_eq!((self.stored_pages(), self.dropped_copies()), (4, 0));
    }

    fn check_all(&self) {
        PAGES.iter().zip(1..).for_each(|(page, seed)| self.check(*page, seed));
    }

    fn dropped_copies(&self) -> u64 {
        self.pager.row().dropped_copies.load(Relaxed)
    }

    /// A local page leaves, whatever it takes.
    fn send_back(&self, page: PageNo) {
        while self.state(page) != State::Remote {
            self.evict(page);
            self.reclaim(&[]);
        }
    }
}

#[test]
fn a_page_that_finds_no_room_takes_that_of_a_copy() {
    on_both_paths_over(tight, |stage| {
        stage.fill_with_copies();
        stage.send_far(OTHER, 9);
        assert_eq!((stage.stored_pages(), stage.dropped_copies()), (4, 1));
        // Each leaves with its copy, or takes the room of another's.
        for (page, seed) in PAGES.iter().zip(1..) {
            stage.send_back(*page);
            stage.check(*page, seed);
        }
        stage.check(OTHER, 9);
        stage.check_all();
    });
}

#[test]
fn a_write_while_a_copy_is_dropped_is_not_lost() {
    on_both_paths_over(tight, |stage| {
        stage.fill_with_copies();
        let dropping = stage.hold(Point::DropsCopy, PAGES[0]);
        let evictor = stage.beside(|s| s.send_far(OTHER, 9));
        let dropping = dropping.reached();
        stage.write(PAGES[0], 21);
        stage.evict(PAGES[0]);
        assert_eq!(stage.state(PAGES[0]), State::Changing, "it is not the evictor's");
        dropping.release();
        evictor.must_end();
        stage.send_back(PAGES[0]);
        stage.check(PAGES[0], 21);
        stage.check(OTHER, 9);
        PAGES.iter().zip(1..).skip(1).for_each(|(page, seed)| stage.check(*page, seed));
    });
}

#[test]
fn a_discard_waits_while_a_copy_is_dropped() {
    on_both_paths_over(tight, |stage| {
        stage.fill_with_copies();
        let dropping = stage.hold(Point::DropsCopy, PAGES[0]);
        let evictor = stage.beside(|s| s.send_far(OTHER, 9));
        let dropping = dropping.reached();
        let discard = stage.beside(|s| s.pager.discard(PAGES[0], 1));
        stage.must_wait(&discard, For::Owner(PAGES[0]));
        dropping.release();
        evictor.must_end();
        discard.must_end();
        assert_eq!(stage.stored_pages(), 4, "its copy was freed once");
        stage.check(PAGES[0], 0);
        stage.check(OTHER, 9);
    });
}
