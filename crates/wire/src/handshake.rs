//! The first bytes on a connection. Their layout stays as it is in every version: it is how versions are agreed on.
//!
//! ```text
//! Hello (32 bytes)                               Welcome (56 bytes)
//!  0  8  "HINTRLND"                               0  8  "HINTNODE"
//!  8  u16  oldest version                         8  u16  outcome
//! 10  u16  newest version                        10  u16  version that is spoken from now on
//! 12  u32  0                                     12  u16  oldest version of the node, 14 its newest
//! 16  u64  features that are understood          16  u64  features of both
//! 24  u64  XXH3 of the above                     24  u64  bytes of a slab
//!                                                32  u64  0;  40  u64  0
//!                                                48  u64  XXH3 of the above
//! ```

use crate::bytes::Reader;
use crate::{VERSION, WireError};
use twox_hash::XxHash3_64;

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 32;
/// Bytes of a welcome.
pub const WELCOME_BYTES: usize = 56;
const CLIENT: [u8; 8] = *b"HINTRLND";
const NODE: [u8; 8] = *b"HINTNODE";

/// What is not part of every implementation of a version. Unknown bits are ignored: what counts is what both have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features(pub u64);

impl Features {
    /// `Clone`: a second session with the same content, copied on write.
    pub const CLONE: Features = Features(1);
    /// `Drain`.
    pub const DRAIN: Features = Features(2);
    /// `Recall` and `Resize`: the node may want slabs back.
    pub const RECALL: Features = Features(4);
    /// `Share`: slabs that the client may read without asking. On UNIX sockets only.
    pub const SHARED: Features = Features(8);
    /// `Report` and `Copies`: programs say what would be lost with the node.
    pub const REPORT: Features = Features(16);
    /// `Certificates`: the node says for how long its certificates are good.
    pub const CERTIFICATES: Features = Features(32);
    /// `Patch`: parts of pages are written in place.
    pub const PATCH: Features = Features(64);
    /// What this implementation has.
    pub const ALL: Features = Features(127);

    /// Whether all of `others` are here.
    pub fn has(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }

    /// Without `others`.
    pub fn without(self, others: Features) -> Features {
        Features(self.0 & !others.0)
    }

    /// What both have.
    pub fn common(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }
}

/// What a client says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The oldest and the newest version that it speaks.
    pub versions: (u16, u16),
    /// What it understands.
    pub features: Features,
}

/// How a node answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Outcome {
    /// Requests may follow.
    Accepted = 0,
    /// No version in common. The connection ends.
    Version = 1,
    /// Too many connections. The connection ends.
    Busy = 2,
    /// Both sides have to authenticate themselves, by TLS. The connection ends.
    Secured = 3,
}

/// What a node says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// Whether it goes on.
    pub outcome: Outcome,
    /// The version to speak: the newest that both have.
    pub version: u16,
    /// The node's versions.
    pub versions: (u16, u16),
    /// What both understand.
    pub features: Features,
    /// Bytes of a slab: a power of two.
    pub slab_bytes: u64,
}

impl Hello {
    /// What this implementation says.
    pub fn ours() -> Hello {
        Hello { versions: (VERSION, VERSION), features: Features::ALL }
    }

    /// The version to speak with somebody who has `versions`, if there is one.
    pub fn agree(&self, versions: (u16, u16)) -> Option<u16> {
        let newest = self.versions.1.min(versions.1);
        (newest >= self.versions.0.max(versions.0)).then_some(newest)
    }

    /// The bytes to send.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&CLIENT);
        bytes[8..10].copy_from_slice(&self.versions.0.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.versions.1.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.features.0.to_le_bytes());
        sealed(bytes)
    }

    /// Reads what a client sent.
    ///
    /// # Errors
    /// It is something else, or damaged.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, WireError> {
        let mut reader = opened(bytes, CLIENT)?;
        let versions = (reader.u16()?, reader.u16()?);
        reader.u32()?;
        Ok(Hello { versions, features: Features(reader.u64()?) })
    }
}

impl Welcome {
    /// The answer to `hello` of a node with slabs of `slab_bytes` that offers `features` on this connection.
    pub fn answer(hello: &Hello, features: Features, slab_bytes: u64, busy: bool) -> Welcome {
        let ours = Hello::ours();
        let version = ours.agree(hello.versions);
        let outcome = match version {
            None => Outcome::Version,
            Some(_) if busy => Outcome::Busy,
            Some(_) => Outcome::Accepted,
        };
        let features = features.common(hello.features);
        Welcome { outcome, version: version.unwrap_or(0), versions: ours.versions, features, slab_bytes }
    }

    /// The bytes to send.
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut bytes = [0; WELCOME_BYTES];
        bytes[..8].copy_from_slice(&NODE);
        for (at, half) in [self.outcome as u16, self.version, self.versions.0, self.versions.1].into_iter().enumerate()
        {
            bytes[8 + 2 * at..10 + 2 * at].copy_from_slice(&half.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.features.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.slab_bytes.to_le_bytes());
        sealed(bytes)
    }

    /// Reads what a node sent.
    ///
    /// # Errors
    /// It is something else, damaged, or means nothing.
    pub fn decode(bytes: &[u8; WELCOME_BYTES]) -> Result<Welcome, WireError> {
        let mut reader = opened(bytes, NODE)?;
        let outcome = match reader.u16()? {
            0 => Outcome::Accepted,
            1 => Outcome::Version,
            2 => Outcome::Busy,
            3 => Outcome::Secured,
            _ => return Err(WireError::Value("the outcome")),
        };
        let version = reader.u16()?;
        let versions = (reader.u16()?, reader.u16()?);
        let features = Features(reader.u64()?);
        let slab_bytes = reader.u64()?;
        // Locations of pages are computed from it.
        if !slab_bytes.is_power_of_two() || !(1 << 16..=1 << 30).contains(&slab_bytes) {
            return Err(WireError::Value("the size of a slab"));
        }
        Ok(Welcome { outcome, version, versions, features, slab_bytes })
    }
}

/// Enters the checksum in the last 8 bytes.
fn sealed<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let sum = XxHash3_64::oneshot(&bytes[..N - 8]);
    bytes[N - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks the first and the last 8 bytes; a reader of what lies between and the end.
fn opened<const N: usize>(bytes: &[u8; N], magic: [u8; 8]) -> Result<Reader<'_>, WireError> {
    if bytes[..8] != magic {
        return Err(WireError::Magic);
    }
    let sum = Reader(&bytes[N - 8..]).u64()?;
    if sum != XxHash3_64::oneshot(&bytes[..N - 8]) { Err(WireError::Checksum) } else { Ok(Reader(&bytes[8..])) }
}
