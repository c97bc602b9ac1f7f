//! Locks and shared words of this crate's tests: each use is a step of a simulation (`simulated`), or of Loom.

use super::simulated::current;
use std::sync::{LockResult, TryLockError, TryLockResult};

#[cfg(feature = "loom")]
use loom::sync as real;
#[cfg(not(feature = "loom"))]
use std::sync as real;

pub(crate) use real::MutexGuard;

/// As `std::sync::Mutex`. A simulated thread that finds it locked gives its turn away.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(real::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(real::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let Some(current) = current() else { return self.0.lock() };
        loop {
            match self.try_lock() {
                Ok(guard) => {
                    current.waits_for_lock(None);
                    return Ok(guard);
                }
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => {
                    current.waits_for_lock(Some(std::ptr::from_ref(self).addr()));
                    current.yield_now("waits for a lock");
                }
            }
        }
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if let Some(current) = current() {
            current.step(super::simulated::turns::A_WORD, 0);
        }
        self.0.try_lock()
    }
}

/// Sleeps until `word` is woken, if it still holds `value`.
pub(crate) fn futex_wait(word: &atomic::AtomicU32, value: u32) {
    word.futex_wait(value);
}

/// Wakes all threads that sleep on `word`.
pub(crate) fn futex_wake(word: &atomic::AtomicU32) {
    word.futex_wake();
}

/// Words that threads share.
pub(crate) mod atomic {
    #[cfg(not(feature = "loom"))]
    use super::current;
    use super::real::atomic as real;
    pub(crate) use std::sync::atomic::Ordering;

    /// Before an operation, another thread may come.
    #[cfg(not(feature = "loom"))]
    fn step() {
        if let Some(current) = current() {
            current.step(super::super::simulated::turns::A_WORD, 0);
        }
    }

    /// Loom tries all orders by itself.
    #[cfg(feature = "loom")]
    fn step() {}

    /// Before and after a locked instruction: on x86-64 that is a full barrier, and so is a sequentially consistent store. (Loom takes
    /// such an operation for acquire and release alone.)
    fn barrier() {
        #[cfg(feature = "loom")]
        real::fence(Ordering::SeqCst);
    }

    /// The operation between two barriers.
    fn locked<R>(operation: impl FnOnce() -> R) -> R {
        step();
        barrier();
        let result = operation();
        barrier();
        result
    }

    macro_rules! word {
        ($name:ident, $of:ty) => {
            #[derive(Debug, Default)]
            pub(crate) struct $name(real::$name);

            #[allow(dead_code, reason = "not every word is used in every way")]
            impl $name {
                pub(crate) fn new(value: $of) -> $name {
                    $name(real::$name::new(value))
                }
                pub(crate) fn load(&self, order: Ordering) -> $of {
                    step();
                    self.0.load(order)
                }
                pub(crate) fn store(&self, value: $of, order: Ordering) {
                    if order == Ordering::SeqCst {
                        return locked(|| self.0.store(value, order));
                    }
                    step();
                    self.0.store(value, order);
                }
                pub(crate) fn swap(&self, value: $of, order: Ordering) -> $of {
                    locked(|| self.0.swap(value, order))
                }
                pub(crate) fn compare_exchange(
                    &self,
                    from: $of,
                    to: $of,
                    yes: Ordering,
                    no: Ordering,
                ) -> Result<$of, $of> {
                    locked(|| self.0.compare_exchange(from, to, yes, no))
                }
            }
        };
    }

    macro_rules! number {
        ($name:ident, $of:ty) => {
            word!($name, $of);

            #[allow(dead_code, reason = "not every word is used in every way")]
            impl $name {
                pub(crate) fn fetch_add(&self, value: $of, order: Ordering) -> $of {
                    locked(|| self.0.fetch_add(value, order))
                }
                pub(crate) fn fetch_sub(&self, value: $of, order: Ordering) -> $of {
                    locked(|| self.0.fetch_sub(value, order))
                }
                pub(crate) fn fetch_max(&self, value: $of, order: Ordering) -> $of {
                    locked(|| self.0.fetch_max(value, order))
                }
                pub(crate) fn fetch_min(&self, value: $of, order: Ordering) -> $of {
                    locked(|| self.0.fetch_min(value, order))
                }
                pub(crate) fn fetch_or(&self, value: $of, order: Ordering) -> $of {
                    locked(|| self.0.fetch_or(value, order))
                }
                pub(crate) fn fetch_and(&self, value: $of, order: Ordering) -> $of {
                    locked(|| self.0.fetch_and(value, order))
                }
                pub(crate) fn fetch_update(
                    &self,
                    yes: Ordering,
                    no: Ordering,
                    change: impl FnMut($of) -> Option<$of>,
                ) -> Result<$of, $of> {
                    locked(|| self.0.fetch_update(yes, no, change))
                }
            }
        };
    }

    word!(AtomicBool, bool);
    number!(AtomicU16, u16);
    number!(AtomicU32, u32);
    number!(AtomicU64, u64);
    number!(AtomicUsize, usize);

    /// As the real one.
    pub(crate) fn fence(order: Ordering) {
        step();
        real::fence(order);
    }

    #[cfg(not(feature = "loom"))]
    impl AtomicU32 {
        pub(super) fn futex_wait(&self, value: u32) {
            crate::sys::gate::futex_wait(&self.0, value);
        }

        pub(super) fn futex_wake(&self) {
            crate::sys::gate::futex_wake(&self.0);
        }
    }

    #[cfg(feature = "loom")]
    loom::lazy_static! {
        /// Where the threads of a model sleep.
        static ref SLEEPERS: (loom::sync::Mutex<()>, loom::sync::Condvar) = Default::default();
    }

    #[cfg(feature = "loom")]
    impl AtomicU32 {
        pub(super) fn futex_wait(&self, value: u32) {
            let asleep = SLEEPERS.0.lock().expect("no thread panics here");
            if self.0.load(Ordering::SeqCst) == value {
                drop(SLEEPERS.1.wait(asleep).expect("no thread panics here"));
            }
        }

        pub(super) fn futex_wake(&self) {
            let _asleep = SLEEPERS.0.lock().expect("no thread panics here");
            SLEEPERS.1.notify_all();
        }
    }
}

/// Tries all orders of the steps of a model's threads in which these are interrupted at most three times, or
/// `LOOM_MAX_PREEMPTIONS` times.
#[cfg(feature = "loom")]
pub(crate) fn in_all_orders(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}
