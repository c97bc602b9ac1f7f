//! Where the arrays of a program lie, and what their pages have in them.

use crate::compression::Compressor;
use crate::parameters::PAGE_BYTES;
use std::ops::Range;

/// Pages of a region that are compressed to tell how the others do.
const SAMPLES: u64 = 24;

/// An array of a program.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    base: u64,
    element_bytes: u64,
    count: u64,
}

impl Array {
    /// The address of an element.
    #[inline]
    pub fn at(self, index: impl Into<u64>) -> u64 {
        let index = index.into();
        debug_assert!(index < self.count, "element {index} of {}", self.count);
        self.base + index * self.element_bytes
    }
}

/// Places arrays one after the other, each from a page of its own on.
#[derive(Debug, Default)]
pub struct Layout {
    /// Bytes that are taken.
    pub bytes: u64,
}

impl Layout {
    /// The next array.
    pub fn array(&mut self, element_bytes: u64, count: u64) -> Array {
        let base = self.bytes;
        self.bytes += (element_bytes * count).next_multiple_of(PAGE_BYTES);
        Array { base, element_bytes, count }
    }
}

/// The pages of an array, with samples of what is in them.
#[derive(Clone, Debug)]
pub struct Region {
    first_page: u64,
    page_count: u64,
    samples: Vec<Vec<u8>>,
}

impl Region {
    /// Takes samples, evenly spaced. `content` gives the bytes of an element.
    pub fn of<const N: usize>(array: Array, content: impl Fn(usize) -> [u8; N]) -> Region {
        assert_eq!(array.element_bytes, N as u64, "bytes of an element");
        let page_count = (array.count * array.element_bytes).div_ceil(PAGE_BYTES);
        let per_page = PAGE_BYTES / array.element_bytes;
        let sample = |number: u64| {
            let first = number * page_count / SAMPLES.min(page_count) * per_page;
            let indices = first..(first + per_page).min(array.count);
            let mut bytes: Vec<u8> =
                indices.flat_map(|index| content(usize::try_from(index).expect("fits into memory"))).collect();
            bytes.resize(4096, 0);
            bytes
        };
        let samples = (0..SAMPLES.min(page_count)).map(sample).collect();
        Region { first_page: array.base / PAGE_BYTES, page_count, samples }
    }

    /// Its pages.
    pub fn pages(&self) -> Range<usize> {
        let at = |page: u64| usize::try_from(page).expect("fits into memory");
        at(self.first_page)..at(self.first_page + self.page_count)
    }

    /// The mean of the samples' compressed bytes.
    pub fn compressed_page_bytes(&self, compressor: Compressor) -> u16 {
        let sum: u64 = self.samples.iter().map(|sample| u64::from(compressor.compressed_bytes(sample))).sum();
        u16::try_from(sum / self.samples.len() as u64).expect("at most a page")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_begin_on_pages_of_their_own() {
        let mut layout = Layout::default();
        let first = layout.array(8, 600);
        let second = layout.array(4, 1);
        assert_eq!((first.at(3u32), second.at(0u32), layout.bytes), (24, 8192, 12_288));
        let region = Region::of(first, |_| [7; 8]);
        assert_eq!((region.pages(), region.samples.len()), (0..2, 2));
        // The second page is 88 elements of sevens, then zeros.
        assert_eq!(region.samples[1][88 * 8 - 1..=88 * 8], [7, 0]);
        assert!(region.compressed_page_bytes(Compressor::Lz) < 60);
    }
}
