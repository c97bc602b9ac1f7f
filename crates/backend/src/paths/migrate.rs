//! Moves the oldest pages of a path to others, in batches.
//!
//! Pages are read and written without the lock. A page that is loaded meanwhile stays (it is in use); one that is freed
//! meanwhile is dropped at the end of its move.

use super::Paths;
use super::batch::to_be_stored;
use super::table::{Handle, Outcome, PathLocation, Which};
use crate::mapping::Mapping;
use crate::sync::lock;
use crate::{LoadItem, Location, Priority, StoreError};
use hinterland_abi::PlacementName;
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::Ordering::Relaxed;

/// Pages in one batch: 512 KiB, a few large writes.
pub(super) const BATCH_PAGES: usize = 128;

/// Room for one batch.
pub(super) struct Staging {
    mapping: Mapping,
    pages: usize,
}

impl Staging {
    pub(super) const RAM_BYTES: u64 = (BATCH_PAGES * PAGE_BYTES) as u64;

    pub(super) fn new() -> Staging {
        Staging::of(BATCH_PAGES)
    }

    /// Room for so many pages.
    pub(super) fn of(pages: usize) -> Staging {
        let mapping = Mapping::reserve(pages * PAGE_BYTES).expect("a few pages of address space");
        Staging { mapping, pages }
    }

    pub(super) fn pages(&mut self) -> &mut [PageBytes] {
        // SAFETY: the mapping is this long, aligned to pages, zeroed by the kernel, and borrowed exclusively through
        // `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at(0).cast::<PageBytes>(), self.pages) }
    }
}

/// A page on its way.
pub(super) struct Moving {
    pub(super) handle: Handle,
    pub(super) from: PathLocation,
    pub(super) loaded: bool,
    pub(super) stored: Result<PathLocation, StoreError>,
}

impl Moving {
    /// One whose move has begun.
    pub(super) fn begun((handle, from): (Handle, PathLocation)) -> Moving {
        Moving { handle, from, loaded: false, stored: to_be_stored() }
    }
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moved {
    /// Pages that have left the path.
    pub(super) moved: usize,
    /// Pages that it does not give back.
    pub(super) unreadable: usize,
    /// Those that have left, had been promoted, and were not loaded since.
    pub(super) promoted: usize,
}

/// Stores pages that have no place yet.
type Put<'a> = &'a dyn Fn(&[&PageBytes], &mut [Result<PathLocation, StoreError>]);

impl Paths {
    /// Demotes up to `pages` of the first path's oldest pages; returns how many left it.
    pub fn demote(&self, pages: usize) -> usize {
        self.order().first().map_or(0, |first| self.demote_from(*first, pages))
    }

    /// Demotes up to `pages` of the oldest pages of a path; returns how many left it. Makes room below as needed.
    pub(super) fn demote_from(&self, path: usize, pages: usize) -> usize {
        let below = self.below(path);
        if below.is_empty() {
            return 0;
        }
        let put = |pages: &[&PageBytes], out: &mut [Result<PathLocation, StoreError>]| {
            self.put(&below, pages, Priority::WriteBack, out);
            let full = out.iter().filter(|place| matches!(place, Err(StoreError::Full { .. }))).count();
            // A second time after room was made below; what then does not fit stays. Where the order of tiers may change, two threads could wait
            // for each other's room.
            if full > 0
                && self.placement == PlacementName::Tiers
                && below.iter().map(|below| self.demote_from(*below, full)).sum::<usize>() > 0
            {
                self.put(&below, pages, Priority::WriteBack, out);
            }
        };
        let mut left = 0;
        while left < pages {
            let Moved { moved, promoted, .. } =
                self.move_batch(path, (pages - left).min(BATCH_PAGES), Which::Oldest, &put);
            left += moved;
            if moved == 0 {
                break;
            }
            self.promotion.demoted(promoted);
        }
        if let Some(path) = self.enter(path) {
            path.demoted_pages.fetch_add(left as u64, Relaxed);
        }
        left
    }

    /// Demotes pages from RAM until `bytes` of it are free, or nothing more can go; returns what was won.
    pub(super) fn demote_ram(&self, bytes: u64) -> u64 {
        let ram = || self.open().map(|path| path.backend.ram_bytes()).sum::<u64>();
        let before = ram();
        let won = || before.saturating_sub(ram());
        let order = self.tiers().concat();
        for (at, path) in order.iter().copied().enumerate().rev() {
            let below_is_ram = self.below(path).into_iter().all(|below| self.costs_ram(below));
            if !self.costs_ram(path) || below_is_ram {
                continue;
            }
            while won() < bytes && self.demote_from(path, BATCH_PAGES) > 0 {}
            // Upper RAM tiers drain into this one, which then drains further down.
            for upper in order[..at].iter().copied().rev() {
                while won() < bytes
                    && self.demote_from(upper, BATCH_PAGES) > 0
                    && self.demote_from(path, BATCH_PAGES) > 0
                {}
            }
        }
        won()
    }

    /// Moves up to `pages` of the oldest or youngest pages of a path, a batch at most, to where `put` stores them.
    pub(super) fn move_batch(&self, path: usize, pages: usize, which: Which, put: Put<'_>) -> Moved {
        self.staging[path].with(|staging| self.move_batch_by(staging, path, pages, which, put))
    }

    fn move_batch_by(&self, staging: &mut Staging, path: usize, pages: usize, which: Which, put: Put<'_>) -> Moved {
        let started = self.table.start_moves(&mut lock(&self.lists), path, pages.min(staging.pages), which);
        let mut batch: Vec<Moving> = started.into_iter().map(Moving::begun).collect();
        let priority = if which == Which::Youngest { Priority::Migration } else { Priority::WriteBack };
        self.load_batch(path, &mut batch, staging.pages(), priority);
        store_batch(&mut batch, staging.pages(), put);
        self.finish_batch(&batch, which == Which::Youngest)
    }

    pub(super) fn load_batch(&self, path: usize, batch: &mut [Moving], pages: &mut [PageBytes], priority: Priority) {
        let Some(path) = self.enter(path).filter(|_| !batch.is_empty()) else { return };
        let mut items: Vec<LoadItem<'_>> =
            batch.iter().zip(pages).map(|(moving, into)| LoadItem { location: moving.from.location, into }).collect();
        path.backend.load(&mut items, priority, &mut |index, result| {
            // A page that cannot be read stays where it is: the load that needs it reports why.
            batch[index].loaded = result.is_ok();
        });
    }

    /// Enters the new places and frees what is no longer used. A page that was not demoted stays as old as it was; one that was not promoted,
    /// or cannot be read, is the youngest: it was just used, or is to be tried last.
    pub(super) fn finish_batch(&self, batch: &[Moving], are_promoted: bool) -> Moved {
        let (mut left, mut unused, mut promoted): (Vec<PathLocation>, Vec<PathLocation>, usize) =
            (Vec::new(), Vec::new(), 0);
        let mut lists = lock(&self.lists);
        // Backwards, so that pages that go back to the old end keep their order.
        for moving in batch.iter().rev() {
            let Moving { handle, from, loaded, ref stored } = *moving;
            let (outcome, to) = match stored {
                Ok(to) => (self.table.finish_move(&mut lists, handle, from, *to, are_promoted), Some(*to)),
                Err(_) => (self.table.abandon_move(&mut lists, handle, from, are_promoted || !loaded), None),
            };
            if outcome != Outcome::Kept {
                left.push(from);
            }
            match (to, outcome) {
                (Some(to), Outcome::Moved { was_promoted }) => {
                    promoted += usize::from(was_promoted);
                    if are_promoted {
                        self.count_promoted(to);
                    }
                }
                (Some(to), _) => unused.push(to),
                (None, _) => {}
            }
        }
        drop(lists);
        left.chunk_by(|one, next| one.path == next.path).for_each(|left| {
            let locations: Vec<Location> = left.iter().map(|place| place.location).collect();
            self.free_at(left[0].path, &locations);
        });
        unused.iter().for_each(|place| self.free_at(place.path, &[place.location]));
        let unreadable = batch.iter().filter(|moving| !moving.loaded).count();
        Moved { moved: left.len(), unreadable, promoted }
    }
}

impl Paths {
    fn count_promoted(&self, to: PathLocation) {
        if let Some(path) = self.enter(to.path) {
            path.promoted_pages.fetch_add(1, Relaxed);
        }
    }
}

/// Stores the pages of a batch that were loaded by `put`, and notes where they are.
pub(super) fn store_batch(
    batch: &mut [Moving],
    pages: &[PageBytes],
    put: impl FnOnce(&[&PageBytes], &mut [Result<PathLocation, StoreError>]),
) {
    let loaded: Vec<usize> = (0..batch.len()).filter(|index| batch[*index].loaded).collect();
    let contents: Vec<&PageBytes> = loaded.iter().map(|index| &pages[*index]).collect();
    let mut places = vec![to_be_stored(); contents.len()];
    put(&contents, &mut places);
    loaded.into_iter().zip(places).for_each(|(index, place)| batch[index].stored = place);
}
