//! The memory node: lends this machine's memory to programs, in slabs.
//!
//! ```text
//! listen ── accept ──► lane (a thread for each connection)
//!                        │ requests
//!                        ▼
//!                     session: an address space, a table of slabs ──► slab: 2 MiB of memory, shared with clones until written
//!                        │                                              │ counted by
//!                        ▼                                              ▼
//!                     sessions of the node (touched by Open, Attach, Clone only)      store: capacity, quotas
//! ```
//!
//! **No global lock** is on the way of a read or write: a lane takes its session's table for reading and the slab for the copy. Only a
//! request of more than half a KiB takes a buffer out of a pool, and gives it back.
//! A slab's memory is a mapping or a file of its own: new ones are zeroed by the kernel, given back ones belong to it again, so no
//! tenant ever sees another's bytes. What a client sends can end its own connection, no more.
#![forbid(unsafe_code)]

mod admission;
mod connection;
mod copies;
mod drain;
mod egress;
mod egress_scheduler;
mod lane;
mod latency;
mod listen;
mod memory;
mod node;
mod quotas;
mod receive_queue;
mod reply_writer;
mod request_buffers;
mod session;
mod slab;
mod stream;

pub use copies::CopyStatistics;
pub use latency::{BUCKETS, Histogram, SAMPLED_ONE_IN, Work};
pub use listen::{Listening, NodeError};
pub use memory::raise_descriptor_limit;
pub use node::{Node, Options, SessionStatistics};
pub use request_buffers::BUFFERS_BYTES_MAX;
pub use slab::SLAB_BYTES;
