//! Frequent value encoding (Thuresson, Spracklen & Stenström, "Memory-Link Compression Schemes: A Value Locality Perspective", IEEE TC 2008):
//! words of 32 bits that both sides remember travel as their place in a dictionary.
//!
//! The dictionary has 256 bytes (§6.5): 64 words, of which the least recently used is replaced. It is empty at the start of each page, so that pages can
//! be expanded in any order and sent again. *Ours*: the paper doesn't say for how long it lasts.

use super::words;

const ENTRIES: usize = 256 / 4;
/// A bit says whether a place or the word itself follows.
const FOUND_BITS: usize = 1 + ENTRIES.ilog2() as usize;
const NEW_BITS: usize = 1 + 32;

/// Bits of a page.
pub fn bits(page: &[u8]) -> usize {
    // The most recently used word first.
    let mut dictionary: Vec<u32> = Vec::with_capacity(ENTRIES);
    let mut bits = 0;
    for word in words(page) {
        match dictionary.iter().position(|known| *known == word) {
            Some(at) => {
                bits += FOUND_BITS;
                dictionary[..=at].rotate_right(1);
            }
            None => {
                bits += NEW_BITS;
                dictionary.truncate(ENTRIES - 1);
                dictionary.insert(0, word);
            }
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(word: impl Fn(u32) -> u32) -> Vec<u8> {
        (0..1024).flat_map(|at| word(at).to_le_bytes()).collect()
    }

    #[test]
    fn known_words_cost_their_place_and_new_ones_themselves() {
        assert_eq!(bits(&page(|_| 7)), 33 + 1023 * 7);
        assert_eq!(bits(&page(|at| at)), 1024 * 33);
        assert_eq!(bits(&page(|at| at % 64)), 64 * 33 + 960 * 7);
    }

    #[test]
    fn the_word_that_was_not_used_for_longest_is_forgotten() {
        // 65 words in turns: each was replaced just before it comes again.
        assert_eq!(bits(&page(|at| at % 65)), 1024 * 33);
        // One that is used in between stays.
        let used = |at| if at % 2 == 0 { 1000 } else { at / 2 % 64 };
        assert_eq!(bits(&page(used)), 33 + 511 * 7 + 512 * 33);
    }
}
