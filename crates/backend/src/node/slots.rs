//! Which page slots of the slabs are in use.
//!
//! ```text
//! slot = slab × pages of a slab + page in the slab
//! ```
//! Slots are given out in ascending order within a slab, so what is evicted together lies together. Slabs that are mostly free
//! are used again before another is leased; those that are mostly full only when no more can be had. A slab without a page in
//! it goes back to its nodes. A slab that is *closed* gets no more pages until it is opened again.

use std::collections::BTreeMap;

/// Empty slabs that are kept for the next pages.
const EMPTY_MAX: usize = 1;

/// The slots of a pool.
pub(super) struct Slots {
    slab_pages: usize,
    slabs: BTreeMap<u32, Slab>,
    /// The slab that is being filled, and the next slot in it.
    current: Option<(u32, usize)>,
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
        Slots { slab_pages, slabs: BTreeMap::new(), current: None, used: 0, empty: Vec::new() }
    }

    /// Adds a slab that was leased.
    pub(super) fn add(&mut self, number: u32) {
        let slab = Slab { used: vec![0; self.slab_pages.div_ceil(64)].into(), free: self.slab_pages, open: true };
        assert!(self.slabs.insert(number, slab).is_none(), "slab {number} was leased twice");
    }

    /// Appends up to `count` slots that were free to `into`; fewer when the slabs that may be filled have no more.
    pub(super) fn take(&mut self, count: usize, fill: Fill, into: &mut Vec<u64>) {
        let mut left = count;
        while left > 0 {
            let Some((number, next)) = self.current.or_else(|| self.choose(fill).map(|number| (number, 0))) else {
                return;
            };
            let slab = self.slabs.get_mut(&number).expect("a slab that is here");
            let free = (next..self.slab_pages).find(|slot| slab.used[slot / 64] & 1 << (slot % 64) == 0);
            let Some(slot) = free else {
                self.current = None;
                continue;
            };
            slab.used[slot / 64] |= 1 << (slot % 64);
            slab.free -= 1;
            self.used += 1;
            left -= 1;
            self.current = Some((number, slot + 1));
            into.push(u64::from(number) * self.slab_pages as u64 + slot as u64);
        }
    }

    /// The slab with the most free slots, if it may be filled.
    fn choose(&self, fill: Fill) -> Option<u32> {
        let least = if fill == Fill::MostlyFree { self.slab_pages / 4 * 3 } else { 1 };
        let open = self.slabs.iter().filter(|(_, slab)| slab.open);
        let best = open.max_by_key(|(number, slab)| (slab.free, std::cmp::Reverse(**number)));
        best.filter(|(_, slab)| slab.free >= least).map(|(number, _)| *number)
    }

    /// Gives a slot back.
    pub(super) fn give_back(&mut self, slot: u64) {
        let (number, index) = (slot / self.slab_pages as u64, slot % self.slab_pages as u64);
        let index = usize::try_from(index).expect("below the pages of a slab");
        let slab = u32::try_from(number).ok().and_then(|number| self.slabs.get_mut(&number));
        let slab = slab.unwrap_or_else(|| panic!("slot {slot} lies in no slab of ours"));
        let bit = 1 << (index % 64);
        assert!(slab.used[index / 64] & bit != 0, "slot {slot} was freed twice");
        slab.used[index / 64] &= !bit;
        slab.free += 1;
        self.used -= 1;
        if slab.free == self.slab_pages && self.current.is_none_or(|(current, _)| u64::from(current) != number) {
            let is_open = slab.open;
            let is_empty = |slab: &&Slab| slab.open && slab.free == self.slab_pages;
            if !is_open || self.slabs.values().filter(is_empty).count() > EMPTY_MAX {
                let number = u32::try_from(number).expect("a number of ours");
                self.slabs.remove(&number);
                self.empty.push(number);
            }
        }
    }

    /// Opens or closes a slab.
    pub(super) fn set_open(&mut self, number: u32, open: bool) {
        let slab = self.slabs.get_mut(&number).expect("a slab that is here");
        slab.open = open;
        if !open && self.current.is_some_and(|(current, _)| current == number) {
            self.current = None;
        }
        if !open && slab.free == self.slab_pages {
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
    fn no_slot_is_given_twice_and_empty_slabs_go_back() {
        for seed in 0..10 {
            let mut rng = Rng(seed);
            let mut slots = Slots::new(SLAB_BYTES);
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
                let unique: BTreeSet<u64> = held.iter().copied().collect();
                assert_eq!(unique.len(), held.len(), "seed {seed} step {step}");
                assert!(unique.iter().all(|slot| leased.contains(&u32::try_from(slot / 256).expect("small"))));
                assert_eq!((slots.used, slots.slab_count()), (held.len() as u64, leased.len()));
            }
            held.drain(..).for_each(|slot| slots.give_back(slot));
            let back = slots.take_empty(256, |_| false).len();
            assert!(slots.slab_count() <= EMPTY_MAX + 1, "seed {seed}: {back} of {} went back", leased.len());
        }
    }
}
