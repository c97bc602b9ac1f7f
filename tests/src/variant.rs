//! The settings under which a program runs: fault path, kernel feature set, far memory, heap mode, eviction policy.

use crate::node::{self, Node};
use crate::{MIB, Place};
use anyhow::Result;
use serde::Serialize;
use std::fmt;

/// Fault paths; the last one without any privilege.
pub const PATHS: [&str; 3] = ["monitor", "inline", UNPRIVILEGED];
/// The inline path in a process without capabilities.
const UNPRIVILEGED: &str = "inline-unprivileged";
/// Hinterland's choice among them, by program.
pub const AUTO: &str = "auto";
/// Named kernel feature sets.
pub const FEATURES: [&str; 5] = ["all", "6.12", "6.8", "6.1", "5.15"];
/// Of these, the ones that differ in how pages come and leave on the inline path: by copy and by MOVE, by MOVE, by copy.
const FEATURES_INLINE: [&str; 3] = ["all", "6.12", "6.1"];
/// Far memories: compressed RAM, a file, compressed RAM that spills to a file, compressed RAM that spills to a pool of nodes.
pub const FARS: [&str; 4] = ["compressed", "file", "tiers", "nodes"];
/// Heap modes.
pub const HEAPS: [&str; 2] = ["all", "large"];
/// Eviction policies.
pub const EVICTS: [&str; 4] = ["s3-fifo", "second-chance", "2q", "fifo"];

/// The feature sets that are worth a run of their own on a fault path.
pub fn features_of(path: &str) -> &'static [&'static str] {
    match path {
        "monitor" => &FEATURES,
        "inline" => &FEATURES_INLINE,
        _ => &FEATURES[..1],
    }
}

/// One choice of each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Variant {
    /// Fault path: one of `PATHS`, or `AUTO`.
    pub path: &'static str,
    /// Kernel feature set.
    pub features: &'static str,
    /// Far memory.
    pub far: &'static str,
    /// Heap mode.
    pub heap: &'static str,
    /// Eviction policy.
    pub evict: &'static str,
}

impl Variant {
    /// What a user gets without flags.
    pub const DEFAULT: Variant =
        Variant { path: AUTO, features: "all", far: "compressed", heap: "all", evict: "s3-fifo" };

    /// Starts the memory nodes that a run at `place` needs: two by TCP and one by a socket of this machine, each with room for
    /// four times the program; none, unless far memory is a pool.
    ///
    /// # Errors
    /// A node does not start.
    pub fn start_nodes(&self, place: &Place) -> Result<Vec<Node>> {
        if self.far != "nodes" {
            return Ok(Vec::new());
        }
        let test = place.run.file_name().unwrap_or_default().to_string_lossy();
        let tcp = "tcp://127.0.0.1:0".to_owned();
        let urls = [tcp.clone(), tcp, format!("unix:{}", node::socket().display())];
        let start = |(n, url): (usize, &String)| {
            Node::start_on(&format!("{test}-{n}"), &(place.size_bytes * 4).to_string(), url)
        };
        urls.iter().enumerate().map(start).collect()
    }

    /// The launcher's arguments for a program with `place` in `budget_bytes` of local memory, with the nodes of `start_nodes`.
    pub fn arguments(&self, place: &Place, nodes: &[Node], budget_bytes: u64) -> Vec<String> {
        let mut arguments = vec!["--local".into(), budget_bytes.to_string()];
        for url in self.far_urls(place, nodes) {
            arguments.extend(["--far".into(), url]);
        }
        if !nodes.is_empty() {
            arguments.extend(["--replicas".into(), "2".into(), "--insecure-loopback".into()]);
        }
        let choices = [
            ("--fault-path", self.fault_path()),
            ("--heap", self.heap),
            ("--evict", self.evict),
            ("--features", self.features),
        ];
        arguments.extend(choices.iter().flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()]));
        arguments
    }

    /// Whether most pages come from a file: the program waits for its disk most of the time.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.far, "file" | "tiers")
    }

    /// The path as the launcher calls it.
    pub fn fault_path(&self) -> &'static str {
        if self.path == UNPRIVILEGED { "inline" } else { self.path }
    }

    /// What goes before the launcher: gives up every capability, also those that root would get back.
    pub fn prefix(&self) -> &'static [&'static str] {
        if self.path == UNPRIVILEGED { &["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] } else { &[] }
    }

    /// The far memory's URLs: room for four times the program; as tiers, the first is too small on purpose.
    fn far_urls(&self, place: &Place, nodes: &[Node]) -> Vec<String> {
        let room = place.size_bytes * 4;
        let small = format!("compressed:{}", 4 * MIB);
        let file = format!("file:{}?size={room}", place.run.join("far").display());
        match self.far {
            "file" => vec![file],
            "tiers" => vec![small, file],
            // On a busy machine, too, none is lost.
            "nodes" => vec![small, format!("{}{}", node::pool_url(nodes), node::PATIENT)],
            _ => vec![format!("compressed:{room}")],
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}::{}::{}::{}", self.path, self.features, self.far, self.heap, self.evict)
    }
}
