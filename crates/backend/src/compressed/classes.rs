//! Size classes of the slab store.
//!
//! A slab of 64 KiB is cut into equal slots. Near the page size the classes are those that fill a slab without a rest
//! (64 KiB / 16, / 17, …); below, where these lie closer than 1/32, they are thinned out to steps of 1/32. So a slot is on
//! average 1.5–3 % larger than its object.

/// Bytes in a slab. Large enough that the rest behind the last slot is small, small enough that half-empty slabs (one for
/// each class) stay small: derived, 127 classes × 32 KiB.
pub(super) const SLAB_BYTES: usize = 64 << 10;
/// The smallest slot. LZ4 needs about 24 bytes for a page of one repeated byte.
const SLOT_BYTES_MIN: usize = 32;
/// The largest slot: a plain page.
const SLOT_BYTES_MAX: usize = 4096;
/// Objects start at multiples of this.
const ALIGN: usize = 8;
/// Wanted ratio between neighbouring classes: 1 + 1/32.
const STEP: usize = 32;

/// The sizes of all classes, and the class of every length.
pub(super) struct Classes {
    slot_bytes: Vec<usize>,
    /// Indexed by length in units of ALIGN, rounded up.
    class_of: Vec<u8>,
}

impl Classes {
    pub(super) fn new() -> Classes {
        let mut sizes = vec![SLOT_BYTES_MAX];
        let mut slots = SLAB_BYTES / SLOT_BYTES_MAX + 1;
        loop {
            let size = SLAB_BYTES / slots / ALIGN * ALIGN;
            let last = sizes[sizes.len() - 1];
            if size < SLOT_BYTES_MIN {
                break;
            }
            if size <= last - (last / (STEP + 1)).max(ALIGN) {
                sizes.push(size);
            }
            slots += 1;
        }
        sizes.reverse();
        let class_of = (0..=SLOT_BYTES_MAX / ALIGN)
            .map(|units| {
                let class = sizes.partition_point(|size| *size < units * ALIGN);
                u8::try_from(class).expect("fewer than 256 classes")
            })
            .collect();
        Classes { slot_bytes: sizes, class_of }
    }

    /// The class with the smallest slot that holds `length` bytes (at most a page).
    #[inline]
    pub(super) fn of(&self, length: usize) -> usize {
        usize::from(self.class_of[length.div_ceil(ALIGN)])
    }

    /// Bytes in a slot of `class`.
    #[inline]
    pub(super) fn slot_bytes(&self, class: usize) -> usize {
        self.slot_bytes[class]
    }

    /// Slots in a slab of `class`.
    pub(super) fn slots(&self, class: usize) -> usize {
        SLAB_BYTES / self.slot_bytes[class]
    }

    /// The longest object whose slot has `bytes` at most; 0: there is none.
    pub(super) fn longest_in(&self, bytes: usize) -> usize {
        let classes = self.slot_bytes.partition_point(|slot| *slot <= bytes);
        classes.checked_sub(1).map_or(0, |class| self.slot_bytes[class])
    }

    /// How many classes there are.
    pub(super) fn len(&self) -> usize {
        self.slot_bytes.len()
    }

    /// The longest compressed page that still takes a smaller slot than a plain one.
    pub(super) fn longest_compressed(&self) -> usize {
        self.slot_bytes[self.slot_bytes.len() - 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_fits_its_class_closely() {
        let classes = Classes::new();
        let mut slack = 0;
        for length in SLOT_BYTES_MIN..=SLOT_BYTES_MAX {
            let slot = classes.slot_bytes(classes.of(length));
            assert!(slot >= length, "{length} in {slot}");
            assert!(slot <= length + (length / 15).max(16), "{length} in {slot}");
            assert_eq!((classes.longest_in(slot), classes.longest_in(slot - 1) < length), (slot, true), "{length}");
            if length >= 256 {
                slack += slot - length;
            }
        }
        let lengths: usize = (256..=SLOT_BYTES_MAX).sum();
        assert!(slack * 100 <= lengths * 3, "average waste {} %", slack * 100 / lengths);
        assert!(classes.len() <= 160, "{} classes", classes.len());
        assert_eq!(classes.slots(classes.of(4096)), 16);
    }

    #[test]
    fn the_rest_of_a_slab_is_small() {
        let classes = Classes::new();
        for class in 0..classes.len() {
            let rest = SLAB_BYTES - classes.slots(class) * classes.slot_bytes(class);
            assert!(rest * 50 <= SLAB_BYTES, "class of {} leaves {rest}", classes.slot_bytes(class));
        }
    }
}
