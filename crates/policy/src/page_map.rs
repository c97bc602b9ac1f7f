//! A sparse table over page numbers: one tag and two links for each page that a policy knows.
//!
//! ```text
//! root: 1 GiB of address space each → block: 2 MiB each → chunk: 512 × (prev u32, next u32, tag u8) = 9 bytes a page
//! ```
//!
//! Far ranges are huge and mostly empty, and the touched parts are clustered, so a radix table of three levels beats
//! both a flat array (36 GiB of reserve) and a hash table (24 bytes a page and a rehash inside a fault).
//!
//! Invariants: tag 0 means "unknown"; `chunk.known` = tags in it that are not 0; a chunk with `known = 0` is freed, but
//! for one spare that keeps a lone page's coming and going from allocating each time; a block with no chunk is freed.
//! Links of unknown pages are garbage.

use hinterland_units::PageNo;

const CHUNK_BITS: u32 = 9;
const CHUNK_PAGES: usize = 1 << CHUNK_BITS;
const BLOCK_BITS: u32 = 9;
const BLOCK_CHUNKS: usize = 1 << BLOCK_BITS;

/// "No page": the last page number, which no far range contains.
pub(crate) const NIL: u32 = u32::MAX;

struct Chunk {
    known: usize,
    prev: [u32; CHUNK_PAGES],
    next: [u32; CHUNK_PAGES],
    tag: [u8; CHUNK_PAGES],
}

struct Block {
    used: usize,
    chunks: [Option<Box<Chunk>>; BLOCK_CHUNKS],
}

/// The table. All operations take constant time.
#[derive(Default)]
pub(crate) struct PageMap {
    root: Vec<Option<Box<Block>>>,
    spare: Option<Box<Chunk>>,
    blocks: usize,
    chunks: usize,
}

/// Where a page stands: index into root, block and chunk.
#[inline]
fn split(page: u32) -> (usize, usize, usize) {
    let chunk = page >> CHUNK_BITS;
    let slot = page as usize % CHUNK_PAGES;
    ((chunk >> BLOCK_BITS) as usize, chunk as usize % BLOCK_CHUNKS, slot)
}

impl PageMap {
    /// The page's tag; 0 if it is unknown.
    #[inline]
    pub(crate) fn tag(&self, page: PageNo) -> u8 {
        let (block, chunk, slot) = split(page.0);
        let Some(Some(block)) = self.root.get(block) else { return 0 };
        block.chunks[chunk].as_ref().map_or(0, |chunk| chunk.tag[slot])
    }

    /// Sets the tag; 0 forgets the page.
    #[inline]
    pub(crate) fn set_tag(&mut self, page: PageNo, tag: u8) {
        if tag == 0 {
            return self.clear(page);
        }
        assert_ne!(page.0, NIL, "{page} is beyond the last page that a policy can hold");
        let (chunk, slot) = self.chunk_or_new(page.0);
        chunk.known += usize::from(chunk.tag[slot] == 0);
        chunk.tag[slot] = tag;
    }

    /// Sets tag and links at once.
    #[inline]
    pub(crate) fn set(&mut self, page: PageNo, tag: u8, prev: u32, next: u32) {
        assert!(page.0 != NIL && tag != 0, "{page} cannot be linked with tag {tag}");
        let (chunk, slot) = self.chunk_or_new(page.0);
        chunk.known += usize::from(chunk.tag[slot] == 0);
        chunk.tag[slot] = tag;
        chunk.prev[slot] = prev;
        chunk.next[slot] = next;
    }

    /// The links of a known page: previous and next.
    #[inline]
    pub(crate) fn links(&self, page: PageNo) -> (u32, u32) {
        let (block, chunk, slot) = split(page.0);
        match self.root.get(block) {
            Some(Some(block)) => {
                block.chunks[chunk].as_ref().map_or((NIL, NIL), |chunk| (chunk.prev[slot], chunk.next[slot]))
            }
            _ => (NIL, NIL),
        }
    }

    /// Sets the link to the previous page of a known page; nothing for `NIL`.
    #[inline]
    pub(crate) fn set_prev(&mut self, page: u32, prev: u32) {
        if let Some((chunk, slot)) = self.chunk(page) {
            chunk.prev[slot] = prev;
        }
    }

    /// Sets the link to the next page of a known page; nothing for `NIL`.
    #[inline]
    pub(crate) fn set_next(&mut self, page: u32, next: u32) {
        if let Some((chunk, slot)) = self.chunk(page) {
            chunk.next[slot] = next;
        }
    }

    /// Bytes that the table occupies.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.chunks + usize::from(self.spare.is_some());
        chunks * size_of::<Chunk>() + self.blocks * size_of::<Block>() + self.root.capacity() * size_of::<usize>()
    }

    #[inline]
    fn chunk(&mut self, page: u32) -> Option<(&mut Chunk, usize)> {
        let (block, chunk, slot) = split(page);
        let chunk = self.root.get_mut(block)?.as_mut()?.chunks[chunk].as_mut()?;
        Some((chunk, slot))
    }

    #[inline]
    fn chunk_or_new(&mut self, page: u32) -> (&mut Chunk, usize) {
        let (block, chunk, slot) = split(page);
        if block >= self.root.len() {
            self.root.resize_with(block + 1, || None);
        }
        let block = self.root[block].get_or_insert_with(|| {
            self.blocks += 1;
            Box::new(Block { used: 0, chunks: [const { None }; BLOCK_CHUNKS] })
        });
        let place = &mut block.chunks[chunk];
        if place.is_none() {
            block.used += 1;
            self.chunks += 1;
        }
        let chunk = place.get_or_insert_with(|| self.spare.take().unwrap_or_else(new_chunk));
        (chunk, slot)
    }

    fn clear(&mut self, page: PageNo) {
        let Some((chunk, slot)) = self.chunk(page.0) else { return };
        if chunk.tag[slot] == 0 {
            return;
        }
        chunk.tag[slot] = 0;
        chunk.known -= 1;
        if chunk.known == 0 {
            self.free(page.0);
        }
    }

    #[cold]
    fn free(&mut self, page: u32) {
        let (index, chunk, _) = split(page);
        let Some(block) = self.root[index].as_mut() else { return };
        self.spare = block.chunks[chunk].take();
        self.chunks -= 1;
        block.used -= 1;
        if block.used == 0 {
            self.root[index] = None;
            self.blocks -= 1;
        }
    }
}

#[cold]
fn new_chunk() -> Box<Chunk> {
    Box::new(Chunk { known: 0, prev: [NIL; CHUNK_PAGES], next: [NIL; CHUNK_PAGES], tag: [0; CHUNK_PAGES] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_pages_cost_nothing() {
        let mut map = PageMap::default();
        map.set_tag(PageNo(1 << 30), 0);
        assert_eq!((map.tag(PageNo(1 << 30)), map.bytes()), (0, 0));
    }

    #[test]
    fn gives_memory_back_when_the_last_page_of_a_chunk_goes() {
        let mut map = PageMap::default();
        for page in 0..100_000 {
            map.set(PageNo(page), 1, NIL, NIL);
        }
        let full = map.bytes();
        assert!(full < 100_000 * 10, "{full} bytes for 100,000 pages");
        for page in 0..100_000 {
            map.set_tag(PageNo(page), 0);
        }
        assert!(map.bytes() < 2 * size_of::<Chunk>(), "{} bytes stay", map.bytes());
    }

    #[test]
    fn a_reused_chunk_knows_nothing_of_its_past() {
        let mut map = PageMap::default();
        map.set_tag(PageNo(5), 3);
        map.set_tag(PageNo(5), 0);
        map.set_tag(PageNo(512 + 6), 4);
        assert_eq!((map.tag(PageNo(512 + 5)), map.tag(PageNo(512 + 6)), map.tag(PageNo(5))), (0, 4, 0));
    }
}
