//! A node's record in the directory: two values, because every run watches the membership, and the usage changes all
//! the time.

use serde::{Deserialize, Serialize};

/// Sessions in a record: the largest.
pub const SESSIONS_MAX: usize = 32;

/// A node of a pool. Fields that a reader does not know are passed over, so that later versions can add some.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Record {
    /// The node.
    #[serde(flatten)]
    pub member: Member,
    /// What is used of it.
    #[serde(flatten)]
    pub usage: Usage,
}

/// A node, as those see it who follow the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Where it listens, for its clients: a URL.
    pub node: String,
    /// Bytes that it lends.
    pub capacity_bytes: u64,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// It leases no more, and wants back what is leased.
    pub draining: bool,
}

/// What is used of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes that are leased.
    pub used_bytes: u64,
    /// Who has slabs there, the largest first.
    pub sessions: Vec<SessionRecord>,
}

/// A session at a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The program's name and process.
    pub name: String,
    /// Slabs that it has.
    pub slabs: u32,
}

impl Record {
    /// Bytes that can still be had.
    pub fn free_bytes(&self) -> u64 {
        if self.member.draining { 0 } else { self.member.capacity_bytes.saturating_sub(self.usage.used_bytes) }
    }
}
