//! What the pages hold: 2 KiB that are unique and random, then 2 KiB that repeat one word, so that a page compresses to
//! about half.
//!
//! Every word follows from (seed, page, version, index), so any word can be checked without a copy of the page. A
//! modified page carries its version in its second word; the versions themselves are kept outside the measured memory.

use std::fmt;

/// Words of 8 bytes in a page.
pub const PAGE_WORDS: usize = 512;
/// Where the repeating half begins.
const REPEATING_FROM: usize = PAGE_WORDS / 2;
/// The word that carries the version.
const VERSION_WORD: usize = 1;

/// A word that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongWord {
    /// The page, counted over the whole data.
    pub page: u64,
    /// The word's place in the page.
    pub index: usize,
    /// What was read.
    pub read: u64,
    /// What was written.
    pub written: u64,
}

impl fmt::Display for WrongWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "wrong data: page {} word {} reads {:#018x}, written was {:#018x}",
            self.page, self.index, self.read, self.written
        )
    }
}

/// The contents of all pages under one seed.
#[derive(Clone, Copy)]
pub struct Content {
    seed: u64,
}

impl Content {
    /// The contents under `seed`.
    pub fn new(seed: u64) -> Content {
        Content { seed: mix(seed ^ 0x6869_6e74_6572_6c61) }
    }

    /// The word at `index` of `page` after `version` modifications.
    #[inline]
    fn word(self, page: u64, version: u16, index: usize) -> u64 {
        let place = page * PAGE_WORDS as u64 + index.min(REPEATING_FROM) as u64;
        let version = if index == VERSION_WORD { u64::from(version) << 48 } else { 0 };
        mix(self.seed.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ version)
    }

    /// Writes the contents of `page`, version 0.
    pub fn fill(self, page: u64, words: &mut [u64]) {
        let (unique, repeating) = words.split_at_mut(REPEATING_FROM);
        for (index, word) in unique.iter_mut().enumerate() {
            *word = self.word(page, 0, index);
        }
        repeating.fill(self.word(page, 0, REPEATING_FROM));
    }

    /// Writes what the next version changes.
    #[inline]
    pub fn modify(self, page: u64, version: u16, words: &mut [u64]) {
        words[VERSION_WORD] = self.word(page, version, VERSION_WORD);
    }

    /// Checks the first word of each half, the version, and one more word of each half that `salt` chooses.
    ///
    /// # Errors
    /// The first word that is wrong.
    #[inline]
    pub fn check_some(self, page: u64, version: u16, words: &[u64], salt: u64) -> Result<(), WrongWord> {
        let any = (salt & 0xff) as usize;
        for index in [0, VERSION_WORD, any, REPEATING_FROM, REPEATING_FROM + any] {
            self.check_word(page, version, words, index)?;
        }
        Ok(())
    }

    /// Checks the whole page.
    ///
    /// # Errors
    /// The first word that is wrong.
    pub fn check_all(self, page: u64, version: u16, words: &[u64]) -> Result<(), WrongWord> {
        (0..PAGE_WORDS).try_for_each(|index| self.check_word(page, version, words, index))
    }

    #[inline]
    fn check_word(self, page: u64, version: u16, words: &[u64], index: usize) -> Result<(), WrongWord> {
        let (read, written) = (words[index], self.word(page, version, index));
        if read == written { Ok(()) } else { Err(WrongWord { page, index, read, written }) }
    }
}

/// A bijection of 64-bit words that leaves no visible pattern (the finaliser of SplitMix64, Steele et al., OOPSLA 2014).
#[inline]
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(content: Content, page: u64) -> Vec<u64> {
        let mut words = vec![0; PAGE_WORDS];
        content.fill(page, &mut words);
        words
    }

    #[test]
    fn what_is_filled_passes_and_pages_differ() {
        let content = Content::new(1);
        let words = page(content, 5);
        assert_eq!(content.check_all(5, 0, &words), Ok(()));
        assert!(content.check_all(6, 0, &words).is_err());
        assert!(Content::new(2).check_all(5, 0, &words).is_err());
    }

    #[test]
    fn half_is_unique_and_half_repeats() {
        let words = page(Content::new(1), 9);
        let unique: std::collections::HashSet<_> = words[..256].iter().collect();
        assert_eq!(unique.len(), 256);
        assert!(words[256..].iter().all(|word| *word == words[256]));
    }

    #[test]
    fn a_full_check_sees_every_wrong_byte() {
        let content = Content::new(1);
        for byte in 0..PAGE_WORDS * 8 {
            let mut words = page(content, 3);
            words[byte / 8] ^= 1 << (byte % 8 * 8);
            assert_eq!(content.check_all(3, 0, &words).unwrap_err().index, byte / 8);
        }
    }

    #[test]
    fn a_quick_check_sees_a_zero_page_a_stale_page_and_a_foreign_page() {
        let content = Content::new(1);
        assert!(content.check_some(3, 0, &[0; PAGE_WORDS], 0).is_err());
        assert!(content.check_some(3, 0, &page(content, 4), 0).is_err());
        let mut words = page(content, 3);
        content.modify(3, 1, &mut words);
        assert_eq!(content.check_some(3, 1, &words, 77), Ok(()));
        assert_eq!(content.check_some(3, 2, &words, 77).unwrap_err().index, VERSION_WORD);
        assert_eq!(content.check_some(3, 0, &words, 77).unwrap_err().index, VERSION_WORD);
    }
}
