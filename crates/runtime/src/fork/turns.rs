//! Forks and what a thread of ours does in the heap (`heap::give_back_freed`) take turns.
//!
//! A child that is copied in the middle of that has locks of jemalloc's that are held by no thread of its own, which only libc's fork opens again, and pages
//! that are for ever on their way to be dropped: also where the program has one thread, and may allocate in every child.

use crate::on_near_stack;
use hinterland_sys::gate::{futex_wait_for, futex_wake};
use hinterland_sys::thread;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// So long a fork waits: one in a signal handler may have interrupted the heap, whose locks the work waits for then. (Its child may not allocate.)
const WAIT_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub struct Turns {
    /// 1: a thread of ours is at work, or about to look whether it may be.
    working: AtomicU32,
    /// Forks that wait or are being made.
    forks: AtomicU32,
}

/// Those of this process.
pub static TURNS: Turns = Turns::new();

impl Turns {
    const fn new() -> Turns {
        Turns { working: AtomicU32::new(0), forks: AtomicU32::new(0) }
    }

    /// Does `work`, which one thread does at a time; false: not now, because of a fork.
    pub fn work(&self, work: impl FnOnce()) -> bool {
        self.working.store(1, SeqCst);
        let is_its_turn = self.forks.load(SeqCst) == 0;
        if is_its_turn {
            work();
        }
        self.working.store(0, SeqCst);
        futex_wake(&self.working);
        is_its_turn
    }

    /// Before a fork: waits until no work is under way, and keeps it so.
    pub fn begin_fork(&self) {
        self.forks.fetch_add(1, SeqCst);
        if self.working.load(SeqCst) != 0 {
            on_near_stack(|| self.wait());
        }
    }

    #[cold]
    fn wait(&self) {
        let begun = thread::since_boot();
        while self.working.load(SeqCst) != 0 {
            let waited = thread::since_boot().saturating_sub(begun);
            let Some(left) = WAIT_MAX.checked_sub(waited) else { return };
            futex_wait_for(&self.working, 1, Some(left));
        }
    }

    /// After it, in the parent.
    pub fn end_fork(&self) {
        // None, in the child of a handler's fork that has interrupted another one.
        let _ = self.forks.fetch_update(SeqCst, SeqCst, |forks| forks.checked_sub(1));
    }

    /// After it, in the child: no other thread works, or forks.
    pub fn begin_child(&self) {
        self.working.store(0, SeqCst);
        self.forks.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_fork_waits_for_work_in_the_heap_and_none_begins_meanwhile() {
        let (turns, done) = (Turns::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let work = || {
                    while turns.forks.load(SeqCst) == 0 {
                        thread::yield_now();
                    }
                    // A fork that did not wait would be made by then.
                    (0..1000).for_each(|_| thread::yield_now());
                    done.store(true, SeqCst);
                };
                assert!(turns.work(work));
            });
            while turns.working.load(SeqCst) == 0 {
                thread::yield_now();
            }
            turns.begin_fork();
            assert!(done.load(SeqCst), "a fork was made while work was under way");
        });
        assert!(!turns.work(|| unreachable!("a fork is being made")));
        turns.end_fork();
        assert!(turns.work(|| ()));
        turns.begin_fork();
        turns.begin_child();
        // The fork of a handler has interrupted this one.
        turns.end_fork();
        assert!(turns.work(|| ()), "in the child");
    }

    #[test]
    fn a_fork_that_has_interrupted_what_the_work_waits_for_is_made_all_the_same() {
        let turns = Turns::new();
        assert!(turns.work(|| turns.begin_fork()));
        turns.end_fork();
        assert!(turns.work(|| ()));
    }
}
