//! How pages are compressed on the network (§4.4), and by what they are compared with (§6.5, Figure 12).
//!
//! | compressor | unit | latency | ratio in the paper |
//! |---|---|---|---|
//! | LZ | blocks of 1 KiB | 64 cycles | 4.47 |
//! | FPC and BDI | lines of 64 bytes | 4 cycles | 2.92 times less |
//! | FVE | lines of 64 bytes | 6 cycles | 2.73 times less |

mod bdi;
mod fpc;
mod fve;
mod lz;

use crate::parameters::{LINE_BYTES, PAGE_BYTES};
use crate::time::cycles;

/// Bytes of a line, as an index.
const LINE: usize = 64;

/// What compresses pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Compressor {
    /// LZ77 in blocks of 1 KiB: DaeMon's.
    Lz,
    /// Of each line the shorter of frequent patterns and base-delta-immediate.
    FpcBdi,
    /// Frequent values, by a dictionary of 256 bytes.
    Fve,
}

impl Compressor {
    /// Bytes that are compressed one after the other, and the ticks that each such block takes (§4.4, §6.5).
    pub fn block(self) -> (u64, u64) {
        match self {
            Compressor::Lz => (1024, cycles(64)),
            Compressor::FpcBdi => (LINE_BYTES, cycles(4)),
            Compressor::Fve => (LINE_BYTES, cycles(6)),
        }
    }

    /// Bytes of a page after compression; it does not grow.
    ///
    /// # Panics
    /// If it is not a page.
    pub fn compressed_bytes(self, page: &[u8]) -> u16 {
        assert_eq!(page.len() as u64, PAGE_BYTES, "bytes of a page");
        let bytes = match self {
            Compressor::Lz => lz::bytes(page),
            Compressor::FpcBdi => page.chunks(LINE).map(fpc_bdi_bits).sum::<usize>().div_ceil(8),
            Compressor::Fve => fve::bits(page).div_ceil(8),
        };
        u16::try_from(bytes.min(page.len())).expect("at most a page")
    }

    /// Bytes of a page that LZ compresses by this ratio.
    pub fn bytes_at(self, lz_ratio: f64) -> u16 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a ratio of at least 1: up to 4096"
        )]
        let bytes = (4096.0 / self.ratio_at(lz_ratio)).round() as u16;
        bytes
    }

    /// The ratio where LZ has this one. Of FPC with BDI and of FVE the paper has only how much lower they are on average (§6.5): each is taken to be so
    /// much lower, and not below 1.
    fn ratio_at(self, lz_ratio: f64) -> f64 {
        let times_lower = match self {
            Compressor::Lz => 1.0,
            Compressor::FpcBdi => 2.92,
            Compressor::Fve => 2.73,
        };
        (lz_ratio / times_lower).max(1.0)
    }
}

/// Bits of a line: one says which of the two it is.
fn fpc_bdi_bits(line: &[u8]) -> usize {
    1 + fpc::bits(line).min(bdi::bits(line))
}

/// The numbers of 32 bits in bytes.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const ALL: [Compressor; 3] = [Compressor::Lz, Compressor::FpcBdi, Compressor::Fve];

    #[test]
    fn random_bytes_do_not_grow_and_zeros_shrink() {
        let mut random = Random::new(1);
        let page: Vec<u8> = (0..4096).map(|_| random.bits().to_le_bytes()[0]).collect();
        assert_eq!(ALL.map(|compressor| compressor.compressed_bytes(&page)), [4096; 3]);
        // LZ: 11 bytes a block. A line of zeros is 1 + 4 bits by BDI. FVE: a value of 33 bits, then 1,023 of 7.
        let zeros = [0; 4096];
        assert_eq!(
            ALL.map(|compressor| compressor.compressed_bytes(&zeros)),
            [44, 64 * 5 / 8, (33u16 + 1023 * 7).div_ceil(8)]
        );
    }

    #[test]
    fn each_line_has_the_shorter_of_two_codes() {
        // Pointers into one array: 8 bytes of base and 8 deltas of 2 bytes by BDI, 7 + bits. Small numbers: 4 bits of 32 by FPC.
        let pointers: Vec<u8> = (0..8u64).flat_map(|at| (0x7f12_3456_0000 + at * 4000).to_le_bytes()).collect();
        assert_eq!(fpc_bdi_bits(&pointers), 1 + bdi::bits(&pointers));
        assert!(bdi::bits(&pointers) < fpc::bits(&pointers));
        let small: Vec<u8> =
            [5u32, 0xffff_fffe, 3, 0x1234_0000].repeat(4).iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(fpc_bdi_bits(&small), 1 + fpc::bits(&small));
        assert!(fpc::bits(&small) < bdi::bits(&small));
    }

    #[test]
    fn a_page_takes_as_long_as_its_blocks() {
        let of_page = |compressor: Compressor| compressor.block().1 * (PAGE_BYTES / compressor.block().0);
        assert_eq!(ALL.map(of_page), [cycles(256), cycles(256), cycles(384)]);
    }

    #[test]
    fn the_papers_ratios_are_as_much_lower_as_it_says_and_not_below_1() {
        let of = |lz_ratio| ALL.map(|compressor| compressor.ratio_at(lz_ratio));
        assert!((of(4.47)[0] / of(4.47)[1] - 2.92).abs() < 1e-9 && (of(4.47)[0] / of(4.47)[2] - 2.73).abs() < 1e-9);
        assert_eq!(of(1.42), [1.42, 1.0, 1.0]);
        assert_eq!(ALL.map(|compressor| compressor.bytes_at(1.42)), [2885, 4096, 4096]);
    }
}
