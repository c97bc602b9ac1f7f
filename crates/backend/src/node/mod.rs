//! Memory nodes: pages in other processes, over TCP or UNIX sockets.
//!
//! ```text
//! location = slot in the pool's slabs (slots) ──► replicas of the slab (table) ──► link: a session at a node, its lanes
//! links and table together: the core, on which every room works                       (slabs)
//! loads from a node on this machine: a copy out of its memory                          (views)
//! demand loads: lanes of their own, the thread that waits makes its own request        (load)
//! a demand that is late: also requested from a second node; the first answer is used   (hedge)
//! loads of many pages: from all of their nodes at a time                               (load, transfer)
//! stores: to every replica, several messages under way on each; durable when all answered  (store)
//! new slabs: on as many nodes as there are replicas, or as stay and have room; of two chosen at random the one with more  (placement)
//! consecutive stores: spread over several slabs, in pieces                             (allocation, slots)
//! in the background, a step at a time: a thread of the pager's calls `maintain`        (maintenance)
//!   nodes that were lost, or join and leave                                            (returns, membership)
//!   nodes that no load uses: pinged                                                    (pings)
//!   slabs that nodes recall; reports of the pages that would be lost with a node       (recalls, report)
//!   slabs that lack a replica, or are wanted back: copied to other nodes               (rebuild)
//! ```
//! [`NodePool`] puts the rooms together (pool).
//!
//! This process decides which slot holds which page; the nodes only know slabs and bytes. So a `free` is no message.
//!
//! **Fork.** `before_fork` has each node clone the session there; the child connects to the clones. No message is under way then, so
//! the clones are of one moment. Both go on with the same table, and a node copies a slab when one of them writes to it.
//!
//! **Loss.** A node that does not answer in time, hangs up or answers nonsense is lost, and what it held with it. Pages that have
//! a replica elsewhere are loaded from there, and their slabs are rebuilt on other nodes; a node that comes back is a new, empty
//! one. A page without a replica cannot be loaded any more, which ends the program that wants it.
//!
//! Sources: power of two choices (Mitzenmacher 2001; Infiniswap §4.1, Leap §4.4), replicas by slab (Carbink §2.3, Hydra §2.2 as
//! what it is compared with), bounded rebuilding in the background (Hydra §4.4).

mod allocation;
mod channel;
mod health;
mod hedge;
mod lane;
mod lanes;
mod limits;
mod link;
mod link_estimate;
mod link_request;
mod link_stats;
mod links;
mod load;
mod maintenance;
mod member;
mod membership;
mod patch;
mod pings;
mod placement;
mod pool;
mod rebuild;
mod recall_request;
mod recalls;
mod report;
mod returns;
mod shared_rng;
mod slabs;
mod slots;
mod store;
mod table;
mod transfer;
mod views;

pub use channel::Secured;
pub use limits::{AnswerLimit, DEMAND_LANES, DEMAND_LANES_MAX, NODES_MAX, TIMEOUT_S_MAX, Timing};
pub use member::NodeAddress;
pub use membership::Membership;
pub use pool::NodePool;
