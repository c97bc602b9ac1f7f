//! The handle table: where each stored page is now.
//!
//! A location names a handle, and the handle's entry says which slot of which slab holds the page; so a page can move
//! while its location stays. Entries are atomics: a load pins its entry (one atomic add) and reads the slot without a lock;
//! the compactor changes an entry only by compare-and-swap from an unpinned value.
//!
//! ```text
//! stored:  pins 8 bits | 0 … | stage 3 bits | 1 | length - 1, 12 bits | slot 11 bits | slab 26 bits
//! free:    the next free handle plus one, or 0
//! ```

use crate::mapping::Growing;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The number of an entry.
pub(super) type Handle = u32;

const SLAB_BITS: u32 = 26;
const SLOT_BITS: u32 = 11;
const LENGTH_BITS: u32 = 12;
const STORED: u64 = 1 << (SLAB_BITS + SLOT_BITS + LENGTH_BITS);
const STAGE_BITS: u32 = 3;
const STAGE_SHIFT: u32 = SLAB_BITS + SLOT_BITS + LENGTH_BITS + 1;
const PIN: u64 = 1 << 56;

/// Slabs that an entry can name.
pub(super) const SLABS_MAX: usize = 1 << SLAB_BITS;

/// How far recompression has come with an object. A pass of the hand that made it so is even or odd (`true`): the hand may meet an object twice
/// in a pass, because objects move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Stored or loaded since the hand passed.
    Fresh,
    /// Neither stored nor loaded since the hand passed.
    Aged(bool),
    /// zstd gains nothing that matters.
    Settled,
    /// Compressed by zstd in this pass or the last, whatever the store's codec.
    Recompressed(bool),
    /// The same, and it has stayed since.
    Proven,
}

impl Stage {
    /// By their bits.
    const ALL: [Stage; 7] = [
        Stage::Fresh,
        Stage::Aged(false),
        Stage::Aged(true),
        Stage::Settled,
        Stage::Recompressed(false),
        Stage::Recompressed(true),
        Stage::Proven,
    ];

    fn bits(self) -> u64 {
        match self {
            Stage::Fresh => 0,
            Stage::Aged(odd) => 1 + u64::from(odd),
            Stage::Settled => 3,
            Stage::Recompressed(odd) => 4 + u64::from(odd),
            Stage::Proven => 6,
        }
    }

    /// Whether the object is compressed by zstd, whatever the store's codec.
    pub(super) fn is_recompressed(self) -> bool {
        matches!(self, Stage::Recompressed(_) | Stage::Proven)
    }
}

/// Where an object is and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Object {
    pub(super) slab: u32,
    pub(super) slot: u16,
    /// Bytes; a page's own length means that it is stored plain.
    pub(super) length: u16,
    pub(super) stage: Stage,
}

impl Object {
    /// The same object in another stage.
    pub(super) fn at(self, stage: Stage) -> Object {
        Object { stage, ..self }
    }

    fn encode(self) -> u64 {
        debug_assert!(self.length >= 1 && self.length <= 4096 && usize::from(self.slot) < 1 << SLOT_BITS);
        STORED
            | (self.stage.bits() << STAGE_SHIFT)
            | (u64::from(self.length - 1) << (SLAB_BITS + SLOT_BITS))
            | (u64::from(self.slot) << SLAB_BITS)
            | u64::from(self.slab)
    }

    #[allow(clippy::cast_possible_truncation, reason = "every field is masked to its width first")]
    fn decode(entry: u64) -> Option<Object> {
        let field = |shift: u32, bits: u32| (entry >> shift) & ((1 << bits) - 1);
        (entry & STORED != 0).then(|| Object {
            slab: field(0, SLAB_BITS) as u32,
            slot: field(SLAB_BITS, SLOT_BITS) as u16,
            length: field(SLAB_BITS + SLOT_BITS, LENGTH_BITS) as u16 + 1,
            stage: Stage::ALL[field(STAGE_SHIFT, STAGE_BITS) as usize],
        })
    }
}

/// The table, in a mapping that grows as handles are used for the first time.
pub(super) struct Handles {
    map: Growing,
    limit: Handle,
}

/// Which handles are free; kept by the caller under its lock.
#[derive(Default)]
pub(super) struct FreeHandles {
    /// First of a list through the entries: a handle plus one, or 0.
    head: u64,
    /// Handles below this have been used.
    high: Handle,
}

impl FreeHandles {
    /// Handles that were ever used at once.
    pub(super) fn high(&self) -> Handle {
        self.high
    }
}

impl Handles {
    /// A table for up to `limit` pages.
    pub(super) fn new(limit: Handle) -> io::Result<Handles> {
        Ok(Handles { map: Growing::reserve(limit as usize * size_of::<AtomicU64>())?, limit })
    }

    #[inline]
    fn entry(&self, handle: Handle) -> &AtomicU64 {
        assert!(handle < self.limit, "handle {handle} outside a table of {}", self.limit);
        // SAFETY: the offset lies inside the mapping (asserted), is a multiple of 8, and the memory, zeroed by the kernel,
        // is only ever used as AtomicU64.
        unsafe { &*self.map.at(handle as usize * size_of::<AtomicU64>()).cast::<AtomicU64>() }
    }

    /// Whether an entry was ever used, or is near one that was: others may not be written to.
    #[inline]
    fn is_writable(&self, handle: Handle) -> bool {
        self.map.is_writable(handle as usize * size_of::<AtomicU64>())
    }

    /// Whether there are no more handles because the kernel refused memory.
    pub(super) fn is_refused(&self) -> bool {
        self.map.is_refused()
    }

    /// Takes a free handle; `None` when all are in use, or the kernel gives no more memory.
    pub(super) fn take(&self, free: &mut FreeHandles) -> Option<Handle> {
        if let Some(handle) = free.head.checked_sub(1) {
            let handle = Handle::try_from(handle).expect("the free list holds handles");
            free.head = self.entry(handle).load(Relaxed);
            return Some(handle);
        }
        let handle = free.high;
        let has_room = handle < self.limit && self.map.grow((handle as usize + 1) * size_of::<AtomicU64>());
        has_room.then(|| {
            free.high += 1;
            handle
        })
    }

    /// Gives a handle back; nothing refers to it any more.
    pub(super) fn give_back(&self, free: &mut FreeHandles, handle: Handle) {
        self.entry(handle).store(free.head, Relaxed);
        free.head = u64::from(handle) + 1;
    }

    /// Makes `handle` stand for a word.
    pub(super) fn set_word(&self, handle: Handle, word: u64) {
        self.entry(handle).store(word, Release);
    }

    /// The word that `handle` stands for.
    pub(super) fn word(&self, handle: Handle) -> u64 {
        self.entry(handle).load(Acquire)
    }

    /// Makes `handle` stand for an object whose bytes are in place.
    pub(super) fn publish(&self, handle: Handle, object: Object) {
        self.entry(handle).store(object.encode(), Release);
    }

    /// Pins the object of `handle` where it is until `unpin`. `None`: nothing is stored there, and it is not pinned.
    #[inline]
    pub(super) fn pin(&self, handle: Handle) -> Option<Object> {
        if !self.is_writable(handle) {
            return None;
        }
        let object = Object::decode(self.entry(handle).fetch_add(PIN, Acquire));
        if object.is_none() {
            self.unpin(handle);
        }
        object
    }

    /// Ends `pin`.
    #[inline]
    pub(super) fn unpin(&self, handle: Handle) {
        self.entry(handle).fetch_sub(PIN, Release);
    }

    /// Takes the object out of `handle`. `None` if nothing is stored there.
    pub(super) fn clear(&self, handle: Handle) -> Option<Object> {
        Object::decode(self.entry(handle).swap(0, Acquire))
    }

    /// The object of `handle`, if it is stored and not pinned now.
    pub(super) fn unpinned(&self, handle: Handle) -> Option<Object> {
        let entry = self.entry(handle).load(Acquire);
        Object::decode(entry).filter(|_| entry < PIN)
    }

    /// Changes `handle` from `from` to `to`, unless it was pinned, freed or moved meanwhile.
    pub(super) fn relocate(&self, handle: Handle, from: Object, to: Object) -> bool {
        self.entry(handle).compare_exchange(from.encode(), to.encode(), AcqRel, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back() {
        let handles = Handles::new(8).expect("a small table");
        assert_eq!((handles.pin(3), handles.unpinned(3)), (None, None), "nothing was ever there");
        assert_eq!(handles.take(&mut FreeHandles::default()), Some(0));
        let places = [(0, 0, 1), (67_108_863, 2047, 4096), (5, 30, 2070)];
        for ((slab, slot, length), stage) in places.iter().flat_map(|place| Stage::ALL.map(|stage| (*place, stage))) {
            let object = Object { slab, slot, length, stage };
            handles.publish(3, object);
            assert_eq!(handles.unpinned(3), Some(object));
            assert_eq!(handles.pin(3), Some(object));
            assert_eq!(handles.unpinned(3), None, "pinned");
            assert!(!handles.relocate(3, object, object), "pinned objects stay");
            handles.unpin(3);
            assert!(handles.relocate(3, object, object));
            assert_eq!(handles.clear(3), Some(object));
            assert_eq!(handles.clear(3), None);
        }
    }

    #[test]
    fn handles_are_used_again_and_run_out() {
        let handles = Handles::new(3).expect("a small table");
        let mut free = FreeHandles::default();
        let taken: Vec<_> = (0..3).filter_map(|_| handles.take(&mut free)).collect();
        assert_eq!(taken, [0, 1, 2]);
        assert_eq!(handles.take(&mut free), None);
        handles.give_back(&mut free, 1);
        handles.give_back(&mut free, 0);
        assert_eq!(handles.take(&mut free), Some(0));
        assert_eq!(handles.take(&mut free), Some(1));
        assert_eq!(handles.take(&mut free), None);
    }
}
