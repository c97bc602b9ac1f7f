//! LZ77 in blocks of 1 KiB, as four engines of 256 bytes with shared dictionaries find it
//! (§4.4, IBM MXT). The code of a token isn't in the paper; ours: a bit, then eight bits of a literal, or ten of a position and eight of a length.

/// Bytes that are compressed together, and in which repetitions are looked for (§4.4).
const BLOCK_BYTES: usize = 1024;
const LITERAL_BITS: usize = 1 + 8;
const MATCH_BITS: usize = 1 + 10 + 8;
/// The shortest repetition that is worth its bits: three literals have 27.
const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = MATCH_MIN + 255;

/// Bytes of a page: the sum of its blocks, none of which grows.
pub fn bytes(page: &[u8]) -> usize {
    page.chunks(BLOCK_BYTES).map(block_bytes).sum()
}

fn block_bytes(block: &[u8]) -> usize {
    // Of each byte pair, the last place where it began, and of each place the one before: the chain of candidates.
    let mut last = vec![u16::MAX; 1 << 16];
    let mut before = [u16::MAX; BLOCK_BYTES];
    let pair = |at: usize| usize::from(block[at]) << 8 | usize::from(block[at + 1]);
    let (mut at, mut bits) = (0, 0);
    while at < block.len() {
        let longest = if at + 1 < block.len() { longest_match(block, at, last[pair(at)], &before) } else { 0 };
        let step = if longest >= MATCH_MIN { longest } else { 1 };
        bits += if longest >= MATCH_MIN { MATCH_BITS } else { LITERAL_BITS };
        for place in at..(at + step).min(block.len() - 1) {
            before[place] = std::mem::replace(&mut last[pair(place)], u16::try_from(place).expect("in a block"));
        }
        at += step;
    }
    bits.div_ceil(8).min(block.len())
}

fn longest_match(block: &[u8], at: usize, newest: u16, before: &[u16]) -> usize {
    let (mut longest, mut candidate) = (0, newest);
    while candidate != u16::MAX {
        let from = usize::from(candidate);
        let same = block[at..].iter().zip(&block[from..]).take(MATCH_MAX).take_while(|(a, b)| a == b).count();
        longest = longest.max(same);
        candidate = before[from];
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn zeros_are_a_literal_and_repetitions_of_it() {
        // Of each block: one literal (9 bits), 1023 = 3 × 258 + 249 repeated (4 × 19 bits): 85 bits, 11 bytes.
        assert_eq!(bytes(&[0; 4096]), 4 * 11);
    }

    #[test]
    fn random_bytes_do_not_grow() {
        let mut random = Random::new(1);
        let page: Vec<u8> = (0..4096).map(|_| random.bits().to_le_bytes()[0]).collect();
        assert_eq!(bytes(&page), 4096);
    }

    #[test]
    fn a_repeated_phrase_costs_a_match() {
        // 32 different bytes, then the same again and again: 32 × 9 + 4 × 19 bits a block (992 = 3 × 258 + 218).
        let page: Vec<u8> = (0..4096u16).map(|at| (at % 32).to_le_bytes()[0]).collect();
        assert_eq!(bytes(&page), 4 * (32 * 9 + 4 * 19usize).div_ceil(8));
    }

    #[test]
    fn blocks_do_not_see_each_other() {
        let mut random = Random::new(2);
        let block: Vec<u8> = (0..1024).map(|_| random.bits().to_le_bytes()[0]).collect();
        assert_eq!(bytes(&block.repeat(4)), 4096);
    }
}
