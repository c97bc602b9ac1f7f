//! The eviction policy behind its lock, and the arrivals that wait for it.
//!
//! A thread that evicts holds the lock while it names and marks a batch of victims. A fault that only has an arrival to
//! report does not wait for that: it leaves the arrival here, and the next thread that takes the lock first reports it
//! to the policy. (Waiting cost a sleep of 30 to 50 µs in 1.3 % of all faults of random access: decision 0035.)
//!
//! Invariant: the policy gets all events in the order in which they were reported, except those reported while a thread
//! holds the lock.

use crate::sys::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::sys::sync::{Mutex, MutexGuard, TryLockError};
use hinterland_policy::{Arrival, EvictionPolicy, WithCurve};
use hinterland_units::PageNo;
use std::ops::{Deref, DerefMut};

/// Arrivals that may wait: several batches, so that hardly any thread finds no room. One that finds none waits for the lock.
const WAITING_MAX: usize = 1024;

/// See the module.
pub(crate) struct PolicyLock {
    policy: Mutex<Policy>,
    /// Never grows: a signal handler may report.
    waiting: Mutex<Vec<(PageNo, Arrival)>>,
    /// Something is in `waiting`.
    some_wait: AtomicBool,
}

struct Policy {
    policy: WithCurve,
    /// Takes the place of `waiting` while that is told. Empty otherwise.
    told: Vec<(PageNo, Arrival)>,
}

/// The policy, locked, and told of all that waited.
pub(crate) struct Locked<'a>(MutexGuard<'a, Policy>);

impl Deref for Locked<'_> {
    type Target = WithCurve;

    fn deref(&self) -> &Self::Target {
        &self.0.policy
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0.policy
    }
}

/// A panic ends the process, so no lock is poisoned.
const NO_PANIC: &str = "no thread panics while it holds the policy: a panic ends the process";

impl PolicyLock {
    pub(crate) fn new(policy: Box<dyn EvictionPolicy>) -> PolicyLock {
        let (policy, told) = (WithCurve::new(policy), Vec::with_capacity(WAITING_MAX));
        PolicyLock {
            policy: Mutex::new(Policy { policy, told }),
            waiting: Mutex::new(Vec::with_capacity(WAITING_MAX)),
            some_wait: AtomicBool::new(false),
        }
    }

    /// The policy.
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.told(self.policy.lock().expect(NO_PANIC))
    }

    /// Tells the policy of arrivals, or leaves them for the next thread that takes its lock.
    pub(crate) fn arrived(&self, pages: impl ExactSizeIterator<Item = PageNo>, how: Arrival) {
        let mut policy = match self.policy.try_lock() {
            Ok(policy) => self.told(policy),
            Err(TryLockError::WouldBlock) => {
                let mut waiting = self.waiting.lock().expect(NO_PANIC);
                if waiting.len() + pages.len() <= WAITING_MAX {
                    waiting.extend(pages.map(|page| (page, how)));
                    self.some_wait.store(true, SeqCst);
                    return;
                }
                drop(waiting);
                self.lock()
            }
            Err(TryLockError::Poisoned(_)) => panic!("{NO_PANIC}"),
        };
        pages.for_each(|page| policy.arrived(page, how));
    }

    /// Tells the policy of what waits.
    fn told<'a>(&self, mut locked: MutexGuard<'a, Policy>) -> Locked<'a> {
        if self.some_wait.load(SeqCst) {
            let Policy { policy, told } = &mut *locked;
            let mut waiting = self.waiting.lock().expect(NO_PANIC);
            std::mem::swap(&mut *waiting, told);
            self.some_wait.store(false, SeqCst);
            drop(waiting);
            told.drain(..).for_each(|(page, how)| policy.arrived(page, how));
        }
        Locked(locked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::{TestThread, blocked};
    use hinterland_policy::make;

    fn policy() -> PolicyLock {
        PolicyLock::new(make("fifo", 4096).unwrap())
    }

    fn pages(range: std::ops::Range<u32>) -> impl ExactSizeIterator<Item = PageNo> {
        range.map(PageNo)
    }

    fn victims(locked: &mut Locked<'_>) -> Vec<u32> {
        let mut out = Vec::new();
        locked.victims(usize::MAX, &mut out);
        out.into_iter().map(|page| page.0).collect()
    }

    #[test]
    fn arrivals_that_waited_are_told_in_order_and_before_anything_else() {
        let policy = policy();
        policy.arrived(pages(5..6), Arrival::Demand);
        let locked = policy.lock();
        policy.arrived(pages(9..11), Arrival::Prefetched);
        policy.arrived(pages(3..4), Arrival::Demand);
        assert_eq!(locked.resident(), 1);
        drop(locked);
        policy.arrived(pages(7..8), Arrival::Demand);
        assert_eq!(victims(&mut policy.lock()), [5, 9, 10, 3, 7]);
        assert_eq!(victims(&mut policy.lock()), [0; 0], "each is told once");
    }

    #[test]
    fn a_thread_that_finds_no_room_waits_for_the_lock() {
        let policy: &'static PolicyLock = Box::leak(Box::new(policy()));
        let locked = policy.lock();
        let max = u32::try_from(WAITING_MAX).unwrap();
        policy.arrived(pages(0..max), Arrival::Demand);
        let late = TestThread::spawn(move || policy.arrived(pages(max..max + 1), Arrival::Demand));
        late.must_wait("the policy's lock", || blocked(late.id).is_futex_in(&policy.policy));
        drop(locked);
        late.must_end();
        assert_eq!(victims(&mut policy.lock()), (0..=max).collect::<Vec<_>>());
    }
}
