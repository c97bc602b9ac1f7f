//! All orders of the steps of threads that claim, complete, pin and wait for a page, tried by Loom (`crate::interleavings`).

use super::table::{ContentHash, PageTable};
use crate::pin::{Pin, Pins};
use crate::state::{Entry, State};
use crate::sys::watched::in_all_orders;
use crate::waiters::Waiters;
use hinterland_units::PageNo;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

const PAGE: PageNo = PageNo(2);
const NEXT: PageNo = PageNo(3);

fn table(state: State) -> PageTable {
    let table = PageTable::new(8).expect("memory");
    table.force(PAGE, Entry::new(state));
    table
}

fn claim(table: &PageTable, busy: State) -> bool {
    let seen = table.load(PAGE);
    !seen.state().is_busy() && table.transition(PAGE, seen, seen.with_state(busy)).is_ok()
}

/// A thread that evicts the page, unless it is pinned.
fn evict(table: &Arc<PageTable>, pins: &Arc<Pins>) -> JoinHandle<()> {
    let (table, pins) = (Arc::clone(table), Arc::clone(pins));
    thread::spawn(move || {
        assert!(claim(&table, State::Leaving));
        let to = if pins.cover(PAGE) { State::Resident } else { State::SwapCached };
        table.complete(PAGE, Entry::new(to));
    })
}

/// A thread that has pinned the page, and found it, finds it after the evictor, too.
fn stays(table: &PageTable, evictor: JoinHandle<()>) {
    let is_there = table.load(PAGE).state() == State::Resident;
    evictor.join().expect("it ends");
    assert!(!is_there || table.load(PAGE).state() == State::Resident, "a page left under its pin");
}

#[test]
fn one_of_two_threads_claims_a_page() {
    in_all_orders(|| {
        let table = Arc::new(table(State::Untouched));
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || claim(&table, State::Changing))
        };
        let ours = claim(&table, State::Fetching);
        let theirs = other.join().expect("it ends");
        assert!(ours != theirs, "{ours} {theirs}");
        assert!(table.any_touched(PAGE, 1));
    });
}

/// On the inline path: a thread sleeps for a page that another thread completes.
#[test]
fn a_thread_that_waits_for_a_page_is_woken() {
    in_all_orders(|| {
        let (table, waiters) = (Arc::new(table(State::Fetching)), Arc::new(Waiters::default()));
        let owner = {
            let (table, waiters) = (Arc::clone(&table), Arc::clone(&waiters));
            thread::spawn(move || {
                if table.complete(PAGE, Entry::new(State::Resident)) {
                    waiters.wake();
                }
            })
        };
        while table.load(PAGE).state().is_busy() {
            waiters.wait_if(|| table.must_wait(PAGE));
        }
        owner.join().expect("it ends");
    });
}

/// On the monitor path: a monitor notes that a thread waits, or serves it after all.
#[test]
fn the_owner_of_a_page_hears_of_a_thread_that_waits() {
    in_all_orders(|| {
        let table = Arc::new(table(State::Fetching));
        let owner = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.complete(PAGE, Entry::new(State::Resident)))
        };
        let noted = table.wait_on(PAGE, Entry::new(State::Fetching));
        assert_eq!(noted, owner.join().expect("it ends"));
    });
}

/// What an owner writes beside the entry is seen by the next owner.
#[test]
fn the_next_owner_sees_the_hash_of_the_copy() {
    in_all_orders(|| {
        let table = Arc::new(table(State::WritingBack));
        let hash = ContentHash(7 << 64 | 5);
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.set_hash(PAGE, hash);
                table.complete(PAGE, Entry::new(State::Remote));
            })
        };
        if claim(&table, State::Fetching) {
            assert_eq!(table.hash(PAGE), hash);
        }
        writer.join().expect("it ends");
    });
}

/// The thread that pins publishes, then looks at the page; the thread that evicts marks the page, then looks at the pins.
#[test]
fn a_pinned_page_stays() {
    in_all_orders(|| {
        let (table, pins) = (Arc::new(table(State::Resident)), Arc::new(Pins::new().expect("memory")));
        let evictor = evict(&table, &pins);
        let pin = Pin::of(&pins, PAGE.0, NEXT.0, 1);
        stays(&table, evictor);
        drop(pin);
        assert!(!pins.cover(PAGE));
    });
}

/// The same of pages that are pinned for longer than a call.
#[test]
fn a_page_that_is_pinned_long_term_stays() {
    in_all_orders(|| {
        let (table, pins) = (Arc::new(table(State::Resident)), Arc::new(Pins::new().expect("memory")));
        // The counts are there: another page has one.
        assert!(pins.long_term.add(NEXT, 4));
        let evictor = evict(&table, &pins);
        assert!(pins.long_term.add(PAGE, 4));
        stays(&table, evictor);
    });
}
