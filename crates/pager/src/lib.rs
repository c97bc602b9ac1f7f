//! Page states, swap cache, reclaim and budgets: what happens between a fault and a backend.
//!
//! Several kinds of threads drive a [`Pager`]: *monitors* read faults and serve them (`fault`), the *evictor* keeps local
//! memory within its budget (`reclaim`), the *read-ahead* thread prefetches windows of pages (`read_ahead`), and the
//! *maintenance* thread runs when a backend has more to do than loads and stores (`maintenance`).
//! Threads of the program call it when they map, unmap or protect (`range`) and when they fork (`fork`); on the inline path
//! also when they fault (`inline_fault`) and before system calls (`pin`). Other processes of the run ask the evictor (`asks`).

mod account;
mod asks;
#[cfg(test)]
mod blocked;
mod copy_out;
mod evictor_start;
mod far_memory;
mod fault;
mod fault_path;
mod fork;
mod forward_progress;
mod inline_fault;
mod kernel;
mod local_memory;
mod long_term_pin;
mod maintenance;
mod monitor_affinity;
mod own_threads;
mod pager;
mod pages;
mod pin;
mod prefetch_cache;
mod prefetch_driver;
mod proportional_share;
mod queues;
#[cfg(test)]
mod races;
mod range;
mod read_ahead;
mod reclaim;
mod schedule;
mod scratch;
mod shared_budget;
mod staging;
mod state;
mod table;
mod tracer;
mod waiters;
mod wp_range;

pub use fault_path::{FATAL_EXIT_CODE, FaultPath};
pub use kernel::Kernel;
pub use pager::{Config, Pager};
pub use pin::{Pin, PinAccess};
pub use proportional_share::SharedBytes;
pub use state::State;
pub use tracer::{Recorder, Trace};

/// First address of the far range: fixed, so that a filter, a tape or a debugger recognises a far pointer.
pub const FAR_BASE: usize = 0x2000_0000_0000;
/// Pages in the far range: 4 TiB of address space.
pub const FAR_PAGES: u32 = 1 << 30;
