//! Staging slots: where victims wait after they left the program. The slots that hold pages *are* the swap cache.
//!
//! ```text
//!   empty chunks ──► filled by one eviction batch ──► queue, oldest first ──► drained (written back, frames freed) ──┐
//!        ▲                                                                                                           │
//!        └───────────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A chunk is 64 neighbouring slots. It is filled by one batch, ages in the queue, and is drained as a whole, so that its
//! frames are freed by one call. A page touched meanwhile is copied out of its slot; the slot then no longer names a page
//! that points back at it, and draining skips it. Beside the chunks there are key slots, for the key pages of read-ahead
//! (one page each, not movable by the kernel's MOVE, reused in turn).

use hinterland_sys::{Mapping, SysError};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Slots in a chunk: one bit each in a u64, and enough for one MOVE of a long run to cost 0.1 µs a page.
pub const CHUNK_SLOTS: u32 = 64;
/// Chunks at most: 1 GiB of swap cache.
const CHUNKS_MAX: u32 = 4096;
/// Slots in chunks.
const SLOTS: u32 = CHUNKS_MAX * CHUNK_SLOTS;
/// Key slots: as many read-ahead windows can be under way.
const KEY_SLOTS: u32 = 64;

/// A chunk, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkNo(u32);

impl ChunkNo {
    /// The chunk's slot at `index`.
    pub fn slot(self, index: u32) -> u32 {
        debug_assert!(index < CHUNK_SLOTS);
        self.0 * CHUNK_SLOTS + index
    }
}

/// See the module.
pub struct Staging {
    memory: Mapping,
    key_memory: Mapping,
    /// The page that each slot was last given to, plus one; 0: none.
    pages: Mapping,
    queue: Mutex<Queue>,
    next_key: AtomicU32,
}

struct Queue {
    empty: Vec<ChunkNo>,
    /// Chunks that were never used start here.
    fresh: u32,
    full: VecDeque<(ChunkNo, u32, u32)>,
}

impl Staging {
    /// Staging memory, nothing in it.
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub fn new() -> Result<Staging, SysError> {
        Ok(Staging {
            memory: Mapping::anonymous(SLOTS as usize * PAGE_BYTES)?,
            key_memory: Mapping::anonymous(KEY_SLOTS as usize * PAGE_BYTES)?,
            pages: Mapping::anonymous((SLOTS + KEY_SLOTS) as usize * size_of::<AtomicU32>())?,
            queue: Mutex::new(Queue { empty: Vec::new(), fresh: 0, full: VecDeque::new() }),
            next_key: AtomicU32::new(0),
        })
    }

    /// The mapping of the chunks' slots, which must be registered for MOVE to fill it.
    pub fn memory(&self) -> Mapping {
        self.memory
    }

    /// The address of a slot.
    pub fn address(&self, slot: u32) -> usize {
        if slot < SLOTS {
            self.memory.start + slot as usize * PAGE_BYTES
        } else {
            self.key_memory.start + (slot - SLOTS) as usize * PAGE_BYTES
        }
    }

    /// The page that a slot was last given to.
    pub fn page(&self, slot: u32) -> Option<PageNo> {
        self.owner(slot).load(Acquire).checked_sub(1).map(PageNo)
    }

    /// Gives a slot to a page, or to none. Whoever sees the page here also sees that the page points at the slot, if that was
    /// noted before: the order that `claim_slot` relies on.
    pub fn set_page(&self, slot: u32, page: Option<PageNo>) {
        self.owner(slot).store(page.map_or(0, |p| p.0 + 1), Release);
    }

    fn owner(&self, slot: u32) -> &AtomicU32 {
        assert!(slot < SLOTS + KEY_SLOTS, "staging slot {slot} does not exist");
        // SAFETY: in bounds; the mapping lives for ever and is accessed atomically.
        unsafe { &*(self.pages.start as *const AtomicU32).add(slot as usize) }
    }

    /// Takes an empty chunk; `None` when all are in use.
    pub fn take_empty(&self) -> Option<ChunkNo> {
        let mut queue = self.lock();
        queue.empty.pop().or_else(|| {
            (queue.fresh < CHUNKS_MAX).then(|| {
                queue.fresh += 1;
                ChunkNo(queue.fresh - 1)
            })
        })
    }

    /// Gives back a chunk whose slots hold nothing.
    pub fn give_empty(&self, chunk: ChunkNo) {
        self.lock().empty.push(chunk);
    }

    /// Queues a chunk: its first `used` slots were given to pages, and `frames` of them hold one.
    pub fn push_full(&self, chunk: ChunkNo, used: u32, frames: u32) {
        self.lock().full.push_back((chunk, used, frames));
    }

    /// Takes the oldest chunk if more than `keep` wait; with it, what `push_full` said.
    pub fn take_oldest(&self, keep: usize) -> Option<(ChunkNo, u32, u32)> {
        let mut queue = self.lock();
        if queue.full.len() > keep { queue.full.pop_front() } else { None }
    }

    /// The next key slot in turn. The caller frees it from its page first, if it still has one.
    pub fn next_key_slot(&self) -> u32 {
        SLOTS + self.next_key.fetch_add(1, Relaxed) % KEY_SLOTS
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().expect("no thread panics while it holds the staging queue: a panic ends the process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_age_in_order_and_come_back() {
        let staging = Staging::new().unwrap();
        let (a, b) = (staging.take_empty().unwrap(), staging.take_empty().unwrap());
        staging.push_full(a, 64, 60);
        staging.push_full(b, 10, 10);
        assert_eq!(staging.take_oldest(1), Some((a, 64, 60)));
        assert_eq!(staging.take_oldest(1), None);
        staging.give_empty(a);
        assert_eq!(staging.take_empty(), Some(a));
        assert_eq!(staging.take_oldest(0), Some((b, 10, 10)));
    }

    #[test]
    fn slots_have_distinct_addresses_and_owners() {
        let staging = Staging::new().unwrap();
        let key = staging.next_key_slot();
        let slot = staging.take_empty().unwrap().slot(5);
        assert_ne!(staging.address(slot), staging.address(key));
        staging.set_page(slot, Some(PageNo(0)));
        assert_eq!((staging.page(slot), staging.page(key)), (Some(PageNo(0)), None));
        staging.set_page(slot, None);
        assert_eq!(staging.page(slot), None);
    }
}
