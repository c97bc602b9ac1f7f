//! Pages that leave, against who touches them meanwhile.

use super::{must_end, must_wait, on_both_paths};
use crate::State;
use crate::schedule::Point;
use hinterland_units::PageNo;
use std::sync::atomic::Ordering::Relaxed;

const PAGE: PageNo = PageNo(11);

#[test]
fn a_fault_waits_for_the_departure_of_its_page() {
    on_both_paths(|stage| {
        stage.write(PAGE, 1);
        let out = stage.hold(Point::TakenOut, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let out = out.reached();
        let reader = stage.beside(|s| s.check(PAGE, 1));
        must_wait(&reader, "the departure");
        out.release();
        must_end(evictor);
        must_end(reader);
        assert_eq!(stage.state(PAGE), State::Resident);
    });
}

#[test]
fn a_write_just_before_the_departure_leaves_with_the_page() {
    on_both_paths(|stage| {
        stage.write(PAGE, 1);
        let leaving = stage.hold(Point::Leaving, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let leaving = leaving.reached();
        // Still mapped: no fault, nobody to wait for.
        must_end(stage.beside(|s| s.write(PAGE, 2)));
        leaving.release();
        must_end(evictor);
        stage.reclaim(&[]);
        assert_eq!(stage.state(PAGE), State::Remote);
        stage.check(PAGE, 2);
    });
}

#[test]
fn a_drain_keeps_the_slot_of_a_hit() {
    on_both_paths(|stage| {
        stage.write(PAGE, 3);
        stage.evict(PAGE);
        let hit = stage.hold(Point::Hit, PAGE);
        let reader = stage.beside(|s| s.check(PAGE, 3));
        let hit = hit.reached();
        stage.reclaim(&[]);
        hit.release();
        must_end(reader);
        stage.reclaim(&[]);
        stage.check(PAGE, 3);
        assert_eq!(stage.stored_pages(), 0, "a page in use is not stored");
    });
}

#[test]
fn a_write_during_write_back_is_not_lost() {
    for point in [Point::WriteBack, Point::Stored] {
        on_both_paths(|stage| {
            stage.write(PAGE, 4);
            stage.evict(PAGE);
            let storing = stage.hold(point, PAGE);
            let drain = stage.beside(|s| s.reclaim(&[]));
            let storing = storing.reached();
            let writer = stage.beside(|s| s.write(PAGE, 5));
            must_wait(&writer, "write-back");
            storing.release();
            must_end(drain);
            must_end(writer);
            stage.check(PAGE, 5);
            stage.evict(PAGE);
            stage.reclaim(&[]);
            assert_eq!(stage.state(PAGE), State::Remote);
            stage.check(PAGE, 5);
        });
    }
}

#[test]
fn a_page_that_becomes_read_only_while_it_leaves_keeps_its_content() {
    on_both_paths(|stage| {
        stage.write(PAGE, 6);
        let leaving = stage.hold(Point::Leaving, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let leaving = leaving.reached();
        stage.pager.protect(PAGE, 1, libc::PROT_READ).unwrap();
        leaving.release();
        must_end(evictor);
        stage.check(PAGE, 6);
        let row = stage.pager.row();
        assert!(row.minor_faults.load(Relaxed) + row.kept_pages.load(Relaxed) > 0, "it left, or stayed");
    });
}
