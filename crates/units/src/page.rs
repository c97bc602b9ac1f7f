//! The kernel's base page and how pages are counted.

use std::fmt;

/// Bytes in one page: the kernel's base page on every machine that Hinterland supports.
pub const PAGE_BYTES: usize = 4096;

/// The contents of one page.
pub type PageBytes = [u8; PAGE_BYTES];

/// A page of the far range, counted from the range's first page.
///
/// The far range holds at most 2^32 pages (16 TiB), so a page number fits 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageNo(pub u32);

impl PageNo {
    /// The page number as an index into a table with one entry for each page.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The page `count` pages further on; `None` past the last representable page.
    #[inline]
    pub fn checked_add(self, count: u32) -> Option<PageNo> {
        self.0.checked_add(count).map(PageNo)
    }
}

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {:#x}", self.0)
    }
}

/// A number of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageCount(pub u64);

impl PageCount {
    /// The pages that `bytes` occupy, rounded up.
    #[inline]
    pub fn covering(bytes: u64) -> PageCount {
        PageCount(bytes.div_ceil(PAGE_BYTES as u64))
    }

    /// The bytes that these pages hold.
    #[inline]
    pub fn bytes(self) -> u64 {
        self.0 * PAGE_BYTES as u64
    }
}
