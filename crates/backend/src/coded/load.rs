//! Loads: from the shard that has the page, or, when that one cannot, out of k other units of its stripe.

use super::stripes::{HeldStripe, UnitLocation};
use super::{Coded, Shard, rooms};
use crate::{LoadError, LoadItem, Location, Priority};
use hinterland_units::PageBytes;
use std::sync::atomic::Ordering::Relaxed;

/// An item that could not be loaded from its own place, and why, if that was tried.
type Failed = (usize, Option<LoadError>);

impl<S: Shard> Coded<S> {
    /// Loads `items`; calls `done` once for each.
    pub(super) fn load_pages(
        &self,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        let outer: Vec<Location> = items.iter().map(|item| item.location).collect();
        let places = self.stripes.pin(outer.iter().copied());
        let mut failed: Vec<Failed> =
            (0..items.len()).filter(|index| places[*index].get().is_none()).map(|index| (index, None)).collect();
        // What is to be computed takes longest: it comes last, unless it is what the program waits for.
        if failed.first().is_some_and(|(index, _)| *index == 0) {
            self.compute_all(failed.drain(..1), items, priority, done);
        }
        let first = places.iter().find_map(|place| place.shard()).unwrap_or(0);
        let others = (0..self.shards.len()).filter(|shard| *shard != first);
        for shard in std::iter::once(first).chain(others) {
            let (mut indices, mut subset) = (Vec::new(), Vec::new());
            for (index, (item, place)) in items.iter_mut().zip(&places).enumerate() {
                if let Some((_, location)) = place.get().filter(|(at, _)| *at == shard) {
                    indices.push(index);
                    subset.push(LoadItem { location, into: item.into });
                }
            }
            if subset.is_empty() {
                continue;
            }
            self.shards[shard].load(&mut subset, priority, &mut |inner, page| match page {
                Ok(page) => done(indices[inner], Ok(page)),
                Err(error) => failed.push((indices[inner], Some(error))),
            });
            if let Some(at) = failed.iter().position(|(index, _)| *index == 0) {
                self.compute_all(failed.drain(at..=at), items, priority, done);
            }
        }
        self.compute_all(failed.into_iter(), items, priority, done);
        self.stripes.unpin(outer.into_iter());
    }

    /// Computes the items that could not be loaded from their own places.
    fn compute_all(
        &self,
        failed: impl Iterator<Item = Failed>,
        items: &mut [LoadItem<'_>],
        priority: Priority,
        done: &mut dyn FnMut(usize, Result<&PageBytes, LoadError>),
    ) {
        for (index, error) in failed {
            self.degraded.store(true, Relaxed);
            let (number, _) = self.stripes.split(items[index].location);
            // Each of them has a pin.
            let own = items.iter().filter(|item| self.stripes.split(item.location).0 == number).count();
            let item = &mut items[index];
            match self.compute(item.location, item.into, priority, error, own) {
                Ok(()) => done(index, Ok(item.into)),
                Err(error) => done(index, Err(error)),
            }
        }
    }

    /// Computes a page from other units of its stripe. `error`: why it could not be loaded from its own place; where that has other bytes,
    /// the unit is lost from then on, and stored anew in the background. `own`: loads from the stripe that are the caller's.
    fn compute(
        &self,
        location: Location,
        into: &mut PageBytes,
        priority: Priority,
        error: Option<LoadError>,
        own: usize,
    ) -> Result<(), LoadError> {
        let (number, unit) = self.stripes.split(location);
        let held = self.stripes.hold(number);
        let mut units = StripeUnits::new(self, &held);
        let is_damaged = matches!(error, Some(LoadError::Damaged { .. }));
        if let Some(error) = error {
            units.fail(unit, error);
        }
        let computed = units.load(self.code.data(), priority);
        if computed {
            *into = *units.all_units(None)[unit];
        }
        let error = units.error.take();
        if computed && is_damaged {
            self.release_wrong(held, unit, own);
        } else {
            self.release(held, 0);
        }
        if computed { Ok(()) } else { Err(error.unwrap_or_else(|| self.wrong(location))) }
    }

    /// Loads a page from any units of its stripe that give bytes that are `right`; a unit that is wrong is lost from then on.
    pub(super) fn load_right(&self, item: LoadItem<'_>, right: &dyn Fn(&PageBytes) -> bool) -> Result<(), LoadError> {
        let LoadItem { location, into } = item;
        let (number, unit) = self.stripes.split(location);
        let held = self.stripes.hold(number);
        let mut units = StripeUnits::new(self, &held);
        units.load(self.code.units(), Priority::Demand);
        let mut found = units.known[unit] && right(&units.pages[unit]);
        if found {
            *into = units.pages[unit];
        } else {
            units.known[unit] = false;
            found = units.sets_of(self.code.data()).into_iter().any(|set| {
                let all_units = units.all_units(Some(&set));
                let is_right = right(all_units[unit]);
                if is_right {
                    *into = *all_units[unit];
                }
                is_right
            });
            if found {
                self.degraded.store(true, Relaxed);
                self.release_wrong(held, unit, 0);
                return Ok(());
            }
        }
        self.release(held, 0);
        if found { Ok(()) } else { Err(self.wrong(location)) }
    }

    fn wrong(&self, location: Location) -> LoadError {
        let what = "neither it nor what the other units of its stripe give is what was stored";
        LoadError::Damaged { url: self.url.clone(), location, what }
    }
}

/// The units of a stripe that is held, as far as they are known.
pub(super) struct StripeUnits<'a, S: Shard> {
    coded: &'a Coded<S>,
    places: Vec<UnitLocation>,
    pub(super) pages: Vec<PageBytes>,
    pub(super) known: Vec<bool>,
    failed: Vec<bool>,
    /// Why the first of them could not be loaded.
    pub(super) error: Option<LoadError>,
    all_units: Vec<PageBytes>,
}

impl<'a, S: Shard> StripeUnits<'a, S> {
    pub(super) fn new(coded: &'a Coded<S>, held: &HeldStripe) -> StripeUnits<'a, S> {
        let places = held.places.clone();
        let known = places.iter().map(|place| *place == UnitLocation::ZEROS).collect();
        let failed = vec![false; places.len()];
        let pages = rooms(places.len());
        StripeUnits { coded, places, pages, known, failed, error: None, all_units: Vec::new() }
    }

    /// Notes that a unit cannot be had.
    fn fail(&mut self, unit: usize, error: LoadError) {
        self.failed[unit] = true;
        self.error.get_or_insert(error);
    }

    /// Loads units until so many are known, or no other can be had; whether enough are known to compute the others.
    pub(super) fn load(&mut self, count: usize, priority: Priority) -> bool {
        for unit in 0..self.places.len() {
            if self.known.iter().filter(|known| **known).count() >= count {
                break;
            }
            let Some((shard, location)) = self.places[unit].get().filter(|_| !self.failed[unit]) else { continue };
            let mut outcome = Ok(());
            let mut items = [LoadItem { location, into: &mut self.pages[unit] }];
            self.coded.shards[shard].load(&mut items, priority, &mut |_, page| outcome = page.map(drop));
            match outcome {
                Ok(()) => self.known[unit] = true,
                Err(error) => self.fail(unit, error),
            }
        }
        self.known.iter().filter(|known| **known).count() >= self.coded.code.data()
    }

    /// All units, computed from those of `set`, or from all that are known.
    pub(super) fn all_units(&mut self, set: Option<&[bool]>) -> Vec<&PageBytes> {
        self.all_units.clone_from(&self.pages);
        self.coded.arithmetic.complete(&mut self.all_units, set.unwrap_or(&self.known));
        self.all_units.iter().collect()
    }

    /// The sets of `count` known units.
    fn sets_of(&self, count: usize) -> Vec<Vec<bool>> {
        let bits = |set: u32| (0..self.known.len()).map(move |unit| set & 1 << unit != 0);
        let sets = (0u32..1 << self.known.len()).filter(|set| set.count_ones() as usize == count);
        let is_known = |set: &u32| bits(*set).zip(&self.known).all(|(chosen, known)| !chosen || *known);
        sets.filter(is_known).map(|set| bits(set).collect()).collect()
    }
}
