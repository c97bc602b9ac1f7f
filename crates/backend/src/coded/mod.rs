//! Erasure coding: pages in stripes of k, with m parity pages, every stripe unit at another shard. Any k units give the others, so m
//! shards may be lost, for (k + m) / k of the memory; N replicas take N times.
//!
//! ```text
//! a store:   pages ──► new stripes (stale places first, when there are many) ──► parity ──► k + m shards      (store)
//! a load:    from the one shard that has the page; when it cannot: k other units, and arithmetic           (load)
//! lost shards: what lay there is computed from the others and stored elsewhere, in the background          (repair)
//! ```
//! A page is one unit, whole: so a load of one page asks one node (Carbink §3.2; Hydra cuts pages, and asks k). Units
//! are never overwritten. A second store to a stripe puts new units beside the old ones, and frees the old ones when
//! the table names the new ones, so that the table names one consistent stripe at any moment.
//!
//! Stale pages, those that were freed while others of their stripe are in use, take room until their stripe is written again or ends. That
//! is done as soon as a quarter more is stored than the pages in use need, and costs loads of the pages that stay.
//!
//! Sources: Reed-Solomon codes (Reed and Solomon 1960; the arithmetic is a library's); stripes of whole pages and of whole spans
//! (Zhou et al., Carbink, OSDI 2022).

mod code;
mod load;
mod repair;
mod store;
mod stripes;

use crate::node::{NodePool, Timing};
use crate::shard::Shard;
use crate::sync::lock;
use crate::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Priority, StoreError};
use code::Arithmetic;
pub use code::ErasureCode;
use hinterland_units::{PAGE_BYTES, PageBytes};
use repair::Repair;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use stripes::{HeldStripe, Stripes, UnitLocation};

/// Pages in stripes over shards.
pub struct Coded<S: Shard = NodePool> {
    url: String,
    code: ErasureCode,
    arithmetic: Arithmetic,
    shards: Vec<S>,
    timing: Timing,
    stripes: Stripes,
    /// Units are lost, or may be.
    degraded: AtomicBool,
    repair: Mutex<Repair>,
}

impl<S: Shard> Coded<S> {
    /// Spreads stripes over `shards`; `url` names all of it in messages.
    ///
    /// # Panics
    /// Fewer shards than the units of a stripe, or more than `NODES_MAX`.
    pub fn new(url: String, shards: Vec<S>, code: ErasureCode, timing: Timing) -> Coded<S> {
        assert!((code.units()..=crate::NODES_MAX).contains(&shards.len()), "{code} over {} shards", shards.len());
        Coded {
            url,
            code,
            arithmetic: Arithmetic::new(code),
            shards,
            timing,
            stripes: Stripes::new(code),
            degraded: AtomicBool::new(false),
            repair: Mutex::default(),
        }
    }

    /// Whether no unit is known to be lost, and none is being looked for.
    pub fn is_repaired(&self) -> bool {
        !self.degraded.load(Relaxed) && !lock(&self.repair).under_way
    }

    /// Frees units at their shards.
    fn free_places(&self, gone: &[UnitLocation]) {
        let mut freed = vec![Vec::new(); self.shards.len()];
        for (shard, location) in gone.iter().filter_map(|place| place.get()) {
            freed[shard].push(location);
        }
        for (shard, locations) in self.shards.iter().zip(freed).filter(|(_, locations)| !locations.is_empty()) {
            shard.free(&locations);
        }
    }

    /// Ends the hold on a stripe, and frees what it does not need any more.
    fn release(&self, held: HeldStripe, stored: u8) {
        let gone = self.stripes.release(held, stored);
        self.free_places(&gone);
    }

    /// The same, of a stripe with a unit that is wrong: see [`Stripes::release_wrong`].
    fn release_wrong(&self, held: HeldStripe, unit: usize, own: usize) {
        let gone = self.stripes.release_wrong(held, unit, own);
        self.free_places(&gone);
    }

    /// The shards that can be used now, one bit each.
    fn there(&self) -> u32 {
        let there = (0..self.shards.len()).filter(|shard| self.shards[*shard].is_there());
        there.fold(0, |there, shard| there | 1 << shard)
    }

    /// Those of them that may have room, one bit each.
    fn roomy(&self) -> u32 {
        let roomy = (0..self.shards.len()).filter(|shard| self.shards[*shard].may_have_room());
        roomy.fold(0, |roomy, shard| roomy | 1 << shard)
    }

    /// How often shards were lost.
    fn losses(&self) -> u64 {
        self.shards.iter().map(|shard| shard.losses()).sum()
    }

    fn is_lost(&self, place: UnitLocation) -> bool {
        place == UnitLocation::LOST
            || place.get().is_some_and(|(shard, location)| self.shards[shard].has_lost(location))
    }
}

impl<S: Shard> Backend for Coded<S> {
    fn store(&self, pages: &[&PageBytes], priority: Priority, out: &mut [Result<Location, StoreError>]) {
        assert_eq!(pages.len(), out.len(), "one answer for each page");
        self.store_pages(pages, priority, out);
    }

    fn load(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        self.load_pages(items, priority, done);
    }

    fn repair(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        self.load_right(item, right)
    }

    fn has_losses(&self) -> bool {
        self.degraded.load(Relaxed) || self.shards.iter().any(|shard| shard.has_losses())
    }

    fn has_lost(&self, location: Location) -> bool {
        self.stripes.cannot_give(location, |place| self.is_lost(place))
    }

    fn free(&self, locations: &[Location]) {
        let gone = self.stripes.free(locations);
        self.free_places(&gone);
    }

    fn demand_width(&self) -> usize {
        self.shards.iter().map(|shard| shard.demand_width()).sum()
    }

    fn copies_cost_ram(&self) -> bool {
        self.shards.iter().any(|shard| shard.copies_cost_ram())
    }

    fn ram_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.ram_bytes()).sum::<u64>() + self.stripes.table_bytes()
    }

    fn usage(&self, rows: &mut Vec<BackendUsage>) {
        let first = rows.len();
        for shard in &self.shards {
            shard.usage(rows);
        }
        rows[first].ram_bytes += self.stripes.table_bytes();
    }

    fn needs_maintenance(&self) -> bool {
        self.degraded.load(Relaxed) || self.shards.iter().any(|shard| shard.needs_maintenance())
    }

    fn maintain(&self) -> Option<Duration> {
        let shards = self.shards.iter().filter_map(|shard| shard.maintain()).min();
        shards.into_iter().chain(self.repair_step()).min()
    }

    fn before_fork(&self) {
        self.shards.iter().for_each(|shard| shard.before_fork());
    }

    fn after_fork(&self, side: ForkSide) -> Result<(), StoreError> {
        let errors = self.shards.iter().filter_map(|shard| shard.after_fork(side).err());
        let mut errors: Vec<StoreError> = errors.collect();
        if !errors.is_empty() {
            self.degraded.store(true, Relaxed);
        }
        // What is lost at so many can be computed.
        if errors.len() <= self.code.parity() { Ok(()) } else { Err(errors.remove(0)) }
    }
}

/// Room for so many pages.
fn rooms(count: usize) -> Vec<PageBytes> {
    vec![[0; PAGE_BYTES]; count]
}
