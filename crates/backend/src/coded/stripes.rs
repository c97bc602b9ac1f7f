//! The table of stripes, and the places of their units.
//!
//! ```text
//! location = stripe × k + data page
//! stripe = k + m units, each `Zeros` (a data page that was never stored), `Lost`, or at a place of its own at one node
//! ```
//! **Invariant**: the parity pages are those of what lies at the places of the data units, also of those that are *stale*: freed by
//! the program and not written again. Places change while their stripe is held, and one thread holds a stripe at a time. A place
//! of a page in use changes only when what lies there is lost or wrong.

use super::code::ErasureCode;
use crate::Location;
use crate::sync::lock;
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Stored pages beyond the least that the pages in use need, in percent, from which on stale places are written again.
const WASTE_PERCENT: u64 = 25;

/// Where a unit of a stripe lies: a shard and a location there, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnitLocation(u64);

impl UnitLocation {
    /// A data page of zeros that takes no room.
    pub(super) const ZEROS: UnitLocation = UnitLocation(u64::MAX);
    /// A unit that is to be computed from the others.
    pub(super) const LOST: UnitLocation = UnitLocation(u64::MAX - 1);

    pub(super) fn at(shard: usize, location: Location) -> UnitLocation {
        debug_assert!(shard < crate::NODES_MAX);
        UnitLocation((shard as u64) << Location::BITS | location.0)
    }

    /// The shard and the location there, of what lies somewhere.
    pub(super) fn get(self) -> Option<(usize, Location)> {
        let is_somewhere = self != UnitLocation::ZEROS && self != UnitLocation::LOST;
        let shard = usize::try_from(self.0 >> Location::BITS).unwrap_or(usize::MAX);
        is_somewhere.then_some((shard, Location(self.0 & ((1 << Location::BITS) - 1))))
    }

    pub(super) fn shard(self) -> Option<usize> {
        self.get().map(|(shard, _)| shard)
    }
}

/// See the module.
pub(super) struct Stripes {
    code: ErasureCode,
    rows: Mutex<Rows>,
    /// A stripe is not held any more.
    released: Condvar,
}

#[derive(Default)]
struct Rows {
    /// The units of all stripes, k + m each.
    places: Vec<UnitLocation>,
    states: Vec<State>,
    /// Numbers of stripes that have ended.
    vacant: Vec<u32>,
    /// Stripes with room that no thread holds, by the number of free data pages.
    roomy: BTreeSet<(u32, u32)>,
    /// Pages in use, and units that take room.
    used: u64,
    stored: u64,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// One bit for each data page in use.
    used: u8,
    held: bool,
    /// Loads from units' own places that are under way: what is lost there is not freed meanwhile.
    pins: u16,
}

/// A stripe that one thread holds, and its units when it took it.
pub(super) struct HeldStripe {
    pub(super) number: u32,
    pub(super) places: Vec<UnitLocation>,
    /// One bit for each data page in use then.
    pub(super) used: u8,
}

/// What a look for stripes with missing units has found.
pub(super) struct Look {
    pub(super) held: Option<HeldStripe>,
    /// Where its missing units lay.
    pub(super) gone: Vec<UnitLocation>,
    /// Others had hold of a stripe, or loaded from it: it is to be looked at again.
    pub(super) passed_by: bool,
    /// There is no shard now for what a stripe lacks.
    pub(super) hopeless: bool,
    /// Where to go on; `None`: that was the last.
    pub(super) next: Option<u32>,
}

impl Stripes {
    pub(super) fn new(code: ErasureCode) -> Stripes {
        Stripes { code, rows: Mutex::default(), released: Condvar::new() }
    }

    /// Where pages in use lie, until `unpin`: so long their stripes are not repaired.
    pub(super) fn pin(&self, locations: impl Iterator<Item = Location>) -> Vec<UnitLocation> {
        let mut rows = lock(&self.rows);
        let place = |location| {
            let (number, unit) = self.split(location);
            rows.states[number as usize].pins += 1;
            rows.places[number as usize * self.code.units() + unit]
        };
        locations.map(place).collect()
    }

    /// Ends what `pin` began.
    pub(super) fn unpin(&self, locations: impl Iterator<Item = Location>) {
        let mut rows = lock(&self.rows);
        for location in locations {
            let (number, _) = self.split(location);
            rows.states[number as usize].pins -= 1;
        }
    }

    /// The stripe and the data page that a location names.
    pub(super) fn split(&self, location: Location) -> (u32, usize) {
        let data = self.code.data() as u64;
        let number = u32::try_from(location.0 / data).expect("a location of ours");
        (number, usize::try_from(location.0 % data).expect("small"))
    }

    /// The location of a data page.
    pub(super) fn location(&self, number: u32, unit: usize) -> Location {
        Location(u64::from(number) * self.code.data() as u64 + unit as u64)
    }

    /// Holds a new stripe without pages.
    pub(super) fn hold_new(&self) -> Option<HeldStripe> {
        let (data, units) = (self.code.data(), self.code.units());
        let mut rows = lock(&self.rows);
        let number = match rows.vacant.pop() {
            Some(number) => number,
            None => {
                let number = u32::try_from(rows.states.len()).ok().filter(|number| *number < u32::MAX)?;
                rows.states.push(State::default());
                rows.places.resize((number as usize + 1) * units, UnitLocation::LOST);
                number
            }
        };
        // Who has loaded the last of its former pages may still have a pin.
        let state = &mut rows.states[number as usize];
        (state.used, state.held) = (0, true);
        let row = &mut rows.places[number as usize * units..][..units];
        row[..data].fill(UnitLocation::ZEROS);
        row[data..].fill(UnitLocation::LOST);
        Some(HeldStripe { number, places: row.to_vec(), used: 0 })
    }

    /// Holds the stripe with most room, if so much is stale that its places should be written again.
    pub(super) fn hold_roomy(&self) -> Option<HeldStripe> {
        let (data, units) = (self.code.data() as u64, self.code.units() as u64);
        let mut rows = lock(&self.rows);
        if rows.stored * data * 100 <= rows.used * units * (100 + WASTE_PERCENT) {
            return None;
        }
        let (_, number) = rows.roomy.pop_last()?;
        Some(rows.hold(number, self.code))
    }

    /// Holds a stripe, when no other thread does.
    pub(super) fn hold(&self, number: u32) -> HeldStripe {
        let mut rows = lock(&self.rows);
        while rows.states[number as usize].held {
            rows = self.released.wait(rows).unwrap_or_else(PoisonError::into_inner);
        }
        rows.leave_roomy(number, self.code);
        rows.hold(number, self.code)
    }

    /// Looks at up to `count` stripes from `number` on for one that has pages in use and whose units that are `missing` can be stored
    /// anew at one of the shards `there`, one bit each; and holds it. The missing units are `LOST` from then on, so that nobody
    /// begins to load them, and none does now: where they lay is free.
    pub(super) fn hold_next(
        &self,
        number: u32,
        count: u32,
        there: u32,
        missing: impl Fn(UnitLocation) -> bool,
    ) -> Look {
        let units = self.code.units();
        let mut rows = lock(&self.rows);
        let end = u32::try_from(rows.states.len()).unwrap_or(u32::MAX);
        let next = number.saturating_add(count);
        let mut look = Look { held: None, gone: Vec::new(), passed_by: false, hopeless: false, next: Some(next) };
        for number in number..end.min(next) {
            let State { used, held, pins } = rows.states[number as usize];
            let places = &mut rows.places[number as usize * units..][..units];
            if used == 0 && !held {
                continue;
            }
            let has_all = !places.iter().any(|place| missing(*place));
            if held || !has_all && pins > 0 {
                look.passed_by = true;
                continue;
            }
            if has_all {
                continue;
            }
            let left = places.iter().filter(|place| !missing(**place)).filter_map(|place| place.shard());
            if left.fold(there, |free, shard| free & !(1 << shard)) == 0 {
                look.hopeless = true;
                continue;
            }
            let lost = places.iter_mut().filter(|place| missing(**place));
            let gone =
                lost.map(|place| std::mem::replace(place, UnitLocation::LOST)).filter(|place| place.get().is_some());
            look.gone = gone.collect();
            rows.stored -= look.gone.len() as u64;
            rows.leave_roomy(number, self.code);
            look.held = Some(rows.hold(number, self.code));
            look.next = Some(number + 1);
            return look;
        }
        look.next = look.next.filter(|next| *next < end);
        look
    }

    /// Ends the hold: the units now lie at `held.places`, and data pages `stored` are in use, too. Returns what is to be freed: what
    /// lay at other places before, and everything of a stripe without pages.
    pub(super) fn release(&self, held: HeldStripe, stored: u8) -> Vec<UnitLocation> {
        self.release_under(lock(&self.rows), held, stored)
    }

    /// The same, of a stripe with a unit that is wrong: it is lost from then on; unless more than `own` loads are under way, of which one may
    /// read it: then it stays for a later load to find, for its place would be another page's.
    pub(super) fn release_wrong(&self, mut held: HeldStripe, unit: usize, own: usize) -> Vec<UnitLocation> {
        let rows = lock(&self.rows);
        if usize::from(rows.states[held.number as usize].pins) <= own {
            held.places[unit] = UnitLocation::LOST;
        }
        self.release_under(rows, held, 0)
    }

    fn release_under(&self, mut rows: MutexGuard<'_, Rows>, held: HeldStripe, stored: u8) -> Vec<UnitLocation> {
        let units = self.code.units();
        let HeldStripe { number, places, .. } = held;
        let first = number as usize * units;
        let before = rows.places[first..first + units].to_vec();
        let gone = before.iter().zip(&places).filter(|(before, now)| before != now).map(|(before, _)| *before);
        let mut gone: Vec<UnitLocation> = gone.filter(|place| place.get().is_some()).collect();
        rows.places[first..first + units].copy_from_slice(&places);
        let there = |places: &[UnitLocation]| places.iter().filter(|place| place.get().is_some()).count() as u64;
        rows.stored = rows.stored + there(&places) - there(&before);
        rows.used += u64::from(stored.count_ones());
        rows.states[number as usize].used |= stored;
        rows.states[number as usize].held = false;
        rows.link_or_end(number, self.code, &mut gone);
        drop(rows);
        self.released.notify_all();
        gone
    }

    /// Frees pages; returns what is to be freed at the shards.
    pub(super) fn free(&self, locations: &[Location]) -> Vec<UnitLocation> {
        let mut gone = Vec::new();
        let mut rows = lock(&self.rows);
        for location in locations {
            let (number, unit) = self.split(*location);
            let state = rows.states[number as usize];
            assert!(state.used & 1 << unit != 0, "{location:?} was freed twice");
            if !state.held {
                rows.leave_roomy(number, self.code);
            }
            rows.states[number as usize].used &= !(1 << unit);
            rows.used -= 1;
            if !state.held {
                rows.link_or_end(number, self.code, &mut gone);
            }
        }
        gone
    }

    /// Whether a page in use is among the units that are `missing`, and too many are to compute it.
    pub(super) fn cannot_give(&self, location: Location, missing: impl Fn(UnitLocation) -> bool) -> bool {
        let ((number, unit), units) = (self.split(location), self.code.units());
        let rows = lock(&self.rows);
        let places = &rows.places[number as usize * units..][..units];
        missing(places[unit]) && places.iter().filter(|place| missing(**place)).count() > self.code.parity()
    }

    /// Bytes of the table.
    pub(super) fn table_bytes(&self) -> u64 {
        let rows = lock(&self.rows);
        (rows.places.capacity() * size_of::<UnitLocation>()
            + rows.states.capacity() * size_of::<State>()
            + rows.vacant.capacity() * size_of::<u32>()
            + rows.roomy.len() * 16) as u64
    }
}

impl Rows {
    fn hold(&mut self, number: u32, code: ErasureCode) -> HeldStripe {
        let state = &mut self.states[number as usize];
        state.held = true;
        let places = self.places[number as usize * code.units()..][..code.units()].to_vec();
        HeldStripe { number, places, used: state.used }
    }

    fn free_pages(&self, number: u32, code: ErasureCode) -> u32 {
        (0..code.data()).map(|unit| u32::from(self.states[number as usize].used & 1 << unit == 0)).sum()
    }

    fn leave_roomy(&mut self, number: u32, code: ErasureCode) {
        let free = self.free_pages(number, code);
        self.roomy.remove(&(free, number));
    }

    /// Puts a stripe that no thread holds where it belongs: one without pages ends.
    fn link_or_end(&mut self, number: u32, code: ErasureCode, gone: &mut Vec<UnitLocation>) {
        let free = self.free_pages(number, code);
        if free as usize == code.data() {
            let row = &mut self.places[number as usize * code.units()..][..code.units()];
            let there = row.iter().copied().filter(|place| place.get().is_some());
            let before = gone.len();
            gone.extend(there);
            row.fill(UnitLocation::LOST);
            self.stored -= (gone.len() - before) as u64;
            self.vacant.push(number);
        } else if free > 0 {
            self.roomy.insert((free, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_wrong_stays_while_others_load_from_its_stripe() {
        let stripes = Stripes::new("2+1".parse().expect("a code"));
        let mut held = stripes.hold_new().expect("there is none");
        for (shard, place) in held.places.iter_mut().enumerate() {
            *place = UnitLocation::at(shard, Location(7));
        }
        let number = held.number;
        assert!(stripes.release(held, 0b11).is_empty());
        let page = || std::iter::once(stripes.location(number, 1));
        let [place, again] = [stripes.pin(page()), stripes.pin(page())];
        assert_eq!(place, again);
        assert!(stripes.release_wrong(stripes.hold(number), 1, 1).is_empty(), "another load reads it");
        stripes.unpin(page());
        assert_eq!(stripes.release_wrong(stripes.hold(number), 1, 1), place);
        assert_eq!(stripes.pin(page()), [UnitLocation::LOST]);
    }
}
