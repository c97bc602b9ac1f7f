//! Locks and pools that survive fork and foreign threads: no thread-local state, no destructors at thread exit.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What one hold of a lock frees at most, where others wait for it: a few microseconds.
pub(crate) const FREED_AT_ONCE: usize = 64;

/// Locks `mutex`. A poisoned lock is taken as it is: a panic has already been reported, and release builds abort.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As `lock`, unless another thread has it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A bounded set of reusable objects, made when first needed. Used where other code would keep one object per thread.
pub(crate) struct Pool<T> {
    entries: Vec<Mutex<Option<T>>>,
    next: AtomicUsize,
    made: AtomicUsize,
    make: Box<dyn Fn() -> T + Send + Sync>,
}

impl<T> Pool<T> {
    /// A pool of at most `size` objects.
    pub(crate) fn new(size: usize, make: impl Fn() -> T + Send + Sync + 'static) -> Pool<T> {
        assert!(size > 0, "a pool needs an entry");
        let entries = (0..size).map(|_| Mutex::new(None)).collect();
        Pool { entries, next: AtomicUsize::new(0), made: AtomicUsize::new(0), make: Box::new(make) }
    }

    /// Calls `use_it` with an object that no other thread uses meanwhile. Prefers low entries, so that few objects are
    /// made and those stay in the cache; waits for one when all are in use.
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        let mut entry = self.take();
        use_it(entry.get_or_insert_with(|| {
            self.made.fetch_add(1, Relaxed);
            (self.make)()
        }))
    }

    fn take(&self) -> MutexGuard<'_, Option<T>> {
        if let Some(guard) = self.entries.iter().find_map(try_lock) {
            return guard;
        }
        lock(&self.entries[self.next.fetch_add(1, Relaxed) % self.entries.len()])
    }

    /// Drops all objects; new ones are made when needed. None is in use now.
    pub(crate) fn reset(&self) {
        for entry in &self.entries {
            *lock(entry) = None;
        }
        self.made.store(0, Relaxed);
    }

    /// How many objects exist.
    pub(crate) fn made(&self) -> usize {
        self.made.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_needs_one_object() {
        let pool = Pool::new(4, || 0u32);
        for _ in 0..10 {
            pool.with(|n| *n += 1);
        }
        assert_eq!(pool.with(|n| *n), 10);
        assert_eq!(pool.made(), 1);
    }

    #[test]
    fn users_never_share_an_object() {
        let pool = Pool::new(2, || 0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| pool.with(|n| *n += 1)));
            }
        });
        let total: u64 = pool.entries.iter().map(|entry| lock(entry).unwrap_or(0)).sum();
        assert_eq!(total, 4000);
    }
}
