//! Pools of memory nodes in etcd: nodes list themselves there, and programs' launchers read and watch the list.
//!
//! ```text
//! hinterland/POOL/nodes/tcp://10.0.0.7:7440 = {"node": …, "capacity_bytes": …, "draining": …}     both under the node's lease
//! hinterland/POOL/usage/tcp://10.0.0.7:7440 = {"used_bytes": …, "sessions": [ … ]}
//! node:      grant a lease ─▶ put both ─▶ keep the lease alive, put what has changed ─▶ revoke the lease
//! launcher:  read all ─▶ watch …/nodes from that revision on ─▶ when something changes there, read all again
//! ```
//! etcd decides the membership of a pool, so there is no consensus of our own. Only a program knows which of its pages
//! lies in which slab, and it needs no etcd while it runs: etcd may fail at any time, and its last list stays in force.
//!
//! The API is etcd's JSON gateway, which every server since 3.4 has: <https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/>.

#![forbid(unsafe_code)]

mod api;
mod client;
mod pool;
mod record;
mod registration;

pub use client::EtcdError;
pub use pool::{Listing, Pool, Timing};
pub use record::{Member, Record, SESSIONS_MAX, SessionRecord, Usage};
pub use registration::Registration;
