//! Backoff: how a thread waits for a short step of another one without a wake-up. It polls.
//!
//! Between the first looks it yields: mostly the other thread runs on another processor, or next on this one. But
//! yielding gives the processor to threads of the same priority alone (sched_yield(2)): a thread with a real-time
//! priority (`SCHED_FIFO`, `SCHED_RR`) on the processor on which the other one is to run would poll for ever, or, where
//! the kernel throttles such threads, for most of each second. So the thread sleeps between later polls.

use crate::sys::thread;
use std::time::Duration;

/// Yields before the first sleep: as long as most of such waits take.
const YIELDS: u32 = 100;
/// What a sleep adds to a wait at most, beside the time that the kernel takes to wake a thread.
const SLEEP: Duration = Duration::from_micros(50);

/// One wait. See the module.
#[derive(Default)]
pub(crate) struct Backoff {
    yields: u32,
}

impl Backoff {
    /// Before the first look.
    pub(crate) fn new() -> Backoff {
        Backoff::default()
    }

    /// Whether the next pause is a sleep: the wait has lasted for some time.
    pub(crate) fn sleeps(&self) -> bool {
        self.yields >= YIELDS
    }

    /// Between two looks.
    pub(crate) fn pause(&mut self) {
        if self.sleeps() {
            thread::sleep(SLEEP);
        } else {
            self.yields += 1;
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::simulated::{Chances, simulate};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    /// On one processor, where a thread with a real-time priority comes before another one whenever it can run.
    fn one_waits_for_another(pause: impl Fn(&mut Backoff) + Send + 'static) -> Option<String> {
        let report = simulate(1, Chances::default(), move |current| {
            let is_done = Arc::new(AtomicBool::new(false));
            let other = Arc::clone(&is_done);
            let urgent = current.spawn("urgent", move || {
                crate::sys::simulated::current().expect("a simulated thread").has_real_time_priority();
                let mut backoff = Backoff::new();
                while !is_done.load(SeqCst) {
                    pause(&mut backoff);
                }
            });
            current.yield_now("lets the urgent one begin");
            other.store(true, SeqCst);
            current.join(urgent);
        });
        report.failure
    }

    #[test]
    fn a_thread_with_a_real_time_priority_lets_another_one_run() {
        assert_eq!(one_waits_for_another(Backoff::pause), None);
        let failure = one_waits_for_another(|_| thread::yield_now()).expect("yields alone let no other thread run");
        assert!(failure.contains("no end after"), "{failure}");
    }

    #[test]
    fn short_waits_are_spent_yielding() {
        let mut backoff = Backoff::new();
        (0..YIELDS).for_each(|_| {
            assert!(!backoff.sleeps());
            backoff.pause();
        });
        assert!(backoff.sleeps());
        backoff.pause();
        assert!(backoff.sleeps());
    }
}
