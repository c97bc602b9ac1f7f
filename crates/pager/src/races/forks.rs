//! Forks, against everything that may be under way; and parent and child against each other.

use super::{Child, For, Stage, on, on_both_kernel_paths};
use crate::points::{Hold, Point};
use crate::{FaultPath, PinAccess, State};
use hinterland_policy::{PrefetchWindow, Unmapped};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::mpsc;

const PAGE: PageNo = PageNo(37);
const TARGET: PageNo = PageNo(337);

/// Holds `work` at a point, forks in another thread, which must wait for it, and lets the child look.
fn fork_during(stage: &Stage, point: Point, work: fn(&Stage), look: fn(&Stage)) {
    fork_while(stage, stage.hold(point, PAGE), work, look);
}

/// The same for a point that is not about `PAGE`.
fn fork_while(stage: &Stage, held: Hold, work: fn(&Stage), look: fn(&Stage)) {
    let worker = stage.beside(work);
    let held = held.reached();
    let forker = stage.beside(move |s| s.fork(look).must_be_well());
    stage.must_wait(&forker, For::Gate);
    held.release();
    worker.must_end();
    forker.must_end();
    look(stage);
}

#[test]
fn a_fork_waits_for_a_fetch() {
    on_both_kernel_paths(|stage| {
        stage.send_far(PAGE, 1);
        fork_during(stage, Point::Loaded, |s| s.check(PAGE, 1), |s| s.check(PAGE, 1));
    });
}

#[test]
fn a_fork_waits_for_a_departure() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 2);
        fork_during(stage, Point::TakenOut, |s| s.evict(PAGE), |s| s.check(PAGE, 2));
    });
}

#[test]
fn a_fork_waits_for_write_back() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 3);
        stage.evict(PAGE);
        fork_during(stage, Point::Stored, |s| s.reclaim(&[]), |s| s.check(PAGE, 3));
    });
}

#[test]
fn a_fork_waits_for_one_batch_of_a_window() {
    let window = || PrefetchWindow { first: PAGE, step: 1, pages: 32, unmapped: Unmapped::Key(PAGE) };
    on_both_kernel_paths(|stage| {
        window().iter().for_each(|page| stage.send_far(page, page.0.into()));
        let ahead = stage.hold(Point::ReadAheadLoaded, PAGE);
        stage.pager.evictor.start_helpers();
        stage.pager.rooms.read_ahead.request(window());
        let ahead = ahead.reached();
        let check_all = move |s: &Stage| window().iter().for_each(|page| s.check(page, page.0.into()));
        let look = move |s: &Stage| {
            let [first, last] = [1, 31].map(|at| s.state(PageNo(PAGE.0 + at)));
            assert_eq!((first, last), (State::Resident, State::Remote), "the second batch was not begun");
            check_all(s);
        };
        let forker = stage.beside(move |s| s.fork(look).must_be_well());
        stage.must_wait(&forker, For::Gate);
        ahead.release();
        forker.must_end();
        check_all(stage);
    });
}

#[test]
fn a_fork_waits_for_the_policy() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 8);
        let held = stage.hold(Point::PolicyHeld, PageNo(0));
        let look = |s: &Stage| {
            s.evict(PAGE);
            s.check(PAGE, 8);
        };
        fork_while(stage, held, Stage::fit_policy, look);
    });
}

#[test]
fn a_fork_waits_for_a_move() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 4);
        let look = |s: &Stage| {
            s.check(TARGET, 4);
            s.check(PAGE, 0);
        };
        fork_during(stage, Point::Moved, |s| s.pager.relocate(PAGE, TARGET, 1), look);
    });
}

#[test]
fn a_fault_waits_for_a_fork() {
    on_both_kernel_paths(|stage| {
        stage.send_far(PAGE, 5);
        let frozen = stage.hold(Point::Frozen, PageNo(0));
        let forker = stage.beside(|s| s.fork(|s| s.check(PAGE, 5)).must_be_well());
        let frozen = frozen.reached();
        let reader = stage.beside(|s| s.check(PAGE, 5));
        stage.must_wait(&reader, For::Gate);
        frozen.release();
        forker.must_end();
        reader.must_end();
    });
}

#[test]
fn two_forks_follow_each_other() {
    on_both_kernel_paths(|stage| {
        stage.send_far(PAGE, 6);
        let frozen = stage.hold(Point::Frozen, PageNo(0));
        let first = stage.beside(|s| s.fork(|s| s.check(PAGE, 6)).must_be_well());
        let frozen = frozen.reached();
        let second = stage.beside(|s| s.fork(|s| s.check(PAGE, 6)).must_be_well());
        stage.must_wait(&second, For::Gate);
        frozen.release();
        first.must_end();
        second.must_end();
        stage.check(PAGE, 6);
    });
}

#[test]
fn a_pin_of_the_parent_binds_the_parent_alone() {
    on(FaultPath::Inline, |stage| {
        stage.write(PAGE, 7);
        let (ready, go) = (mpsc::channel(), mpsc::channel::<()>());
        let caller = stage.beside(move |s| {
            let pin = s.pager.pin_local(s.pager.address(PAGE), PAGE_BYTES);
            assert!(pin.is_some());
            ready.0.send(()).unwrap();
            let _ = go.1.recv();
            drop(pin);
        });
        ready.1.recv().unwrap();
        let child = stage.fork(|s| {
            s.evict(PAGE);
            assert_eq!(s.state(PAGE), State::SwapCached, "the child's page is pinned by a call that it never made");
            s.check(PAGE, 7);
            let _pin = s.pager.pin(s.pager.address(PAGE), PAGE_BYTES, PinAccess::Read);
            s.evict(PAGE);
            assert_eq!(s.state(PAGE), State::Resident);
        });
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "the parent's page left under its pin");
        child.must_be_well();
        drop(go.0);
        caller.must_end();
    });
}

#[test]
fn a_childs_first_touch_waits_for_its_own_evictor() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 8);
        stage
            .fork(|stage| {
                let out = stage.hold(Point::TakenOut, PAGE);
                let evictor = stage.beside(|s| s.evict(PAGE));
                let out = out.reached();
                let reader = stage.beside(|s| s.check(PAGE, 8));
                stage.must_wait(&reader, For::Page(PAGE));
                out.release();
                evictor.must_end();
                reader.must_end();
            })
            .must_be_well();
        stage.check(PAGE, 8);
    });
}

#[test]
fn a_shared_page_leaves_the_parent_while_the_child_writes_it() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 9);
        let (written, left) = (pipe(), pipe());
        let child = stage.fork(|s| {
            s.write(PAGE, 10);
            say(written.1);
            hear(left.0);
            s.check(PAGE, 10);
            s.evict(PAGE);
            s.reclaim(&[]);
            s.check(PAGE, 10);
        });
        // Not before the fork: the child would have it, too.
        let leaving = stage.hold(Point::Leaving, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let leaving = leaving.reached();
        hear(written.0);
        leaving.release();
        evictor.must_end();
        assert_eq!(stage.state(PAGE), State::SwapCached);
        say(left.1);
        child.must_be_well();
        stage.reclaim(&[]);
        assert_eq!(stage.state(PAGE), State::Remote);
        stage.check(PAGE, 9);
    });
}

#[test]
fn a_nested_fork_waits_for_write_back() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 11);
        stage.evict(PAGE);
        stage
            .fork(|stage| {
                stage.fork(|s| s.check(PAGE, 11)).must_be_well();
                fork_during(stage, Point::Stored, |s| s.reclaim(&[]), |s| s.check(PAGE, 11));
            })
            .must_be_well();
        stage.check(PAGE, 11);
    });
}

#[test]
fn a_child_killed_in_write_back_harms_nobody() {
    on_both_kernel_paths(|stage| {
        stage.send_far(PAGE, 12);
        stage.write(TARGET, 13);
        stage.evict(TARGET);
        let storing = pipe();
        let child = stage.fork(|stage| {
            let held = stage.hold(Point::Stored, TARGET);
            let _drain = stage.beside(|s| s.reclaim(&[]));
            let _held = held.reached();
            say(storing.1);
            loop {
                std::thread::park();
            }
        });
        hear(storing.0);
        child.kill();
        stage.reclaim(&[]);
        stage.check(PAGE, 12);
        stage.check(TARGET, 13);
        stage.fork(|s| s.check(TARGET, 13)).must_be_well();
    });
}

#[test]
fn a_child_that_dies_half_made_harms_nobody() {
    on_both_kernel_paths(|stage| {
        stage.send_far(PAGE, 14);
        let registered = stage.hold(Point::ChildRegistered, PageNo(0));
        // The child stays at the point, which its copy of the hold tells, not its parent's.
        let child: Child = stage.fork(|s| s.check(PAGE, 14));
        while !registered.holds(child.id()) {
            std::thread::yield_now();
        }
        child.kill();
        stage.check(PAGE, 14);
    });
}

fn pipe() -> (i32, i32) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    (ends[0], ends[1])
}

fn say(end: i32) {
    // SAFETY: one byte of a constant.
    assert_eq!(unsafe { libc::write(end, b".".as_ptr().cast(), 1) }, 1);
}

fn hear(end: i32) {
    let mut byte = 0u8;
    // SAFETY: room for one byte.
    let _ = unsafe { libc::read(end, (&raw mut byte).cast(), 1) };
}

#[test]
fn the_stack_of_a_fork_stays_while_the_fork_waits() {
    on_both_kernel_paths(|stage| {
        stage.write(PAGE, 9);
        stage.write(TARGET, 10);
        let marked = stage.hold(Point::Marked, PAGE);
        let evictor = stage.beside(|s| s.reclaim(&[PAGE, TARGET]));
        let marked = marked.reached();
        let forker = stage.beside(|s| {
            let stack = s.pager.address(TARGET);
            assert!(
                s.pager.freeze_on(stack..stack + PAGE_BYTES, &[]),
                "a page of the stack left while the gate closed"
            );
            assert_eq!(s.state(TARGET), State::Resident);
            s.pager.thaw();
        });
        stage.must_wait(&forker, For::Gate);
        marked.release();
        evictor.must_end();
        forker.must_end();
        stage.check(TARGET, 10);
    });
}
