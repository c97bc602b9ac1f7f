//! The nodes of a pool that is kept in etcd, as a table or as JSON.

use super::{Identity, NodeError};
use crate::print;
use crate::table::table;
use comfy_table::Table;
use hinterland_etcd::{Pool, Record};
use hinterland_units::{ByteCount, Foreign};
use serde::Serialize;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    pool: String,
    nodes: &'a [Record],
}

/// `hinterland node list`.
pub fn run(pool: &str, identity: &Identity, json: bool) -> Result<(), NodeError> {
    let pool = Pool::new(&pool.parse()?, identity.sources()?.as_ref())?;
    let nodes = pool.nodes()?.nodes;
    if json {
        let document = Document { pool: pool.directory.to_string(), nodes: &nodes };
        print::json(&(serde_json::to_string_pretty(&document).map_err(std::io::Error::from)? + "\n"))?;
    } else if nodes.is_empty() {
        print::text(&format!("{}: no node is listed\n", pool.directory))?;
    } else {
        print::text(&format!("{}: {} nodes\n\n{}\n", pool.directory, nodes.len(), listed(&nodes)))?;
    }
    Ok(())
}

fn listed(nodes: &[Record]) -> Table {
    let bytes = |bytes: u64| ByteCount(bytes).to_string();
    let mut table = table(&["node", "lends", "leased", "programs", ""], 1..4);
    for Record { member, usage } in nodes {
        table.add_row([
            Foreign(&member.node).to_string(),
            bytes(member.capacity_bytes),
            bytes(usage.used_bytes),
            usage.sessions.len().to_string(),
            if member.draining { "draining".into() } else { String::new() },
        ]);
    }
    table
}
