//! One slab: which of its slots are in use, and by whom.

use super::handles::Handle;

/// No slab.
pub(super) const NONE: u32 = u32::MAX;
/// Fullness bins of slabs that have room; one more bin holds the full ones.
pub(super) const BINS: usize = 8;

/// The bookkeeping of one slab.
pub(super) struct Slab {
    pub(super) class: u8,
    /// Slots in use.
    pub(super) used: u16,
    /// Pages from the slab's start that have memory behind them.
    pub(super) touched_pages: u8,
    /// The bin that it is linked into.
    pub(super) bin: u8,
    pub(super) previous: u32,
    pub(super) next: u32,
    /// One bit for each slot, set when it is free.
    free: Box<[u64]>,
    /// The handle of each slot in use.
    owners: Box<[Handle]>,
}

impl Slab {
    /// A slab without slots, as it is before its first use and between two.
    pub(super) fn idle() -> Slab {
        Slab {
            class: 0,
            used: 0,
            touched_pages: 0,
            bin: 0,
            previous: NONE,
            next: NONE,
            free: Box::default(),
            owners: Box::default(),
        }
    }

    /// Cuts the slab into `slots` free slots.
    pub(super) fn cut(&mut self, class: u8, slots: usize) {
        self.class = class;
        self.used = 0;
        self.owners = vec![0; slots].into_boxed_slice();
        self.free = vec![u64::MAX; slots.div_ceil(64)].into_boxed_slice();
        let rest = slots % 64;
        if rest != 0 {
            self.free[slots / 64] = (1 << rest) - 1;
        }
    }

    /// Ends `cut`.
    pub(super) fn uncut(&mut self) {
        assert_eq!(self.used, 0, "a slab in use was given back");
        self.free = Box::default();
        self.owners = Box::default();
    }

    pub(super) fn slots(&self) -> usize {
        self.owners.len()
    }

    /// The bin that fits: by eighths of fullness; `BINS` when full.
    pub(super) fn fitting_bin(&self) -> u8 {
        let bin = usize::from(self.used) * BINS / self.slots();
        u8::try_from(bin).expect("fullness is at most 1")
    }

    /// The lowest free slot.
    pub(super) fn first_free(&self) -> Option<usize> {
        let word = self.free.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.free[word].trailing_zeros() as usize)
    }

    /// The highest slot in use.
    pub(super) fn last_used(&self) -> Option<usize> {
        (0..self.slots()).rev().find(|slot| !self.is_free(*slot))
    }

    fn is_free(&self, slot: usize) -> bool {
        self.free[slot / 64] & (1 << (slot % 64)) != 0
    }

    pub(super) fn owner(&self, slot: usize) -> Handle {
        self.owners[slot]
    }

    /// The handle of a slot, if that is in use.
    pub(super) fn owner_in_use(&self, slot: usize) -> Option<Handle> {
        (!self.is_free(slot)).then(|| self.owners[slot])
    }

    pub(super) fn occupy(&mut self, slot: usize, owner: Handle) {
        assert!(self.is_free(slot), "slot {slot} is in use already");
        self.free[slot / 64] &= !(1 << (slot % 64));
        self.owners[slot] = owner;
        self.used += 1;
    }

    pub(super) fn vacate(&mut self, slot: usize) {
        assert!(!self.is_free(slot), "slot {slot} is free already");
        self.free[slot / 64] |= 1 << (slot % 64);
        self.used -= 1;
    }

    /// Bytes of bookkeeping on the heap.
    pub(super) fn table_bytes(slots: usize) -> usize {
        slots.div_ceil(64) * 8 + slots * size_of::<Handle>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_from_the_bottom() {
        let mut slab = Slab::idle();
        slab.cut(3, 70);
        for slot in 0..70 {
            assert_eq!(slab.first_free(), Some(slot));
            slab.occupy(slot, 100 + u32::try_from(slot).expect("small"));
        }
        assert_eq!(slab.first_free(), None);
        assert_eq!(usize::from(slab.fitting_bin()), BINS);
        slab.vacate(69);
        slab.vacate(5);
        assert_eq!((slab.first_free(), slab.last_used(), slab.owner(68)), (Some(5), Some(68), 168));
        assert_eq!(usize::from(slab.fitting_bin()), BINS - 1);
    }
}
