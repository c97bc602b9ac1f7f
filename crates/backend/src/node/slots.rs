//! Which page slots of the slabs are in use.
//!
//! ```text
//! slot = slab × pages of a slab + page in the slab
//! ```
//! Slots are allocated in ascending order within a slab, so what is evicted together lies together. Slabs that are mostly free
//! are used again before another is leased; those that are mostly full only when no more can be had. A slab without a page in
//! it goes back to its nodes. A slab that is *closed* gets no more pages until it is opened again.
//!
//! **Spread.** Where slabs lie on several nodes, up to four are filled in turn, a piece each, so that what is read in a row comes from
//! several nodes. Of `n` slabs `n / 4 + 1` are filled at a time: a small program leases none for this, a larger one a quarter more at most.

use super::limits::{EMPTY_MAX, PIECE_MAX, PIECE_MIN, SLABS_OF_A_TURN, SPREAD_MAX};
use std::collections::{BTreeMap, VecDeque};

/// The slots of a pool.
pub(super) struct Slots {
    slab_pages: usize,
    slabs: BTreeMap<u32, Slab>,
    /// The slabs that are being filled, and the next slot in each; the first one's turn it is.
    filling: VecDeque<(u32, usize)>,
    /// Pages that went to the first one in this turn.
    piece: usize,
    /// How many may be filled at a time.
    spread: usize,
    /// There was no further mostly free slab when one was looked for, and nothing has happened since that could make one.
    scarce: bool,
    used: u64,
    /// Slabs that the nodes may have back.
    empty: Vec<u32>,
}

struct Slab {
    /// One bit for each slot, set when it is in use.
    used: Box<[u64]>,
    free: usize,
    open: bool,
}

/// Which slabs may be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    /// Those with at least three quarters free.
    MostlyFree,
    /// Any with a free slot.
    All,
}

impl Slots {
    /// Without slabs.
    pub(super) fn new(slab_bytes: u64) -> Slots {
        let slab_pages = usize::try_from(slab_bytes).expect("a size in memory") / hinterland_units::PAGE_BYTES;
        assert!(slab_pages > 0, "a slab of {slab_bytes} bytes");
        Slots {
            slab_pages,
            slabs: BTreeMap::new(),
            filling: VecDeque::with_capacity(SPREAD_MAX),
            piece: 0,
            spread: 1,
            scarce: false,
            used: 0,
            empty: Vec::new(),
        }
    }

    /// Adds a slab that was leased.
    pub(super) fn add(&mut self, number: u32) {
        let slab = Slab { used: vec![0; self.slab_pages.div_ceil(64)].into(), free: self.slab_pages, open: true };
        assert!(self.slabs.insert(number, slab).is_none(), "slab {number} was leased twice");
        self.scarce = false;
    }

    /// From now on, up to `spread` slabs are filled at a time.
    pub(super) fn set_spread(&mut self, spread: usize) {
        self.spread = spread.clamp(1, SPREAD_MAX);
    }

    /// Slabs that are to be filled at a time now.
    fn width(&self) -> usize {
        self.spread.min(1 + self.slabs.len() / SLABS_OF_A_TURN)
    }

    /// Whether the next call of `take` would begin to fill one more slab beside others, and there is none.
    pub(super) fn lacks_one(&mut self) -> bool {
        let fewer = !self.filling.is_empty() && self.filling.len() < self.width();
        fewer && self.piece >= PIECE_MIN && self.choose_further().is_none()
    }

    /// The slabs that are being filled.
    pub(super) fn filling(&self) -> impl Iterator<Item = u32> {
        self.filling.iter().map(|(number, _)| *number)
    }

    /// Appends up to `count` slots that were free to `into`; fewer when the slabs that may be filled have no more.
    pub(super) fn take(&mut self, count: usize, fill: Fill, into: &mut Vec<u64>) {
        if self.piece >= PIECE_MIN {
            self.turn();
        }
        let (mut left, mut run) = (count, 0);
        while left > 0 {
            if run == PIECE_MAX {
                self.turn();
                run = 0;
            }
            if self.filling.is_empty() {
                let Some(number) = self.choose(fill) else { return };
                self.filling.push_front((number, 0));
            }
            let (number, next) = self.filling[0];
            let slab = self.slabs.get_mut(&number).expect("a slab that is here");
            let free = (next..self.slab_pages).find(|slot| slab.used[slot / 64] & 1 << (slot % 64) == 0);
            let Some(slot) = free else {
                self.leave_out(number);
                run = 0;
                continue;
            };
            slab.used[slot / 64] |= 1 << (slot % 64);
            slab.free -= 1;
            self.used += 1;
            self.filling[0].1 = slot + 1;
            (left, run, self.piece) = (left - 1, run + 1, self.piece + 1);
            into.push(u64::from(number) * self.slab_pages as u64 + slot as u64);
        }
    }

    /// Another slab is the next, one more if there are too few.
    fn turn(&mut self) {
        self.piece = 0;
        let further = if self.filling.len() < self.width() { self.choose_further() } else { None };
        match further {
            Some(number) => self.filling.push_front((number, 0)),
            None if self.filling.len() > 1 => self.filling.rotate_left(1),
            None => {}
        }
    }

    /// A slab to be filled beside others. Looked for at every turn while there is none, so not among all slabs each time.
    fn choose_further(&mut self) -> Option<u32> {
        let further = if self.scarce { None } else { self.choose(Fill::MostlyFree) };
        self.scarce = further.is_none();
        further
    }

    /// Free slots of a slab that is mostly free, at least.
    fn mostly(&self) -> usize {
        self.slab_pages / 4 * 3
    }

    /// The slab with the most free slots of those that are not being filled, if it may be.
    fn choose(&self, fill: Fill) -> Option<u32> {
        let least = if fill == Fill::MostlyFree { self.mostly() } else { 1 };
        let open = self.slabs.iter().filter(|(number, slab)| slab.open && !self.is_filling(**number));
        let best = open.max_by_key(|(number, slab)| (slab.free, std::cmp::Reverse(**number)));
        best.filter(|(_, slab)| slab.free >= least).map(|(number, _)| *number)
    }

    fn is_filling(&self, number: u32) -> bool {
        self.filling.iter().any(|(filling, _)| *filling == number)
    }

    /// Ends the turns of a slab.
    fn leave_out(&mut self, number: u32) {
        if self.filling.front().is_some_and(|(first, _)| *first == number) {
            self.piece = 0;
        }
        self.filling.retain(|(filling, _)| *filling != number);
        // It may be mostly free behind the place to which it was filled.
        self.scarce = false;
    }

    /// Gives a slot back.
    pub(super) fn give_back(&mut self, slot: u64) {
        let (number, index) = (slot / self.slab_pages as u64, slot % self.slab_pages as u64);
        let index = usize::try_from(index).expect("below the pages of a slab");
        let number = u32::try_from(number).ok().filter(|number| self.slabs.contains_key(number));
        let number = number.unwrap_or_else(|| panic!("slot {slot} lies in no slab of ours"));
        let mostly = self.mostly();
        let slab = self.slabs.get_mut(&number).expect("it is there");
        let bit = 1 << (index % 64);
        assert!(slab.used[index / 64] & bit != 0, "slot {slot} was freed twice");
        slab.used[index / 64] &= !bit;
        slab.free += 1;
        self.used -= 1;
        self.scarce &= slab.free < mostly;
        if slab.free < self.slab_pages {
            return;
        }
        let is_open = slab.open;
        if self.filling.len() > 1 {
            // The others are enough.
            self.leave_out(number);
        }
        let is_empty = |slab: &&Slab| slab.open && slab.free == self.slab_pages;
        let too_many = !is_open || self.slabs.values().filter(is_empty).count() > EMPTY_MAX;
        if too_many && !self.is_filling(number) {
            self.slabs.remove(&number);
            self.empty.push(number);
        }
    }

    /// Whether a slab may get pages.
    pub(super) fn is_open(&self, number: u32) -> bool {
        self.slabs.get(&number).is_some_and(|slab| slab.open)
    }

    /// Opens or closes a slab.
    pub(super) fn set_open(&mut self, number: u32, open: bool) {
        let slab = self.slabs.get_mut(&number).expect("a slab that is here");
        self.scarce &= slab.open || !open;
        slab.open = open;
        let is_empty = slab.free == self.slab_pages;
        if !open {
            self.leave_out(number);
        }
        if !open && is_empty {
            self.slabs.remove(&number);
            self.empty.push(number);
        }
    }

    /// Slots of a slab that are in use, in their order.
    pub(super) fn used_in(&self, number: u32) -> Vec<u64> {
        let slab = &self.slabs[&number];
        let used = (0..self.slab_pages).filter(|slot| slab.used[slot / 64] & 1 << (slot % 64) != 0);
        used.map(|slot| u64::from(number) * self.slab_pages as u64 + slot as u64).collect()
    }

    /// How many slots of a slab are in use; `None`: it is not here any more.
    pub(super) fn used_count(&self, number: u32) -> Option<usize> {
        self.slabs.get(&number).map(|slab| self.slab_pages - slab.free)
    }

    /// Pages of a slab.
    pub(super) fn slab_pages(&self) -> usize {
        self.slab_pages
    }

    /// Slabs that the nodes are to have back, at most `bound`, without those that are still `needed`: the caller tells them.
    pub(super) fn take_empty(&mut self, bound: usize, needed: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut taken = Vec::new();
        self.empty.retain(|number| {
            let stays = taken.len() == bound || needed(*number);
            if !stays {
                taken.push(*number);
            }
            stays
        });
        taken
    }

    /// Whether some can be had.
    pub(super) fn has_empty(&self) -> bool {
        !self.empty.is_empty()
    }

    /// Slabs that are leased.
    #[cfg(test)]
    pub(super) fn slab_count(&self) -> usize {
        self.slabs.len() + self.empty.len()
    }

    /// Bytes of the tables.
    pub(super) fn table_bytes(&self) -> u64 {
        (self.slabs.len() * (self.slab_pages / 8 + 64)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Rng;
    use std::collections::BTreeSet;

    const SLAB_BYTES: u64 = 256 * 4096;

    #[test]
    fn neighbours_lie_together_and_scraps_come_last() {
        let mut slots = Slots::new(SLAB_BYTES);
        let take = |slots: &mut Slots, count, fill| {
            let mut into = Vec::new();
            slots.take(count, fill, &mut into);
            into
        };
        assert!(take(&mut slots, 5, Fill::All).is_empty());
        slots.add(3);
        assert_eq!(take(&mut slots, 200, Fill::MostlyFree), (768..968).collect::<Vec<_>>());
        slots.give_back(770);
        assert_eq!(take(&mut slots, 100, Fill::MostlyFree), (968..1024).collect::<Vec<_>>());
        assert_eq!(take(&mut slots, 100, Fill::All), [770]);
    }

    #[test]
    fn slabs_may_be_small() {
        let mut slots = Slots::new(16 * 4096);
        slots.add(2);
        let mut into = Vec::new();
        slots.take(20, Fill::MostlyFree, &mut into);
        assert_eq!(into, (32..48).collect::<Vec<_>>());
        assert_eq!(slots.used_in(2), into);
    }

    #[test]
    fn pieces_go_to_several_slabs_when_there_are_some() {
        let mut slots = Slots::new(SLAB_BYTES);
        slots.set_spread(SPREAD_MAX);
        let mut next = 0;
        let mut store = |slots: &mut Slots, count: usize| {
            let mut into = Vec::new();
            if slots.lacks_one() {
                slots.add(next);
                next += 1;
            }
            slots.take(count, Fill::MostlyFree, &mut into);
            if into.len() < count {
                slots.add(next);
                next += 1;
                slots.take(count - into.len(), Fill::MostlyFree, &mut into);
            }
            into.chunk_by(|a, b| a / 256 == b / 256).map(|run| (run[0] / 256, run.len())).collect::<Vec<_>>()
        };
        // Three slabs are filled one after the other.
        for slab in 0..3 {
            (0..8).for_each(|_| assert_eq!(store(&mut slots, 32), [(slab, 32)]));
        }
        // Beside the fourth there is a fifth, and they take turns.
        let turns: Vec<_> = (0..4).flat_map(|_| store(&mut slots, 40)).collect();
        assert_eq!(turns, [(3, 40), (4, 40), (3, 40), (4, 40)]);
        // Single pages stay together.
        let turns: Vec<_> = (0..32).flat_map(|_| store(&mut slots, 1)).collect();
        assert!(turns.iter().all(|turn| *turn == (3, 1)), "{turns:?}");
        // A large store has pieces of a message.
        assert_eq!(store(&mut slots, 130), [(4, 64), (3, 64), (4, 2)]);
        // Not more than the bound, however many there are; and not more than a quarter of them.
        (0..400).for_each(|_| drop(store(&mut slots, 64)));
        assert_eq!(slots.filling.len(), SPREAD_MAX);
        let (used, leased) = (slots.used, slots.slab_count() as u64);
        assert!(leased <= used.div_ceil(256) + SPREAD_MAX as u64, "{leased} slabs for {used} pages");
        // A node fewer, and those that are there are filled.
        slots.set_spread(1);
        assert!(!slots.lacks_one());
    }

    #[test]
    fn no_slot_is_given_twice_and_empty_slabs_go_back() {
        for seed in 0..10 {
            let mut rng = Rng(seed);
            let mut slots = Slots::new(SLAB_BYTES);
            slots.set_spread(1 + rng.index(SPREAD_MAX));
            let mut leased: BTreeSet<u32> = BTreeSet::new();
            let mut held: Vec<u64> = Vec::new();
            for step in 0..800 {
                match rng.below(8) {
                    0..=3 => {
                        let (before, count) = (held.len(), 1 + rng.index(200));
                        slots.take(count, Fill::MostlyFree, &mut held);
                        if held.len() - before < count && leased.len() < 12 {
                            let number = (0..).find(|number| !leased.contains(number)).expect("some");
                            leased.insert(number);
                            slots.add(number);
                        }
                        slots.take(count + before - held.len(), Fill::All, &mut held);
                        let room = (leased.len() - slots.empty.len()) * 256 - before;
                        assert_eq!(held.len() - before, count.min(room), "seed {seed} step {step}");
                    }
                    4..=6 => {
                        for _ in 0..rng.index(220).min(held.len()) {
                            slots.give_back(held.swap_remove(rng.index(held.len())));
                        }
                    }
                    _ => {
                        for number in slots.take_empty(256, |_| false) {
                            assert!(leased.remove(&number), "seed {seed} step {step}: {number} twice");
                        }
                    }
                }
                let slabs = leased.last().map_or(0, |last| *last as usize + 1);
                let (mut used, mut lent) = (vec![false; slabs * 256], vec![false; slabs]);
                leased.iter().for_each(|slab| lent[*slab as usize] = true);
                let mut mark = |slot: u64| std::mem::replace(&mut used[usize::try_from(slot).expect("small")], true);
                assert!(!held.iter().any(|slot| mark(*slot)), "seed {seed} step {step}: a slot was given twice");
                assert!(held.iter().all(|slot| lent[usize::try_from(slot / 256).expect("small")]));
                assert_eq!((slots.used, slots.slab_count()), (held.len() as u64, leased.len()));
            }
            held.drain(..).for_each(|slot| slots.give_back(slot));
            let back = slots.take_empty(256, |_| false).len();
            assert!(slots.slab_count() <= EMPTY_MAX + 1, "seed {seed}: {back} of {} went back", leased.len());
        }
    }
}
