//! Promotion: pages of lower tiers that are wanted again go to the first one.
//!
//! ```text
//! loaded from a lower tier, left unchanged ─► its bytes are at hand: stored above, and its row moves   (`left_clean`)
//! loaded from the first tier               ─► while lower ones are loaded from, its copy is given up   (`takes_room`): that is the room
//! no room above                            ─► the oldest pages there are demoted for it, as long as those that were promoted are
//!                                             loaded again before they are demoted                     (`Gate`)
//! nothing is loaded                        ─► the youngest pages of a lower tier, as many as were loaded from lower ones, as long
//!                                             as an eighth of the first tier is free                   (`promote_step`)
//! ```
//! A page that changed is stored anew, in the first tier, when it leaves: so it is promoted anyway. Exclusive tiers (a page is in one of
//! local memory, first and lower tier) are those of Wong and Wilkes, "My cache or yours?", USENIX ATC 2002.

use super::batch::to_be_stored;
use super::migrate::{BATCH_PAGES, Moving};
use super::table::{PathLocation, Which};
use super::{COMPRESSIBLE_BYTES_MAX, Paths, handle_of};
use crate::sync::lock;
use crate::{BackendUsage, Location, Priority, StoreError};
use hinterland_units::PageBytes;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// So many promoted pages are judged together.
const JUDGED: u32 = 64;
/// One page of so many is promoted at the least: to find out whether it pays again.
const EVERY_MAX: u32 = 64;
/// Loads from lower tiers count as many if they are an eighth of those from the first.
const LOWER_PART: u64 = 8;
/// Loads of which the shares are known: then all count half.
const LOADS_COUNTED: u64 = 1024;
/// Pages are promoted while nothing is loaded after so many were loaded from lower tiers and none was demoted: four batches.
const OWED_MIN: u64 = 4 * BATCH_PAGES as u64;
/// And so many at the most.
const OWED_MAX: u64 = 64 * 1024;
/// At once, and the pause after them; a look at whether nothing was loaded for a while.
const IDLE_PAGES: usize = 32;
const IDLE_PAUSE: Duration = Duration::from_millis(2);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Of the first tier's capacity so many eighths may be used.
const USED_EIGHTHS: u64 = 7;

/// Lets pages be promoted as long as that pays. Pure.
pub(super) struct Gate {
    /// One page of so many.
    every: u32,
    passed_by: u32,
    /// Of the promoted pages: loaded since, and demoted before that.
    used: u32,
    vain: u32,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate { every: 1, passed_by: 0, used: 0, vain: 0 }
    }

    /// Whether the next page is promoted.
    fn admits(&mut self) -> bool {
        self.passed_by = (self.passed_by + 1) % self.every;
        self.passed_by == 0
    }

    /// Whether all are.
    fn is_open(&self) -> bool {
        self.every == 1
    }

    /// So many promoted pages were loaded, and so many demoted before they were. One that no tier takes is neither.
    pub(super) fn learn(&mut self, used: u32, vain: u32) {
        self.used += used;
        self.vain += vain;
        if self.used + self.vain < JUDGED {
            return;
        }
        if self.vain > self.used {
            self.every = (self.every * 2).min(EVERY_MAX);
        } else if self.vain * 4 < self.used * 3 {
            self.every = (self.every / 2).max(1);
        }
        (self.used, self.vain) = (0, 0);
    }
}

/// What is known of the tiers.
pub(super) struct Promotion {
    pub(super) gate: Mutex<Gate>,
    /// The paths of the first tier, and of lower ones, as bits.
    first: AtomicU32,
    lower: AtomicU32,
    /// Pages that were loaded of late from these.
    first_loads: AtomicU64,
    lower_loads: AtomicU64,
    /// Pages that may be promoted while nothing is loaded.
    owed: AtomicU64,
    /// Loads and demotions.
    calls: AtomicU64,
    /// How many there were at the last look; and from when on pages are promoted if there are no more by then.
    look: Mutex<Option<(u64, Instant)>>,
}

fn bit(path: usize) -> u32 {
    1 << path
}

impl Promotion {
    pub(super) fn new() -> Promotion {
        let [first, lower] = [const { AtomicU32::new(0) }; 2];
        let [first_loads, lower_loads, owed, calls] = [const { AtomicU64::new(0) }; 4];
        let (gate, look) = (Mutex::new(Gate::new()), Mutex::new(None));
        Promotion { gate, first, lower, first_loads, lower_loads, owed, calls, look }
    }

    /// These are the tiers.
    pub(super) fn learn_tiers(&self, tiers: &[Vec<usize>]) {
        let bits = |tiers: &[Vec<usize>]| tiers.iter().flatten().fold(0, |bits, path| bits | bit(*path));
        let (first, lower) = tiers.split_at(1.min(tiers.len()));
        self.first.store(bits(first), Relaxed);
        self.lower.store(bits(lower), Relaxed);
    }

    /// Whether there is more than one tier.
    pub(super) fn has_lower(&self) -> bool {
        self.lower.load(Relaxed) != 0
    }

    /// Pages of a path are loaded because they are wanted.
    pub(super) fn loads(&self, path: usize, pages: u64) {
        self.calls.fetch_add(1, Relaxed);
        let (counted, other) = if self.first.load(Relaxed) & bit(path) != 0 {
            (&self.first_loads, &self.lower_loads)
        } else {
            if self.owed.load(Relaxed) < OWED_MAX {
                self.owed.fetch_add(pages, Relaxed);
            }
            (&self.lower_loads, &self.first_loads)
        };
        // Two threads at once may halve twice: the shares stay.
        if counted.fetch_add(pages, Relaxed) + other.load(Relaxed) >= LOADS_COUNTED {
            [counted, other].iter().for_each(|loads| loads.store(loads.load(Relaxed) / 2, Relaxed));
        }
    }

    /// Pages were demoted: there is no room above.
    pub(super) fn demoted(&self, promoted_in_vain: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.owed.store(0, Relaxed);
        if promoted_in_vain > 0 {
            lock(&self.gate).learn(0, u32::try_from(promoted_in_vain).unwrap_or(u32::MAX));
        }
    }

    /// Whether a page that was just loaded from a path leaves room that others want: of the first tier, while many are loaded from lower ones.
    pub(super) fn takes_room(&self, path: usize) -> bool {
        let (first, lower) = (self.first_loads.load(Relaxed), self.lower_loads.load(Relaxed));
        self.has_lower() && self.first.load(Relaxed) & bit(path) != 0 && lower > 0 && lower * LOWER_PART >= first
    }

    /// Whether nothing has been loaded or demoted for a while; else for how long nothing may be from now on. Other tasks of maintenance may be
    /// due earlier.
    fn look(&self, now: Instant) -> Result<(), Duration> {
        let (calls, mut look) = (self.calls.load(Relaxed), lock(&self.look));
        match *look {
            Some((before, due)) if before == calls && due <= now => Ok(()),
            Some((before, due)) if before == calls => Err(due - now),
            _ => {
                *look = Some((calls, now + LOOK_PAUSE));
                Err(LOOK_PAUSE)
            }
        }
    }

    /// Pages were promoted after a look, and more are after a pause.
    fn rest(&self, now: Instant) {
        lock(&self.look).iter_mut().for_each(|(_, due)| *due = now + IDLE_PAUSE);
    }

    /// Whether `promote_step` has something to do.
    pub(super) fn is_owed(&self) -> bool {
        self.has_lower() && self.owed.load(Relaxed) >= OWED_MIN
    }
}

impl Paths {
    /// Pages leave as they are stored: promotes those that lie in lower tiers.
    pub(super) fn promote_leaving(&self, leaving: &[(Location, &PageBytes)]) {
        if !self.promotion.has_lower() {
            return;
        }
        let tiers = self.tiers();
        let tier_of = |location: Location| {
            let place = self.table.place(handle_of(location))?;
            tiers.iter().position(|tier| tier.contains(&place.path))
        };
        let mut by_tier: Vec<Vec<(Location, &PageBytes)>> = vec![Vec::new(); tiers.len()];
        {
            let mut gate = lock(&self.promotion.gate);
            for (location, page) in leaving {
                if let Some(tier) = tier_of(*location).filter(|tier| *tier > 0 && gate.admits()) {
                    by_tier[tier].push((*location, page));
                }
            }
        }
        for (tier, leaving) in by_tier.iter().enumerate().filter(|(_, leaving)| !leaving.is_empty()) {
            self.promote(&tiers[..tier], leaving);
        }
    }

    /// Moves pages to the first of `tiers` with room that does not fail, for which the first of all makes room.
    fn promote(&self, tiers: &[Vec<usize>], leaving: &[(Location, &PageBytes)]) {
        if tiers.iter().all(|tier| self.has_failed(tier)) {
            return;
        }
        let (mut batch, mut pages): (Vec<Moving>, Vec<&PageBytes>) = (Vec::new(), Vec::new());
        {
            let mut lists = lock(&self.lists);
            for (location, page) in leaving {
                let handle = handle_of(*location);
                if let Some(from) = self.table.start_move(&mut lists, handle) {
                    batch.push(Moving { handle, from, loaded: true, stored: to_be_stored() });
                    pages.push(page);
                }
            }
        }
        let mut places = vec![to_be_stored(); batch.len()];
        for (at, tier) in tiers.iter().enumerate().filter(|(_, tier)| !self.has_failed(tier)) {
            let is_scarce = self.ram_is_scarce.load(Relaxed) && tier.iter().all(|path| self.costs_ram(*path));
            let bytes_max = is_scarce.then_some(COMPRESSIBLE_BYTES_MAX);
            self.put_if_compressible(tier, &pages, bytes_max, Priority::WriteBack, &mut places);
            let full = places.iter().filter(|place| matches!(place, Err(StoreError::Full { .. }))).count();
            let demote = |path: &usize| self.demote_from(*path, full.div_ceil(tier.len()).max(BATCH_PAGES));
            if at == 0 && full > 0 && tier.iter().map(demote).sum::<usize>() > 0 {
                self.put_if_compressible(tier, &pages, bytes_max, Priority::WriteBack, &mut places);
            }
        }
        batch.iter_mut().zip(places).for_each(|(moving, place)| moving.stored = place);
        self.finish_batch(&batch, true);
    }

    /// Promotes a few pages while nothing is loaded; returns when the next step is due, `None`: nothing is to be done.
    pub(super) fn promote_step(&self) -> Option<Duration> {
        let promotion = &self.promotion;
        let owed = promotion.owed.load(Relaxed);
        if owed == 0 || !promotion.has_lower() {
            return None;
        }
        if let Err(pause) = promotion.look(Instant::now()) {
            return Some(pause);
        }
        let moved = self.promote_youngest(IDLE_PAGES.min(usize::try_from(owed).unwrap_or(usize::MAX)));
        let left = |owed: u64| Some(if moved == 0 { 0 } else { owed.saturating_sub(moved as u64) });
        let _ = promotion.owed.fetch_update(Relaxed, Relaxed, left);
        promotion.rest(Instant::now());
        (moved > 0).then_some(IDLE_PAUSE)
    }

    /// Promotes the youngest pages of the first lower tier that has some; returns how many left it.
    fn promote_youngest(&self, pages: usize) -> usize {
        let tiers = self.tiers();
        let Some((first, lower)) = tiers.split_first() else { return 0 };
        let is_vain = self.ram_is_scarce.load(Relaxed) || self.has_failed(first) || !self.has_room(first);
        if is_vain || !lock(&self.promotion.gate).is_open() {
            return 0;
        }
        let put = |pages: &[&PageBytes], out: &mut [Result<PathLocation, StoreError>]| {
            self.put(first, pages, Priority::Migration, out);
        };
        let moved =
            |path: &usize| Some(self.move_batch(*path, pages, Which::Youngest, &put).moved).filter(|moved| *moved > 0);
        lower.iter().flatten().find_map(moved).unwrap_or(0)
    }

    /// Whether an eighth of the capacity of these paths is free.
    fn has_room(&self, paths: &[usize]) -> bool {
        let mut rows: Vec<BackendUsage> = Vec::new();
        paths.iter().filter_map(|path| self.enter(*path)).for_each(|path| path.backend.usage(&mut rows));
        let sum = |bytes: fn(&BackendUsage) -> u64| rows.iter().map(bytes).sum::<u64>();
        sum(|row| row.stored_bytes) < sum(|row| row.capacity_bytes) / 8 * USED_EIGHTHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(gate: &mut Gate, pages: u32) -> usize {
        (0..pages).filter(|_| gate.admits()).count()
    }

    #[test]
    fn pages_are_promoted_as_long_as_that_pays() {
        let mut gate = Gate::new();
        assert_eq!(admitted(&mut gate, 100), 100);
        // As many in vain as used: neither more nor less.
        (0..10).for_each(|_| gate.learn(32, 32));
        assert!(gate.is_open());
        gate.learn(31, 33);
        assert_eq!(admitted(&mut gate, 100), 50);
        (0..20).for_each(|_| gate.learn(0, 64));
        assert_eq!(admitted(&mut gate, 640), 10, "a few are, to find out");
        // Single pages are as good as many at once.
        (0..6 * 64).for_each(|_| gate.learn(1, 0));
        assert!(gate.is_open() && admitted(&mut gate, 100) == 100);
    }

    #[test]
    fn copies_of_the_first_tier_take_room_while_lower_ones_are_loaded_from() {
        let promotion = Promotion::new();
        promotion.learn_tiers(&[vec![0, 3]]);
        promotion.loads(0, 10);
        assert!(!promotion.has_lower() && !promotion.takes_room(0), "one tier");
        promotion.learn_tiers(&[vec![3], vec![0], vec![1]]);
        assert!(promotion.has_lower() && !promotion.takes_room(3), "nothing was loaded from lower ones");
        (0..400).for_each(|_| promotion.loads(3, 1));
        (0..60).for_each(|_| promotion.loads(1, 1));
        assert!(promotion.takes_room(3) && !promotion.takes_room(0) && !promotion.takes_room(1));
        // What was long ago does not count.
        (0..20_000).for_each(|_| promotion.loads(3, 1));
        assert!(!promotion.takes_room(3));
    }

    #[test]
    fn what_was_loaded_from_lower_tiers_is_owed_until_pages_are_demoted() {
        let promotion = Promotion::new();
        promotion.learn_tiers(&[vec![0], vec![1]]);
        promotion.loads(0, 10_000);
        promotion.loads(1, OWED_MIN - 1);
        assert!(!promotion.is_owed());
        promotion.loads(1, 1);
        assert!(promotion.is_owed());
        promotion.demoted(0);
        assert!(!promotion.is_owed());
        promotion.loads(1, OWED_MIN);
        promotion.learn_tiers(&[vec![0, 1]]);
        assert!(!promotion.is_owed(), "there is one tier");
    }

    #[test]
    fn nothing_is_loaded_for_a_while_before_pages_are_promoted_however_often_one_looks() {
        let promotion = Promotion::new();
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        let look = |at: u64| promotion.look(begun + ms(at));
        promotion.loads(1, 1);
        assert_eq!([0, 1, 19].map(look), [Err(LOOK_PAUSE), Err(ms(19)), Err(ms(1))]);
        promotion.loads(1, 1);
        assert_eq!([20, 39, 40].map(look), [Err(LOOK_PAUSE), Err(ms(1)), Ok(())]);
        promotion.rest(begun + ms(40));
        assert_eq!([41, 42].map(look), [Err(ms(1)), Ok(())]);
        promotion.demoted(0);
        assert_eq!(look(43), Err(LOOK_PAUSE));
    }
}
