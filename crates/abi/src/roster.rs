//! The nodes of a pool whose members are kept in a directory (etcd): the launcher reads them there, and writes them here for the
//! run's processes, which know no directory.

use crate::ledger::Text;
use crate::text_list::TextList;

/// Pools of a run that are kept in directories.
pub const ROSTERS_MAX: usize = 4;
/// Nodes of one.
pub const ROSTER_NODES_MAX: usize = 8;

/// The nodes of one pool. One process writes it, any number reads it.
#[derive(Debug)]
#[repr(C)]
pub struct Roster {
    /// The directory's URL, which is the pool's name; empty: the roster is free.
    pub directory: Text,
    nodes: TextList<ROSTER_NODES_MAX>,
}

impl Roster {
    /// Changes with every [`set`](Roster::set).
    pub fn version(&self) -> u64 {
        self.nodes.version()
    }

    /// Replaces the nodes by `nodes`: URLs with addresses, of which the first [`ROSTER_NODES_MAX`] fit.
    pub fn set(&self, nodes: &[String]) {
        self.nodes.set(nodes);
    }

    /// The nodes, and the version that they are of; `None` while it is being written, or when its writer ended in the middle of it.
    pub fn get(&self) -> Option<(u64, Vec<String>)> {
        self.nodes.get()
    }
}
