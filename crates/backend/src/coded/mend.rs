//! What the loss of a shard leaves to do: what lay there is computed from the other members, and stored at a shard that the stripe
//! does not use yet.

use super::load::Members;
use super::stripes::{Held, Place};
use super::{Coded, Shard};
use crate::sync::lock;
use crate::{Location, Priority};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes of stripes that are mended in a second at most, all members counted.
const MEND_BYTES_PER_SECOND: u64 = 64 << 20;
/// Stripes that are looked at together: loads wait meanwhile.
const LOOKED_AT: u32 = 256;
/// Stripes that one step mends: a fork may have to wait for it.
const MENDED: usize = 4;
/// Time after a look at all stripes that could not mend all, unless a shard comes back.
const PAUSE: Duration = Duration::from_secs(1);

/// How far the stripes have been looked at.
#[derive(Default)]
pub(super) struct Mender {
    next: u32,
    /// A look at all of them is under way, and has left some as they are.
    pub(super) under_way: bool,
    unmended: bool,
    /// When the last one that left some has ended, and which shards were there.
    rested: Option<(Instant, u32)>,
    /// How often shards had been lost when it began.
    losses: u64,
}

impl<S: Shard> Coded<S> {
    /// Takes one step; returns when the next is due. `None`: nothing is to be done.
    pub(super) fn mend(&self) -> Option<Duration> {
        let mut mender = lock(&self.mender);
        let losses = self.losses();
        if losses != mender.losses {
            mender.losses = losses;
            self.degraded.store(true, Relaxed);
        }
        if !mender.under_way {
            let rested = mender.rested.filter(|(_, there)| *there == self.there());
            if let Some(left) = rested.and_then(|(since, _)| PAUSE.checked_sub(since.elapsed())) {
                return Some(left);
            }
            if !self.degraded.swap(false, Relaxed) {
                return None;
            }
            *mender = Mender { under_way: true, losses, ..Mender::default() };
        }
        let mut moved = 0;
        for _ in 0..MENDED {
            let look = self.stripes.hold_next(mender.next, LOOKED_AT, self.there(), |place| self.is_lost(place));
            if look.passed_by {
                self.degraded.store(true, Relaxed);
            }
            mender.unmended |= look.hopeless;
            self.free_places(&look.gone);
            if let Some(held) = look.held {
                // What is tried in vain takes its time, too.
                moved += self.code.members() as u64;
                mender.unmended |= !self.mend_stripe(held);
            }
            let Some(next) = look.next else {
                mender.under_way = false;
                if mender.unmended {
                    self.degraded.store(true, Relaxed);
                    mender.rested = Some((Instant::now(), self.there()));
                    return Some(PAUSE);
                }
                break;
            };
            mender.next = next;
        }
        Some(Duration::from_nanos(moved * PAGE_BYTES as u64 * 1_000_000_000 / MEND_BYTES_PER_SECOND))
    }

    /// Stores the lost members of a stripe anew; whether it is whole then.
    fn mend_stripe(&self, mut held: Held) -> bool {
        let mut members = Members::new(self, &held);
        if members.load(self.code.data(), Priority::WriteBack) {
            let whole = members.whole(None);
            for (member, page) in whole.into_iter().enumerate() {
                if held.places[member] != Place::LOST {
                    continue;
                }
                let used = held.places.iter().filter_map(|place| place.shard());
                let free = used.fold(self.there(), |free, shard| free & !(1 << shard));
                let mut free = (0..self.shards.len()).filter(|shard| free & 1 << shard != 0);
                let found = free.find_map(|shard| Some((shard, self.store_one(shard, page)?)));
                if let Some((shard, location)) = found {
                    held.places[member] = Place::at(shard, location);
                    self.shards[shard].count_rebuilt(1);
                }
            }
        }
        let is_whole = !held.places.contains(&Place::LOST);
        self.release(held, 0);
        is_whole
    }

    fn store_one(&self, shard: usize, page: &PageBytes) -> Option<Location> {
        let mut out = [Ok(Location(0))];
        self.shards[shard].store(&[page], Priority::WriteBack, &mut out);
        let [stored] = out;
        stored.ok()
    }
}
