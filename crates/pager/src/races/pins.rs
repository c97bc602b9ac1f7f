//! Pins of system calls, against the evictor: the inline path only, because the monitor's calls need none. And pages that are
//! pinned long-term for what the kernel does at a thread's end, which needs them on both paths.

use super::{For, Stage, compressed, on, on_both_kernel_paths, on_both_paths, on_simulated};
use crate::points::Point;
use crate::sys::simulated::current;
use crate::sys::thread::SignalsBlocked;
use crate::{FaultPath, PinAccess, State};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::Arc;

const PAGE: PageNo = PageNo(29);

#[test]
fn a_pin_that_comes_second_waits_and_keeps_the_page() {
    on(FaultPath::Inline, |stage| {
        stage.write(PAGE, 1);
        let marked = stage.hold(Point::Marked, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let marked = marked.reached();
        let (pinned, unpin) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let caller = stage.beside(move |s| {
            let _signals = SignalsBlocked::new();
            let pin = s.pager.pin(s.pager.address(PAGE), PAGE_BYTES, PinAccess::Read);
            pinned.0.send(()).unwrap();
            let _ = unpin.1.recv();
            drop(pin);
        });
        stage.must_wait(&caller, For::Page(PAGE));
        assert!(pinned.1.try_recv().is_err(), "a call goes on while its page is marked");
        marked.release();
        evictor.must_end();
        pinned.1.recv().unwrap();
        assert_eq!(stage.state(PAGE), State::Resident);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "a pinned page left");
        drop(unpin.0);
        caller.must_end();
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::SwapCached, "the pin is gone");
    });
}

#[test]
fn a_pin_that_comes_first_is_seen_before_its_pages_are() {
    on(FaultPath::Inline, |stage| {
        stage.write(PAGE, 2);
        let published = stage.hold(Point::Pinned, PAGE);
        let caller = stage.beside(|s| {
            let _signals = SignalsBlocked::new();
            let pin = s.pager.pin(s.pager.address(PAGE), PAGE_BYTES, PinAccess::Read);
            assert_eq!(s.state(PAGE), State::Resident);
            drop(pin);
        });
        let published = published.reached();
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "a page left under a pin");
        published.release();
        caller.must_end();
    });
}

/// The evictor pins for other processes while the read-ahead thread reclaims: both are the pager's own.
#[test]
fn an_own_thread_that_pins_a_page_waits_for_the_own_thread_that_takes_it_out() {
    on(FaultPath::Inline, |stage| {
        stage.write(PAGE, 8);
        let taken_out = stage.hold(Point::TakenOut, PAGE);
        let reclaimer = stage.beside(|s| s.evict(PAGE));
        let taken_out = taken_out.reached();
        let asked = stage.beside(|s| {
            s.pager.pages.own_threads.register();
            let _signals = SignalsBlocked::new();
            drop(s.pager.pin_for(s.pager.address(PAGE), PAGE_BYTES, PinAccess::Read, usize::MAX));
        });
        stage.must_wait(&asked, For::Page(PAGE));
        taken_out.release();
        reclaimer.must_end();
        asked.must_end();
        assert_eq!(stage.state(PAGE), State::Resident);
        stage.check(PAGE, 8);
    });
}

#[test]
fn a_jump_out_of_a_call_frees_its_page_and_no_other() {
    on(FaultPath::Inline, |stage| {
        let kept = PageNo(PAGE.0 + 64);
        stage.write(PAGE, 3);
        stage.write(kept, 4);
        let marked = std::cell::Cell::new(Some(stage.hold(Point::Marked, PAGE)));
        // A call, interrupted by a handler (further down the stack), which makes a call (further down still) that another
        // handler jumps out of: its guard is never dropped.
        let interrupted = stage.pager.pin_local(stage.pager.address(kept), PAGE_BYTES);
        further_down(&|| {
            let handler = 0u8;
            further_down(&|| std::mem::forget(stage.pager.pin_local(stage.pager.address(PAGE), PAGE_BYTES)));
            let evictor = stage.beside(|s| s.evict(PAGE));
            let marked = marked.take().unwrap().reached();
            stage.pager.sweep_pins(0..(&raw const handler).addr());
            marked.release();
            evictor.must_end();
        });
        assert_eq!(stage.state(PAGE), State::SwapCached, "the pin of the call that was left is still there");
        stage.evict(kept);
        assert_eq!(stage.state(kept), State::Resident, "another call's pin was swept");
        drop(interrupted);
    });
}

#[test]
fn a_page_pinned_long_term_while_it_leaves_comes_back_and_stays() {
    on_both_paths(|stage| {
        stage.write(PAGE, 5);
        let leaving = stage.hold(Point::Leaving, PAGE);
        let evictor = stage.beside(|s| s.evict(PAGE));
        let leaving = leaving.reached();
        let keeper = stage.beside(|s| assert!(s.pager.pin_long_term(s.pager.address(PAGE) + 100, 40)));
        stage.must_wait(&keeper, For::Owner(PAGE));
        leaving.release();
        evictor.must_end();
        keeper.must_end();
        assert_eq!(stage.state(PAGE), State::Resident);
        assert!(stage.pager.pin_long_term(stage.pager.address(PAGE) + 200, 40));
        stage.pager.unpin_long_term(stage.pager.address(PAGE) + 100, 40);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "the page has another long-term pin");
        stage.check(PAGE, 5);
        stage.pager.unpin_long_term(stage.pager.address(PAGE) + 200, 40);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::SwapCached, "no pin is left");
    });
}

#[test]
fn long_term_pins_end_with_the_content_and_are_a_childs_too() {
    on_both_kernel_paths(|stage| {
        let (across, start) = (PageNo(PAGE.0 + 1), stage.pager.address(PAGE) + PAGE_BYTES - 20);
        stage.write(PAGE, 6);
        stage.write(across, 6);
        assert!(stage.pager.pin_long_term(start, 40));
        let child = stage.fork(|s| {
            s.reclaim(&[PAGE, across]);
            assert!([PAGE, across].iter().all(|page| s.state(*page) == State::Resident));
            s.pager.unpin_long_term(start, 40);
        });
        child.must_be_well();
        stage.pager.discard(across, 1);
        stage.write(across, 7);
        stage.evict(PAGE);
        stage.evict(across);
        assert_eq!((stage.state(PAGE), stage.state(across)), (State::Resident, State::SwapCached));
        stage.check(across, 7);
    });
}

/// A handler that interrupted a call forks: when it returns in the child, the call ends there, too.
#[test]
fn a_call_from_before_a_fork_frees_no_pin_of_the_child() {
    on(FaultPath::Inline, |stage| {
        let of_child = PageNo(PAGE.0 + 64);
        stage.write(PAGE, 3);
        stage.write(of_child, 4);
        let interrupted = stage.pager.pin_local(stage.pager.address(PAGE), PAGE_BYTES);
        let child = stage.fork(move |s| {
            s.check(of_child, 4);
            let pin = s.pager.pin_local(s.pager.address(of_child), PAGE_BYTES);
            assert!(pin.is_some());
            drop(interrupted);
            s.evict(of_child);
            assert_eq!(s.state(of_child), State::Resident, "a pinned page left");
        });
        child.must_be_well();
    });
}

#[inline(never)]
fn further_down(work: &dyn Fn()) {
    let room = std::hint::black_box([0u8; 4096]);
    work();
    std::hint::black_box(room);
}

/// A task that clone(2) has made with the maker's thread-local storage, on a stack of its own above the maker's.
#[test]
fn a_thread_gives_up_no_pin_of_one_whose_storage_it_has() {
    let race = |stage: &Stage| {
        stage.write(PAGE, 5);
        stage.pager.threads_share_storage();
        let maker = current().expect("a simulated thread").id();
        let _signals = SignalsBlocked::new();
        let pin = |frame| stage.pager.pin_for(stage.pager.address(PAGE), PAGE_BYTES, PinAccess::Read, frame);
        let (pinned, left) = (pin(0x2000), pin(0x1000));
        std::mem::forget(left);
        let task = stage.beside(move |s| {
            current().expect("a simulated thread").has_the_storage_of(maker);
            s.pager.sweep_pins(0..0x3000);
        });
        task.must_end();
        stage.pager.sweep_pins(0..0x1800);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "a pin was given up by another thread");
        drop(pinned);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::SwapCached, "the pin of a call that was left is still there");
    };
    on_simulated(FaultPath::Inline, compressed, Arc::new(race));
}

/// Frames of another stack, which lies lower, say nothing of those of a handler's.
#[test]
fn pins_are_given_up_by_the_frames_of_one_stack() {
    on(FaultPath::Inline, |stage| {
        let (outer, left) = (PAGE, PageNo(PAGE.0 + 64));
        stage.write(outer, 6);
        stage.write(left, 7);
        let _signals = SignalsBlocked::new();
        let pin = |page, frame| stage.pager.pin_for(stage.pager.address(page), PAGE_BYTES, PinAccess::Read, frame);
        let kept = pin(outer, 0x1000);
        std::mem::forget(pin(left, 0x9000));
        stage.pager.sweep_pins(0x8000..0xa000);
        stage.evict(left);
        assert_eq!(stage.state(left), State::SwapCached, "the pin of a call that was left is still there");
        stage.evict(outer);
        assert_eq!(stage.state(outer), State::Resident, "a pin of the interrupted stack was given up");
        drop(kept);
    });
}
