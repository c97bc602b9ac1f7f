//! The protocol between programs and memory nodes: encoding and decoding only, no I/O, no `unsafe`.
//!
//! ```text
//! client ── Hello ──► node        once for each connection (a lane): versions, features
//!        ◄─ Welcome ──
//!        ── Open │ Attach ──►     a session: an address space of slabs, with a lease
//!        ◄─ Session ──
//!        ── Read, Write, … ──►    requests, answered in their order; several may be under way
//!        ◄─ Data, Done, … ──
//!
//! message = header (32 bytes) | control part | data part
//! ```
//!
//! **Invariant**: decoding borrows from the bytes it is given and never allocates; every length is compared with its bound
//! before it is used. The header's checksum covers header and control part, the control part holds a checksum for each range
//! of data. `docs/protocol.md` has the layouts.
#![forbid(unsafe_code)]

mod adaptive_poll;
mod bytes;
mod certificates;
mod copies;
mod directory;
mod endpoint;
mod fair_link;
mod handshake;
mod header;
mod limits;
mod link_scheduler;
mod lists;
mod patches;
mod reply;
mod request;
mod statistics;

pub use adaptive_poll::AdaptivePoll;
pub use certificates::{CERTIFICATES_MAX, CertificateRow, Certificates, SUBJECT_BYTES_MAX};
pub use copies::{Copies, CopiesReport, Removability, SessionCopies};
pub use directory::{DIRECTORY_BYTES_MAX, Directory, DirectoryError};
pub use endpoint::{Endpoint, EndpointError, PATH_BYTES_MAX, PORT, Protection, nobody_there};
pub use fair_link::{Channel, FairLink};
pub use handshake::{Features, HELLO_BYTES, Hello, Outcome, WELCOME_BYTES, Welcome};
pub use header::{HEADER_BYTES, Header, Kind, Priority};
pub use limits::{
    CONTROL_BYTES_MAX, DATA_BYTES_MAX, NAME_BYTES_MAX, RANGES_MAX, SESSION_ROWS_MAX, SLABS_MAX, WORDS_BYTES_MAX,
};
pub use link_scheduler::{LinkScheduler, LinkShare, NextSlot};
pub use lists::{Checksums, Numbers, Range, Ranges};
pub use patches::{GRANULE_BYTES, GRANULES, GranuleSet, PagePatch, Patches};
pub use reply::{Grant, Recall, Refusal, Reply};
pub use request::Request;
pub use statistics::{NodeRow, SessionRow, Statistics};

/// The version that this crate speaks. 1: the first.
pub const VERSION: u16 = 1;

/// A session's number on its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// What a further lane shows to be let into a session: random, known to the node and the session's owner only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

impl std::fmt::Debug for Token {
    /// Tokens do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What is wrong with bytes that were received. The connection that they came on cannot be trusted any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The other side speaks another protocol.
    #[error("this is not Hinterland's protocol")]
    Magic,
    /// Bits changed on the way, or the sender computes checksums in another way.
    #[error("a message arrived damaged (checksum mismatch)")]
    Checksum,
    /// No such kind of message.
    #[error("there is no message of kind {0:#04x}")]
    Kind(u8),
    /// A length above its bound.
    #[error("{what} is {is}, above the bound of {bound}")]
    TooLong {
        /// Of what.
        what: &'static str,
        /// As sent.
        is: u64,
        /// What may be sent.
        bound: u64,
    },
    /// A message that ends before its content, or goes on behind it.
    #[error("a message has a wrong length")]
    Length,
    /// A field has a value that means nothing.
    #[error("{0} has a value without meaning")]
    Value(&'static str),
}

/// The checksum of a range of data that lies at `address`: XXH3, 64 bits, seeded with the address, so that the right bytes of
/// another place do not pass.
pub fn checksum(address: u64, data: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot_with_seed(address, data)
}
