//! Stores: pages go to data units of stripes, a group of stripes at a time, so that each shard is asked once for a group, and several
//! before one has answered. A page is stored when its stripe is: all units, or the data units and those for which shards have room.

use super::stripes::{HeldStripe, UnitLocation};
use super::{Coded, Shard, rooms};
use crate::{LoadItem, Location, Priority, StoreError};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// Stripes that are written together.
const GROUP: usize = 16;
/// Shards that are asked before the first of them has answered; each takes its part of the caller's stack.
const AT_ONCE: usize = 6;

/// A stripe that gets pages.
struct Write<'a> {
    held: HeldStripe,
    /// The new pages: the data unit that each becomes, its number in the call, its bytes.
    new: Vec<(usize, usize, &'a PageBytes)>,
    /// Bytes of the data units that stay, in their order.
    kept: Vec<(usize, PageBytes)>,
    parity: Vec<PageBytes>,
    /// The new units, data and parity.
    placing: Vec<Placing>,
}

/// A new unit on its way to a shard.
struct Placing {
    unit: usize,
    /// Shards that did not take it, one bit each.
    tried: u32,
    error: Option<StoreError>,
    place: Option<UnitLocation>,
}

/// What one shard is to store.
struct Part<'a> {
    shard: usize,
    pages: Vec<&'a PageBytes>,
    answers: Vec<Result<Location, StoreError>>,
}

impl Write<'_> {
    fn page(&self, unit: usize) -> &PageBytes {
        let new = self.new.iter().find(|(at, ..)| *at == unit).map(|(.., page)| *page);
        let kept = || self.kept.iter().find(|(at, _)| *at == unit).map(|(_, page)| page);
        let data = self.held.places.len() - self.parity.len();
        let parity = || unit.checked_sub(data).map(|index| &self.parity[index]);
        new.or_else(kept).or_else(parity).unwrap_or(&[0; PAGE_BYTES])
    }

    /// Shards that have a unit of this stripe, of those that stay.
    fn shards(&self) -> u32 {
        let placed = self.placing.iter().filter_map(|placing| placing.place);
        let kept = self.kept.iter().map(|(unit, _)| self.held.places[*unit]);
        placed.chain(kept).filter_map(UnitLocation::shard).fold(0, |shards, shard| shards | 1 << shard)
    }

    /// Whether pages that stay in the stripe would lose parity because shards have no room.
    fn would_lose_parity(&self, data: usize) -> bool {
        let is_refused = |placing: &Placing| matches!(placing.error, Some(StoreError::Full { .. }));
        let lacks = |placing: &Placing| placing.unit >= data && placing.place.is_none() && is_refused(placing);
        self.held.used != 0 && self.placing.iter().any(lacks)
    }

    /// Takes a parity page away that stands where a data page has to go, because there is no other shard left for it.
    fn make_way(&mut self, there: u32) -> Option<UnitLocation> {
        let (taken, data) = (self.shards(), self.held.places.len() - self.parity.len());
        let is_stuck = |placing: &&Placing| {
            let is_waiting = placing.unit < data && placing.place.is_none() && placing.error.is_some();
            is_waiting && there & !taken & !placing.tried == 0
        };
        let tried = self.placing.iter().find(is_stuck)?.tried;
        let stands = |placing: &&mut Placing| {
            let shard = placing.place.and_then(UnitLocation::shard).filter(|_| placing.unit >= data);
            shard.is_some_and(|shard| there & !tried & 1 << shard != 0)
        };
        self.placing.iter_mut().find(stands)?.place.take()
    }
}

impl<S: Shard> Coded<S> {
    /// Stores `pages`; `out` has the outcome of each.
    pub(super) fn store_pages(
        &self,
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
    ) {
        let mut left: VecDeque<usize> = (0..pages.len()).collect();
        let mut only_new = false;
        let losses = self.losses();
        while !left.is_empty() {
            let mut writes = Vec::new();
            while writes.len() < GROUP && !left.is_empty() {
                let roomy = if only_new { None } else { self.stripes.hold_roomy() };
                let Some(held) = roomy.or_else(|| self.stripes.hold_new()) else { break };
                let free = (0..self.code.data()).filter(|unit| held.used & 1 << unit == 0);
                let new = free.map_while(|unit| left.pop_front().map(|index| (unit, index, pages[index]))).collect();
                writes.push(Write { held, new, kept: Vec::new(), parity: Vec::new(), placing: Vec::new() });
            }
            if writes.is_empty() {
                let error = StoreError::Device { url: self.url.clone(), errno: libc::EOVERFLOW };
                left.into_iter().for_each(|index| out[index] = Err(error.clone()));
                return;
            }
            for write in self.load_kept(&mut writes) {
                // Its pages cannot be had now: it is left as it is, and the new pages go elsewhere.
                only_new = true;
                left.extend(write.new.iter().map(|(_, index, _)| *index));
                self.release(write.held, 0);
            }
            for write in &mut writes {
                let data: Vec<&PageBytes> = (0..self.code.data()).map(|unit| write.page(unit)).collect();
                let parity = self.arithmetic.parity(&data);
                write.parity = parity;
                let units = write.new.iter().map(|(unit, ..)| *unit).chain(self.code.data()..self.code.units());
                let placing = |unit| Placing { unit, tried: 0, error: None, place: None };
                write.placing = units.map(placing).collect();
            }
            while self.place_group(&mut writes, priority) {}
            if self.losses() != losses {
                // What went to a shard before it was lost is entered only now.
                self.degraded.store(true, Relaxed);
            }
            for write in writes {
                if write.would_lose_parity(self.code.data()) {
                    only_new = true;
                    left.extend(write.new.iter().map(|(_, index, _)| *index));
                    self.take_back(write);
                } else {
                    self.conclude(write, out);
                }
            }
        }
    }

    /// Loads the pages that stay in the stripes that get new ones; takes out those stripes of which one cannot be loaded.
    fn load_kept<'a>(&self, writes: &mut Vec<Write<'a>>) -> Vec<Write<'a>> {
        for write in writes.iter_mut().filter(|write| write.held.used != 0) {
            let stay = (0..self.code.data()).filter(|unit| write.held.used & 1 << unit != 0);
            write.kept = stay.zip(rooms(self.code.data())).collect();
        }
        let mut failed = vec![false; writes.len()];
        for (shard, backend) in self.shards.iter().enumerate() {
            let (mut items, mut owners) = (Vec::new(), Vec::new());
            for (index, write) in writes.iter_mut().enumerate() {
                let Write { held, kept, .. } = write;
                for (unit, into) in kept {
                    match held.places[*unit].get() {
                        Some((at, location)) if at == shard => {
                            items.push(LoadItem { location, into });
                            owners.push(index);
                        }
                        Some(_) => {}
                        None => failed[index] = true,
                    }
                }
            }
            if !items.is_empty() {
                backend.load(&mut items, Priority::WriteBack, &mut |item, page| failed[owners[item]] |= page.is_err());
            }
        }
        let mut failed = failed.into_iter();
        writes.extract_if(.., |_| failed.next().unwrap_or(false)).collect()
    }

    /// Asks each shard once, for all units that it is to get; whether some still have to go elsewhere.
    fn place_group(&self, writes: &mut [Write<'_>], priority: Priority) -> bool {
        let mut wanted: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.shards.len()];
        let there = self.there();
        let mut again = false;
        for (index, write) in writes.iter_mut().enumerate() {
            if let Some(place) = write.make_way(there) {
                self.free_places(&[place]);
                again = true;
            }
            let mut taken = write.shards();
            for (at, placing) in write.placing.iter().enumerate().filter(|(_, placing)| placing.place.is_none()) {
                // By turns, so that every shard gets data and parity alike.
                let turn = write.held.number as usize + placing.unit;
                let order = (0..self.shards.len()).map(|step| (turn + step) % self.shards.len());
                let mut free = order.filter(|shard| (taken | placing.tried) & 1 << shard == 0);
                // Who is lost is asked for the reason, when there is nobody else for what cannot be left out.
                let unasked = placing.unit < self.code.data() && placing.error.is_none();
                let lost = free.clone().next().filter(|_| unasked);
                if let Some(shard) = free.find(|shard| there & 1 << shard != 0).or(lost) {
                    taken |= 1 << shard;
                    wanted[shard].push((index, at));
                }
            }
        }
        let page = |(index, at): &(usize, usize)| writes[*index].page(writes[*index].placing[*at].unit);
        let part = |(shard, wanted): (usize, &Vec<(usize, usize)>)| Part {
            shard,
            pages: wanted.iter().map(page).collect(),
            answers: vec![Ok(Location(0)); wanted.len()],
        };
        let mut parts: Vec<Part<'_>> = wanted.iter().enumerate().map(part).collect();
        parts.retain(|part| !part.pages.is_empty());
        parts.chunks_mut(AT_ONCE).for_each(|parts| self.store_parts(parts, priority));
        let answers: Vec<_> = parts.into_iter().map(|part| (part.shard, part.answers)).collect();
        for (shard, answers) in answers {
            for ((index, at), answer) in wanted[shard].iter().zip(answers) {
                let placing = &mut writes[*index].placing[*at];
                match answer {
                    Ok(location) => placing.place = Some(UnitLocation::at(shard, location)),
                    Err(error) => {
                        placing.tried |= 1 << shard;
                        // That one is full says more than that another is lost.
                        if !matches!(placing.error, Some(StoreError::Full { .. })) {
                            placing.error = Some(error);
                        }
                        again = true;
                    }
                }
            }
        }
        again
    }

    /// Stores at each shard its part: the next one is asked before the answers of one are waited for. Always in the order of the shards:
    /// two threads that wait for each other's connections would wait for ever.
    fn store_parts(&self, parts: &mut [Part<'_>], priority: Priority) {
        let Some((first, rest)) = parts.split_first_mut() else { return };
        let mut rest = Some(rest);
        let mut others = || rest.take().into_iter().for_each(|rest| self.store_parts(rest, priority));
        self.shards[first.shard].store_while(&first.pages, None, priority, &mut first.answers, &mut others);
        others();
    }

    /// Frees what was stored of a stripe: it stays as it was.
    fn take_back(&self, write: Write<'_>) {
        let stored: Vec<UnitLocation> = write.placing.iter().filter_map(|placing| placing.place).collect();
        self.free_places(&stored);
        self.release(write.held, 0);
    }

    /// Enters what was stored, or takes all of it back.
    fn conclude(&self, mut write: Write<'_>, out: &mut [Result<Location, StoreError>]) {
        let data = self.code.data();
        // Where there is no other shard for a parity page, because some are lost, drained or full, there will be one.
        let fails = |placing: &&Placing| placing.place.is_none() && placing.unit < data;
        if let Some(failed) = write.placing.iter().find(fails) {
            let again = || StoreError::Device { url: self.url.clone(), errno: libc::EAGAIN };
            let error = failed.error.clone().unwrap_or_else(again);
            write.new.iter().for_each(|(_, index, _)| out[*index] = Err(error.clone()));
            self.take_back(write);
            return;
        }
        for unit in (0..data).filter(|unit| write.held.used & 1 << unit == 0) {
            write.held.places[unit] = UnitLocation::ZEROS;
        }
        for placing in &write.placing {
            write.held.places[placing.unit] = placing.place.unwrap_or(UnitLocation::LOST);
            if placing.place.is_none() {
                self.degraded.store(true, Relaxed);
            }
        }
        let stored = write.new.iter().fold(0, |stored, (unit, ..)| stored | 1 << unit);
        for (unit, index, _) in &write.new {
            out[*index] = Ok(self.stripes.location(write.held.number, *unit));
        }
        self.release(write.held, stored);
    }
}
