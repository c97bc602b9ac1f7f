//! What a node answers.

use crate::bytes::{Reader, put_text};
use crate::header::{begin, seal};
use crate::{
    Certificates, Checksums, Copies, HEADER_BYTES, Header, Kind, Numbers, Priority, SessionId, Statistics, Token,
    WORDS_BYTES_MAX, WireError,
};

/// A session as it was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its number.
    pub session: SessionId,
    /// What further lanes show.
    pub token: Token,
    /// Bytes that it may keep, together with the sessions that were cloned from it.
    pub quota_bytes: u64,
    /// Time that it is kept without a lane, in milliseconds.
    pub lease_ms: u32,
}

/// What a node wants of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recall {
    /// Slabs that the session is asked to give back; `u32::MAX`: all that it has, and will have.
    pub slabs: u32,
    /// Bytes that it may keep now, together with the sessions that were cloned from it.
    pub quota_bytes: u64,
}

/// Why something was not done. The session goes on unless the text says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Refusal {
    /// The node has no memory left.
    Full = 1,
    /// The session's quota is used up.
    Quota = 2,
    /// The node leases no more memory.
    Draining = 3,
    /// No such session, or a wrong token; its lease may have ended.
    NoSession = 4,
    /// A range outside the slabs of the session.
    Range = 5,
    /// The data does not have the checksum that was sent with it. Nothing was written.
    Damaged = 6,
    /// A request out of place: before a session, or a second one on a lane. The connection ends.
    Order = 7,
    /// Too many sessions.
    Busy = 8,
    /// What arrived is not the protocol. The connection ends.
    Malformed = 9,
    /// A page is not the one that a patch was made for, or the patch arrived damaged. Nothing was written.
    Stale = 10,
}

impl Refusal {
    fn of(code: u16) -> Result<Refusal, WireError> {
        const ALL: [Refusal; 10] = [
            Refusal::Full,
            Refusal::Quota,
            Refusal::Draining,
            Refusal::NoSession,
            Refusal::Range,
            Refusal::Damaged,
            Refusal::Order,
            Refusal::Busy,
            Refusal::Malformed,
            Refusal::Stale,
        ];
        ALL.into_iter().find(|refusal| *refusal as u16 == code).ok_or(WireError::Value("the reason"))
    }
}

/// A reply, borrowed from the bytes that it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// To `Open`, `Attach`, `Clone`.
    Session(Grant),
    /// To `Lease`.
    Slabs(Numbers<'a>),
    /// To `Read`: the data follows in the order of the ranges.
    Data(Checksums<'a>),
    /// To `Return`, `Write`, `Drain`, `Resize`, `Close`, `Share`.
    Done,
    /// To `Statistics`.
    Figures(Statistics<'a>),
    /// To `Recall` and `Report`.
    Recalled(Recall),
    /// To `Copies`.
    Copies(Copies<'a>),
    /// To `Certificates`.
    Certificates(Certificates<'a>),
    /// To anything.
    Refused {
        /// The reason, for programs.
        refusal: Refusal,
        /// Bytes in use, where memory is missing.
        used_bytes: u64,
        /// Bytes that may be used, where memory is missing.
        capacity_bytes: u64,
        /// The reason, for people.
        words: &'a str,
    },
}

impl<'a> Reply<'a> {
    /// Reads a reply whose header and control part were checked.
    ///
    /// # Errors
    /// The control part does not fit the kind.
    pub fn decode(header: &Header, control: &'a [u8]) -> Result<Reply<'a>, WireError> {
        if header.kind != Kind::Data && header.data_bytes != 0 {
            return Err(WireError::Length);
        }
        let mut reader = Reader(control);
        let reply = match header.kind {
            Kind::Session => Reply::Session(Grant {
                session: SessionId(reader.u64()?),
                token: Token(reader.array()?),
                quota_bytes: reader.u64()?,
                lease_ms: reader.u32()?,
            }),
            Kind::Slabs => return Numbers::decode(reader).map(Reply::Slabs),
            Kind::Data => return Checksums::decode(reader).map(Reply::Data),
            Kind::Done => Reply::Done,
            Kind::Figures => return Statistics::decode(reader).map(Reply::Figures),
            Kind::Recalled => Reply::Recalled(Recall { slabs: reader.u32()?, quota_bytes: reader.u64()? }),
            Kind::CopiesAre => return Copies::decode(reader).map(Reply::Copies),
            Kind::CertificatesAre => return Certificates::decode(reader).map(Reply::Certificates),
            Kind::Refused => Reply::Refused {
                refusal: Refusal::of(reader.u16()?)?,
                used_bytes: reader.u64()?,
                capacity_bytes: reader.u64()?,
                words: reader.text("the reason", WORDS_BYTES_MAX)?,
            },
            other => return Err(WireError::Kind(other as u8)),
        };
        reader.end()?;
        Ok(reply)
    }

    /// `Session` to request `number`.
    pub fn session(into: &mut Vec<u8>, number: u64, grant: &Grant) {
        begin(into, Kind::Session, Priority::Demand, number);
        into.extend_from_slice(&grant.session.0.to_le_bytes());
        into.extend_from_slice(&grant.token.0);
        into.extend_from_slice(&grant.quota_bytes.to_le_bytes());
        into.extend_from_slice(&grant.lease_ms.to_le_bytes());
        seal(into, 0);
    }

    /// `Slabs` to request `number`.
    pub fn slabs(into: &mut Vec<u8>, number: u64, slabs: &[u32]) {
        begin(into, Kind::Slabs, Priority::Demand, number);
        Numbers::encode(into, slabs);
        seal(into, 0);
    }

    /// `Data` to request `number`; `data_bytes` follow on the wire.
    pub fn data(into: &mut Vec<u8>, number: u64, checksums: &[u64], data_bytes: usize) {
        begin(into, Kind::Data, Priority::Demand, number);
        Checksums::encode(into, checksums);
        seal(into, data_bytes);
    }

    /// Bytes of header and control part of an answer with the data of `ranges` ranges.
    pub fn data_head_bytes(ranges: usize) -> usize {
        HEADER_BYTES + size_of::<u32>() + ranges * size_of::<u64>()
    }

    /// `Done` to request `number`.
    pub fn done(into: &mut Vec<u8>, number: u64) {
        begin(into, Kind::Done, Priority::Demand, number);
        seal(into, 0);
    }

    /// `Figures` to request `number`.
    pub fn figures(into: &mut Vec<u8>, number: u64, write: impl FnOnce(&mut Vec<u8>)) {
        begin(into, Kind::Figures, Priority::Demand, number);
        write(into);
        seal(into, 0);
    }

    /// `CopiesAre` to request `number`.
    pub fn copies(into: &mut Vec<u8>, number: u64, write: impl FnOnce(&mut Vec<u8>)) {
        begin(into, Kind::CopiesAre, Priority::Demand, number);
        write(into);
        seal(into, 0);
    }

    /// `CertificatesAre` to request `number`.
    pub fn certificates(into: &mut Vec<u8>, number: u64, write: impl FnOnce(&mut Vec<u8>)) {
        begin(into, Kind::CertificatesAre, Priority::Demand, number);
        write(into);
        seal(into, 0);
    }

    /// `Recalled` to request `number`.
    pub fn recalled(into: &mut Vec<u8>, number: u64, recall: &Recall) {
        begin(into, Kind::Recalled, Priority::Demand, number);
        into.extend_from_slice(&recall.slabs.to_le_bytes());
        into.extend_from_slice(&recall.quota_bytes.to_le_bytes());
        seal(into, 0);
    }

    /// `Refused` to request `number`; `memory` is what is used and what may be used, where memory is missing.
    pub fn refused(into: &mut Vec<u8>, number: u64, refusal: Refusal, memory: (u64, u64), words: &str) {
        begin(into, Kind::Refused, Priority::Demand, number);
        into.extend_from_slice(&(refusal as u16).to_le_bytes());
        into.extend_from_slice(&memory.0.to_le_bytes());
        into.extend_from_slice(&memory.1.to_le_bytes());
        put_text(into, words, WORDS_BYTES_MAX);
        seal(into, 0);
    }
}
