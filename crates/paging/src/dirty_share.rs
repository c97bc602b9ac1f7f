//! Whether sub-page write-back pays: by the part of the evicted pages that it need not send.
//!
//! What changed of a page is known where its granules were hashed when it came. That takes a moment of each load, and is worth nothing where
//! pages are dropped unchanged, or have changed all over. So where little is saved only some pages are hashed, to see whether that changes.

/// Granules of a page that may have changed for it to be patched: three quarters. The rest would hardly pay for the second message of a batch.
pub const PATCH_GRANULES_MAX: usize = 12;
/// Pages whose granules are known, by which is judged.
pub const JUDGED_PAGES: u64 = 256;
/// Granules that are saved of each such page, at least, for all pages to be hashed: 512 bytes, which take 0.4 µs at 10 Gb/s; hashing a page takes
/// about as long.
const SAVED_GRANULES_MIN: u64 = 2;
/// Else one of so many pages is.
const SAMPLED_OF: u32 = 32;

/// One of how many pages is to be hashed from now on, after the granules of `pages` were known when those left, and `saved` granules of them did
/// not travel. `None`: too few to judge by.
pub fn hashed_of(pages: u64, saved: u64) -> Option<u32> {
    (pages >= JUDGED_PAGES).then_some(if saved >= pages * SAVED_GRANULES_MIN { 1 } else { SAMPLED_OF })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_change_all_over_are_sampled() {
        assert_eq!(hashed_of(JUDGED_PAGES - 1, 0), None);
        assert_eq!(hashed_of(JUDGED_PAGES, JUDGED_PAGES), Some(SAMPLED_OF));
        assert_eq!(hashed_of(JUDGED_PAGES, 0), Some(SAMPLED_OF));
        assert_eq!(hashed_of(JUDGED_PAGES, JUDGED_PAGES * 2), Some(1));
        assert_eq!(hashed_of(1000, 15_000), Some(1));
    }
}
