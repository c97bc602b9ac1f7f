//! Which page slots of a file are in use.
//!
//! Slots are given out in ascending order within segments of 2 MiB, and the next segment is an empty one where possible,
//! as in a log: what is evicted together lies together, and is written and read together. Segments that are mostly free
//! are used again before the file grows, and grown before those that are mostly full.
//! **Invariant**: a slot that was in use at a fork is never given out again (the other process may read it).

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
    /// One bit for each slot that was in use at a fork; empty before the first.
    frozen: Vec<u64>,
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
            frozen: Vec::new(),
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
        (self.used.capacity() + self.frozen.capacity()) * 8 + self.free_in.capacity() * 2
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

    /// Gives a slot back.
    pub(super) fn give_back(&mut self, slot: u64) {
        let slot = usize::try_from(slot).expect("a slot of this file");
        let (word, bit) = (slot / 64, 1u64 << (slot % 64));
        assert!(self.used[word] & bit != 0, "slot {slot} was freed twice");
        if self.frozen.get(word).is_some_and(|frozen| frozen & bit != 0) {
            return;
        }
        self.used[word] &= !bit;
        self.free_in[slot / SEGMENT_SLOTS] += 1;
        self.used_slots -= 1;
    }

    /// Keeps every slot that is in use now from being used again.
    pub(super) fn freeze(&mut self) {
        self.frozen.resize(self.used.len(), 0);
        for (frozen, used) in self.frozen.iter_mut().zip(&self.used) {
            *frozen |= used;
        }
    }

    /// Takes the next run of at most `count` free slots of the current segment.
    fn next_run(&mut self, count: usize) -> Option<Range<usize>> {
        if self.next >= SEGMENT_SLOTS || self.free_in[self.segment] == 0 {
            return None;
        }
        let words = &mut self.used[self.segment * SEGMENT_WORDS..][..SEGMENT_WORDS];
        let is_used = |slot: usize| words[slot / 64] & (1 << (slot % 64)) != 0;
        let start = (self.next..SEGMENT_SLOTS).find(|slot| !is_used(*slot))?;
        let end = (start..SEGMENT_SLOTS).take(count).find(|slot| is_used(*slot));
        let end = end.unwrap_or((start + count).min(SEGMENT_SLOTS));
        for slot in start..end {
            words[slot / 64] |= 1 << (slot % 64);
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
        let grown = ((self.free_in.len() * SEGMENT_SLOTS) as u64) < self.capacity_slots;
        match best {
            Some((index, free)) if free >= MOSTLY_FREE || !grown => self.segment = index,
            _ if grown => self.grow(),
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
    use std::collections::BTreeSet;

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
    fn never_the_same_slot_twice() {
        for seed in 0..20 {
            let mut rng = Rng(seed);
            let capacity = 600 + rng.below(3000);
            let mut slots = Slots::new(capacity);
            let mut held: Vec<u64> = Vec::new();
            let mut frozen = BTreeSet::new();
            for step in 0..2000 {
                if rng.below(2) == 0 {
                    let count = 1 + rng.index(100);
                    let runs = slots.take(count);
                    let taken: Vec<u64> = all(&runs).collect();
                    let free = capacity - slots.used_slots() + taken.len() as u64;
                    assert_eq!(taken.len() as u64, free.min(count as u64), "seed {seed} step {step}");
                    assert!(taken.iter().all(|slot| *slot < capacity && !frozen.contains(slot)));
                    held.extend(taken);
                } else {
                    for _ in 0..rng.index(100).min(held.len()) {
                        slots.give_back(held.swap_remove(rng.index(held.len())));
                    }
                }
                if step % 700 == 699 {
                    slots.freeze();
                    frozen.extend(held.iter().copied());
                }
                let unique: BTreeSet<u64> = held.iter().copied().collect();
                assert_eq!(unique.len(), held.len(), "seed {seed} step {step}");
                assert_eq!(slots.used_slots(), unique.union(&frozen).count() as u64, "seed {seed} step {step}");
            }
        }
    }
}
