//! SQLite with its database in memory.

use crate::{Line, Need, Place, Scenario};
use anyhow::Result;

/// `sqlite3 :memory:`.
pub const SQLITE: Scenario = Scenario {
    name: "sqlite",
    about: "sqlite3 with an in-memory database: insert, index, join, update",
    needs: &[Need::Program("sqlite3")],
    small_objects: true,
    prepare,
    command: |place| Line::new(["sqlite3", "-batch", ":memory:", &format!(".read '{}'", place.input("script.sql"))]),
    beside: None,
    outputs: &[],
};

/// A row with its share of the two indexes.
const ROW_BYTES: u64 = 280;

fn prepare(place: &Place) -> Result<()> {
    let rows = place.size_bytes / ROW_BYTES;
    let script = format!(
        "CREATE TABLE events(id INTEGER PRIMARY KEY, kind INTEGER, at INTEGER, note TEXT);
WITH RECURSIVE step(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM step WHERE i + 1 < {rows})
INSERT INTO events SELECT i, i * 7919 % 1009, i * 2654435761 % 4294967296, 'note ' || (i * 40503 % 65536) || hex(i * 31337) ||
  substr('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz', 1 + i % 26, 26) FROM step;
SELECT count(*), sum(kind), min(at), max(at) FROM events;
CREATE INDEX by_kind ON events(kind, id);
CREATE INDEX by_note ON events(note);
SELECT kind, count(*), sum(at) FROM events WHERE kind < 40 GROUP BY kind ORDER BY kind;
UPDATE events SET note = note || '+' WHERE kind % 50 = 3;
DELETE FROM events WHERE kind % 50 = 4;
SELECT count(*), sum(length(note)) FROM events;
SELECT a.kind, count(*) FROM events a JOIN events b ON b.id = a.id + 1 WHERE b.kind % 100 = 7 GROUP BY a.kind ORDER BY a.kind LIMIT 20;
SELECT id, note FROM events ORDER BY note LIMIT 50;
SELECT id, note FROM events ORDER BY at DESC LIMIT 20;
SELECT count(*), sum(length(note)) FROM events INDEXED BY by_note WHERE note > 'note 6';
PRAGMA quick_check;
"
    );
    Ok(std::fs::write(place.inputs.join("script.sql"), script)?)
}
