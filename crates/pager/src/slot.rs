//! Slots: where the frame of a page in the swap cache is, and so what the page is there for.
//!
//! ```text
//! victim       taken out to leave      in a slot of a chunk       until it is written back with its chunk, or touched
//! prefetched   fetched and not mapped  in a key slot              until it is used, or another page needs the slot
//! parked       taken out to be seen    at its own place in the    until it is touched, or goes on into a chunk as a victim
//!              when it is touched      tracer's second range
//! ```
//! Chunks are filled by one batch and drained as a whole; a key slot is of one page (see `staging`).

use hinterland_paging::{CHUNK_SLOTS, KEY_SLOTS};

/// Chunks of a kind at most: 1 GiB of swap cache. Miri looks at each of their pages.
pub(crate) const CHUNKS_MAX: u32 = if cfg!(miri) { 64 } else { 4096 };
/// Slots in chunks of one kind.
pub(crate) const KIND_SLOTS: u32 = CHUNKS_MAX * CHUNK_SLOTS;
/// Slots in chunks.
pub(crate) const SLOTS: u32 = 2 * KIND_SLOTS;
/// The number that stands for a page's own place.
const PARKED: u32 = u32::MAX;

/// A chunk, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkNo(u32);

/// What comes into a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The program's frames themselves.
    Moved,
    /// Copies of their content.
    Copied,
}

impl ChunkNo {
    /// The chunk of a kind that is used after `fresh` others of it; `None`: there are no more.
    pub(crate) fn after(kind: Kind, fresh: u32) -> Option<ChunkNo> {
        (fresh < CHUNKS_MAX).then(|| ChunkNo(fresh + kind as u32 * CHUNKS_MAX))
    }

    /// Its number.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The chunk's slot at `index`.
    pub(crate) fn slot(self, index: u32) -> ChunkSlot {
        debug_assert!(index < CHUNK_SLOTS);
        ChunkSlot(self.0 * CHUNK_SLOTS + index)
    }

    /// What comes into the chunk.
    pub(crate) fn kind(self) -> Kind {
        if self.0 < CHUNKS_MAX { Kind::Moved } else { Kind::Copied }
    }
}

/// A slot of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkSlot(u32);

/// A slot of a page that waits unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeySlot(u32);

impl KeySlot {
    /// The key slot at `index`.
    pub(crate) fn at(index: u32) -> KeySlot {
        assert!(index < KEY_SLOTS, "key slot {index} does not exist");
        KeySlot(index)
    }

    /// Its place among the key slots.
    pub(crate) fn index(self) -> u32 {
        self.0
    }
}

/// A slot of the staging memory, by number: those of chunks come first.
pub(crate) trait StagingSlot: Copy + Into<SwapCached> {
    /// The number.
    fn number(self) -> u32;
}

impl StagingSlot for ChunkSlot {
    fn number(self) -> u32 {
        self.0
    }
}

impl StagingSlot for KeySlot {
    fn number(self) -> u32 {
        SLOTS + self.0
    }
}

/// What a page in the swap cache is there for, with the slot of its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwapCached {
    Victim(ChunkSlot),
    Prefetched(KeySlot),
    Parked,
}

impl From<ChunkSlot> for SwapCached {
    fn from(slot: ChunkSlot) -> SwapCached {
        SwapCached::Victim(slot)
    }
}

impl From<KeySlot> for SwapCached {
    fn from(slot: KeySlot) -> SwapCached {
        SwapCached::Prefetched(slot)
    }
}

impl SwapCached {
    /// As the page table keeps it.
    pub(crate) fn encode(self) -> u32 {
        match self {
            SwapCached::Victim(slot) => slot.number(),
            SwapCached::Prefetched(slot) => slot.number(),
            SwapCached::Parked => PARKED,
        }
    }

    /// From what `encode` returned, or from 0.
    pub(crate) fn decode(number: u32) -> SwapCached {
        match number {
            PARKED => SwapCached::Parked,
            ..SLOTS => SwapCached::Victim(ChunkSlot(number)),
            _ => SwapCached::Prefetched(KeySlot(number - SLOTS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_is_there_for_is_told_by_its_number() {
        let last = |kind| ChunkNo::after(kind, CHUNKS_MAX - 1).unwrap().slot(CHUNK_SLOTS - 1);
        let all = [
            ChunkNo::after(Kind::Moved, 0).unwrap().slot(0).into(),
            last(Kind::Moved).into(),
            last(Kind::Copied).into(),
            KeySlot::at(0).into(),
            KeySlot::at(KEY_SLOTS - 1).into(),
            SwapCached::Parked,
        ];
        assert_eq!(all.map(|cached| SwapCached::decode(cached.encode())), all);
        let numbers = all.map(SwapCached::encode);
        assert!(numbers.is_sorted() && numbers[0] == 0 && numbers[2] + 1 == numbers[3], "{numbers:?}");
        assert_eq!(ChunkNo::after(Kind::Moved, CHUNKS_MAX), None);
    }
}
