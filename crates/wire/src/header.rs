//! The header of a message.
//!
//! ```text
//!  0  u16  'H' 'L'              8  u32  bytes of data       24  u64  XXH3 of the 24 bytes before, seeded with
//!  2  u8   kind                12  u32  0                            the XXH3 of the control part
//!  3  u8   priority            16  u64  number of the request
//!  4  u32  bytes of control
//! ```
//! The lengths stand first of what is not fixed, because a reader needs them before anything can be checked: both are bounded,
//! so that a damaged length costs a bounded read.

use crate::bytes::Reader;
use crate::{CONTROL_BYTES_MAX, DATA_BYTES_MAX, WireError};
use twox_hash::XxHash3_64;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
const MAGIC: [u8; 2] = *b"HL";
const CHECKSUM_AT: usize = 24;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Begin a session.
    Open = 1,
    /// Join a session with one more lane.
    Attach = 2,
    /// Ask for slabs.
    Lease = 3,
    /// Give slabs back.
    Return = 4,
    /// Read ranges.
    Read = 5,
    /// Write ranges.
    Write = 6,
    /// Make a second session with the same content.
    Clone = 7,
    /// Ask for figures.
    Statistics = 8,
    /// Stop, or go on, leasing memory.
    Drain = 9,
    /// End the session.
    Close = 10,
    /// Ask what the node wants back.
    Recall = 11,
    /// Change what a node lends.
    Resize = 12,
    /// Ask for a slab's descriptor.
    Share = 13,
    /// Say how many copies the session's pages have.
    Report = 14,
    /// Ask whether the node may be removed.
    Copies = 15,
    /// Ask for how long the node's certificates are good.
    Certificates = 16,
    /// Write some granules of pages.
    Patch = 17,
    /// A session is open.
    Session = 0x81,
    /// Slabs that were leased.
    Slabs = 0x83,
    /// Ranges that were read.
    Data = 0x85,
    /// It is done.
    Done = 0x86,
    /// Figures.
    Figures = 0x88,
    /// What the node wants back.
    Recalled = 0x8b,
    /// Whether the node may be removed.
    CopiesAre = 0x8f,
    /// For how long the node's certificates are good.
    CertificatesAre = 0x90,
    /// It was not done, and why.
    Refused = 0xff,
}

impl Kind {
    const ALL: [Kind; 26] = [
        Kind::Open,
        Kind::Attach,
        Kind::Lease,
        Kind::Return,
        Kind::Read,
        Kind::Write,
        Kind::Clone,
        Kind::Statistics,
        Kind::Drain,
        Kind::Close,
        Kind::Recall,
        Kind::Resize,
        Kind::Share,
        Kind::Report,
        Kind::Copies,
        Kind::Certificates,
        Kind::Patch,
        Kind::Session,
        Kind::Slabs,
        Kind::Data,
        Kind::Done,
        Kind::Figures,
        Kind::Recalled,
        Kind::CopiesAre,
        Kind::CertificatesAre,
        Kind::Refused,
    ];

    fn of(byte: u8) -> Result<Kind, WireError> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte).ok_or(WireError::Kind(byte))
    }
}

/// What a transfer is for. Lower overtakes higher on the same link, where there is a choice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Priority {
    /// A program waits.
    Demand = 0,
    /// Read ahead of a program.
    Prefetch = 1,
    /// Evicted and demoted pages.
    WriteBack = 2,
    /// From one far memory to another: pages of a path that is dropped, pages that are promoted while the program is idle, rebuilt and moved slabs.
    Migration = 3,
}

impl Priority {
    fn of(byte: u8) -> Result<Priority, WireError> {
        let all = [Priority::Demand, Priority::Prefetch, Priority::WriteBack, Priority::Migration];
        all.into_iter().find(|priority| *priority as u8 == byte).ok_or(WireError::Value("the priority"))
    }
}

/// A header whose lengths are within their bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// What it is for.
    pub priority: Priority,
    /// Bytes of the control part, right behind the header.
    pub control_bytes: usize,
    /// Bytes of data, right behind the control part.
    pub data_bytes: usize,
    /// The request's number, counted up by the client on each lane; a reply has its request's.
    pub number: u64,
}

impl Header {
    /// Reads a header; nothing but the bounds is checked of the lengths, and the checksum not at all.
    ///
    /// # Errors
    /// Another protocol, an unknown kind, a length above its bound.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, WireError> {
        let mut reader = Reader(bytes);
        if reader.array()? != MAGIC {
            return Err(WireError::Magic);
        }
        let (kind, priority) = (reader.u8()?, reader.u8()?);
        let control_bytes = reader.count("the control part", CONTROL_BYTES_MAX)?;
        let data_bytes = reader.count("the data part", DATA_BYTES_MAX)?;
        if reader.u32()? != 0 {
            return Err(WireError::Value("a reserved field"));
        }
        let number = reader.u64()?;
        Ok(Header { kind: Kind::of(kind)?, priority: Priority::of(priority)?, control_bytes, data_bytes, number })
    }

    /// Reads header and control part, which is the whole of `message`, and checks both.
    ///
    /// # Errors
    /// As for `decode`; a wrong length or checksum.
    pub fn decode_whole(message: &[u8]) -> Result<(Header, &[u8]), WireError> {
        let (head, control) = message.split_first_chunk::<HEADER_BYTES>().ok_or(WireError::Length)?;
        let header = Header::decode(head)?;
        if control.len() != header.control_bytes {
            return Err(WireError::Length);
        }
        let written = Reader(&head[CHECKSUM_AT..]).u64()?;
        if written != digest(head, control) { Err(WireError::Checksum) } else { Ok((header, control)) }
    }
}

/// Begins a message in an empty buffer; the control part is appended next.
pub(crate) fn begin(into: &mut Vec<u8>, kind: Kind, priority: Priority, number: u64) {
    into.clear();
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&[kind as u8, priority as u8]);
    into.extend_from_slice(&[0; 12]);
    into.extend_from_slice(&number.to_le_bytes());
    into.extend_from_slice(&[0; 8]);
}

/// Ends the control part: enters the lengths and the checksum. `data_bytes` follow on the wire.
pub(crate) fn seal(message: &mut [u8], data_bytes: usize) {
    let control_bytes = message.len() - HEADER_BYTES;
    assert!(control_bytes <= CONTROL_BYTES_MAX && data_bytes <= DATA_BYTES_MAX, "a message exceeds its bounds");
    let length = |bytes: usize| u32::try_from(bytes).expect("bounded").to_le_bytes();
    message[4..8].copy_from_slice(&length(control_bytes));
    message[8..12].copy_from_slice(&length(data_bytes));
    let (head, control) = message.split_first_chunk::<HEADER_BYTES>().expect("`begin` wrote a header");
    let sum = digest(head, control);
    message[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// The control part's hash is the seed of the header's: both are hashed where they lie.
fn digest(head: &[u8; HEADER_BYTES], control: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(control), &head[..CHECKSUM_AT])
}
