//! Pages as programs have them, from a seed: for tests and measurements.

pub use hinterland_units::Rng;
use hinterland_units::{PAGE_BYTES, PageBytes};

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
