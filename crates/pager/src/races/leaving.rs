//! Pages that leave, against threads that touch them meanwhile.

use super::{FORKS, For, on_both_kernel_paths, on_both_paths, open};
use crate::kernel::NotEvicted;
use crate::points::Point;
use crate::slot::Kind;
use crate::sys::Mapping;
use crate::sys::mem::{self, OwnMemory};
use crate::{FaultPath, Kernel, State};
use hinterland_sys::{FeatureSet, Features, Privilege};
use hinterland_units::{PAGE_BYTES, PageNo};
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
        stage.must_wait(&reader, For::Page(PAGE));
        out.release();
        evictor.must_end();
        reader.must_end();
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
        stage.beside(|s| s.write(PAGE, 2)).must_end();
        leaving.release();
        evictor.must_end();
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
        reader.must_end();
        stage.reclaim(&[]);
        stage.check(PAGE, 3);
        assert_eq!(stage.stored_pages(), 0, "a page in use is not stored");
    });
}

#[test]
fn a_write_during_write_back_is_not_lost() {
    for point in [Point::WriteBack, Point::Stored] {
        on_both_paths(move |stage| {
            stage.write(PAGE, 4);
            stage.evict(PAGE);
            let storing = stage.hold(point, PAGE);
            let drain = stage.beside(|s| s.reclaim(&[]));
            let storing = storing.reached();
            let writer = stage.beside(|s| s.write(PAGE, 5));
            stage.must_wait(&writer, For::Page(PAGE));
            storing.release();
            drain.must_end();
            writer.must_end();
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
        evictor.must_end();
        stage.check(PAGE, 6);
        let row = stage.pager.row();
        assert!(row.minor_faults.load(Relaxed) + row.putback_pages.load(Relaxed) > 0, "it left, or stayed");
    });
}

/// As Linux 6.18 may leave it: pages are in their slots, and MOVE says of the first that its slot is taken (decision 0018).
#[test]
fn pages_that_were_moved_but_not_counted_are_found_in_their_slots() {
    const PAGES: usize = 6;
    let _no_fork = FORKS.read().unwrap();
    on_both_kernel_paths(|stage| {
        let kernel = stage.pager.kernel();
        if !kernel.features().move_pages {
            eprintln!("skipped: no UFFDIO_MOVE");
            return;
        }
        let pages = (PAGE.0..).map(PageNo).take(PAGES);
        pages.clone().zip(1..).for_each(|(page, seed)| stage.write(page, seed));
        let chunk = stage.pager.rooms.staging.take_empty(Kind::Moved).unwrap();
        let (at, slot) = (stage.pager.address(PAGE), stage.pager.rooms.staging.address(chunk.slot(0)));
        for moved_before in [1, 3, PAGES] {
            // SAFETY: pages of this test, which nobody touches meanwhile, and slots of its own.
            unsafe {
                kernel.uffd().move_pages(slot, at, moved_before * PAGE_BYTES).unwrap();
                assert_eq!(kernel.take_out(at, slot, PAGES), (PAGES, None));
                kernel.uffd().move_pages(at, slot, PAGES * PAGE_BYTES).unwrap();
            }
        }
        // A slot that holds something else: the page stays, with its content.
        // SAFETY: as above.
        unsafe {
            kernel.uffd().copy(slot, [7u8; PAGE_BYTES].as_ptr(), PAGE_BYTES).unwrap();
            assert_eq!(kernel.take_out(at, slot, 1), (0, Some(NotEvicted::Pinned)));
        }
        pages.zip(1..).for_each(|(page, seed)| stage.check(page, seed));
    });
}

/// A page that the program dropped by a call that is not seen, while the evictor makes it exclusive: the thread that evicts may be the only one
/// that serves faults, so the call must not wait for the page.
#[test]
fn a_page_is_made_exclusive_without_waiting_for_one_that_is_missing() {
    let features = Features::probe(FeatureSet::All);
    if features.privilege != Privilege::Kernel {
        return eprintln!("skipped: no privilege to serve faults of system calls (userfaultfd)");
    }
    let range = Mapping::anonymous(2 * PAGE_BYTES).unwrap();
    // No thread reads its messages.
    let kernel = Kernel::new(features, open(FaultPath::Monitor, features), OwnMemory::open().unwrap());
    kernel.register(range.start, range.len).unwrap();
    let refused = mem::make_exclusive(range.start).map_err(|error| error.errno);
    assert_eq!(refused, Err(libc::EFAULT));
    assert!(!mem::is_in_memory(range.start), "the page is still missing");
    let page = [7u8; PAGE_BYTES];
    // SAFETY: a missing page of this test.
    unsafe { kernel.map_copy(range.start, page.as_ptr(), 1) }.unwrap();
    mem::make_exclusive(range.start).unwrap();
    // SAFETY: the page was mapped just now.
    assert_eq!(unsafe { *(range.start as *const [u8; PAGE_BYTES]) }, page, "nothing has changed");
    mem::protect(range.start, PAGE_BYTES, libc::PROT_READ).unwrap();
    assert_eq!(mem::make_exclusive(range.start).map_err(|error| error.errno), Err(libc::EFAULT));
}
