//! All orders of the steps of two or three threads, and all that a load may see in each, tried by Loom: the words that pages pass through
//! without a lock. Run with `--features loom`.
//!
//! The machine is x86-64: a locked instruction is a full barrier (`sys::watched`).

use crate::hint_ring::{HintRing, Run};
use crate::page_counts::PageCounts;
use crate::pin::{Pin, Pins};
use crate::policy_lock::PolicyLock;
use crate::sys::watched::in_all_orders;
use crate::wp_range::WpRanges;
use hinterland_policy::{Arrival, EvictionPolicy};
use hinterland_units::PageNo;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;

const PAGE: PageNo = PageNo(2);
const NEXT: PageNo = PageNo(3);

/// The kernel works on a pinned page, and never on a protected one.
#[test]
fn a_protected_range_and_a_pin_exclude_each_other() {
    in_all_orders(|| {
        let (ranges, pins) = (Arc::new(WpRanges::default()), Arc::new(Pins::new().expect("memory")));
        let protected = Arc::new(AtomicBool::new(false));
        let evictor = {
            let (ranges, pins, protected) = (Arc::clone(&ranges), Arc::clone(&pins), Arc::clone(&protected));
            thread::spawn(move || {
                if let Some(range) = ranges.open(PAGE, NEXT, &pins) {
                    protected.store(true, Relaxed);
                    protected.store(false, Relaxed);
                    drop(range);
                }
            })
        };
        let pin = Pin::of(&pins, PAGE.0, NEXT.0, 1);
        ranges.wait_outside(PAGE.0, NEXT.0);
        assert!(!protected.load(Relaxed), "a system call meets a protected page");
        drop(pin);
        evictor.join().expect("it ends");
    });
}

/// The end of a protected range lifts the protection of all that lies in it.
#[test]
fn protected_ranges_exclude_each_other() {
    in_all_orders(|| {
        let (ranges, pins) = (Arc::new(WpRanges::default()), Arc::new(Pins::new().expect("memory")));
        let open = |ranges: &WpRanges, pins: &Pins, inside: &AtomicBool| {
            if let Some(range) = ranges.open(PAGE, NEXT, pins) {
                assert!(!inside.load(Relaxed), "two protected ranges overlap");
                inside.store(true, Relaxed);
                inside.store(false, Relaxed);
                drop(range);
            }
        };
        let inside = Arc::new(AtomicBool::new(false));
        let other = {
            let (ranges, pins, inside) = (Arc::clone(&ranges), Arc::clone(&pins), Arc::clone(&inside));
            thread::spawn(move || open(&ranges, &pins, &inside))
        };
        open(&ranges, &pins, &inside);
        other.join().expect("it ends");
    });
}

/// A release of more than was counted takes away what another thread is about to count; what else is released loses its count all the same.
#[test]
fn a_page_that_is_released_has_no_count_whatever_others_release() {
    in_all_orders(|| {
        let counts = Arc::new(PageCounts::default());
        assert!(counts.add(NEXT, 8));
        let other = {
            let counts = Arc::clone(&counts);
            thread::spawn(move || assert!(counts.add(PAGE, 8)))
        };
        counts.remove_all(PAGE, 1);
        counts.remove_all(NEXT, 1);
        other.join().expect("it ends");
        counts.remove_all(PAGE, 1);
        assert!(!counts.touch(PAGE, PageNo(4)) && counts.pages() == 0);
        counts.add(PAGE, 8);
        assert!(!counts.touch(NEXT, PageNo(4)), "a page is kept for ever");
    });
}

/// Counts what it is told.
#[derive(Clone, Default)]
struct Told(std::sync::Arc<std::sync::Mutex<Vec<PageNo>>>);

impl EvictionPolicy for Told {
    fn arrived(&mut self, page: PageNo, _: Arrival) {
        self.0.lock().expect("no thread panics here").push(page);
    }
    fn forgotten(&mut self, _: PageNo) {}
    fn victims(&mut self, _: usize, _: &mut Vec<PageNo>) {}
    fn putback(&mut self, _: PageNo) {}
    fn written_back(&mut self, _: PageNo) {}
    fn resize(&mut self, _: usize) {}
    fn resident(&self) -> usize {
        0
    }
    fn metadata_bytes(&self) -> usize {
        0
    }
}

/// Arrivals that are reported while a thread holds the policy are told with the next look at it.
#[test]
fn the_policy_is_told_of_every_arrival_once() {
    in_all_orders(|| {
        let told = Told::default();
        let policy = Arc::new(PolicyLock::new(Box::new(told.clone())));
        let others = [PAGE, NEXT].map(|page| {
            let policy = Arc::clone(&policy);
            thread::spawn(move || policy.arrived(std::iter::once(page), Arrival::Demand))
        });
        drop(policy.lock());
        others.into_iter().for_each(|other| other.join().expect("it ends"));
        drop(policy.lock());
        let mut pages = told.0.lock().expect("no thread panics here").clone();
        pages.sort_unstable();
        assert_eq!(pages, [PAGE, NEXT]);
    });
}

/// What threads put into a ring comes out once.
#[test]
fn hints_come_out_once() {
    in_all_orders(|| {
        let ring = Arc::new(HintRing::new().expect("memory"));
        let putters = [PAGE, NEXT].map(|first| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.put(Run { first, pages: 1, tag: 0 }))
        });
        let mut taken = Vec::new();
        let mut take = || {
            ring.take(|run| {
                taken.push(run.first);
                run.pages
            });
        };
        take();
        let put = putters.into_iter().map(|putter| putter.join().expect("it ends")).filter(|put| *put).count();
        // One that was held up may come a lap late: the next words push it on.
        take();
        while taken.len() < put && ring.put(Run { first: PageNo(7), pages: 1, tag: 1 }) {
            ring.take(|run| {
                taken.extend((run.tag == 0).then_some(run.first));
                run.pages
            });
        }
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), put);
        // Cells that were taken are empty for the next lap.
        let again = Run { first: PageNo(5), pages: 1, tag: 1 };
        for _ in 0..2 {
            assert!(ring.put(again));
            let mut seen = 0;
            ring.take(|run| {
                seen += u32::from(run == again);
                run.pages
            });
            assert_eq!(seen, 1);
        }
    });
}
