//! Frequent pattern compression (Alameldeen & Wood, "Frequent Pattern Compression: A Significance-Based Compression Scheme for L2 Caches",
//! UW-Madison TR 1500, 2004): of each word of 32 bits, three bits say which pattern it has.

use super::words;

const PREFIX_BITS: usize = 3;
/// Zeros in one run at most: three bits count them.
const RUN_MAX: usize = 8;

/// Bits of a line.
pub fn bits(line: &[u8]) -> usize {
    let (mut bits, mut zeros) = (0, 0);
    for word in words(line) {
        if word != 0 {
            zeros = 0;
            bits += PREFIX_BITS + word_bits(word);
            continue;
        }
        if zeros % RUN_MAX == 0 {
            bits += PREFIX_BITS + 3;
        }
        zeros += 1;
    }
    bits
}

/// Bits of a word that is not 0, beside the prefix (Table 1 of the report).
fn word_bits(word: u32) -> usize {
    let signed = word.cast_signed();
    let halves = [word & 0xffff, word >> 16].map(|half| u16::try_from(half).expect("16 bits").cast_signed());
    let [low, b, c, d] = word.to_le_bytes();
    match () {
        () if (-8..8).contains(&signed) => 4,
        () if i8::try_from(signed).is_ok() => 8,
        () if [b, c, d].iter().all(|byte| *byte == low) => 8,
        () if i16::try_from(signed).is_ok() => 16,
        // The upper half alone, or two halves of a signed byte each.
        () if halves[0] == 0 || halves.iter().all(|half| i8::try_from(*half).is_ok()) => 16,
        () => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: [u32; 16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn every_pattern_has_the_bits_of_the_report() {
        for (word, expected) in [
            (7, 4),
            (0xffff_fff8, 4),
            (8, 8),
            (0xffff_ff80, 8),
            (0x80, 16),
            (0x7fff, 16),
            (0xffff_8000, 16),
            (0x8000, 32),
            (0x8000_0000, 16),
            (0x1234_0000, 16),
            (0x0042_ff85, 16),
            (0x0042_0085, 32),
            (0xabab_abab, 8),
            (0xabab_abac, 32),
            (0x1234_5678, 32),
        ] {
            assert_eq!(word_bits(word), expected, "{word:#x}");
        }
    }

    #[test]
    fn zeros_are_counted_in_runs_of_eight() {
        assert_eq!(bits(&line([0; 16])), 2 * 6);
        let mut words = [0; 16];
        words[4] = 1;
        // Four zeros, a number of 4 bits, eight zeros, three zeros.
        assert_eq!(bits(&line(words)), 6 + 7 + 6 + 6);
        assert_eq!(bits(&line([0x1234_5678; 16])), 16 * 35);
    }
}
