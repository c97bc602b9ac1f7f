//! Page states, swap cache, reclaim and budgets: what happens between a fault and a backend.
//!
//! Several kinds of threads drive a [`Pager`]: *monitors* read faults and serve them (`fault`), the *evictor* keeps local
//! memory within its budget (`reclaim`), and the *read-ahead* thread brings pages in before they are asked for (`ahead`); a
//! *tender* runs when a backend has more to do than loads and stores (`tend`).
//! Threads of the program call it when they map, unmap or protect (`range`) and when they fork (`fork`); on the inline path
//! also when they fault (`here`) and before system calls (`pin`).

#[cfg(test)]
extern crate self as hinterland_pager;

mod account;
mod ahead;
mod copy_out;
mod fault;
mod follow;
mod fork;
mod growth;
mod held;
mod here;
mod kept;
mod kernel;
mod pager;
mod pin;
mod progress;
mod queues;
#[cfg(test)]
mod races;
mod range;
mod reclaim;
pub mod rules;
mod schedule;
mod sharing;
mod staging;
mod state;
mod table;
mod tend;
mod tracer;
mod tree;
mod watch;
mod zone;

pub use account::Account;
pub use kernel::Kernel;
pub use pager::{Config, FATAL_EXIT_CODE, FaultPath, Pager};
pub use pin::{Pin, PinAccess};
pub use sharing::SharedBytes;
pub use state::State;
pub use tracer::{Recorder, Trace};

/// First address of the far range: fixed, so that a filter, a tape or a debugger recognises a far pointer.
pub const FAR_BASE: usize = 0x2000_0000_0000;
/// Pages in the far range: 4 TiB of address space.
pub const FAR_PAGES: u32 = 1 << 30;
