//! Shares of the machine: a ticket counter, served in the order in which tests ask, so that one that needs all is not passed by
//! for ever.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a test needs of the machine while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// It keeps a processor busy, but while it pages: five at a time on two processors.
    Busy,
    /// It waits most of the time: for a disk, a link, a time-out, a process that sleeps. Twice as many at a time.
    Waits,
    /// Nothing else may run: it looks at what others would change, or reports times.
    Alone,
}

/// The machine's shares.
pub struct Shares {
    all: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    /// The next ticket, and the ticket whose turn it is.
    next: u64,
    turn: u64,
}

/// A share that a test has taken.
pub struct Taken<'a> {
    shares: &'a Shares,
    count: usize,
}

impl Shares {
    /// Of a machine with so many processors.
    pub fn of(processors: usize) -> Shares {
        let all = 5 * processors;
        Shares { all, state: Mutex::new(State { free: all, next: 0, turn: 0 }), changed: Condvar::new() }
    }

    /// As many tests can run at most.
    pub fn threads(&self) -> usize {
        self.all
    }

    /// Waits for a share.
    pub fn take(&self, share: Share) -> Taken<'_> {
        let count = match share {
            Share::Busy => 2,
            Share::Waits => 1,
            Share::Alone => self.all,
        };
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        while state.turn != ticket || state.free < count {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.free -= count;
        state.turn += 1;
        self.changed.notify_all();
        Taken { shares: self, count }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.shares.lock().free += self.count;
        self.shares.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_than_all_shares_are_out_and_alone_is_alone() {
        let (shares, out) = (Shares::of(2), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 0..24 {
                let (shares, out) = (&shares, &out);
                scope.spawn(move || {
                    let (share, count) = [(Share::Busy, 2), (Share::Waits, 1), (Share::Alone, shares.all)][number % 3];
                    for _ in 0..50 {
                        let _held = shares.take(share);
                        assert!(out.fetch_add(count, Ordering::SeqCst) + count <= shares.all);
                        std::thread::yield_now();
                        out.fetch_sub(count, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(shares.lock().free, shares.all);
    }
}
