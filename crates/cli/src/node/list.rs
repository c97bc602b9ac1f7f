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

/// The table. What is listed was written by whoever may write to etcd.
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

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_etcd::{Member, Usage};
    use hinterland_units::is_hidden;

    #[test]
    fn the_name_of_a_listed_node_is_shown_escaped() {
        let node = "tcp://a\u{1b}[2J\u{202e}:1\n0 nodes".to_owned();
        let member = Member { node, capacity_bytes: 1 << 30, slab_bytes: 2 << 20, draining: false };
        let shown = listed(&[Record { member, usage: Usage { used_bytes: 0, sessions: Vec::new() } }]).to_string();
        assert!(shown.contains("tcp://a\\u{1b}[2J\\u{202e}:1\\n0 nodes "), "{shown}");
        assert!(!shown.contains(|c| c != '\n' && is_hidden(c)) && shown.lines().count() == 2, "{shown}");
    }
}
