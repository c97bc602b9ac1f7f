//! The threads inside the gate: a count, and a bit that keeps newcomers out.

use super::atomic::{AtomicU32, Ordering::SeqCst};
use std::marker::PhantomData;

/// How threads sleep on a word.
pub trait Sleep {
    /// Sleeps until `word` is woken, if it still holds `value`. May return at any time.
    fn wait(word: &AtomicU32, value: u32);
    /// Wakes all threads that sleep on `word`.
    fn wake(word: &AtomicU32);
}

/// See the module.
#[derive(Debug)]
pub(super) struct Count<S> {
    /// Work under way, plus `CLOSED` while a fork waits or runs.
    inside: AtomicU32,
    sleep: PhantomData<fn() -> S>,
}

const CLOSED: u32 = 1 << 31;

impl<S: Sleep> Count<S> {
    pub(super) fn new() -> Count<S> {
        Count { inside: AtomicU32::new(0), sleep: PhantomData }
    }

    pub(super) fn is_entered(&self) -> bool {
        self.inside.load(SeqCst) != 0
    }

    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.inside.load(SeqCst) & CLOSED != 0
    }

    pub(super) fn enter(&self) {
        loop {
            let now = self.inside.load(SeqCst);
            if now & CLOSED != 0 {
                S::wait(&self.inside, now);
            } else if self.inside.compare_exchange_weak(now, now + 1, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }

    pub(super) fn leave(&self) {
        if self.inside.fetch_sub(1, SeqCst) == CLOSED + 1 {
            S::wake(&self.inside);
        }
    }

    pub(super) fn close(&self) {
        loop {
            let now = self.inside.load(SeqCst);
            if now & CLOSED != 0 {
                S::wait(&self.inside, now);
            } else if self.inside.compare_exchange_weak(now, now | CLOSED, SeqCst, SeqCst).is_ok() {
                break;
            }
        }
        loop {
            let now = self.inside.load(SeqCst);
            if now == CLOSED {
                return;
            }
            S::wait(&self.inside, now);
        }
    }

    pub(super) fn open(&self) {
        self.inside.store(0, SeqCst);
        S::wake(&self.inside);
    }
}
