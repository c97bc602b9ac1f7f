//! The patches of a message: pages of which some granules change.
//!
//! ```text
//! entry:  u64 address, u16 granules, u16 0, u64 checksum        20 bytes
//! data:   the granules that are named, in the order of their addresses, entry by entry
//! ```
//! The checksum is that of the whole page as it is afterwards. So a node that has applied the granules can compare its
//! page with the client's, and keeps the checksum for later reads; a patch on another base than the client's changes
//! nothing.
//!
//! Source: DaeMon §4.3, dirty lines that go out as lines.

use crate::bytes::{Reader, put_count};
use crate::lists::entries;
use crate::{RANGES_MAX, WireError};
use hinterland_units::PAGE_BYTES;

/// Bytes of a granule: the unit in which a page is patched.
pub const GRANULE_BYTES: usize = 256;
/// Granules of a page.
pub const GRANULES: usize = PAGE_BYTES / GRANULE_BYTES;
const ENTRY_BYTES: usize = 20;

const _: () = assert!(GRANULES == 16, "a set of granules is 16 bits");

/// A set of granules of a page: bit i stands for bytes i × `GRANULE_BYTES` on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GranuleSet(pub u16);

impl GranuleSet {
    /// Those of which `is_in` says so.
    pub fn of(is_in: impl Fn(usize) -> bool) -> GranuleSet {
        GranuleSet((0..GRANULES).filter(|granule| is_in(*granule)).fold(0, |set, granule| set | 1 << granule))
    }

    /// How many.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Bytes of all of them.
    pub fn bytes(self) -> usize {
        self.count() * GRANULE_BYTES
    }

    /// Neighbours together: where each run begins in the page, and its bytes; in order, at most `GRANULES` / 2.
    pub fn runs(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut rest = self.0;
        let mut at = 0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let gap = rest.trailing_zeros();
                rest >>= gap;
                let run = rest.trailing_ones();
                rest = rest.checked_shr(run).unwrap_or(0);
                let begin = at + gap as usize;
                at = begin + run as usize;
                begin * GRANULE_BYTES..at * GRANULE_BYTES
            })
        })
    }
}

/// A page of which some granules change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagePatch {
    /// Where the page begins: a multiple of `PAGE_BYTES`.
    pub address: u64,
    /// What changes; not empty.
    pub granules: GranuleSet,
    /// Of the page afterwards (`checksum`).
    pub checksum: u64,
}

/// The patches of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patches<'a> {
    entries: &'a [[u8; ENTRY_BYTES]],
    data_bytes: usize,
}

impl<'a> Patches<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Patches<'a>, WireError> {
        let entries = entries(&mut reader, "the number of patches", RANGES_MAX)?;
        reader.end()?;
        let mut patches = Patches { entries, data_bytes: 0 };
        if entries.iter().any(|entry| entry[10..12] != [0; 2]) {
            return Err(WireError::Value("a reserved field"));
        }
        if patches.iter().any(|patch| patch.granules.0 == 0) {
            return Err(WireError::Value("the granules of a patch"));
        }
        if patches.iter().any(|patch| !patch.address.is_multiple_of(PAGE_BYTES as u64)) {
            return Err(WireError::Value("the address of a patch"));
        }
        patches.data_bytes = patches.iter().map(|patch| patch.granules.bytes()).sum();
        Ok(patches)
    }

    pub(crate) fn encode(into: &mut Vec<u8>, patches: impl ExactSizeIterator<Item = PagePatch>) -> usize {
        assert!((1..=RANGES_MAX).contains(&patches.len()), "1 to {RANGES_MAX} patches in a message");
        put_count(into, patches.len());
        let mut data_bytes = 0;
        for PagePatch { address, granules, checksum } in patches {
            into.extend_from_slice(&address.to_le_bytes());
            into.extend_from_slice(&granules.0.to_le_bytes());
            into.extend_from_slice(&[0; 2]);
            into.extend_from_slice(&checksum.to_le_bytes());
            data_bytes += granules.bytes();
        }
        data_bytes
    }

    /// One after the other.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PagePatch> + Clone + use<'a> {
        self.entries.iter().map(|entry| {
            let (address, rest) = entry.split_first_chunk().expect("20 bytes");
            let (granules, rest) = rest.split_first_chunk().expect("12 bytes");
            PagePatch {
                address: u64::from_le_bytes(*address),
                granules: GranuleSet(u16::from_le_bytes(*granules)),
                checksum: u64::from_le_bytes(*rest.last_chunk().expect("10 bytes")),
            }
        })
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all granules together, at most `DATA_BYTES_MAX`.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_granules_of_the_set_and_no_others() {
        for set in 0..=u16::MAX {
            let granules = GranuleSet(set);
            let (mut seen, mut end, mut runs) = (0u16, None, 0);
            for run in granules.runs() {
                assert!(end.is_none_or(|end| end < run.start) && !run.is_empty(), "{set:#x}: {run:?}");
                (run.start / GRANULE_BYTES..run.end / GRANULE_BYTES).for_each(|granule| seen |= 1 << granule);
                (end, runs) = (Some(run.end), runs + 1);
            }
            assert_eq!(seen, set);
            assert!(runs <= GRANULES / 2);
            assert_eq!(granules.runs().map(|run| run.len()).sum::<usize>(), granules.bytes());
        }
        assert_eq!(GranuleSet::of(|granule| granule % 5 == 0), GranuleSet(0b1000_0100_0010_0001));
    }
}
