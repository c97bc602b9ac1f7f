//! Pages as programs have them, from a seed: for tests and measurements.

use hinterland_units::{PAGE_BYTES, PageBytes};

/// A small fast generator (SplitMix64, Steele et al. 2014): one `u64` of state, every seed is good.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// The same with half the bits.
    pub fn below_u32(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(bound.into())).unwrap_or(0)
    }

    /// An index below `bound`, which is not 0.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }
}

/// What a page looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// All zero.
    Zero,
    /// One word repeated.
    SameFilled,
    /// 2 KiB random and 2 KiB repeating: the standard page of the bench.
    HalfRandom,
    /// Random bytes.
    Random,
    /// Words of text.
    Text,
    /// A random share of random bytes, the rest zero: compresses to any size.
    Mixed,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 6] = [Kind::Zero, Kind::SameFilled, Kind::HalfRandom, Kind::Random, Kind::Text, Kind::Mixed];
}

/// The page of this kind and seed.
pub fn page(kind: Kind, seed: u64) -> PageBytes {
    let mut rng = Rng(seed ^ 0x5eed);
    let mut page = [0u8; PAGE_BYTES];
    match kind {
        Kind::Zero => {}
        Kind::SameFilled => crate::same_filled::fill(&mut page, rng.next_u64()),
        Kind::HalfRandom => {
            randomise(&mut page[..PAGE_BYTES / 2], &mut rng);
            let pattern = rng.next_u64().to_ne_bytes();
            page[PAGE_BYTES / 2..].as_chunks_mut::<8>().0.fill(pattern);
        }
        Kind::Random => randomise(&mut page, &mut rng),
        Kind::Text => write_text(&mut page, &mut rng),
        Kind::Mixed => {
            let random = rng.index(PAGE_BYTES);
            randomise(&mut page[..random], &mut rng);
        }
    }
    page
}

fn randomise(bytes: &mut [u8], rng: &mut Rng) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_ne_bytes()[..chunk.len()]);
    }
}

fn write_text(page: &mut PageBytes, rng: &mut Rng) {
    const WORDS: [&str; 16] = [
        "page", "fault", "memory", "far", "near", "store", "of", "the", "and", "evict", "fetch", "window", "slab",
        "backend", "42", "0x7f00",
    ];
    let mut at = 0;
    while at < PAGE_BYTES {
        let word = WORDS[rng.index(WORDS.len())].as_bytes();
        let end = (at + word.len()).min(PAGE_BYTES);
        page[at..end].copy_from_slice(&word[..end - at]);
        if end < PAGE_BYTES {
            page[end] = b' ';
        }
        at = end + 1;
    }
}
