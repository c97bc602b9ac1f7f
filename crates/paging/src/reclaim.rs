//! The next step towards free frames. Victims leave in chunks, age in the swap cache, and are written back:
//!
//! ```text
//!   resident ──fill──► the newest chunk … the oldest chunk ──drain──► far memory, frames free
//! ```

use hinterland_units::PageCount;
use std::collections::VecDeque;

/// Victims in a chunk at most: one bit each in a u64, and enough for one MOVE of a long run to cost 0.1 µs a page.
pub const CHUNK_SLOTS: u32 = 64;

/// Which chunk a step takes out of the swap cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oldest {
    /// The oldest, if the chunks are more than the swap cache's share of the budget.
    BeyondShare,
    /// The oldest, if there is one.
    Any,
}

/// The chunks of the swap cache, from the oldest to the newest.
#[derive(Debug)]
pub struct ChunkQueue<C> {
    chunks: VecDeque<C>,
}

impl<C> Default for ChunkQueue<C> {
    fn default() -> ChunkQueue<C> {
        ChunkQueue { chunks: VecDeque::new() }
    }
}

impl<C> ChunkQueue<C> {
    /// Queues a chunk: it is the newest.
    pub fn push(&mut self, chunk: C) {
        self.chunks.push_back(chunk);
    }

    /// Takes a chunk out. `swap_cache`: pages that the swap cache should hold.
    pub fn take(&mut self, which: Oldest, swap_cache: PageCount) -> Option<C> {
        let keep = match which {
            Oldest::BeyondShare => swap_cache.0 / u64::from(CHUNK_SLOTS),
            Oldest::Any => 0,
        };
        if self.chunks.len() as u64 > keep { self.chunks.pop_front() } else { None }
    }

    /// The chunks, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.chunks.iter()
    }
}

/// What a body does in a step.
pub trait ReclaimBody {
    /// Victims that left together.
    type Chunk;
    /// What a step leaves to be done.
    type Done;

    /// Takes a chunk out of the swap cache ([`ChunkQueue`]).
    fn take_oldest(&mut self, which: Oldest) -> Option<Self::Chunk>;

    /// Takes a batch of victims out of the program into a chunk. `None`: there were none, or none could leave.
    fn fill(&mut self) -> Option<Self::Done>;

    /// Writes back what is still in a chunk, and frees its frames.
    fn drain(&mut self, chunk: Self::Chunk) -> Self::Done;
}

/// One step: drains the oldest chunk when the swap cache holds more than its share, otherwise fills one; when no page can leave, the
/// swap cache shrinks. `None`: nothing can be done.
pub fn reclaim_step<B: ReclaimBody>(body: &mut B) -> Option<B::Done> {
    if let Some(chunk) = body.take_oldest(Oldest::BeyondShare) {
        return Some(body.drain(chunk));
    }
    body.fill().or_else(|| body.take_oldest(Oldest::Any).map(|chunk| body.drain(chunk)))
}

/// One step for pages that the program has given up, which `fill` takes out into a chunk: what the swap cache then holds beyond its share
/// is drained. False: none could leave.
pub fn given_up_step<B: ReclaimBody>(body: &mut B, fill: impl FnOnce(&mut B) -> bool) -> bool {
    let left = fill(body);
    while let Some(chunk) = body.take_oldest(Oldest::BeyondShare) {
        body.drain(chunk);
    }
    left
}

/// Whether the evictor makes another step. `has_begun`: it has made one since it woke. `above_high` may find that there is more memory.
pub fn evicts(has_begun: bool, above_low: impl FnOnce() -> bool, above_high: impl FnOnce() -> bool) -> bool {
    above_low() && (has_begun || above_high())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks by number; so many batches of victims can still leave.
    struct Body {
        chunks: ChunkQueue<u32>,
        swap_cache: PageCount,
        batches: u32,
        next: u32,
    }

    impl ReclaimBody for Body {
        type Chunk = u32;
        type Done = (&'static str, u32);

        fn take_oldest(&mut self, which: Oldest) -> Option<u32> {
            self.chunks.take(which, self.swap_cache)
        }

        fn fill(&mut self) -> Option<Self::Done> {
            self.batches = self.batches.checked_sub(1)?;
            self.next += 1;
            self.chunks.push(self.next);
            Some(("fill", self.next))
        }

        fn drain(&mut self, chunk: u32) -> Self::Done {
            ("drain", chunk)
        }
    }

    #[test]
    fn the_swap_cache_fills_up_to_its_share_and_is_used_up_when_no_page_can_leave() {
        // Room for two chunks, and a part of a third one that does not count.
        let mut body = Body { chunks: ChunkQueue::default(), swap_cache: PageCount(2 * 64 + 63), batches: 4, next: 0 };
        let steps: Vec<_> = std::iter::from_fn(|| reclaim_step(&mut body)).collect();
        let (fill, drain) = (|chunk| ("fill", chunk), |chunk| ("drain", chunk));
        assert_eq!(steps, [fill(1), fill(2), fill(3), drain(1), fill(4), drain(2), drain(3), drain(4)]);
    }

    #[test]
    fn the_evictor_begins_above_the_high_watermark_and_goes_on_down_to_the_low_one() {
        let asked = |has_begun, low, high| evicts(has_begun, || low, || high);
        assert_eq!([asked(false, true, false), asked(false, true, true)], [false, true]);
        assert_eq!([asked(true, true, false), asked(true, false, false)], [true, false]);
    }
}
