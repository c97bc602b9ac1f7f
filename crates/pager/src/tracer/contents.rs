//! Which pages a microset has written to: what a page holds when it is parked is compared with what it held when it was parked last. A
//! fresh page holds zeros.
//!
//! A hash of 63 bits for each page tells. One that is the same by chance makes a plan store a page too few; no page depends on it.

use crate::pages::ContentHash;
use hinterland_units::{PAGE_BYTES, PageBytes, PageNo};

/// Pages of a chunk.
const CHUNK_PAGES: usize = 512;
/// Of a page's cell: it was written to, or that is not known yet.
const WRITTEN: u64 = 1;

/// See the module.
#[derive(Default)]
pub(super) struct Contents {
    /// By page / 512, then by page: its hash, but for the lowest bit, exclusive or that of zeros; and `WRITTEN`.
    chunks: Vec<Vec<u64>>,
    /// The hash of zeros; 0: not taken yet.
    zeros: u64,
}

impl Contents {
    fn cell(&mut self, page: PageNo) -> &mut u64 {
        let chunk = page.index() / CHUNK_PAGES;
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, Vec::new);
        }
        let chunk = &mut self.chunks[chunk];
        if chunk.is_empty() {
            chunk.resize(CHUNK_PAGES, 0);
        }
        &mut chunk[page.index() % CHUNK_PAGES]
    }

    /// A page joins a microset; `is_first`: with zeros.
    pub(super) fn mapped(&mut self, page: PageNo, is_first: bool) {
        let cell = self.cell(page);
        *cell = WRITTEN | if is_first { 0 } else { *cell };
    }

    /// A page of the microset is unmapped, with this content.
    pub(super) fn parked(&mut self, page: PageNo, bytes: &PageBytes) {
        if self.zeros == 0 {
            self.zeros = word(&[0; PAGE_BYTES]);
        }
        let now = (word(bytes) ^ self.zeros) & !WRITTEN;
        let cell = self.cell(page);
        *cell = now | if *cell & !WRITTEN == now { 0 } else { WRITTEN };
    }

    /// The content of one page is now that of another.
    pub(super) fn moved(&mut self, from: PageNo, target: PageNo) {
        *self.cell(target) = *self.cell(from);
    }

    /// Whether a page of the microset that has ended was written to; one that could not be parked may have been.
    pub(super) fn is_written(&mut self, page: PageNo) -> bool {
        *self.cell(page) & WRITTEN != 0
    }
}

fn word(bytes: &PageBytes) -> u64 {
    #[allow(clippy::cast_possible_truncation, reason = "half of the hash is enough")]
    let low = ContentHash::of(bytes).0 as u64;
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_to_when_its_content_is_another_one() {
        let (mut contents, page) = (Contents::default(), PageNo(1_000_000));
        let (zeros, ones) = ([0; PAGE_BYTES], [1; PAGE_BYTES]);
        let mut seen = Vec::new();
        for (is_first, bytes) in
            [(true, &zeros), (false, &ones), (false, &ones), (false, &zeros), (true, &ones), (true, &zeros)]
        {
            contents.mapped(page, is_first);
            assert!(contents.is_written(page), "as long as it is mapped, it may be written to");
            contents.parked(page, bytes);
            seen.push(contents.is_written(page));
        }
        assert_eq!(seen, [false, true, false, true, true, false]);
    }

    #[test]
    fn content_that_moves_is_compared_where_it_is() {
        let mut contents = Contents::default();
        contents.mapped(PageNo(7), true);
        contents.parked(PageNo(7), &[3; PAGE_BYTES]);
        contents.moved(PageNo(7), PageNo(9));
        contents.mapped(PageNo(9), false);
        contents.parked(PageNo(9), &[3; PAGE_BYTES]);
        assert!(!contents.is_written(PageNo(9)));
    }
}
