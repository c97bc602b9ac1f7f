//! The nodes of a pool that is kept in etcd, as a table or as JSON.

use super::{Identity, NodeError};
use crate::table::table;
use comfy_table::Table;
use hinterland_etcd::{Pool, Record};
use hinterland_units::ByteCount;
use serde::Serialize;
use std::io::Write;

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
    let text = if json {
        let document = Document { pool: pool.directory.to_string(), nodes: &nodes };
        serde_json::to_string_pretty(&document).map_err(std::io::Error::from)? + "\n"
    } else if nodes.is_empty() {
        format!("{}: no node is listed\n", pool.directory)
    } else {
        format!("{}: {} nodes\n\n{}\n", pool.directory, nodes.len(), listed(&nodes))
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn listed(nodes: &[Record]) -> Table {
    let bytes = |bytes: u64| ByteCount(bytes).to_string();
    let mut table = table(&["node", "lends", "leased", "programs", ""], 1..4);
    for Record { member, usage } in nodes {
        table.add_row([
            member.node.clone(),
            bytes(member.capacity_bytes),
            bytes(usage.used_bytes),
            usage.sessions.len().to_string(),
            if member.draining { "draining".into() } else { String::new() },
        ]);
    }
    table
}
