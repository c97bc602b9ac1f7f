//! What programs tell a node of the copies of their pages, and what the node tells of that: whether it may be removed now.

use crate::bytes::{Reader, put_count};
use crate::{SESSION_ROWS_MAX, WireError};

/// What a session's program says of its pages at a node. It holds until the session leases a further slab, for a few seconds at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopiesReport {
    /// Slabs that the session had leased in its life when this was said: what was leased since is not covered.
    pub leases: u64,
    /// Pages at the node.
    pub pages: u64,
    /// Of these, pages that have fewer copies than are wanted.
    pub lacking_pages: u64,
    /// Of these, pages that would be lost with the node.
    pub last_pages: u64,
    /// Pages that were copied to the node or away from it, in place of others or beside them, in the last ten seconds.
    pub copied_pages: u64,
    /// Nothing would be lost with the node, and nothing is placed there alone.
    pub spare: bool,
    /// Pages that are wanted back can move elsewhere.
    pub movable: bool,
}

impl CopiesReport {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<CopiesReport, WireError> {
        let (leases, pages, lacking_pages) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (last_pages, copied_pages, flags) = (reader.u64()?, reader.u64()?, reader.u8()?);
        if flags > 3 {
            return Err(WireError::Value("the flags of a report"));
        }
        let (spare, movable) = (flags & 1 != 0, flags & 2 != 0);
        Ok(CopiesReport { leases, pages, lacking_pages, last_pages, copied_pages, spare, movable })
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let CopiesReport { leases, pages, lacking_pages, last_pages, copied_pages, spare, movable } = *self;
        for field in [leases, pages, lacking_pages, last_pages, copied_pages] {
            into.extend_from_slice(&field.to_le_bytes());
        }
        into.push(u8::from(spare) | u8::from(movable) << 1);
    }
}

/// What is known of a session's copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Removability {
    /// Its program has not said anything that still holds.
    Unknown = 0,
    /// Something would be lost with the node.
    Needed = 1,
    /// Nothing would.
    Spare = 2,
}

/// The copies of one session's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionCopies {
    /// Its number.
    pub session: u64,
    /// Whether the node can go.
    pub removability: Removability,
    /// What it said last, whether that still holds or not; zeros if nothing.
    pub report: CopiesReport,
}

/// The copies at a node, and those of its largest sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copies<'a> {
    /// The node may be removed now: no page of a program would be lost.
    pub removable: bool,
    /// Sessions of which that is not known.
    pub unknown_sessions: u64,
    /// Sums over all sessions, of what they said last.
    pub sums: CopiesReport,
    rows: &'a [u8],
    count: usize,
}

impl<'a> Copies<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Copies<'a>, WireError> {
        let removable = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(WireError::Value("whether the node may be removed")),
        };
        let (unknown_sessions, sums) = (reader.u64()?, CopiesReport::decode(&mut reader)?);
        let count = reader.count("the number of sessions", SESSION_ROWS_MAX)?;
        let rows = reader.0;
        for _ in 0..count {
            row(&mut reader)?;
        }
        reader.end()?;
        Ok(Copies { removable, unknown_sessions, sums, rows, count })
    }

    /// Appends what is known to a `CopiesAre` reply; of more than `SESSION_ROWS_MAX` sessions the first.
    pub fn encode(
        into: &mut Vec<u8>,
        removable: bool,
        unknown_sessions: u64,
        sums: &CopiesReport,
        sessions: &[SessionCopies],
    ) {
        into.push(u8::from(removable));
        into.extend_from_slice(&unknown_sessions.to_le_bytes());
        sums.encode(into);
        let sessions = &sessions[..sessions.len().min(SESSION_ROWS_MAX)];
        put_count(into, sessions.len());
        for SessionCopies { session, removability, report } in sessions {
            into.extend_from_slice(&session.to_le_bytes());
            into.push(*removability as u8);
            report.encode(into);
        }
    }

    /// The sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionCopies> + use<'a> {
        let mut reader = Reader(self.rows);
        (0..self.count).map(move |_| row(&mut reader).expect("read once before"))
    }
}

fn row(reader: &mut Reader<'_>) -> Result<SessionCopies, WireError> {
    let session = reader.u64()?;
    let removability = match reader.u8()? {
        0 => Removability::Unknown,
        1 => Removability::Needed,
        2 => Removability::Spare,
        _ => return Err(WireError::Value("what is known of a session's copies")),
    };
    Ok(SessionCopies { session, removability, report: CopiesReport::decode(reader)? })
}
