//! Pools whose nodes are listed in a directory: read before the program starts, and followed while it runs.
//!
//! The run's processes know no directory. What they use stands in the ledger's rosters, which only the launcher writes: of the nodes
//! that are listed those that were there before, and then those with most room.

use crate::error::{Error, complain};
use crate::node;
use hinterland_abi::{ROSTER_NODES_MAX, ROSTERS_MAX, Roster, Settings, TEXT_BYTES};
use hinterland_backend::Scheme;
use hinterland_etcd::{Listing, Pool, Record};
use hinterland_tls::Sources;
use hinterland_wire::Protection;
use std::thread::Builder;

/// The pools of a run, each with its roster.
pub struct Pools(Vec<Followed>);

struct Followed {
    pool: Pool,
    roster: &'static Roster,
    known: Listing,
    members: Members,
}

/// Who is on a roster: as listed, and as written there.
struct Members {
    protection: Protection,
    nodes: Vec<(String, String)>,
}

impl Pools {
    /// Reads who is listed now in each directory among the settings' far memories.
    ///
    /// # Errors
    /// A directory cannot be read, or lists too few nodes.
    pub fn find(settings: &Settings, rosters: &'static [Roster; ROSTERS_MAX]) -> Result<Pools, Error> {
        let refuse = |why: String| Error::Setting { origin: "--far".into(), why };
        let sources = Sources::new(&settings.tls, &settings.tls_ca, &settings.key_file);
        let sources = sources.map_err(|why| refuse(why.to_string()))?;
        let mut pools: Vec<Followed> = Vec::new();
        for url in &settings.far {
            let parsed = hinterland_backend::parse(url).map_err(|why| refuse(why.to_string()))?;
            let Scheme::Pool { directory, replicas, .. } = &parsed.scheme else { continue };
            if pools.iter().any(|known| known.pool.directory == *directory) {
                return Err(refuse(format!("'{directory}' is named twice; a pool can be one tier only")));
            }
            let roster = rosters.get(pools.len());
            let roster = roster.ok_or_else(|| refuse(format!("more than {ROSTERS_MAX} pools are too many")))?;
            let pool = Pool::new(directory, sources.as_ref()).map_err(|why| refuse(why.to_string()))?;
            let known = pool.nodes().map_err(|why| refuse(why.to_string()))?;
            let protection = Protection::of(sources.is_some(), settings.insecure_loopback);
            let mut members = Members { protection, nodes: Vec::new() };
            for (node, why) in members.update(&known.nodes) {
                complain(format_args!("warning: {directory} lists {node}, which is passed by: {why}"));
            }
            let (nodes, replicas) = (members.nodes.len(), replicas.unwrap_or(1));
            if nodes < replicas {
                return Err(refuse(too_few(&directory.to_string(), nodes, replicas)));
            }
            roster.directory.set(&directory.to_string());
            roster.set(&members.written());
            pools.push(Followed { pool, roster, known, members });
        }
        Ok(Pools(pools))
    }

    /// Keeps the rosters true for as long as the launcher lives.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn follow(self) -> std::io::Result<()> {
        for Followed { pool, roster, known, mut members } in self.0 {
            let work = move || {
                pool.follow(known, |listed| {
                    let before = members.written();
                    members.update(listed);
                    let now = members.written();
                    if now != before {
                        roster.set(&now);
                    }
                    true
                });
            };
            Builder::new().name("pool".into()).spawn(work)?;
        }
        Ok(())
    }
}

fn too_few(directory: &str, nodes: usize, replicas: usize) -> String {
    let start = format!("start one with: hinterland node --capacity 16G --register {directory}");
    match nodes {
        0 => format!("'{directory}': no node is listed there that can be used; {start}"),
        _ => format!("'{directory}': {replicas} replicas need {replicas} nodes, and {nodes} can be used; {start}"),
    }
}

impl Members {
    /// Those who are listed and were here before stay; the places that are left go to those with most room. Returns who cannot be
    /// used, and why.
    fn update(&mut self, listed: &[Record]) -> Vec<(String, String)> {
        self.nodes.retain(|(node, _)| listed.iter().any(|record| record.member.node == *node));
        let mut others: Vec<&Record> = listed.iter().filter(|record| !record.member.draining).collect();
        others.retain(|record| self.nodes.iter().all(|(node, _)| *node != record.member.node));
        others.sort_by_key(|record| std::cmp::Reverse(record.free_bytes()));
        let mut passed_by = Vec::new();
        for record in others {
            if self.nodes.len() == ROSTER_NODES_MAX {
                break;
            }
            match written(&record.member.node, self.protection) {
                Ok(written) => self.nodes.push((record.member.node.clone(), written)),
                Err(why) => passed_by.push((record.member.node.clone(), why)),
            }
        }
        passed_by
    }

    fn written(&self) -> Vec<String> {
        self.nodes.iter().map(|(_, written)| written.clone()).collect()
    }
}

/// A listed node with its address, as the run's processes use it.
fn written(node: &str, protection: Protection) -> Result<String, String> {
    let endpoint = node.parse().map_err(|why: hinterland_wire::EndpointError| why.to_string())?;
    let written = node::resolved(&endpoint, protection).map_err(|why| why.to_string())?.to_string();
    if written.len() < TEXT_BYTES { Ok(written) } else { Err("its name is too long".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_etcd::{Member, Usage};

    fn record(port: u16, free_slabs: u64) -> Record {
        let node = format!("tcp://127.0.0.1:{port}");
        let member = Member { node, capacity_bytes: 100 << 21, slab_bytes: 1 << 21, draining: false };
        Record { member, usage: Usage { used_bytes: (100 - free_slabs) << 21, sessions: Vec::new() } }
    }

    #[test]
    fn those_with_most_room_are_chosen_and_stay() {
        let mut members = Members { protection: Protection::InsecureLoopback, nodes: Vec::new() };
        let ports = |members: &Members| {
            let port = |url: &String| url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0_u16);
            members.written().iter().map(port).collect::<Vec<_>>()
        };
        let mut listed: Vec<Record> = (1..=10).map(|port| record(port, u64::from(port))).collect();
        listed[9].member.draining = true;
        assert_eq!(members.update(&listed), []);
        assert_eq!(ports(&members), [9, 8, 7, 6, 5, 4, 3, 2]);
        // What they have left counts for those who come, not for those who are here.
        listed[8].usage.used_bytes = listed[8].member.capacity_bytes;
        listed.remove(2);
        members.update(&listed);
        assert_eq!(ports(&members), [9, 8, 7, 6, 5, 4, 2, 1]);
        members.update(&[]);
        assert!(ports(&members).is_empty());
    }

    #[test]
    fn nodes_that_cannot_be_used_are_named() {
        let mut members = Members { protection: Protection::InsecureLoopback, nodes: Vec::new() };
        let mut listed = [record(1, 5), record(2, 5), record(3, 5)];
        listed[0].member.node = "tcp://10.0.0.7:7440".into();
        listed[1].member.node = "nonsense".into();
        let passed_by = members.update(&listed);
        assert!(passed_by[0].1.contains("--key-file") && passed_by[1].1.contains("is not tcp://"), "{passed_by:?}");
        assert_eq!(members.written(), ["tcp://127.0.0.1:3"]);
        assert!(too_few("etcd://a:1/b", 0, 1).contains("--register etcd://a:1/b"));
    }
}
