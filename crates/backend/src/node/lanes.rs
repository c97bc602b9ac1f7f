//! A bounded set of lanes, made when first needed.

use super::lane::Lane;
use super::trouble::NodeTrouble;
use crate::sync::lock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

/// Lanes of one sort.
pub(super) struct Lanes {
    entries: Vec<Mutex<Option<Lane>>>,
    made: AtomicUsize,
    next: AtomicUsize,
}

impl Lanes {
    /// At most `size` lanes.
    pub(super) fn new(size: usize) -> Lanes {
        Lanes {
            entries: (0..size).map(|_| Mutex::new(None)).collect(),
            made: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Calls `work` with a lane that nobody else uses meanwhile. Prefers low entries, so that few lanes are made; waits for one
    /// when all are in use, or when no further one can be made (a program that forbids itself new connections goes on).
    /// A lane that fails is closed.
    pub(super) fn with<R>(
        &self,
        connect: impl Fn() -> Result<Lane, NodeTrouble>,
        work: impl FnOnce(&mut Lane) -> Result<R, NodeTrouble>,
    ) -> Result<R, NodeTrouble> {
        for entry in &self.entries {
            let mut entry = match entry.try_lock() {
                Ok(entry) => entry,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if entry.is_none() {
                match connect() {
                    Ok(lane) => {
                        self.made.fetch_add(1, Relaxed);
                        *entry = Some(lane);
                    }
                    Err(_) if self.made.load(Relaxed) > 0 => break,
                    Err(trouble) => return Err(trouble),
                }
            }
            return self.work_with(&mut entry, work);
        }
        // Lanes are made from the lowest entry on.
        let made = self.made.load(Relaxed).clamp(1, self.entries.len());
        let mut entry = lock(&self.entries[self.next.fetch_add(1, Relaxed) % made]);
        if entry.is_none() {
            *entry = Some(connect()?);
            self.made.fetch_add(1, Relaxed);
        }
        self.work_with(&mut entry, work)
    }

    fn work_with<R>(
        &self,
        entry: &mut Option<Lane>,
        work: impl FnOnce(&mut Lane) -> Result<R, NodeTrouble>,
    ) -> Result<R, NodeTrouble> {
        let result = work(entry.as_mut().expect("made by the caller"));
        if result.as_ref().is_err_and(|trouble| !trouble.is_full()) {
            *entry = None;
            self.made.fetch_sub(1, Relaxed);
        }
        result
    }

    /// Keeps a lane that was made elsewhere. Nobody uses any now.
    pub(super) fn keep(&self, lane: Lane) {
        *lock(&self.entries[0]) = Some(lane);
        self.made.store(1, Relaxed);
    }

    /// Closes all lanes. Nobody uses one now.
    pub(super) fn reset(&self) {
        self.entries.iter().for_each(|entry| *lock(entry) = None);
        self.made.store(0, Relaxed);
    }

    /// How many there are.
    pub(super) fn made(&self) -> usize {
        self.made.load(Relaxed)
    }
}
