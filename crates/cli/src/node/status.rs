//! What a node says of itself, as a table or as JSON.

use super::{Identity, NodeError, client::ask};
use crate::print::{self, Reader};
use crate::report::count;
use crate::table::table;
use hinterland_units::{ByteCount, Foreign};
use hinterland_wire::{CertificateRow, CopiesReport, Kind, NodeRow, Removability, Reply, Request, SessionCopies};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Duration;

/// Sessions that are named.
const NAMED_MAX: usize = 8;

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
    /// No page of a program would be lost with the node now; false where that is not known.
    removable: bool,
    /// Sessions of which it is not known.
    unknown_sessions: u64,
    /// Pages here that have fewer copies than are wanted, as the sessions said last.
    lacking_pages: u64,
    /// Pages that would be lost with the node, as the sessions said last.
    last_pages: u64,
    /// Pages that are copied here or away from here in a second, over the last ten.
    copied_pages_per_second: f64,
    /// The node's own, and those of the CA that signs programs' certificates; none without certificates.
    certificates: Vec<Certificate>,
    /// The largest, by slabs.
    largest_sessions: Vec<Session>,
}

#[derive(Serialize)]
struct Certificate {
    /// `own`, which includes those that lead to its CA; or `ca`.
    kind: &'static str,
    subject: String,
    /// For how long it is still good; negative: it has expired.
    left_seconds: i64,
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
    /// `spare`: nothing of it would be lost with the node; `needed`; `unknown`: it has not said anything that still holds.
    copies: &'static str,
    /// What is wanted back of it can move to other nodes.
    movable: bool,
}

/// `hinterland node status`.
pub fn run(node: &str, identity: &Identity, json: bool, watch: bool) -> Result<(), NodeError> {
    loop {
        let status = of(node, identity)?;
        let reader = match (json, watch) {
            (true, false) => {
                print::json(&(serde_json::to_string_pretty(&status).map_err(std::io::Error::from)? + "\n"))
            }
            (true, true) => print::json(&(serde_json::to_string(&status).map_err(std::io::Error::from)? + "\n")),
            // On a terminal each takes the place of the one before.
            (false, true) if std::io::stdout().is_terminal() => {
                print::as_is("\x1b[H\x1b[2J").and_then(|_| print::text(&status.table()))
            }
            (false, _) => print::text(&status.table()),
        };
        if reader? == Reader::Gone || !watch {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn of(node: &str, identity: &Identity) -> Result<Status, NodeError> {
    let copies = Copies::of(node, identity);
    let certificates = certificates(node, identity);
    let take = |reply: Reply<'_>| match reply {
        Reply::Figures(figures) => Some(Status { certificates, ..Status::new(node, &figures, &copies) }),
        _ => None,
    };
    ask(node, identity, |into| Request::plain(into, 1, Kind::Statistics), take)
}

/// For how long a node's certificates are good; nothing, if it is an old node.
fn certificates(node: &str, identity: &Identity) -> Vec<Certificate> {
    let row = |row: CertificateRow<'_>| Certificate {
        kind: if row.is_ca { "ca" } else { "own" },
        subject: row.subject.to_owned(),
        left_seconds: row.left_seconds,
    };
    let take = |reply: Reply<'_>| match reply {
        Reply::Certificates(certificates) => Some(certificates.rows().map(row).collect()),
        _ => None,
    };
    // Without certificates there are none, and whether the node is there is found out with its figures.
    ask(node, identity, |into| Request::plain(into, 1, Kind::Certificates), take).unwrap_or_default()
}

/// What a node knows of copies; nothing, if it is an old one.
#[derive(Default)]
pub struct Copies {
    removable: bool,
    unknown_sessions: u64,
    sums: CopiesReport,
    sessions: Vec<SessionCopies>,
}

impl Copies {
    /// Asks a node.
    pub fn of(node: &str, identity: &Identity) -> Copies {
        let take = |reply: Reply<'_>| match reply {
            Reply::Copies(copies) => Some(Copies {
                removable: copies.removable,
                unknown_sessions: copies.unknown_sessions,
                sums: copies.sums,
                sessions: copies.sessions().collect(),
            }),
            _ => None,
        };
        // Whether it is there at all is found out with its figures.
        ask(node, identity, |into| Request::plain(into, 1, Kind::Copies), take).unwrap_or_default()
    }

    fn of_session(&self, session: u64) -> Option<&SessionCopies> {
        self.sessions.iter().find(|copies| copies.session == session)
    }

    /// Whether a session's pages can move.
    fn is_movable(&self, session: u64) -> bool {
        let holds = |copies: &SessionCopies| copies.removability != Removability::Unknown && copies.report.movable;
        self.of_session(session).is_some_and(holds)
    }

    /// Those of a node's sessions that hold something, and cannot move it, or do not say so: for people.
    pub fn stuck(&self, figures: &hinterland_wire::Statistics<'_>) -> Vec<String> {
        let stuck = figures.sessions().filter(|session| session.slabs > 0 && !self.is_movable(session.session));
        stuck.take(NAMED_MAX).map(|session| Foreign(session.name).to_string()).collect()
    }
}

/// A time that is left, in the largest unit that fits: days are what counts here.
fn left(seconds: i64) -> String {
    let units = [("day", 24 * 60 * 60), ("hour", 60 * 60), ("minute", 60), ("second", 1)];
    // A node may say any number.
    let whole = seconds.unsigned_abs();
    let (unit, length) = units.into_iter().find(|(_, length)| whole >= *length).unwrap_or(("second", 1));
    let count = whole / length;
    let plural = if count == 1 { "" } else { "s" };
    match seconds {
        0.. => format!("{} {unit}{plural} left", crate::report::count(count)),
        _ => format!("EXPIRED {} {unit}{plural} ago", crate::report::count(count)),
    }
}

/// What a node has leased and wants back.
pub fn to_move_bytes(row: &NodeRow) -> u64 {
    if row.draining != 0 { row.used_bytes } else { row.used_bytes.saturating_sub(row.capacity_bytes) }
}

impl Status {
    fn new(node: &str, figures: &hinterland_wire::Statistics<'_>, copies: &Copies) -> Status {
        let row = &figures.node;
        let removability = |session| match copies.of_session(session).map(|copies| copies.removability) {
            Some(Removability::Spare) => "spare",
            Some(Removability::Needed) => "needed",
            Some(Removability::Unknown) | None => "unknown",
        };
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
            removable: copies.removable,
            unknown_sessions: copies.unknown_sessions,
            lacking_pages: copies.sums.lacking_pages,
            last_pages: copies.sums.last_pages,
            copied_pages_per_second: copies.sums.copied_pages as f64 / 10.0,
            certificates: Vec::new(),
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
                    copies: removability(session.session),
                    movable: copies.is_movable(session.session),
                })
                .collect(),
        }
    }

    /// Whether the node can go, and what speaks against it.
    fn copies_line(&self) -> String {
        let mut why = Vec::new();
        if self.last_pages > 0 {
            why.push(format!("{} pages would be lost", count(self.last_pages)));
        }
        if self.unknown_sessions > 0 {
            why.push(format!("of {} sessions it is not known", self.unknown_sessions));
        }
        let verdict = match (self.removable, why.is_empty()) {
            (true, _) => "yes, unless another node of the pool went in the last 10 seconds".to_owned(),
            (false, true) => "no".to_owned(),
            (false, false) => format!("no: {}", why.join(", ")),
        };
        let mut text = format!("  safe to remove now: {verdict}\n");
        if self.lacking_pages > 0 || self.copied_pages_per_second > 0.0 {
            let (lacking, rate) = (count(self.lacking_pages), self.copied_pages_per_second);
            text +=
                &format!("  {lacking} pages have fewer copies than are wanted; {rate:.0} pages a second are copied\n");
        }
        text
    }

    /// For how long the certificates are good that this is known of.
    fn certificates_lines(&self) -> String {
        let line = |Certificate { kind, subject, left_seconds }: &Certificate| {
            let whose = if *kind == "ca" { "certificate of the programs' CA" } else { "own certificate" };
            format!("  {whose} {}: {}\n", Foreign(subject), left(*left_seconds))
        };
        self.certificates.iter().map(line).collect()
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
        text += &self.copies_line();
        text += &self.certificates_lines();
        if self.draining && self.to_move_bytes > 0 {
            let stuck = self.largest_sessions.iter().filter(|session| session.held_bytes > 0 && !session.movable);
            let names: Vec<String> = stuck.map(|session| Foreign(&session.name).to_string()).take(NAMED_MAX).collect();
            if !names.is_empty() {
                text += &format!("  no other node with room is known for the pages of {}\n", names.join(", "));
            }
        }
        if self.largest_sessions.is_empty() {
            return text;
        }
        let mut table = table(&["session", "name", "lanes", "holds", "quota", "read", "written"], 2..7);
        for session in &self.largest_sessions {
            table.add_row([
                session.session.to_string(),
                Foreign(&session.name).to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_said_in_days_and_below_a_day_in_what_fits() {
        const DAY: i64 = 24 * 60 * 60;
        for (seconds, words) in [
            (89 * DAY + 5, "89 days left"),
            (DAY, "1 day left"),
            (DAY - 1, "23 hours left"),
            (90, "1 minute left"),
            (0, "0 seconds left"),
            (-1, "EXPIRED 1 second ago"),
            (-3 * DAY, "EXPIRED 3 days ago"),
            (i64::MIN, "EXPIRED 106,751,991,167,300 days ago"),
        ] {
            assert_eq!(left(seconds), words);
        }
    }
}
