//! The next step towards free frames. Victims leave in chunks, age in the swap cache, and are written back:
//!
//! ```text
//!   resident ──fill──► the newest chunk … the oldest chunk ──drain──► far memory, frames free
//! ```

use hinterland_units::PageCount;

/// Victims in a chunk at most: one bit each in a u64, and enough for one MOVE of a long run to cost 0.1 µs a page.
pub const CHUNK_SLOTS: u32 = 64;

/// What a body does in a step.
pub trait ReclaimBody {
    /// Victims that left together.
    type Chunk;
    /// What a step leaves to be done.
    type Done;

    /// Takes the oldest chunk out of the swap cache, if there are more than `keep`.
    fn take_oldest(&mut self, keep: usize) -> Option<Self::Chunk>;

    /// Takes a batch of victims out of the program into a chunk. `None`: there were none, or none could leave.
    fn fill(&mut self) -> Option<Self::Done>;

    /// Writes back what is still in a chunk, and frees its frames.
    fn drain(&mut self, chunk: Self::Chunk) -> Self::Done;
}

/// One step: drains the oldest chunk when the swap cache holds more than `swap_cache` pages, otherwise fills one; when no page can
/// leave, the swap cache shrinks. `None`: nothing can be done.
pub fn reclaim_step<B: ReclaimBody>(body: &mut B, swap_cache: PageCount) -> Option<B::Done> {
    let keep = usize::try_from(swap_cache.0 / u64::from(CHUNK_SLOTS)).unwrap_or(usize::MAX);
    if let Some(chunk) = body.take_oldest(keep) {
        return Some(body.drain(chunk));
    }
    body.fill().or_else(|| body.take_oldest(0).map(|chunk| body.drain(chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks by number; so many batches of victims can still leave.
    struct Body {
        chunks: Vec<u32>,
        batches: u32,
        next: u32,
    }

    impl ReclaimBody for Body {
        type Chunk = u32;
        type Done = (&'static str, u32);

        fn take_oldest(&mut self, keep: usize) -> Option<u32> {
            (self.chunks.len() > keep).then(|| self.chunks.remove(0))
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
        let mut body = Body { chunks: Vec::new(), batches: 4, next: 0 };
        // Room for two chunks, and a part of a third one that does not count.
        let steps: Vec<_> = std::iter::from_fn(|| reclaim_step(&mut body, PageCount(2 * 64 + 63))).collect();
        let (fill, drain) = (|chunk| ("fill", chunk), |chunk| ("drain", chunk));
        assert_eq!(steps, [fill(1), fill(2), fill(3), drain(1), fill(4), drain(2), drain(3), drain(4)]);
    }
}
