//! Pools whose nodes are listed in a directory: read before the program starts, and followed while it runs.
//!
//! The run's processes know no directory. What they use stands in the ledger's rosters, which only the launcher writes: of the nodes
//! that are listed those that were there before, and then those with most room.

use crate::error::{Error, complain};
use crate::node;
use hinterland_abi::{ROSTER_NODES_MAX, ROSTERS_MAX, Roster, Settings, TEXT_BYTES};
use hinterland_backend::Scheme;
use hinterland_etcd::{Pool, Record};
use hinterland_tls::Sources;
use hinterland_wire::{Endpoint, Protection};
use std::net::SocketAddr;
use std::thread::Builder;

/// The pools of a run, each with its roster.
pub struct Pools(Vec<Followed>);

struct Followed {
    pool: Pool,
    roster: &'static Roster,
    members: Members,
}

/// Who is on a roster: as listed, and as written there.
struct Members {
    protection: Protection,
    /// What a node's name stands for now.
    look_up: fn(&Endpoint) -> Vec<SocketAddr>,
    nodes: Vec<(String, String)>,
}

impl Pools {
    /// Reads who is listed now in each directory among the settings' far memories, which are written at `origin`.
    ///
    /// # Errors
    /// A directory cannot be read, or lists too few nodes.
    pub fn find(origin: &str, settings: &Settings, rosters: &'static [Roster; ROSTERS_MAX]) -> Result<Pools, Error> {
        let refuse = |why: String| Error::Setting { origin: origin.into(), why };
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
            let listing = pool.nodes().map_err(|why| refuse(why.to_string()))?;
            let protection = Protection::of(sources.is_some(), settings.insecure_loopback);
            let mut members = Members { protection, look_up: node::addresses, nodes: Vec::new() };
            for (node, why) in members.add(&listing.nodes) {
                complain(format_args!("warning: {directory} lists {node}, which is passed by: {why}"));
            }
            let (nodes, replicas) = (members.nodes.len(), replicas.unwrap_or(1));
            if nodes < replicas {
                return Err(refuse(too_few(&directory.to_string(), nodes, replicas)));
            }
            roster.directory.set(&directory.to_string());
            roster.set(&members.written());
            pools.push(Followed { pool, roster, members });
        }
        Ok(Pools(pools))
    }

    /// Keeps the rosters true for as long as the launcher lives.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn follow(self) -> std::io::Result<()> {
        for Followed { pool, roster, mut members } in self.0 {
            let work = move || {
                let mut said = members.written();
                let mut say = |members: &Members| {
                    let now = members.written();
                    if now != said {
                        roster.set(&now);
                        said = now;
                    }
                };
                pool.follow(|listed| {
                    // What is known without a name server comes first: it may take long to answer.
                    members.keep(listed);
                    say(&members);
                    members.add(listed);
                    say(&members);
                    members.look_again();
                    say(&members);
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
    /// Those that are listed and were here before stay.
    fn keep(&mut self, listed: &[Record]) {
        self.nodes.retain(|(node, _)| listed.iter().any(|record| record.member.node == *node));
    }

    /// Gives those that stay another address if that is what the name stands for by now.
    fn look_again(&mut self) {
        let Members { protection, look_up, nodes } = self;
        for (node, before) in nodes {
            // A name that stands for nothing now may do so again.
            if let Ok(now) = written(node, Some(&**before), *protection, *look_up) {
                *before = now;
            }
        }
    }

    /// The places that are left go to those with most room. Returns which cannot be used, and why.
    fn add(&mut self, listed: &[Record]) -> Vec<(String, String)> {
        let mut others: Vec<&Record> = listed.iter().filter(|record| !record.member.draining).collect();
        others.retain(|record| self.nodes.iter().all(|(node, _)| *node != record.member.node));
        others.sort_by_key(|record| std::cmp::Reverse(record.free_bytes()));
        let mut passed_by = Vec::new();
        for record in others {
            if self.nodes.len() == ROSTER_NODES_MAX {
                break;
            }
            match written(&record.member.node, None, self.protection, self.look_up) {
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

/// A listed node with its address, as the run's processes use it: that of `before`, if its name still stands for it.
fn written(
    node: &str,
    before: Option<&str>,
    protection: Protection,
    look_up: fn(&Endpoint) -> Vec<SocketAddr>,
) -> Result<String, String> {
    let read = |text: &str| text.parse::<Endpoint>().map_err(|why| why.to_string());
    let endpoint = read(node)?;
    let addresses = look_up(&endpoint);
    if let Some(before) = before
        && read(before)?.address().is_some_and(|address| addresses.contains(&address))
    {
        return Ok(before.to_owned());
    }
    let written = node::chosen(&endpoint, &addresses, protection).map_err(|why| why.to_string())?.to_string();
    if written.len() < TEXT_BYTES { Ok(written) } else { Err("its name is too long".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_etcd::{Member, Usage};
    use std::cell::RefCell;

    fn record(port: u16, free_slabs: u64) -> Record {
        let node = format!("tcp://127.0.0.1:{port}");
        let member = Member { node, capacity_bytes: 100 << 21, slab_bytes: 1 << 21, draining: false };
        Record { member, usage: Usage { used_bytes: (100 - free_slabs) << 21, sessions: Vec::new() } }
    }

    #[test]
    fn those_with_most_room_are_chosen_and_stay() {
        let mut members =
            Members { protection: Protection::InsecureLoopback, look_up: node::addresses, nodes: Vec::new() };
        let ports = |members: &Members| {
            let port = |url: &String| url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0_u16);
            members.written().iter().map(port).collect::<Vec<_>>()
        };
        let mut listed: Vec<Record> = (1..=10).map(|port| record(port, u64::from(port))).collect();
        listed[9].member.draining = true;
        assert_eq!(members.add(&listed), []);
        assert_eq!(ports(&members), [9, 8, 7, 6, 5, 4, 3, 2]);
        // What they have left counts for those who come, not for those who are here.
        listed[8].usage.used_bytes = listed[8].member.capacity_bytes;
        listed.remove(2);
        // Those that are off the list go before any name is looked up.
        members.keep(&listed);
        assert_eq!(ports(&members), [9, 8, 7, 6, 5, 4, 2]);
        members.add(&listed);
        assert_eq!(ports(&members), [9, 8, 7, 6, 5, 4, 2, 1]);
        members.keep(&[]);
        assert!(ports(&members).is_empty());
    }

    thread_local! {
        /// What every name stands for in a test's thread.
        static ADDRESSES: RefCell<Vec<SocketAddr>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn a_node_whose_name_stands_for_another_address_is_used_there() {
        let look_up = |_: &Endpoint| ADDRESSES.with_borrow(Clone::clone);
        let mut members = Members { protection: Protection::Credentials, look_up, nodes: Vec::new() };
        let mut record = record(1, 5);
        record.member.node = "tcp://node-1:7440".into();
        let mut written_at = |addresses: &[&str]| {
            ADDRESSES.set(addresses.iter().map(|address| format!("{address}:7440").parse().unwrap()).collect());
            members.add(std::slice::from_ref(&record));
            members.look_again();
            members.written()
        };
        assert!(written_at(&[]).is_empty());
        assert_eq!(written_at(&["10.0.0.7"]), ["tcp://node-1=10.0.0.7:7440"]);
        // In whatever order they are given, and while the name server is away.
        assert_eq!(written_at(&["10.0.0.8", "10.0.0.7"]), ["tcp://node-1=10.0.0.7:7440"]);
        assert_eq!(written_at(&[]), ["tcp://node-1=10.0.0.7:7440"]);
        assert_eq!(written_at(&["10.0.0.8"]), ["tcp://node-1=10.0.0.8:7440"]);
    }

    #[test]
    fn nodes_that_cannot_be_used_are_named() {
        let mut members =
            Members { protection: Protection::InsecureLoopback, look_up: node::addresses, nodes: Vec::new() };
        let mut listed = [record(1, 5), record(2, 5), record(3, 5)];
        listed[0].member.node = "tcp://10.0.0.7:7440".into();
        listed[1].member.node = "nonsense".into();
        let passed_by = members.add(&listed);
        assert!(passed_by[0].1.contains("--key-file") && passed_by[1].1.contains("is not tcp://"), "{passed_by:?}");
        assert_eq!(members.written(), ["tcp://127.0.0.1:3"]);
        assert!(too_few("etcd://a:1/b", 0, 1).contains("--register etcd://a:1/b"));
    }
}
