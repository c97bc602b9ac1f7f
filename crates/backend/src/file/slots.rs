//! Which page slots of a file are in use.
//!
//! Slots are allocated in ascending order within segments of 2 MiB, and the next segment is an empty one where possible,
//! as in a log: what is evicted together lies together, and is written and read together. Segments that are mostly free
//! are used again before the file grows, and the file grows before those that are mostly full are. On a full disk slots that were
//! written before are left: they have their blocks (`take_written`).
//! **Invariant**: a slot that was in use at a fork is never allocated again (the other process may read it).

use std::ops::Range;

/// Slots in a segment: 2 MiB, the smallest run that a disk streams at full speed.
const SEGMENT_SLOTS: usize = 512;
const SEGMENT_WORDS: usize = SEGMENT_SLOTS / 64;
/// Segments with this many free slots are used again before the file grows.
const MOSTLY_FREE: u16 = 384;

/// The slots of one file.
pub(super) struct Slots {
    /// One bit for each slot, set when it is in use.
    used: Vec<u64>,
    /// One bit for each slot, set when it was ever written: the disk has blocks for it.
    written: Vec<u64>,
    /// Of those, the free ones; and the word at which the search for them goes on.
    free_written: usize,
    hand: usize,
    /// For each generation of forked relatives, one bit for each slot that they may read. (See `fork_group`.)
    frozen: Vec<(Option<u32>, Vec<u64>)>,
    /// One bit for each slot that was given back and is kept for them.
    kept: Vec<u64>,
    kept_slots: u64,
    /// Free slots in each segment.
    free_in: Vec<u16>,
    capacity_slots: u64,
    used_slots: u64,
    /// The segment that is being filled and the next slot in it.
    segment: usize,
    next: usize,
}

impl Slots {
    /// All free.
    pub(super) fn new(capacity_slots: u64) -> Slots {
        Slots {
            used: Vec::new(),
            written: Vec::new(),
            free_written: 0,
            hand: 0,
            frozen: Vec::new(),
            kept: Vec::new(),
            kept_slots: 0,
            free_in: Vec::new(),
            capacity_slots,
            used_slots: 0,
            segment: 0,
            next: SEGMENT_SLOTS,
        }
    }

    /// Slots in use, with those that a fork keeps from being used again.
    pub(super) fn used_slots(&self) -> u64 {
        self.used_slots
    }

    /// Bytes of the tables.
    pub(super) fn table_bytes(&self) -> usize {
        let frozen: usize = self.frozen.iter().map(|(_, bits)| bits.capacity()).sum();
        (self.used.capacity() + self.written.capacity() + self.kept.capacity() + frozen) * 8
            + self.free_in.capacity() * 2
    }

    /// Takes up to `count` slots, in as few runs as possible. Fewer only if no more are free.
    pub(super) fn take(&mut self, mut count: usize) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        while count > 0 {
            let Some(run) = self.next_run(count) else {
                if self.choose_segment() {
                    continue;
                }
                break;
            };
            count -= run.len();
            let base = self.segment * SEGMENT_SLOTS;
            let (start, end) = ((base + run.start) as u64, (base + run.end) as u64);
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        }
        runs
    }

    /// Takes up to `count` slots that were written before.
    pub(super) fn take_written(&mut self, count: usize) -> Vec<u64> {
        let count = count.min(self.free_written);
        let mut slots = Vec::with_capacity(count);
        while slots.len() < count {
            let word = self.hand;
            let mut free = self.written[word] & !self.used[word];
            while free != 0 && slots.len() < count {
                let bit = free & free.wrapping_neg();
                free ^= bit;
                self.used[word] |= bit;
                self.free_in[word / SEGMENT_WORDS] -= 1;
                self.used_slots += 1;
                slots.push(word as u64 * 64 + u64::from(bit.trailing_zeros()));
            }
            if free == 0 {
                self.hand = (word + 1) % self.used.len();
            }
        }
        self.free_written -= count;
        slots
    }

    /// Slots in use have been written.
    pub(super) fn note_written(&mut self, slots: impl Iterator<Item = u64>) {
        for slot in slots {
            let slot = usize::try_from(slot).expect("a slot of this file");
            self.written[slot / 64] |= 1 << (slot % 64);
        }
    }

    /// Gives a slot back.
    pub(super) fn give_back(&mut self, slot: u64) {
        let slot = usize::try_from(slot).expect("a slot of this file");
        let (word, bit) = (slot / 64, 1u64 << (slot % 64));
        assert!(self.used[word] & bit != 0, "slot {slot} was freed twice");
        if self.frozen_word(word) & bit != 0 {
            self.kept.resize(self.used.len(), 0);
            assert!(self.kept[word] & bit == 0, "slot {slot} was freed twice");
            self.kept[word] |= bit;
            self.kept_slots += 1;
            return;
        }
        self.used[word] &= !bit;
        self.free_written += usize::from(self.written[word] & bit != 0);
        self.free_in[slot / SEGMENT_SLOTS] += 1;
        self.used_slots -= 1;
    }

    /// Slots that wait for relatives to be gone.
    pub(super) fn kept_slots(&self) -> u64 {
        self.kept_slots
    }

    /// Keeps every slot that is in use now from being used again, until `thaw` of the same generation; for good without one.
    pub(super) fn freeze(&mut self, generation: Option<u32>) {
        let index = self.frozen.iter().position(|(number, _)| *number == generation);
        let index = index.unwrap_or_else(|| {
            self.frozen.push((generation, Vec::new()));
            self.frozen.len() - 1
        });
        self.kept.resize(self.used.len(), 0);
        let bits = &mut self.frozen[index].1;
        bits.resize(self.used.len(), 0);
        for (frozen, (used, kept)) in bits.iter_mut().zip(self.used.iter().zip(&self.kept)) {
            // What is kept for older relatives is nothing that this one knows of.
            *frozen |= used & !kept;
        }
    }

    /// The relatives of a generation are gone: what was kept for them alone is free.
    pub(super) fn thaw(&mut self, generation: u32) {
        self.frozen.retain(|(number, _)| *number != Some(generation));
        for word in 0..self.kept.len() {
            let free = self.kept[word] & !self.frozen_word(word);
            self.kept[word] &= !free;
            self.used[word] &= !free;
            self.free_written += (self.written[word] & free).count_ones() as usize;
            let slots = free.count_ones();
            self.free_in[word * 64 / SEGMENT_SLOTS] += u16::try_from(slots).expect("at most 64");
            self.kept_slots -= u64::from(slots);
            self.used_slots -= u64::from(slots);
        }
    }

    /// The slots of a word that a process may read.
    fn frozen_word(&self, word: usize) -> u64 {
        self.frozen.iter().filter_map(|(_, bits)| bits.get(word)).fold(0, |all, bits| all | bits)
    }

    /// Takes the next run of at most `count` free slots of the current segment.
    fn next_run(&mut self, count: usize) -> Option<Range<usize>> {
        if self.next >= SEGMENT_SLOTS || self.free_in[self.segment] == 0 {
            return None;
        }
        let words = &mut self.used[self.segment * SEGMENT_WORDS..][..SEGMENT_WORDS];
        let written = &self.written[self.segment * SEGMENT_WORDS..][..SEGMENT_WORDS];
        let is_used = |slot: usize| words[slot / 64] & (1 << (slot % 64)) != 0;
        let start = (self.next..SEGMENT_SLOTS).find(|slot| !is_used(*slot))?;
        let end = (start..SEGMENT_SLOTS).take(count).find(|slot| is_used(*slot));
        let end = end.unwrap_or((start + count).min(SEGMENT_SLOTS));
        for slot in start..end {
            words[slot / 64] |= 1 << (slot % 64);
            self.free_written -= usize::from(written[slot / 64] & 1 << (slot % 64) != 0);
        }
        self.next = end;
        self.free_in[self.segment] -= u16::try_from(end - start).expect("at most 512");
        self.used_slots += (end - start) as u64;
        Some(start..end)
    }

    /// Moves to the segment to fill next; `false` if every slot is in use.
    fn choose_segment(&mut self) -> bool {
        let best = self.free_in.iter().enumerate().max_by_key(|(index, free)| (**free, std::cmp::Reverse(*index)));
        let best = best.map(|(index, free)| (index, *free)).filter(|(_, free)| *free > 0);
        let can_grow = ((self.free_in.len() * SEGMENT_SLOTS) as u64) < self.capacity_slots;
        match best {
            Some((index, free)) if free >= MOSTLY_FREE || !can_grow => self.segment = index,
            _ if can_grow => self.grow(),
            _ => return false,
        }
        self.next = 0;
        true
    }

    /// Appends a segment and makes it the current one.
    fn grow(&mut self) {
        let start = (self.free_in.len() * SEGMENT_SLOTS) as u64;
        let slots = usize::try_from(self.capacity_slots - start).unwrap_or(usize::MAX).min(SEGMENT_SLOTS);
        self.segment = self.free_in.len();
        self.free_in.push(u16::try_from(slots).expect("at most 512"));
        self.used.resize(self.used.len() + SEGMENT_WORDS, 0);
        self.written.resize(self.used.len(), 0);
        // What lies behind the capacity is never free.
        let words = &mut self.used[self.segment * SEGMENT_WORDS..];
        for slot in slots..SEGMENT_SLOTS {
            words[slot / 64] |= 1 << (slot % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Rng;
    use std::collections::{BTreeMap, BTreeSet};

    fn all(runs: &[Range<u64>]) -> impl Iterator<Item = u64> + '_ {
        runs.iter().flat_map(Clone::clone)
    }

    #[test]
    fn batches_are_contiguous_and_the_capacity_holds() {
        let mut slots = Slots::new(1000);
        let mut take = |count| slots.take(count).iter().map(|run| (run.start, run.end)).collect::<Vec<_>>();
        assert_eq!(take(64), [(0, 64)]);
        assert_eq!(take(600), [(64, 664)]);
        assert_eq!(take(600), [(664, 1000)]);
        assert!(slots.take(1).is_empty());
        slots.give_back(500);
        assert_eq!(all(&slots.take(2)).collect::<Vec<_>>(), [500]);
        assert_eq!(slots.used_slots(), 1000);
    }

    #[test]
    fn of_free_slots_those_that_were_written_can_be_had_alone() {
        let mut slots = Slots::new(2000);
        let taken: Vec<u64> = all(&slots.take(900)).collect();
        slots.note_written(taken.iter().copied().filter(|slot| slot % 3 != 0));
        taken.iter().filter(|slot| *slot % 2 == 0).for_each(|slot| slots.give_back(*slot));
        let again: Vec<u64> = (0..900).filter(|slot| slot % 2 == 0 && slot % 3 != 0).collect();
        assert_eq!(slots.take_written(100), again[..100]);
        assert_eq!(slots.hand, 4, "the search ends where enough were found");
        assert_eq!((slots.take_written(1000), slots.take_written(1)), (again[100..].to_vec(), Vec::new()));
        assert_eq!(slots.used_slots(), 450 + again.len() as u64);
        assert_eq!(all(&slots.take(2000)).count(), 2000 - 450 - again.len(), "the others");
    }

    #[test]
    fn never_the_same_slot_twice() {
        for seed in 0..20 {
            let mut rng = Rng(seed);
            let capacity = 600 + rng.below(3000);
            let mut slots = Slots::new(capacity);
            let mut held: Vec<u64> = Vec::new();
            let mut frozen: BTreeMap<Option<u32>, BTreeSet<u64>> = BTreeMap::new();
            for step in 0..2000 {
                if rng.below(2) == 0 {
                    let count = 1 + rng.index(100);
                    let mut taken = if rng.below(8) == 0 { slots.take_written(count) } else { Vec::new() };
                    taken.extend(all(&slots.take(count - taken.len())));
                    slots.note_written(taken.iter().copied().filter(|slot| slot % 7 != 0));
                    let free = capacity - slots.used_slots() + taken.len() as u64;
                    assert_eq!(taken.len() as u64, free.min(count as u64), "seed {seed} step {step}");
                    assert!(taken.iter().all(|slot| *slot < capacity && !frozen.values().any(|f| f.contains(slot))));
                    held.extend(taken);
                } else {
                    for _ in 0..rng.index(100).min(held.len()) {
                        slots.give_back(held.swap_remove(rng.index(held.len())));
                    }
                }
                match rng.below(300) {
                    0 => {
                        // Without a generation: for good.
                        let generation = u32::try_from(rng.below(20)).ok().filter(|_| rng.below(10) > 0);
                        slots.freeze(generation);
                        frozen.entry(generation).or_default().extend(held.iter().copied());
                    }
                    1..4 => {
                        let generation = u32::try_from(rng.below(20)).ok();
                        slots.thaw(generation.expect("a small number"));
                        frozen.remove(&generation);
                    }
                    _ => {}
                }
                let mut used = vec![false; usize::try_from(capacity).expect("small")];
                let mut mark = |slot: u64| std::mem::replace(&mut used[usize::try_from(slot).expect("small")], true);
                assert!(!held.iter().any(|slot| mark(*slot)), "seed {seed} step {step}: a slot was given twice");
                frozen.values().flatten().for_each(|slot| _ = mark(*slot));
                let used = used.into_iter().filter(|used| *used).count();
                assert_eq!(slots.used_slots(), used as u64, "seed {seed} step {step}");
                let written = |(written, used): (&u64, &u64)| (written & !used).count_ones() as usize;
                let free_written: usize = slots.written.iter().zip(&slots.used).map(written).sum();
                assert_eq!(slots.free_written, free_written, "seed {seed} step {step}");
            }
        }
    }
}
