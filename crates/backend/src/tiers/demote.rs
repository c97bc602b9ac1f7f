//! Moves the oldest pages of a tier to the next, in batches.
//!
//! Pages are read and written without the lock. A page that is loaded meanwhile stays (it is in use); one that is freed
//! meanwhile is dropped at the end of its move.

use super::Tiers;
use super::table::{Handle, Outcome, Place};
use crate::mapping::Mapping;
use crate::sync::lock;
use crate::{LoadItem, Location, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};

/// Pages in one batch: 512 KiB, a few large writes.
pub(super) const BATCH_PAGES: usize = 128;

/// Room for one batch.
pub(super) struct Staging(Mapping);

impl Staging {
    pub(super) const RAM_BYTES: u64 = (BATCH_PAGES * PAGE_BYTES) as u64;

    pub(super) fn new() -> Staging {
        Staging(Mapping::reserve(BATCH_PAGES * PAGE_BYTES).expect("512 KiB of address space"))
    }

    fn pages(&mut self) -> &mut [PageBytes] {
        // SAFETY: the mapping is this long, aligned to pages, zeroed by the kernel, and borrowed exclusively through
        // `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.0.at(0).cast::<PageBytes>(), BATCH_PAGES) }
    }
}

/// A page on its way down.
struct Moving {
    handle: Handle,
    from: Place,
    loaded: bool,
    stored: Option<Result<Place, StoreError>>,
}

impl Tiers {
    /// Demotes up to `pages` of the first tier's oldest pages; returns how many left it.
    pub fn demote(&self, pages: usize) -> usize {
        self.demote_from(0, pages)
    }

    /// Demotes up to `pages` of the oldest pages of `tier`; returns how many left it. Makes room below as needed.
    pub(super) fn demote_from(&self, tier: usize, pages: usize) -> usize {
        if tier + 1 >= self.tiers.len() {
            return 0;
        }
        let mut left = 0;
        while left < pages {
            let moved =
                self.staging[tier].with(|staging| self.demote_batch(tier, (pages - left).min(BATCH_PAGES), staging));
            left += moved;
            if moved == 0 {
                break;
            }
        }
        left
    }

    /// Demotes pages from RAM until `bytes` of it are free, or nothing more can go; returns what was won.
    pub(super) fn demote_ram(&self, bytes: u64) -> u64 {
        let ram = || self.tiers.iter().map(|tier| tier.ram_bytes()).sum::<u64>();
        let before = ram();
        let won = || before.saturating_sub(ram());
        for tier in (0..self.tiers.len()).rev() {
            let below_is_ram = self.tiers.get(tier + 1).is_none_or(|below| below.copies_cost_ram());
            if !self.tiers[tier].copies_cost_ram() || below_is_ram {
                continue;
            }
            while won() < bytes && self.demote_from(tier, BATCH_PAGES) > 0 {}
            // Upper RAM tiers drain into this one, which then drains further down.
            for upper in (0..tier).rev() {
                while won() < bytes
                    && self.demote_from(upper, BATCH_PAGES) > 0
                    && self.demote_from(tier, BATCH_PAGES) > 0
                {}
            }
        }
        won()
    }

    fn demote_batch(&self, tier: usize, pages: usize, staging: &mut Staging) -> usize {
        let started = self.table.start_moves(&mut lock(&self.lists), tier, pages);
        let mut batch: Vec<Moving> =
            started.into_iter().map(|(handle, from)| Moving { handle, from, loaded: false, stored: None }).collect();
        self.load_batch(tier, &mut batch, staging.pages());
        self.store_batch(tier + 1, &mut batch, staging.pages());
        self.finish_batch(tier, &batch)
    }

    fn load_batch(&self, tier: usize, batch: &mut [Moving], pages: &mut [PageBytes]) {
        let mut items: Vec<LoadItem<'_>> =
            batch.iter().zip(pages).map(|(moving, into)| LoadItem { location: moving.from.location, into }).collect();
        self.tiers[tier].load(&mut items, Priority::WriteBack, &mut |index, result| {
            // A page that cannot be read stays where it is: whoever needs it will be told why.
            batch[index].loaded = result.is_ok();
        });
    }

    fn store_batch(&self, tier: usize, batch: &mut [Moving], pages: &[PageBytes]) {
        let loaded: Vec<usize> = (0..batch.len()).filter(|index| batch[*index].loaded).collect();
        let mut attempt = loaded;
        // A second time after room was made below; what then does not fit stays.
        for round in 0..2 {
            let subset: Vec<&PageBytes> = attempt.iter().map(|index| &pages[*index]).collect();
            let mut answers = vec![Ok(Location(0)); subset.len()];
            self.tiers[tier].store(&subset, Priority::WriteBack, &mut answers);
            for (index, answer) in attempt.iter().zip(answers) {
                batch[*index].stored = Some(answer.map(|location| Place { tier, location }));
            }
            attempt.retain(|index| matches!(batch[*index].stored, Some(Err(StoreError::Full { .. }))));
            if attempt.is_empty() || round > 0 || self.demote_from(tier, attempt.len()) == 0 {
                break;
            }
        }
    }

    /// Enters the new places and frees what is no longer used; returns how many pages left the tier.
    fn finish_batch(&self, tier: usize, batch: &[Moving]) -> usize {
        let mut left = 0;
        let mut free_above: Vec<Location> = Vec::new();
        let mut free_below: Vec<Location> = Vec::new();
        let mut lists = lock(&self.lists);
        // Backwards, so that pages that go back to the old end keep their order.
        for moving in batch.iter().rev() {
            let Moving { handle, from, loaded, ref stored } = *moving;
            let (outcome, to) = match stored {
                Some(Ok(to)) => (self.table.finish_move(&mut lists, handle, from, *to), Some(to.location)),
                _ => (self.table.abandon_move(&mut lists, handle, from, !loaded), None),
            };
            if outcome != Outcome::Kept {
                left += 1;
                free_above.push(from.location);
            }
            if outcome != Outcome::Moved {
                free_below.extend(to);
            }
        }
        drop(lists);
        self.tiers[tier].free(&free_above);
        self.tiers[tier + 1].free(&free_below);
        left
    }
}
