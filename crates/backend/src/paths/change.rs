//! Paths that open and close while the program runs.
//!
//! What is wanted is the list of URLs of the start with all changes since (`hinterland_abi::PathChange`), so it does not matter how many
//! changes came at once, or when. Maintenance makes the open paths those, a step at a time: first it opens, then it takes paths out of the
//! placement, moves their pages to the others in batches, and closes those that no row names any more. A path that cannot be opened keeps
//! those that were to go: their pages might find no room. For the same reason a path that is being emptied takes pages that no other takes.
//! Where all places are taken, paths that are to go make place one after the other, each for one that comes.

use super::duty_cycle::Mark;
use super::migrate::{BATCH_PAGES, Moved};
use super::path::Path;
use super::pipeline::{Pipeline, ROOM_PAGES};
use super::{PATHS_MAX, Paths, Slot};
use crate::Backend;
use crate::sync::lock;
use hinterland_abi::PathChange;
use hinterland_sys::confinement;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

/// Between two attempts to do what could not be done.
const RETRY: Duration = Duration::from_millis(500);
/// Pages that are in use at this moment are looked at again after so long.
const BUSY: Duration = Duration::from_millis(5);

/// Opens what a URL describes; what a byte in it costs relative to RAM. Else why not.
pub(crate) type Opener = Box<dyn Fn(&str) -> Result<(Arc<dyn Backend>, f64), String> + Send + Sync>;

/// What is wanted.
#[derive(Default)]
pub(super) struct Wanted {
    version: u64,
    changes: Vec<PathChange>,
    /// Why it is not so yet; empty: it is being done.
    obstacle: String,
    /// When the next step is due, once there was one.
    due: Option<Instant>,
}

/// Changes as a process with the paths `given` is to read them. Where an empty list of URLs stood for its paths (`is_default`), each process of
/// a run has filled in sizes by what was free when it started: a path that is dropped by another process's name for it is the one of its kind.
pub(crate) fn as_given(is_default: bool, given: &[String], changes: &[PathChange]) -> Vec<PathChange> {
    let kind = |url: &str| url.split([':', '?']).next().map(str::to_owned);
    let is_known = |url: &String| given.contains(url) || changes.contains(&PathChange::Add(url.clone()));
    let read = |change: &PathChange| match change {
        PathChange::Drop(url) if is_default && !is_known(url) => {
            let same = given.iter().find(|other| kind(other) == kind(url));
            PathChange::Drop(same.unwrap_or(url).clone())
        }
        change => change.clone(),
    };
    changes.iter().map(read).collect()
}

impl Paths {
    /// Makes `changes` since the start, of this version, in the background: see [`Backend::maintain`].
    pub fn change(&self, version: u64, changes: Vec<PathChange>) {
        *lock(&self.wanted) = Wanted { version, changes, obstacle: String::new(), due: None };
        self.is_changing.store(true, Release);
    }

    /// The version of the changes that are wanted.
    pub fn wanted_version(&self) -> u64 {
        lock(&self.wanted).version
    }

    /// The version of the changes that were made last, and nothing is left of the paths that were dropped.
    pub fn changed_version(&self) -> u64 {
        self.changed.load(SeqCst)
    }

    /// Why changes are not made yet; empty: they are being made, or all were.
    pub fn obstacle(&self) -> String {
        lock(&self.wanted).obstacle.clone()
    }

    /// Takes one step towards the paths that are wanted; returns when the next is due, `None`: nothing is left to be done.
    pub(super) fn change_step(&self) -> Option<Duration> {
        if !self.is_changing.load(Relaxed) {
            return None;
        }
        let (version, mut urls) = {
            let wanted = lock(&self.wanted);
            // Another task of maintenance may be due earlier.
            let rest = wanted.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()));
            if !rest.is_zero() {
                return Some(rest);
            }
            let mut urls = self.given.clone();
            PathChange::apply_all(&as_given(self.is_default, &self.given, &wanted.changes), &mut urls);
            (wanted.version, urls)
        };
        let step = self.step_towards(&mut urls);
        let mut wanted = lock(&self.wanted);
        if wanted.version != version {
            return Some(Duration::ZERO);
        }
        let pause = match step {
            Ok(None) => {
                wanted.obstacle.clear();
                *lock(&self.emptying) = None;
                self.changed.store(version, SeqCst);
                self.is_changing.store(false, Release);
                None
            }
            Ok(Some(pause)) => {
                wanted.obstacle.clear();
                Some(pause)
            }
            Err(obstacle) => {
                wanted.obstacle = obstacle;
                Some(RETRY)
            }
        };
        wanted.due = pause.map(|pause| Instant::now() + pause);
        pause
    }

    /// One step; `Ok(None)`: the open paths are those of `urls`.
    fn step_towards(&self, urls: &mut Vec<String>) -> Result<Option<Duration>, String> {
        let mut dropped: Vec<usize> = Vec::new();
        for path in self.order() {
            let url = self.enter(path).map(|path| path.url.clone()).unwrap_or_default();
            match urls.iter().position(|other| *other == url) {
                Some(at) => drop(urls.remove(at)),
                None => dropped.push(path),
            }
        }
        // What is left is not open.
        if let Some(url) = urls.first() {
            let leaving = if self.vacant_slot().is_none() { self.makes_place(&dropped) } else { None };
            return match leaving {
                Some(path) => self.empty_path(path),
                None => self.open_path(url).map(|()| Some(Duration::ZERO)),
            };
        }
        if dropped.len() == self.order().len() {
            return Err("the last path to far memory cannot be dropped".into());
        }
        self.leave(&dropped);
        self.leaving().first().map_or(Ok(None), |first| self.empty_path(*first))
    }

    /// A place without a path; one that never had any, if there is one.
    fn vacant_slot(&self) -> Option<usize> {
        let vacant = |slot: &usize| self.enter(*slot).is_none();
        let was_used = |slot: &usize| matches!(*self.slot(*slot), Slot::Closed(_));
        (0..PATHS_MAX).filter(vacant).min_by_key(was_used)
    }

    /// The path that is emptied to make place for another: one that has left already, or of those that are to go, if others stay meanwhile, the
    /// one with the fewest pages, which leaves now.
    fn makes_place(&self, dropped: &[usize]) -> Option<usize> {
        if let Some(leaving) = self.leaving().first() {
            return Some(*leaving);
        }
        let pages = |path: &&usize| self.enter(**path).map(|path| path.pages.load(SeqCst));
        let path = *dropped.iter().filter(|_| self.order().len() > 1).min_by_key(pages)?;
        self.leave(&[path]);
        Some(path)
    }

    fn open_path(&self, url: &str) -> Result<(), String> {
        let slot = self.vacant_slot().ok_or_else(|| format!("{PATHS_MAX} paths are open; drop one first"))?;
        let confined = || Err("the program has confined itself, so nothing can be opened here".into());
        let (backend, price) = confinement::with_files(|| (self.opener)(url)).unwrap_or_else(confined)?;
        let mut guard = self.slots[slot].write().unwrap_or_else(PoisonError::into_inner);
        *guard = Slot::Open(Box::new(Path::new(url.to_owned(), backend, price).placed(self.placement)));
        drop(guard);
        lock(&self.order).push(slot);
        lock(&self.ranking).is_due = true;
        self.tiers();
        self.look_at_costs();
        Ok(())
    }

    /// Takes paths out of the placement: no more pages are stored there but those that are on their way.
    fn leave(&self, dropped: &[usize]) {
        if !dropped.is_empty() {
            lock(&self.order).retain(|path| !dropped.contains(path));
            lock(&self.ranking).is_due = true;
            self.tiers();
        }
    }

    /// Moves a batch of pages away from a path that takes none any more, or closes it.
    fn empty_path(&self, path: usize) -> Result<Option<Duration>, String> {
        let mark = || {
            let served = self.served.load(Relaxed);
            let demanded = self.demanded.load(Relaxed);
            Mark::now(demanded, demanded > served)
        };
        let (Moved { moved, unreadable, .. }, refused, rest) = {
            let mut emptying = lock(&self.emptying);
            let pipeline = emptying.get_or_insert_with(Pipeline::new);
            // Another task of maintenance may be due earlier.
            let rest = pipeline.duty_cycle.left_of_rest(Instant::now());
            if !rest.is_zero() {
                return Ok(Some(rest));
            }
            pipeline.duty_cycle.begin(mark());
            let batch_pages = if pipeline.duty_cycle.is_needed() { BATCH_PAGES } else { ROOM_PAGES };
            if pipeline.path.replace(path) != Some(path) {
                pipeline.duty_cycle.begin_anew();
            }
            let (moved, refused) = self.move_on(pipeline, path, batch_pages);
            let left = self.enter(path).map_or(0, |path| path.pages.load(SeqCst));
            let rest = pipeline.duty_cycle.end(mark(), moved.moved, left);
            if refused.is_some() || moved.moved == 0 && moved.unreadable > 0 {
                pipeline.duty_cycle.begin_anew();
            }
            (moved, refused, rest)
        };
        if moved > 0 {
            return Ok(Some(rest));
        }
        let url = self.enter(path).map(|path| path.url.clone()).unwrap_or_default();
        let pages = self.enter(path).map_or(0, |path| path.pages.load(SeqCst));
        match refused {
            Some(error) => Err(format!("{pages} pages on {url} have no other place: {error}")),
            None if unreadable > 0 => {
                Err(format!("{pages} pages cannot be moved from {url}: it does not give them back"))
            }
            None if pages > 0 => Ok(Some(BUSY)),
            None if self.close(path) => {
                // Another path may get its number.
                lock(&self.emptying).iter_mut().for_each(|pipeline| pipeline.path = None);
                Ok(Some(Duration::ZERO))
            }
            None => Ok(Some(BUSY)),
        }
    }

    /// In the child of a fork: what paths did that are closed is its parent's.
    pub(super) fn forget_closed(&self) {
        for slot in &self.slots {
            let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
            if matches!(*slot, Slot::Closed(_)) {
                *slot = Slot::Empty;
            }
        }
    }

    /// Closes a path that has no pages; false: a thread is in it.
    fn close(&self, path: usize) -> bool {
        let Ok(mut slot) = self.slots[path].try_write() else { return false };
        let closed = match &*slot {
            Slot::Open(path) if path.pages.load(SeqCst) == 0 => {
                let mut rows = Vec::new();
                path.usage(0, &mut rows);
                rows.iter_mut().for_each(|row| (row.ram_bytes, row.capacity_bytes) = (0, 0));
                rows
            }
            _ => return false,
        };
        let gone = std::mem::replace(&mut *slot, Slot::Closed(closed));
        drop(slot);
        // No thread waits for the close.
        drop(gone);
        self.look_at_costs();
        true
    }
}
