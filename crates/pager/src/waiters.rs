//! Threads on the inline path that wait for pages of other threads.

use crate::sys::sync::atomic::{AtomicU32, Ordering::SeqCst};
use crate::sys::sync::{futex_wait, futex_wake};

/// See the module.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Counts wake-ups.
    word: AtomicU32,
}

impl Waiters {
    /// Lets all of them look again.
    pub(crate) fn wake(&self) {
        self.word.fetch_add(1, SeqCst);
        futex_wake(&self.word);
    }

    /// Sleeps until the next wake-up, if `must_wait` still says so after this thread has begun to listen.
    pub(crate) fn wait_if(&self, must_wait: impl FnOnce() -> bool) {
        let seen = self.word.load(SeqCst);
        if must_wait() {
            futex_wait(&self.word, seen);
        }
    }
}
