//! Repair after the loss of a shard: its units are computed from the other units, and stored at a shard that the stripe
//! does not use yet.

use super::load::StripeUnits;
use super::stripes::{HeldStripe, UnitLocation};
use super::{Coded, Shard};
use crate::sync::lock;
use crate::{Location, Priority};
use hinterland_units::PageBytes;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Stripes that are looked at together: loads wait meanwhile.
const LOOKED_AT: u32 = 256;
/// Stripes that one step repairs: a fork may have to wait for it.
const REPAIRED: usize = 4;

/// How far the stripes have been looked at.
#[derive(Default)]
pub(super) struct Repair {
    next: u32,
    /// A look at all of them is under way, and has left some as they are.
    pub(super) under_way: bool,
    unrepaired: bool,
    /// When the last one that left some has ended (the next comes after `Timing::refused`, or when a shard is back), and which shards were there.
    rested: Option<(Instant, u32)>,
    /// How often shards had been lost when it began.
    losses: u64,
}

impl<S: Shard> Coded<S> {
    /// Takes one step; returns when the next is due. `None`: nothing is to be done.
    pub(super) fn repair_step(&self) -> Option<Duration> {
        let mut repair = lock(&self.repair);
        let losses = self.losses();
        if losses != repair.losses {
            repair.losses = losses;
            self.degraded.store(true, Relaxed);
        }
        if !repair.under_way {
            let rested = repair.rested.filter(|(_, there)| *there == self.there());
            if let Some(left) = rested.and_then(|(since, _)| self.timing.refused.checked_sub(since.elapsed())) {
                return Some(left);
            }
            if !self.degraded.swap(false, Relaxed) {
                return None;
            }
            *repair = Repair { under_way: true, losses, ..Repair::default() };
        }
        let mut moved = 0;
        for _ in 0..REPAIRED {
            let look = self.stripes.hold_next(repair.next, LOOKED_AT, self.roomy(), |place| self.is_lost(place));
            if look.passed_by {
                self.degraded.store(true, Relaxed);
            }
            repair.unrepaired |= look.hopeless;
            self.free_places(&look.gone);
            if let Some(held) = look.held {
                // What is tried in vain takes its time, too.
                moved += self.code.units();
                repair.unrepaired |= !self.repair_stripe(held);
            }
            let Some(next) = look.next else {
                repair.under_way = false;
                if repair.unrepaired {
                    self.degraded.store(true, Relaxed);
                    repair.rested = Some((Instant::now(), self.there()));
                    return Some(self.timing.refused);
                }
                break;
            };
            repair.next = next;
        }
        Some(self.timing.pause_after(moved))
    }

    /// Stores the lost units of a stripe anew; whether it has all units then.
    fn repair_stripe(&self, mut held: HeldStripe) -> bool {
        let mut units = StripeUnits::new(self, &held);
        if units.load(self.code.data(), Priority::WriteBack) {
            let all_units = units.all_units(None);
            for (unit, page) in all_units.into_iter().enumerate() {
                if held.places[unit] != UnitLocation::LOST {
                    continue;
                }
                let used = held.places.iter().filter_map(|place| place.shard());
                let free = used.fold(self.roomy(), |free, shard| free & !(1 << shard));
                let mut free = (0..self.shards.len()).filter(|shard| free & 1 << shard != 0);
                let found = free.find_map(|shard| Some((shard, self.store_one(shard, page)?)));
                if let Some((shard, location)) = found {
                    held.places[unit] = UnitLocation::at(shard, location);
                    self.shards[shard].count_rebuilt(1);
                }
            }
        }
        let is_repaired = !held.places.contains(&UnitLocation::LOST);
        self.release(held, 0);
        is_repaired
    }

    fn store_one(&self, shard: usize, page: &PageBytes) -> Option<Location> {
        let mut out = [Ok(Location(0))];
        self.shards[shard].store(&[page], Priority::WriteBack, &mut out);
        let [stored] = out;
        stored.ok()
    }
}
