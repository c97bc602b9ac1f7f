//! What a node says of itself, as a table or as JSON.

use super::{Identity, NodeError, ask::ask};
use crate::table::table;
use hinterland_units::ByteCount;
use hinterland_wire::{Kind, NodeRow, Reply, Request};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The JSON document, and what the table is made of.
#[derive(Serialize)]
struct Status {
    node: String,
    uptime_ms: u64,
    capacity_bytes: u64,
    used_bytes: u64,
    /// What is leased and wanted back.
    to_move_bytes: u64,
    slab_bytes: u64,
    draining: bool,
    lanes: u64,
    sessions: u64,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    copied_slabs: u64,
    refused: u64,
    /// The largest, by slabs.
    largest_sessions: Vec<Session>,
}

#[derive(Serialize)]
struct Session {
    session: u64,
    name: String,
    lanes: u32,
    /// Slabs that it shares with a clone count in both.
    held_bytes: u64,
    quota_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
}

/// `hinterland node status`.
pub fn run(node: &str, identity: &Identity, json: bool, watch: bool) -> Result<(), NodeError> {
    let mut out = std::io::stdout();
    loop {
        let status = of(node, identity)?;
        let text = match (json, watch) {
            (true, false) => serde_json::to_string_pretty(&status).map_err(std::io::Error::from)? + "\n",
            (true, true) => serde_json::to_string(&status).map_err(std::io::Error::from)? + "\n",
            // On a terminal each takes the place of the one before.
            (false, true) if out.is_terminal() => "\x1b[H\x1b[2J".to_owned() + &status.table(),
            (false, _) => status.table(),
        };
        out.write_all(text.as_bytes())?;
        if !watch {
            return Ok(());
        }
        out.flush()?;
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn of(node: &str, identity: &Identity) -> Result<Status, NodeError> {
    ask(
        node,
        identity,
        |into| Request::plain(into, 1, Kind::Statistics),
        |reply| match reply {
            Reply::Figures(figures) => Some(Status::new(node, &figures)),
            _ => None,
        },
    )
}

/// What a node has leased and wants back.
pub fn to_move_bytes(row: &NodeRow) -> u64 {
    if row.draining != 0 { row.used_bytes } else { row.used_bytes.saturating_sub(row.capacity_bytes) }
}

impl Status {
    fn new(node: &str, figures: &hinterland_wire::Statistics<'_>) -> Status {
        let row = &figures.node;
        Status {
            node: node.to_owned(),
            uptime_ms: row.uptime_ms,
            capacity_bytes: row.capacity_bytes,
            used_bytes: row.used_bytes,
            to_move_bytes: to_move_bytes(row),
            slab_bytes: row.slab_bytes,
            draining: row.draining != 0,
            lanes: row.lanes,
            sessions: row.sessions,
            reads: row.reads,
            read_bytes: row.read_bytes,
            writes: row.writes,
            written_bytes: row.written_bytes,
            copied_slabs: row.copied_slabs,
            refused: row.refused,
            largest_sessions: figures
                .sessions()
                .map(|session| Session {
                    session: session.session,
                    name: session.name.to_owned(),
                    lanes: session.lanes,
                    held_bytes: u64::from(session.slabs).saturating_mul(row.slab_bytes),
                    quota_bytes: session.quota_bytes,
                    read_bytes: session.read_bytes,
                    written_bytes: session.written_bytes,
                })
                .collect(),
        }
    }

    fn table(&self) -> String {
        let bytes = |bytes: u64| ByteCount(bytes).to_string();
        let uptime = humantime::format_duration(Duration::from_secs(self.uptime_ms / 1000));
        let to_move = match (self.draining, self.to_move_bytes) {
            (true, 0) => ", drained: it can be stopped".to_owned(),
            (true, left) => format!(", draining: {} to move", bytes(left)),
            (false, 0) => String::new(),
            (false, over) => format!(", over by {}", bytes(over)),
        };
        let mut text = format!(
            "{}: {} of {} leased, up {uptime}{to_move}\n",
            self.node,
            bytes(self.used_bytes),
            bytes(self.capacity_bytes),
        );
        text += &format!(
            "  {} sessions, {} connections; read {} in {} ranges, written {} in {}; {} slabs copied, {} refusals\n",
            self.sessions,
            self.lanes,
            bytes(self.read_bytes),
            self.reads,
            bytes(self.written_bytes),
            self.writes,
            self.copied_slabs,
            self.refused,
        );
        if self.largest_sessions.is_empty() {
            return text;
        }
        let mut table = table(&["session", "name", "lanes", "holds", "quota", "read", "written"], 2..7);
        for session in &self.largest_sessions {
            table.add_row([
                session.session.to_string(),
                session.name.escape_debug().to_string(),
                session.lanes.to_string(),
                bytes(session.held_bytes),
                bytes(session.quota_bytes),
                bytes(session.read_bytes),
                bytes(session.written_bytes),
            ]);
        }
        text + &format!("\n{table}\n")
    }
}
