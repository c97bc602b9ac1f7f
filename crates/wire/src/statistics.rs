//! The figures of a node.

use crate::bytes::{Reader, put_count, put_text};
use crate::{NAME_BYTES_MAX, SESSION_ROWS_MAX, WireError};

/// What a node counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeRow {
    /// Bytes that it lends at most.
    pub capacity_bytes: u64,
    /// Bytes of the slabs that are leased, each counted once.
    pub used_bytes: u64,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Time since it started.
    pub uptime_ms: u64,
    /// Sessions.
    pub sessions: u64,
    /// Connections.
    pub lanes: u64,
    /// Ranges read, and their bytes.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Ranges written.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Slabs that were copied because a session wrote to one that it shares with a clone.
    pub copied_slabs: u64,
    /// Requests refused, and connections ended for what they sent.
    pub refused: u64,
    /// 1 when it leases no more memory.
    pub draining: u64,
}

impl NodeRow {
    const FIELDS: usize = 13;

    fn fields(&self) -> [u64; NodeRow::FIELDS] {
        let NodeRow { capacity_bytes, used_bytes, slab_bytes, uptime_ms, sessions, lanes, reads, .. } = *self;
        let NodeRow { read_bytes, writes, written_bytes, copied_slabs, refused, draining, .. } = *self;
        [
            capacity_bytes,
            used_bytes,
            slab_bytes,
            uptime_ms,
            sessions,
            lanes,
            reads,
            read_bytes,
            writes,
            written_bytes,
            copied_slabs,
            refused,
            draining,
        ]
    }
}

/// What a node counts of one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionRow<'a> {
    /// Its number.
    pub session: u64,
    /// Connections.
    pub lanes: u32,
    /// Slabs in its address space.
    pub slabs: u32,
    /// Bytes that it may keep, together with its clones.
    pub quota_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// As it was opened.
    pub name: &'a str,
}

/// The figures of a node and its largest sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistics<'a> {
    /// Of the node.
    pub node: NodeRow,
    rows: &'a [u8],
    count: usize,
}

impl<'a> Statistics<'a> {
    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Statistics<'a>, WireError> {
        let mut node = NodeRow::default();
        let NodeRow { capacity_bytes, used_bytes, slab_bytes, uptime_ms, sessions, lanes, reads, .. } = &mut node;
        for field in [capacity_bytes, used_bytes, slab_bytes, uptime_ms, sessions, lanes, reads] {
            *field = reader.u64()?;
        }
        let NodeRow { read_bytes, writes, written_bytes, copied_slabs, refused, draining, .. } = &mut node;
        for field in [read_bytes, writes, written_bytes, copied_slabs, refused, draining] {
            *field = reader.u64()?;
        }
        let count = reader.count("the number of sessions", SESSION_ROWS_MAX)?;
        let rows = reader.0;
        for _ in 0..count {
            row(&mut reader)?;
        }
        reader.end()?;
        Ok(Statistics { node, rows, count })
    }

    /// Appends figures to a `Figures` reply; of more than `SESSION_ROWS_MAX` sessions the first.
    pub fn encode(into: &mut Vec<u8>, node: &NodeRow, sessions: &[SessionRow<'_>]) {
        node.fields().iter().for_each(|field| into.extend_from_slice(&field.to_le_bytes()));
        let sessions = &sessions[..sessions.len().min(SESSION_ROWS_MAX)];
        put_count(into, sessions.len());
        for session in sessions {
            into.extend_from_slice(&session.session.to_le_bytes());
            into.extend_from_slice(&session.lanes.to_le_bytes());
            into.extend_from_slice(&session.slabs.to_le_bytes());
            for field in [session.quota_bytes, session.read_bytes, session.written_bytes] {
                into.extend_from_slice(&field.to_le_bytes());
            }
            put_text(into, session.name, NAME_BYTES_MAX);
        }
    }

    /// The sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionRow<'a>> + use<'a> {
        let mut reader = Reader(self.rows);
        (0..self.count).map(move |_| row(&mut reader).expect("read once before"))
    }
}

fn row<'a>(reader: &mut Reader<'a>) -> Result<SessionRow<'a>, WireError> {
    Ok(SessionRow {
        session: reader.u64()?,
        lanes: reader.u32()?,
        slabs: reader.u32()?,
        quota_bytes: reader.u64()?,
        read_bytes: reader.u64()?,
        written_bytes: reader.u64()?,
        name: reader.text("a name", NAME_BYTES_MAX)?,
    })
}
