//! The frame around each block.
//!
//! ```text
//!  0        4       5     6         8        12       16          24
//!  ├ marker ┼version┼kind ┼ zero    ┼ length ┼ number ┼ checksum  ┼ payload …
//! ```
//!
//! All numbers little-endian. The checksum (XXH3, 64 bits) covers the first 16 bytes and the payload; its seed is the checksum
//! of the file's head, so that a block of another file is no block of this one. No bit of a block can change unnoticed, but
//! with a probability of 2⁻⁶⁴. Traces and tapes have the same frames; marker and version tell them apart.

use crate::TraceError;
use twox_hash::XxHash3_64;

/// Whose blocks they are.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The first bytes of each block. Not ASCII throughout, so that no text begins like one.
    pub marker: [u8; 4],
    /// The version that is written, and the last one that is read; the first is 1.
    pub version: u8,
}

impl Format {
    /// Whether blocks of a version are read.
    pub fn reads(self, version: u8) -> bool {
        (1..=self.version).contains(&version)
    }
}

/// Bytes before the payload.
pub const FRAME_BYTES: usize = 24;
/// Longest payload that is read.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
const CHECKED_BYTES: usize = 16;

/// What is in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// What the file is of. The first block, and only the first.
    Head = 1,
    /// A region that later blocks name.
    Region = 2,
    /// References; of a tape, arrivals and departures.
    References = 3,
    /// The file is whole. The last block.
    End = 4,
    /// Of an unordered tape: pages of a phase.
    Phase = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Head, Kind::Region, Kind::References, Kind::End, Kind::Phase]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A block whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub version: u8,
    pub kind: Kind,
    pub number: u32,
    pub checksum: u64,
    pub payload: &'a [u8],
}

fn checksum(checked: &[u8], payload: &[u8], seed: u64) -> u64 {
    // Two hashes, the first seeding the second: no copy of the payload.
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(seed, checked), payload)
}

/// Appends a block to `out`; returns its checksum.
pub fn put(format: Format, out: &mut Vec<u8>, kind: Kind, number: u32, payload: &[u8], seed: u64) -> u64 {
    let start = out.len();
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a block of {} bytes cannot be read again", payload.len());
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&format.marker);
    out.extend_from_slice(&[format.version, kind as u8, 0, 0]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    let sum = checksum(&out[start..], payload, seed);
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
    sum
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// Takes the block apart that begins at `offset` of a file, where `bytes` are the rest of it, not empty.
///
/// # Errors
/// It is cut off, damaged, or of another version.
pub fn take(format: Format, bytes: &[u8], offset: u64, seed: u64) -> Result<Frame<'_>, TraceError> {
    let common = bytes.len().min(format.marker.len());
    if bytes[..common] != format.marker[..common] {
        return Err(TraceError::Damaged { offset });
    }
    let missing = |whole: usize| TraceError::Truncated { offset, missing: (whole - bytes.len()) as u64 };
    if bytes.len() < FRAME_BYTES {
        return Err(missing(FRAME_BYTES));
    }
    let length = usize::try_from(word(bytes, 8)).unwrap_or(usize::MAX);
    if length > PAYLOAD_BYTES_MAX {
        return Err(TraceError::Damaged { offset });
    }
    let payload = bytes.get(FRAME_BYTES..FRAME_BYTES + length).ok_or_else(|| missing(FRAME_BYTES + length))?;
    let stated = bytes[CHECKED_BYTES..].first_chunk().map_or(0, |sum| u64::from_le_bytes(*sum));
    if checksum(&bytes[..CHECKED_BYTES], payload, seed) != stated {
        return Err(TraceError::Damaged { offset });
    }
    let version = bytes[4];
    if !format.reads(version) {
        return Err(TraceError::Version { found: version });
    }
    let kind = Kind::of(bytes[5]).ok_or(TraceError::Malformed { offset, what: "a block of an unknown kind" })?;
    Ok(Frame { version, kind, number: word(bytes, 12), checksum: stated, payload })
}
