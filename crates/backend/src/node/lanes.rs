//! A bounded set of lanes, made when first needed.

use super::lane::Lane;
use crate::node_error::NodeError;
use crate::sync::lock;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// The content of an entry, unless it is in use.
fn idle(entry: &Mutex<Option<Lane>>) -> Option<MutexGuard<'_, Option<Lane>>> {
    match entry.try_lock() {
        Ok(entry) => Some(entry),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Lanes of one sort.
pub(super) struct Lanes {
    entries: Vec<Mutex<Option<Lane>>>,
    made: AtomicUsize,
    next: AtomicUsize,
    /// Lanes that owe an answer.
    debts: Arc<AtomicUsize>,
    /// A lane out of step that the link keeps until there is another.
    out_of_step: OutOfStepLane,
}

/// See `Lanes`.
pub(super) type OutOfStepLane = Arc<Mutex<Option<Lane>>>;

/// A lane that no other thread uses until this is dropped.
pub(super) struct Taken<'a> {
    entry: MutexGuard<'a, Option<Lane>>,
    lanes: &'a Lanes,
}

impl Lanes {
    /// At most `size` lanes. The first one ends `out_of_step`.
    pub(super) fn new(size: usize, out_of_step: &OutOfStepLane) -> Lanes {
        Lanes {
            entries: (0..size).map(|_| Mutex::new(None)).collect(),
            made: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            debts: Arc::default(),
            out_of_step: out_of_step.clone(),
        }
    }

    /// A lane that is not in use and owes nothing; if there is none, a new one. Waits for one when all are in use, or
    /// when no further one can be made (a program that forbids itself new connections goes on).
    ///
    /// # Errors
    /// What `connect` says when there is no lane at all.
    pub(super) fn take(&self, connect: impl Fn() -> Result<Lane, NodeError>) -> Result<Taken<'_>, NodeError> {
        let mut refused = None;
        loop {
            let vacant = match self.free() {
                Ok(taken) => return Ok(taken),
                Err(vacant) => vacant,
            };
            if let Some(entry) = vacant.filter(|_| refused.is_none()) {
                match connect() {
                    Ok(lane) => return Ok(self.add(entry, lane)),
                    Err(error) => refused = Some(error),
                }
            }
            if let Some(error) = refused.as_ref().filter(|_| self.made.load(Relaxed) == 0) {
                return Err(error.clone());
            }
            // In turn, so that not all wait for the same one.
            let first = self.next.fetch_add(1, Relaxed);
            let mut entries = (0..self.entries.len()).map(|n| &self.entries[(first + n) % self.entries.len()]);
            let entry = entries.find(|entry| idle(entry).is_none_or(|entry| entry.is_some())).map(lock);
            if let Some(entry) = entry.filter(|entry| entry.is_some()) {
                return Ok(Taken { entry, lanes: self });
            }
            // Who had it has closed it.
        }
    }

    /// A lane that is not in use and owes nothing; if there is none, a place for one, if there is any.
    fn free(&self) -> Result<Taken<'_>, Option<MutexGuard<'_, Option<Lane>>>> {
        let mut vacant = None;
        for entry in self.entries.iter().filter_map(idle) {
            match &*entry {
                Some(lane) if lane.owes() => {}
                Some(_) => return Ok(Taken { entry, lanes: self }),
                None => _ = vacant.get_or_insert(entry),
            }
        }
        Err(vacant)
    }

    /// As `take`, but does not wait for a lane that is in use: `None` then, or when `connect` fails.
    pub(super) fn take_idle(&self, connect: impl FnOnce() -> Result<Lane, NodeError>) -> Option<Taken<'_>> {
        let entry = match self.free() {
            Ok(taken) => return Some(taken),
            Err(vacant) => vacant?,
        };
        Some(self.add(entry, connect().ok()?))
    }

    fn add<'a>(&'a self, mut entry: MutexGuard<'a, Option<Lane>>, lane: Lane) -> Taken<'a> {
        *entry = Some(lane);
        // In this order: see `Link::part_with`.
        self.made.fetch_add(1, Relaxed);
        *lock(&self.out_of_step) = None;
        Taken { entry, lanes: self }
    }

    /// Whether one of them owes an answer that has not come yet; `late` is told for how long. Those that have come are thrown away, and lanes
    /// whose answer does not come are closed: their connection may be dead where the node is not.
    pub(super) fn owe(&self, late: impl Fn(Duration)) -> bool {
        if self.debts.load(Relaxed) == 0 {
            return false;
        }
        for mut entry in self.entries.iter().filter_map(idle) {
            let Some(lane) = entry.as_mut().filter(|lane| lane.owes()) else { continue };
            let owes_for = lane.owes_for();
            owes_for.into_iter().for_each(&late);
            let limit = lane.limit();
            let is_over = owes_for.map_or_else(|| lane.take_owed().is_err(), |time| time > limit);
            if is_over {
                *entry = None;
                self.made.fetch_sub(1, Relaxed);
            }
        }
        self.debts.load(Relaxed) > 0
    }

    /// Keeps a lane that was made elsewhere. None is in use now.
    pub(super) fn keep(&self, lane: Lane) {
        *lock(&self.entries[0]) = Some(lane);
        self.made.store(1, Relaxed);
    }

    /// Closes all lanes. None is in use now.
    pub(super) fn reset(&self) {
        self.entries.iter().for_each(|entry| *lock(entry) = None);
        self.made.store(0, Relaxed);
    }

    /// Closes the lanes that are not in use.
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

impl Taken<'_> {
    /// Whether it is one of these.
    pub(super) fn is_of(&self, lanes: &Lanes) -> bool {
        std::ptr::eq(self.lanes, lanes)
    }

    /// See `Lane::leave_owed`.
    pub(super) fn leave_owed(mut self, bytes: usize, since: Instant, slab: Arc<()>) {
        let debts = self.lanes.debts.clone();
        self.deref_mut().leave_owed(bytes, since, slab, &debts);
    }

    /// Closes it: it is out of step with the node.
    pub(super) fn close(self) {
        drop(self.take_out());
    }

    /// Takes it out of the set.
    pub(super) fn take_out(mut self) -> Lane {
        self.lanes.made.fetch_sub(1, Relaxed);
        self.entry.take().expect("made when it was taken")
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
