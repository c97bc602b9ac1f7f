//! Small numbers for the pages that a program touches, so that what is known of them stands in flat tables.
//!
//! ```text
//!   region, page ──► slot: 512 to a chunk (what one page-table page maps), chunks in order of appearance
//! ```

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// By region, by page / 512: chunk plus one; 0: none.
    regions: Vec<Vec<u32>>,
    /// By chunk: its region and its number there.
    places: Vec<(u32, u32)>,
}

impl Slots {
    /// Pages in a chunk.
    pub const CHUNK_PAGES: u32 = 512;

    /// The slot of a page; a new one if its chunk has none.
    #[inline]
    pub fn slot(&mut self, region: u32, page: u32) -> u32 {
        match self.find(region, page) {
            Some(slot) => slot,
            None => self.add(region, page),
        }
    }

    /// The slot of a page, if its chunk has any.
    #[inline]
    pub fn find(&self, region: u32, page: u32) -> Option<u32> {
        let chunk = self.regions.get(region as usize)?.get((page / Slots::CHUNK_PAGES) as usize)?.checked_sub(1)?;
        Some(chunk * Slots::CHUNK_PAGES + page % Slots::CHUNK_PAGES)
    }

    #[cold]
    fn add(&mut self, region: u32, page: u32) -> u32 {
        let (index, chunk) = (region as usize, page / Slots::CHUNK_PAGES);
        if index >= self.regions.len() {
            self.regions.resize_with(index + 1, Vec::new);
        }
        let chunks = &mut self.regions[index];
        if chunk as usize >= chunks.len() {
            chunks.resize(chunk as usize + 1, 0);
        }
        self.places.push((region, chunk));
        let number =
            u32::try_from(self.places.len()).expect("pages have 32 bits, and regions 16: more chunks fit no memory");
        chunks[chunk as usize] = number;
        (number - 1) * Slots::CHUNK_PAGES + page % Slots::CHUNK_PAGES
    }

    /// Region and page in a slot.
    #[inline]
    pub fn page(&self, slot: u32) -> (u32, u32) {
        let (region, chunk) = self.places[(slot / Slots::CHUNK_PAGES) as usize];
        (region, chunk * Slots::CHUNK_PAGES + slot % Slots::CHUNK_PAGES)
    }

    /// Slots: whole chunks.
    pub fn count(&self) -> usize {
        self.places.len() * Slots::CHUNK_PAGES as usize
    }

    /// By region, by page / 512: the chunk plus one; 0: nothing there has a slot.
    pub fn chunks(&self) -> &[Vec<u32>] {
        &self.regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_pages_name_each_other() {
        let mut slots = Slots::default();
        let pages = [(1, 5), (0, 1_000_000), (1, 6), (1, u32::MAX), (0, 0)];
        for (region, page) in pages {
            let slot = slots.slot(region, page);
            assert_eq!(
                (slots.slot(region, page), slots.find(region, page), slots.page(slot)),
                (slot, Some(slot), (region, page))
            );
        }
        assert_eq!(slots.slot(1, 6), slots.slot(1, 5) + 1);
        assert_eq!((slots.count(), slots.find(2, 0), slots.find(0, 512)), (4 * 512, None, None));
    }
}
