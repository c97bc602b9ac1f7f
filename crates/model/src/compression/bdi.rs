//! Base-delta-immediate compression (Pekhimenko et al., "Base-Delta-Immediate Compression: Practical Data Compression for On-Chip Caches",
//! PACT 2012): a line is a base and small differences, to the base or to zero.

use super::LINE;

/// Four bits say which encoding a line has (Table 2 of the paper).
const ENCODING_BITS: usize = 4;
/// Bytes of the base, and of a delta.
const ENCODINGS: [(usize, usize); 6] = [(8, 1), (8, 2), (8, 4), (4, 1), (4, 2), (2, 1)];

/// Bits of a line by its shortest encoding. Of each number a bit says whether it is one to the base or to zero, as these travel with the line.
pub fn bits(line: &[u8]) -> usize {
    assert_eq!(line.len(), LINE, "bytes of a line");
    if line.iter().all(|byte| *byte == 0) {
        return ENCODING_BITS;
    }
    if line.chunks(8).all(|number| number == &line[..8]) {
        return ENCODING_BITS + 64;
    }
    let fitting = ENCODINGS.iter().filter(|(base, delta)| fits(line, *base, *delta));
    let shortest = fitting.map(|(base, delta)| 8 * base + LINE / base * (8 * delta + 1)).min();
    ENCODING_BITS + shortest.unwrap_or(8 * LINE).min(8 * LINE)
}

/// Whether all numbers of a line are a small signed number, or the base and one: the base is the first that is not small.
fn fits(line: &[u8], base_bytes: usize, delta_bytes: usize) -> bool {
    let mut base = None;
    line.chunks(base_bytes).map(number).all(|number| {
        let is_near = |from: u64| is_small(number.wrapping_sub(from), base_bytes, delta_bytes);
        is_near(0) || is_near(*base.get_or_insert(number))
    })
}

/// Whether a difference of so many bytes is the sign extension of its lower ones.
fn is_small(difference: u64, bytes: usize, delta_bytes: usize) -> bool {
    let unused = 64 - 8 * bytes;
    let difference = (difference << unused).cast_signed() >> unused;
    let above = 64 - 8 * delta_bytes;
    (difference << above) >> above == difference
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<const N: usize>(number: impl Fn(u64) -> [u8; N]) -> Vec<u8> {
        (0..(LINE / N) as u64).flat_map(number).collect()
    }

    #[test]
    fn every_encoding_has_its_bits() {
        let base: u64 = 0x7f12_3456_7800;
        for (what, line, expected) in [
            ("zeros", vec![0; 64], 0),
            ("one number", line(|_| base.to_le_bytes()), 64),
            ("8, 1", line(|at| (base + at).to_le_bytes()), 64 + 8 * 9),
            ("8, 2", line(|at| (base + 1000 * at).to_le_bytes()), 64 + 8 * 17),
            ("8, 4", line(|at| (base + 10_000_000 * at).to_le_bytes()), 64 + 8 * 33),
            ("4, 1", line(|at| u32::try_from(0x1234_5600 + at).expect("small").to_le_bytes()), 32 + 16 * 9),
            ("4, 2", line(|at| u32::try_from(0x1234_0000 + 999 * at).expect("small").to_le_bytes()), 32 + 16 * 17),
            ("2, 1", line(|at| u16::try_from(0x4000 + at * at % 97).expect("small").to_le_bytes()), 16 + 32 * 9),
            ("nothing", line(|at| (0x9e37_79b9_7f4a_7c15u64.wrapping_mul(at + 1)).to_le_bytes()), 512),
        ] {
            assert_eq!(bits(&line), ENCODING_BITS + expected, "{what}");
        }
    }

    #[test]
    fn small_numbers_beside_the_base_are_differences_to_zero() {
        let base: u64 = 0x7f12_3456_7800;
        let mixed = line(|at| if at % 2 == 0 { at } else { base + at }.to_le_bytes());
        assert_eq!(bits(&mixed), ENCODING_BITS + 64 + 8 * 9);
        // Differences have a sign, and wrap around within the number's bytes.
        let around = line(|at| if at == 0 { base } else { base - 128 }.to_le_bytes());
        assert_eq!(bits(&around), ENCODING_BITS + 64 + 8 * 9);
        let beyond = line(|at| if at == 0 { base } else { base - 129 }.to_le_bytes());
        assert_eq!(bits(&beyond), ENCODING_BITS + 64 + 8 * 17);
        assert!(is_small(0xffff_ff80, 4, 1) && !is_small(0xffff_ff80, 8, 1) && !is_small(0x80, 4, 1));
    }
}
