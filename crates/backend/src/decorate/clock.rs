//! The time that decorators add, kept to a few microseconds: a sleeping thread wakes too late for a link of 5 µs.

use hinterland_sys::gate::futex_wait_for;
use hinterland_sys::thread;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The end of a wait, in which the thread looks at the clock again and again: the kernel's timers may be late by 50 µs
/// (timer slack, `PR_SET_TIMERSLACK` in prctl(2)).
const WATCHED: Duration = Duration::from_micros(60);
/// Threads of this process that do so now.
static WATCHING: AtomicUsize = AtomicUsize::new(0);

/// Time, and how it passes.
pub(crate) trait Clock: Send + Sync {
    /// Nanoseconds since some moment, the same for all processes.
    fn now_ns(&self) -> u64;
    /// Returns at `due_ns` or later. `yields`: other threads may have the processor meanwhile, even if the end is late then.
    fn wait_until(&self, due_ns: u64, yields: bool);
}

/// The machine's clock.
pub(crate) struct Monotonic {
    begun: Instant,
    /// When that was, since the machine's start: all processes count from there.
    begun_ns: u64,
    /// That the process may run on.
    processors: usize,
}

impl Monotonic {
    pub(super) fn new() -> Monotonic {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Monotonic { begun: Instant::now(), begun_ns: nanoseconds(thread::since_boot()), processors }
    }

    /// Waits for `duration` from now on, in which `meanwhile` has its time.
    pub(super) fn wait_while(&self, duration: Duration, meanwhile: &mut dyn FnMut()) {
        let due_ns = self.now_ns().saturating_add(nanoseconds(duration));
        meanwhile();
        self.wait_until(due_ns, true);
    }
}

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        self.begun_ns.saturating_add(nanoseconds(self.begun.elapsed()))
    }

    fn wait_until(&self, due_ns: u64, yields: bool) {
        /// Nobody wakes this.
        static NEVER: AtomicU32 = AtomicU32::new(0);
        let left = || Duration::from_nanos(due_ns.saturating_sub(self.now_ns()));
        while let Some(sleep) = left().checked_sub(WATCHED).filter(|sleep| !sleep.is_zero()) {
            futex_wait_for(&NEVER, 0, Some(sleep));
        }
        WATCHING.fetch_add(1, Relaxed);
        while !left().is_zero() {
            // A thread that waits for a real link would leave the processor to others; and one whose page has arrived gets none where more
            // threads look at the clock than there are processors.
            if yields || WATCHING.load(Relaxed) > self.processors {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        WATCHING.fetch_sub(1, Relaxed);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_never_too_short() {
        let clock = Monotonic::new();
        for microseconds in [0, 1, 5, 59, 60, 61, 200, 3_000] {
            let (begun, duration) = (Instant::now(), Duration::from_micros(microseconds));
            clock.wait_while(duration, &mut || ());
            assert!(begun.elapsed() >= duration, "{microseconds} µs");
        }
    }
}
