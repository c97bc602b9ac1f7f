//! Pages that hold one machine word over and over: zero pages, freshly set memory.

use hinterland_units::{PAGE_BYTES, PageBytes};

const WORD: usize = size_of::<u64>();

/// The word that fills the whole page, if there is one.
pub(crate) fn repeated_word(page: &PageBytes) -> Option<u64> {
    let (words, rest) = page.as_chunks::<WORD>();
    debug_assert!(rest.is_empty(), "a page is a whole number of words");
    let first = u64::from_ne_bytes(words[0]);
    // The last word first: most pages that begin alike do not end alike. Then in steps of a cache line, which the
    // compiler compares without branches.
    if words[words.len() - 1] != words[0] {
        return None;
    }
    let alike = words.chunks(8).all(|line| line.iter().fold(0, |diff, w| diff | (u64::from_ne_bytes(*w) ^ first)) == 0);
    alike.then_some(first)
}

/// Fills a page with `word`.
pub(crate) fn fill(page: &mut PageBytes, word: u64) {
    for cell in page.as_chunks_mut::<WORD>().0 {
        *cell = word.to_ne_bytes();
    }
}

const _: () = assert!(PAGE_BYTES.is_multiple_of(8 * WORD));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_and_any_deviation() {
        let mut page = [0u8; PAGE_BYTES];
        for word in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            fill(&mut page, word);
            assert_eq!(repeated_word(&page), Some(word));
            for at in [0, 7, 8, 63, 64, 2048, 4088, 4095] {
                page[at] ^= 1;
                assert_eq!(repeated_word(&page), None, "byte {at}");
                page[at] ^= 1;
            }
        }
    }
}
