//! A bounded set of lanes, made when first needed.

use super::lane::Lane;
use super::trouble::NodeTrouble;
use crate::sync::lock;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Lanes of one sort.
pub(super) struct Lanes {
    entries: Vec<Mutex<Option<Lane>>>,
    made: AtomicUsize,
    next: AtomicUsize,
}

/// A lane that nobody else uses until this is dropped.
pub(super) struct Taken<'a> {
    entry: MutexGuard<'a, Option<Lane>>,
    lanes: &'a Lanes,
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

    /// A lane. Prefers low entries, so that few lanes are made; waits for one when all are in use, or when no further one can be
    /// made (a program that forbids itself new connections goes on).
    ///
    /// # Errors
    /// What `connect` says.
    pub(super) fn take(&self, connect: impl Fn() -> Result<Lane, NodeTrouble>) -> Result<Taken<'_>, NodeTrouble> {
        for entry in &self.entries {
            let entry = match entry.try_lock() {
                Ok(entry) => entry,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            let taken = Taken { entry, lanes: self };
            match taken.connected(&connect) {
                Err(_) if self.made.load(Relaxed) > 0 => break,
                other => return other,
            }
        }
        // Lanes are made from the lowest entry on.
        let made = self.made.load(Relaxed).clamp(1, self.entries.len());
        let entry = lock(&self.entries[self.next.fetch_add(1, Relaxed) % made]);
        Taken { entry, lanes: self }.connected(&connect)
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

    /// Closes the lanes that nobody uses now.
    pub(super) fn close_idle(&self) {
        for entry in &self.entries {
            if let Ok(mut entry) = entry.try_lock()
                && entry.take().is_some()
            {
                self.made.fetch_sub(1, Relaxed);
            }
        }
    }

    /// How many there are.
    pub(super) fn made(&self) -> usize {
        self.made.load(Relaxed)
    }
}

impl<'a> Taken<'a> {
    /// With a connection, if there was none.
    fn connected(mut self, connect: impl Fn() -> Result<Lane, NodeTrouble>) -> Result<Taken<'a>, NodeTrouble> {
        if self.entry.is_none() {
            *self.entry = Some(connect()?);
            self.lanes.made.fetch_add(1, Relaxed);
        }
        Ok(self)
    }

    /// Closes it: it is out of step with the node.
    pub(super) fn close(mut self) {
        *self.entry = None;
        self.lanes.made.fetch_sub(1, Relaxed);
    }
}

impl Deref for Taken<'_> {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.entry.as_ref().expect("made when it was taken")
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Lane {
        self.entry.as_mut().expect("made when it was taken")
    }
}
