//! Pins of system calls, against the evictor. The inline path only: the monitor's calls need no pins.

use super::{must_end, must_wait, on};
use crate::schedule::Point;
use crate::{FaultPath, PinAccess, State};
use hinterland_units::{PAGE_BYTES, PageNo};

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
            let _signals = hinterland_sys::thread::SignalsBlocked::new();
            let pin = s.pager.pin(s.pager.address(PAGE), PAGE_BYTES, PinAccess::Read);
            pinned.0.send(()).unwrap();
            let _ = unpin.1.recv_timeout(super::PATIENCE);
            drop(pin);
        });
        must_wait(&caller, "the evictor");
        assert!(pinned.1.try_recv().is_err(), "a call goes on while its page is marked");
        marked.release();
        must_end(evictor);
        pinned.1.recv_timeout(super::PATIENCE).unwrap();
        assert_eq!(stage.state(PAGE), State::Resident);
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "a pinned page left");
        drop(unpin.0);
        must_end(caller);
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
            let _signals = hinterland_sys::thread::SignalsBlocked::new();
            let pin = s.pager.pin(s.pager.address(PAGE), PAGE_BYTES, PinAccess::Read);
            assert_eq!(s.state(PAGE), State::Resident);
            drop(pin);
        });
        let published = published.reached();
        stage.evict(PAGE);
        assert_eq!(stage.state(PAGE), State::Resident, "a page left under a pin");
        published.release();
        must_end(caller);
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
            stage.pager.sweep_pins((&raw const handler).addr());
            marked.release();
            must_end(evictor);
        });
        assert_eq!(stage.state(PAGE), State::SwapCached, "the pin of the call that was left is still there");
        stage.evict(kept);
        assert_eq!(stage.state(kept), State::Resident, "another call's pin was swept");
        drop(interrupted);
    });
}

#[inline(never)]
fn further_down(work: &dyn Fn()) {
    let room = std::hint::black_box([0u8; 4096]);
    work();
    std::hint::black_box(room);
}
