//! Whether a thread of the pager runs. It is started once, and may be stopped for a while (`Pager::without_threads`).
//!
//! ```text
//!            begin               stop                 the thread leaves
//!   Absent ────────► Running ────────────► Stopping ────────────────────► Stopped
//!                       ▲                                                    │
//!                       └─────────────────────── resume ─────────────────────┘
//! ```
//!
//! A thread that is stopped is not absent: no other is started in its place meanwhile.

use crate::sys::thread;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const ABSENT: u32 = 0;
const RUNNING: u32 = 1;
const STOPPING: u32 = 2;
const STOPPED: u32 = 3;

/// Between two looks whether a thread has left: about as long as one takes that has nothing to do.
const LOOK: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Default)]
pub(crate) struct ThreadState(AtomicU32);

impl ThreadState {
    /// Absent.
    pub(crate) const fn new() -> ThreadState {
        ThreadState(AtomicU32::new(ABSENT))
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }

    /// Whether it runs, is about to, or is stopped.
    pub(crate) fn is_started(&self) -> bool {
        self.0.load(SeqCst) != ABSENT
    }

    /// The caller starts the thread, unless this is false: another thread has.
    pub(crate) fn begin(&self) -> bool {
        self.change(ABSENT, RUNNING)
    }

    /// It was not started after all, or is not there in the child of a fork.
    pub(crate) fn forget(&self) {
        self.0.store(ABSENT, SeqCst);
    }

    /// Whether the thread is to leave, which asks this itself where it owns nothing.
    pub(crate) fn should_stop(&self) -> bool {
        self.0.load(SeqCst) == STOPPING
    }

    /// The thread, which was to stop, leaves: it owns nothing any more.
    pub(crate) fn left(&self) {
        let has_left = self.change(STOPPING, STOPPED);
        debug_assert!(has_left, "a thread leaves that was not stopped");
    }

    /// Has the thread leave, and waits until it has; `nudge` wakes it, each time that it is called. Nothing happens where none runs.
    pub(crate) fn stop(&self, nudge: impl Fn()) {
        if !self.change(RUNNING, STOPPING) {
            return;
        }
        while self.0.load(SeqCst) == STOPPING {
            nudge();
            thread::sleep(LOOK);
        }
    }

    /// The caller starts the thread again, unless this is false: it was not stopped.
    pub(crate) fn resume(&self) -> bool {
        self.change(STOPPED, RUNNING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_thread_is_started_once_and_stopped_until_it_is_resumed() {
        let state = ThreadState::new();
        assert!(!state.is_started() && !state.resume());
        state.stop(|| unreachable!("no thread runs"));
        assert!(state.begin() && !state.begin() && state.is_started());
        let woken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !(woken.load(SeqCst) && state.should_stop()) {
                    std::thread::yield_now();
                }
                state.left();
            });
            state.stop(|| woken.store(true, SeqCst));
        });
        assert!(!state.should_stop() && state.is_started() && !state.begin(), "no other is started");
        assert!(state.resume() && !state.resume());
        state.forget();
        assert!(state.begin());
    }
}
