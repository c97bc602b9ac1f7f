//! `tiers`: several backends in order, pages going down as the upper ones fill.
//!
//! New pages go to the first tier. When a tier is full its oldest pages are demoted in batches by the storing thread; only
//! when the last tier is full the caller is told so. **Invariant**: at any moment a page's row names one place where its
//! bytes are whole; a load pins the row, and a demotion changes it only while it is not pinned.

mod demote;
mod table;

use crate::sync::{FREED_AT_ONCE, Pool, lock};
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Priority, StoreError};
use demote::{BATCH_PAGES, Staging};
use hinterland_units::PageBytes;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use table::{Handle, Lists, Place, TIERS_MAX, Table};

/// Demotions out of one tier that can be under way at once; more threads wait. Each tier has its own room: a demotion that
/// makes room below waits for the room of a lower tier only, so no two wait for each other.
const DEMOTIONS_MAX: usize = 2;
/// Rounds of demotion before a page goes to the next tier directly: enough to empty slabs of other size classes.
const ROUNDS_MAX: usize = 8;

/// Backends in the order of preference.
pub struct Tiers {
    tiers: Vec<Arc<dyn Backend>>,
    table: Table,
    lists: Mutex<Lists>,
    staging: Vec<Pool<Staging>>,
}

impl Tiers {
    /// Composes 1 to 16 backends.
    ///
    /// # Errors
    /// The address space for the table cannot be reserved.
    pub fn new(tiers: Vec<Arc<dyn Backend>>) -> io::Result<Tiers> {
        assert!((1..=TIERS_MAX).contains(&tiers.len()), "{} tiers", tiers.len());
        let lists = Mutex::new(Lists::new(tiers.len()));
        let staging = tiers.iter().map(|_| Pool::new(DEMOTIONS_MAX, Staging::new)).collect();
        Ok(Tiers { tiers, table: Table::new()?, lists, staging })
    }

    /// Stores what `out` still says is full; what goes in is entered in the table.
    fn store_into(
        &self,
        tier: usize,
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        let wanted: Vec<usize> = (0..pages.len()).filter(|index| out[*index].is_err()).collect();
        let subset: Vec<&PageBytes> = wanted.iter().map(|index| pages[*index]).collect();
        let mut answers = vec![Ok(Location(0)); subset.len()];
        self.tiers[tier].store(&subset, priority, &mut answers);
        let mut lists = lock(&self.lists);
        for (index, answer) in wanted.into_iter().zip(answers) {
            out[index] = answer.map(|location| {
                let handle = self.table.insert(&mut lists, Place { tier, location });
                Location(u64::from(handle.expect("more pages than the far range has")))
            });
        }
    }

    /// Calls `load` of each tier with its items; the tier of the first item first.
    fn load_split(
        &self,
        items: &mut [LoadItem<'_>],
        places: &[Option<Place>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let first = places.iter().flatten().next().map_or(0, |place| place.tier);
        let order = std::iter::once(first).chain((0..self.tiers.len()).filter(|tier| *tier != first));
        for tier in order {
            let mut indices = Vec::new();
            let mut subset = Vec::new();
            for (index, (item, place)) in items.iter_mut().zip(places).enumerate() {
                if let Some(place) = place.filter(|place| place.tier == tier) {
                    indices.push(index);
                    subset.push(LoadItem { location: place.location, into: item.into });
                }
            }
            if !subset.is_empty() {
                self.tiers[tier].load(&mut subset, priority, &mut |inner, result| done(indices[inner], result));
            }
        }
    }
}

/// The row that a location names.
fn handle_of(location: Location) -> Handle {
    Handle::try_from(location.0).expect("a location of this backend")
}

impl Backend for Tiers {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        let to_be_stored = StoreError::Device { url: String::new(), errno: 0 };
        out.fill(Err(to_be_stored));
        for tier in 0..self.tiers.len() {
            self.store_into(tier, pages, priority, out);
            let is_full = |answer: &Result<Location, StoreError>| matches!(answer, Err(StoreError::Full { .. }));
            for _ in 0..ROUNDS_MAX {
                let missing = out.iter().filter(|answer| is_full(answer)).count();
                if missing == 0 || self.demote_from(tier, missing.max(BATCH_PAGES)) == 0 {
                    break;
                }
                self.store_into(tier, pages, priority, out);
            }
            if out.iter().all(Result::is_ok) {
                return;
            }
        }
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let outer: Vec<Location> = items.iter().map(|item| item.location).collect();
        let places: Vec<Option<Place>> = outer.iter().map(|at| self.table.pin(handle_of(*at))).collect();
        for (index, place) in places.iter().enumerate() {
            if place.is_none() {
                let what = "nothing is stored there (freed, or never stored)";
                done(index, Err(LoadError::Damaged { url: "tiers".into(), location: outer[index], what }));
            }
        }
        self.load_split(items, &places, priority, done);
        for location in outer {
            self.table.unpin(handle_of(location));
        }
    }

    fn free(&self, locations: &[Location]) {
        let mut freed: Vec<Vec<Location>> = vec![Vec::new(); self.tiers.len()];
        for batch in locations.chunks(FREED_AT_ONCE) {
            let mut lists = lock(&self.lists);
            for location in batch {
                if let Some(place) = self.table.remove(&mut lists, handle_of(*location)) {
                    freed[place.tier].push(place.location);
                }
            }
        }
        for (tier, locations) in self.tiers.iter().zip(freed) {
            if !locations.is_empty() {
                tier.free(&locations);
            }
        }
    }

    fn descriptors_if_confined(&self) -> Option<Vec<RawFd>> {
        let each: Option<Vec<Vec<RawFd>>> = self.tiers.iter().map(|tier| tier.descriptors_if_confined()).collect();
        each.map(|descriptors| descriptors.concat())
    }

    fn copies_cost_ram(&self) -> bool {
        self.tiers.iter().any(|tier| tier.copies_cost_ram())
    }

    fn ram_bytes(&self) -> u64 {
        let staging = self.staging.iter().map(|pool| pool.made() as u64).sum::<u64>() * Staging::RAM_BYTES;
        let tables = lock(&self.lists).ram_bytes();
        self.tiers.iter().map(|tier| tier.ram_bytes()).sum::<u64>() + tables + staging
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let first = rows.len();
        for tier in &self.tiers {
            tier.usage(rows);
        }
        // The tables belong to all; the first row carries them, so that the sum is right.
        let own = self.ram_bytes().saturating_sub(rows[first..].iter().map(|row| row.ram_bytes).sum());
        rows[first].ram_bytes += own;
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let handle = handle_of(item.location);
        let place = self.table.pin(handle).expect("a page that was just loaded");
        let inner = LoadItem { location: place.location, into: item.into };
        let repaired = self.tiers[place.tier].repair(inner, right);
        self.table.unpin(handle);
        repaired
    }

    fn needs_maintenance(&self) -> bool {
        self.tiers.iter().any(|tier| tier.needs_maintenance())
    }

    fn maintain(&self) -> Option<Duration> {
        self.tiers.iter().filter_map(|tier| tier.maintain()).min()
    }

    fn shrink_ram(&self, bytes: u64) -> u64 {
        self.demote_ram(bytes)
    }

    fn before_fork(&self) {
        for tier in &self.tiers {
            tier.before_fork();
        }
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        self.tiers.iter().try_for_each(|tier| tier.after_fork(side))
    }
}
