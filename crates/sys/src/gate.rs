//! The gate that a fork closes: units of work pass through it, and a fork waits until nobody is inside.
//!
//! Unlike a lock it has no owner, so the child of a fork, where every other thread is gone, simply opens it again.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Counts who is inside; `CLOSED` keeps newcomers out.
#[derive(Debug, Default)]
pub struct Gate {
    /// Work under way, plus `CLOSED` while a fork waits or runs.
    inside: AtomicU32,
}

const CLOSED: u32 = 1 << 31;

/// Somebody is inside the gate until this is dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Gate {
    /// An open gate.
    pub const fn new() -> Gate {
        Gate { inside: AtomicU32::new(0) }
    }

    /// Goes in; waits while the gate is closed.
    pub fn enter(&self) -> Inside<'_> {
        loop {
            let now = self.inside.load(SeqCst);
            if now & CLOSED != 0 {
                futex_wait(&self.inside, now);
            } else if self.inside.compare_exchange_weak(now, now + 1, SeqCst, SeqCst).is_ok() {
                return Inside(self);
            }
        }
    }

    /// Closes the gate and waits until nobody is inside. A second closer waits until the gate is open again.
    pub fn close(&self) {
        loop {
            let now = self.inside.load(SeqCst);
            if now & CLOSED != 0 {
                futex_wait(&self.inside, now);
            } else if self.inside.compare_exchange_weak(now, now | CLOSED, SeqCst, SeqCst).is_ok() {
                break;
            }
        }
        loop {
            let now = self.inside.load(SeqCst);
            if now == CLOSED {
                return;
            }
            futex_wait(&self.inside, now);
        }
    }

    /// Opens the gate: called by the closer, or by the child of its fork.
    pub fn open(&self) {
        self.inside.store(0, SeqCst);
        futex_wake(&self.inside);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.0.inside.fetch_sub(1, SeqCst) == CLOSED + 1 {
            futex_wake(&self.0.inside);
        }
    }
}

/// Sleeps until `word` is woken, if it still holds `value`.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    futex_wait_for(word, value, None);
}

/// As `futex_wait`, at most for `limit`.
pub fn futex_wait_for(word: &AtomicU32, value: u32, limit: Option<std::time::Duration>) {
    let limit = limit.map(|d| libc::timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(d.subsec_nanos()),
    });
    let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` and the time limit are valid for the call; every outcome leads the callers to look again.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, limit_ptr)
    };
}

/// Wakes everybody who sleeps on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    #[test]
    fn nobody_is_inside_while_the_gate_is_closed() {
        let gate = Gate::new();
        let (closed, passes, stop) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        let _inside = gate.enter();
                        assert!(!closed.load(SeqCst));
                        passes.fetch_add(1, SeqCst);
                    }
                });
            }
            // Until the others have passed often enough, however late they start.
            for _ in 0..1_000_000 {
                if passes.load(SeqCst) > 1000 {
                    break;
                }
                gate.close();
                closed.store(true, SeqCst);
                std::thread::yield_now();
                closed.store(false, SeqCst);
                gate.open();
                std::thread::yield_now();
            }
            stop.store(true, SeqCst);
        });
        assert!(passes.load(SeqCst) > 1000);
    }
}
