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
//! that points back at it, and draining skips it. A chunk takes moved frames or copies, never both: the slots for moved frames
//! are empty between two uses, those for copies keep their own frames. Beside the chunks there are key slots, for
//! prefetched pages that wait unmapped (one page each, not movable by the kernel's MOVE; `prefetch_cache` gives them out).

use crate::decisions::Decisions;
use crate::slot::{CHUNKS_MAX, ChunkNo, KIND_SLOTS, Kind, SLOTS, StagingSlot};
use crate::sys::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use crate::sys::sync::{Mutex, MutexGuard, Words};
use crate::sys::{Mapping, mem};
use hinterland_paging::{CHUNK_SLOTS, ChunkQueue, KEY_SLOTS, Oldest, Step, Way};
use hinterland_sys::SysError;
use hinterland_units::{PAGE_BYTES, PageCount, PageNo};
use std::ops::Range;

/// Unused chunks for copies that keep their frames.
const IDLE_MAX: usize = 4;

const _: () = assert!(CHUNKS_MAX.is_multiple_of(WRITABLE_CHUNKS));
/// Chunks of a kind become writable so many at a time: 16 MiB.
const WRITABLE_CHUNKS: u32 = 64;

/// See the module.
pub struct Staging {
    /// First the slots for moved frames, then those for copies; writable as far as chunks were ever used.
    memory: Mapping,
    key_memory: Mapping,
    /// The page that each slot was last given to, plus one; 0: none.
    pages: Words<AtomicU32>,
    queue: Mutex<Queue>,
    decisions: Decisions,
}

struct Queue {
    /// By kind: chunks that were used before, the next one last.
    empty: [Vec<ChunkNo>; 2],
    /// By kind: how many chunks were ever used.
    fresh: [u32; 2],
    full: ChunkQueue<(ChunkNo, u32, u32)>,
}

/// Where the slots are, in bytes, of the chunks of a kind that become writable with the one that is used after `fresh` others.
fn bytes_of(kind: Kind, fresh: u32) -> Range<usize> {
    let slots = |chunks: u32| (kind as u32 * KIND_SLOTS + chunks * CHUNK_SLOTS) as usize;
    slots(fresh) * PAGE_BYTES..slots(fresh + WRITABLE_CHUNKS) * PAGE_BYTES
}

impl Staging {
    /// Staging memory, nothing in it.
    ///
    /// # Errors
    /// `ENOMEM` when the address space is limited.
    pub fn new(decisions: Decisions) -> Result<Staging, SysError> {
        let (empty, fresh, full) = ([Vec::new(), Vec::new()], [0; 2], ChunkQueue::default());
        let memory = Mapping::read_only(SLOTS as usize * PAGE_BYTES)?;
        // With these, pages can leave whatever memory the program takes.
        for kind in [Kind::Moved, Kind::Copied] {
            memory.make_writable(bytes_of(kind, 0))?;
        }
        Ok(Staging {
            memory,
            key_memory: Mapping::anonymous(KEY_SLOTS as usize * PAGE_BYTES)?,
            pages: Words::new((SLOTS + KEY_SLOTS) as usize)?,
            queue: Mutex::new(Queue { empty, fresh, full }),
            decisions,
        })
    }

    /// The slots for moved frames, which must be registered for MOVE to fill them.
    pub fn moved_memory(&self) -> Mapping {
        Mapping { start: self.memory.start, len: KIND_SLOTS as usize * PAGE_BYTES }
    }

    /// The address of a slot.
    pub fn address(&self, slot: impl StagingSlot) -> usize {
        match slot.number().checked_sub(SLOTS) {
            None => self.memory.start + slot.number() as usize * PAGE_BYTES,
            Some(key) => self.key_memory.start + key as usize * PAGE_BYTES,
        }
    }

    /// The page that a slot was last given to.
    pub fn page(&self, slot: impl StagingSlot) -> Option<PageNo> {
        self.owner(slot).load(Acquire).checked_sub(1).map(PageNo)
    }

    /// Gives a slot to a page, or to none. A thread that sees the page here also sees that the page points at the slot,
    /// if that was noted before: the order that `claim_slot` relies on.
    pub fn set_page(&self, slot: impl StagingSlot, page: Option<PageNo>) {
        self.owner(slot).store(page.map_or(0, |p| p.0 + 1), Release);
    }

    fn owner(&self, slot: impl StagingSlot) -> &AtomicU32 {
        self.pages.at(slot.number() as usize)
    }

    /// Takes an empty chunk of a kind; `None` when all are in use, or the kernel gives no more memory.
    pub fn take_empty(&self, kind: Kind) -> Option<ChunkNo> {
        let mut queue = self.lock();
        queue.empty[kind as usize].pop().or_else(|| {
            let fresh = queue.fresh[kind as usize];
            let chunk = ChunkNo::after(kind, fresh)?;
            if fresh != 0 && fresh.is_multiple_of(WRITABLE_CHUNKS) {
                self.memory.make_writable(bytes_of(kind, fresh)).ok()?;
            }
            queue.fresh[kind as usize] += 1;
            Some(chunk)
        })
    }

    /// Gives back a chunk whose slots hold nothing that is needed. A few unused chunks for copies keep their frames.
    pub fn give_empty(&self, chunk: ChunkNo) {
        let kind = chunk.kind();
        let mut queue = self.lock();
        let empty = &mut queue.empty[kind as usize];
        if kind == Kind::Moved || empty.len() < IDLE_MAX {
            empty.push(chunk);
            return;
        }
        drop(queue);
        // SAFETY: nobody uses the chunk's slots. If their frames stay, they cost memory only.
        let _ = unsafe { mem::drop_pages(self.address(chunk.slot(0)), CHUNK_SLOTS as usize * PAGE_BYTES) };
        self.lock().empty[kind as usize].insert(0, chunk);
    }

    /// Bytes of the frames in slots for copies that hold no page, at most: in unused chunks, and beside the pages of others.
    pub fn idle_bytes(&self) -> u64 {
        let queue = self.lock();
        let unused = queue.empty[Kind::Copied as usize].len().min(IDLE_MAX) as u64 * u64::from(CHUNK_SLOTS);
        let copied = queue.full.iter().filter(|(chunk, ..)| chunk.kind() == Kind::Copied);
        let beside: u64 = copied.map(|(.., frames)| u64::from(CHUNK_SLOTS - frames)).sum();
        (unused + beside) * PAGE_BYTES as u64
    }

    /// Queues a chunk: its first `used` slots were given to pages, and `frames` of them hold one. `way`: in which these have just left the
    /// program.
    pub fn push_full(&self, chunk: ChunkNo, way: Option<Way>, used: u32, frames: u32) {
        let turn = self.decisions.turn();
        self.lock().full.push((chunk, used, frames));
        let pages = || (0..used).filter_map(|index| self.page(chunk.slot(index))).collect();
        turn.note(|| Step::Chunk { number: chunk.number(), way, pages: pages() });
    }

    /// Takes the oldest chunk out of the swap cache, which should hold so many pages ([`ChunkQueue::take`]); with it, what `push_full` said.
    pub fn take_oldest(&self, which: Oldest, swap_cache: PageCount) -> Option<(ChunkNo, u32, u32)> {
        self.lock().full.take(which, swap_cache)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no thread panics while it holds the staging queue: a panic ends the process")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::KeySlot;

    #[test]
    fn chunks_age_in_order_and_come_back() {
        let staging = Staging::new(Decisions::default()).unwrap();
        let (a, b) = (staging.take_empty(Kind::Moved).unwrap(), staging.take_empty(Kind::Moved).unwrap());
        staging.push_full(a, Some(Way::Move), 64, 60);
        staging.push_full(b, Some(Way::Move), 10, 10);
        assert_eq!(staging.take_oldest(Oldest::BeyondShare, PageCount(64)), Some((a, 64, 60)));
        assert_eq!(staging.take_oldest(Oldest::BeyondShare, PageCount(64)), None);
        staging.give_empty(a);
        assert_eq!(staging.take_empty(Kind::Moved), Some(a));
        assert_eq!(staging.take_oldest(Oldest::Any, PageCount(64)), Some((b, 10, 10)));
    }

    #[test]
    fn slots_have_distinct_addresses_and_owners() {
        let staging = Staging::new(Decisions::default()).unwrap();
        let key = KeySlot::at(0);
        let slot = staging.take_empty(Kind::Moved).unwrap().slot(5);
        assert_ne!(staging.address(slot), staging.address(key));
        staging.set_page(slot, Some(PageNo(0)));
        assert_eq!((staging.page(slot), staging.page(key)), (Some(PageNo(0)), None));
        staging.set_page(slot, None);
        assert_eq!(staging.page(slot), None);
    }

    #[test]
    fn few_unused_frames_stay() {
        let staging = Staging::new(Decisions::default()).unwrap();
        let chunks: Vec<ChunkNo> = (0..IDLE_MAX + 3).map(|_| staging.take_empty(Kind::Copied).unwrap()).collect();
        for chunk in &chunks {
            assert_eq!(chunk.kind(), Kind::Copied);
            // SAFETY: the slot is memory of this test's staging.
            unsafe { (staging.address(chunk.slot(3)) as *mut u64).write(7) };
        }
        chunks.iter().for_each(|chunk| staging.give_empty(*chunk));
        let present = |chunk: &&ChunkNo| mem::is_in_memory(staging.address(chunk.slot(3)));
        assert_eq!(chunks.iter().filter(present).count(), IDLE_MAX);
        assert_eq!(staging.idle_bytes(), (IDLE_MAX * CHUNK_SLOTS as usize * PAGE_BYTES) as u64);
        let chunk = staging.take_empty(Kind::Copied).unwrap();
        assert!(mem::is_in_memory(staging.address(chunk.slot(3))));
        staging.push_full(chunk, Some(Way::Copy), 10, 8);
        let pages = (IDLE_MAX * CHUNK_SLOTS as usize) as u64 - 8;
        assert_eq!(staging.idle_bytes(), (pages + u64::from(CHUNK_SLOTS)) * PAGE_BYTES as u64, "the next chunk counts");
    }
}
