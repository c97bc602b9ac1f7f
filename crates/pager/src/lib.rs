//! Page states, swap cache, reclaim and budgets: what happens between a fault and a backend.
//!
//! The pager is made of rooms. Each is a struct that holds what is its own and refers to the rooms below it that it works with;
//! [`Pager::new`] puts them together. From the lowest:
//!
//! | rooms | what they do |
//! |---|---|
//! | `Pages` | a page's address, its entry, its completion, the threads that wait for it, the kernel's hold on it |
//! | `FarMemory`, `LocalMemory` | the backend and stored copies; account, shared budget and eviction policy |
//! | `CopyOut`, `Departures`, `Tracer`, `WriteBack`, `Reclaim` | victims leave the program, are parked, go to the backend |
//! | `PrefetchDriver`, `PrefetchCache`, `ReadAhead` | windows are asked for, loaded, and wait unmapped |
//! | `Faults`, `InlineFaults`, `Pinning` | pages come when a thread touches them, or before the kernel does |
//! | `Evictor`, `Maintenance`, `Monitors` | the threads, and when they start (`EvictorStart`); pin requests of other processes (`PinRequestHandler`) |
//! | `RangeCalls`, `Fork` | threads of the program map, unmap, protect, fork |
//!
//! A repository test holds the order (`tests/tests/repository/rooms.rs`).

mod account;
mod backoff;
#[cfg(test)]
mod blocked;
mod config;
mod copy_out;
mod decisions;
mod departure;
mod evict_hints;
mod evictor;
mod evictor_start;
mod evictor_waker;
mod far_memory;
mod fault;
mod fault_path;
mod fork;
mod forward_progress;
mod granules;
mod hint_ring;
mod hints;
mod inline_fault;
#[cfg(all(test, feature = "loom"))]
mod interleavings;
mod interval;
mod kernel;
mod local_memory;
mod maintenance;
mod monitor;
mod monitor_affinity;
mod own_processors;
mod own_threads;
mod page_counts;
mod pager;
mod pages;
mod pin;
mod pin_requests;
mod pinning;
mod points;
mod policy_lock;
mod prefetch_cache;
mod prefetch_driver;
mod proportional_share;
#[cfg(test)]
mod races;
mod range_calls;
mod read_ahead;
mod reclaim;
mod report;
mod retained_copies;
#[cfg(test)]
mod runs;
mod scratch;
mod shared_budget;
mod slot;
mod staging;
mod state;
mod sys;
mod thread_state;
mod tracer;
mod waiters;
mod watch;
mod wp_range;
mod write_back;

pub use config::Config;
pub use decisions::Decisions;
pub use evict_hints::Leave;
pub use fault_path::{FATAL_EXIT_CODE, FaultPath};
pub use hints::{HintSite, Hints, LATER, LoopRange, LoopState};
pub use interval::{InForce, IntervalMode};
pub use kernel::Kernel;
pub use pager::Pager;
pub use pin::{Pin, PinAccess};
pub use proportional_share::SharedBytes;
pub use range_calls::NotReplaced;
pub use state::State;
pub use tracer::{DiscardCause, Recorder, Trace};
pub use watch::{CodePosition, FaultWatch, Served};

/// First address of the far range: fixed, so that a filter, a tape or a debugger recognises a far pointer. Above the addresses that
/// allocators wish at random (46 bits: V8, PartitionAlloc), below those of executables (`0x5555_5555_4000`).
pub const FAR_BASE: usize = 0x4800_0000_0000;
/// Pages in the far range: 12 TiB of address space. Their numbers fit 32 bits.
pub const FAR_PAGES: u32 = 3 << 30;
/// The range begins and ends on multiples of `1 << FAR_BITS` (4 TiB).
pub const FAR_BITS: u32 = 42;
const _: () = assert!(FAR_BASE.is_multiple_of(1 << FAR_BITS));
const _: () = assert!((FAR_PAGES as usize * hinterland_units::PAGE_BYTES).is_multiple_of(1 << FAR_BITS));
const _: () = assert!(FAR_PAGES <= hinterland_backend::PAGES_MAX, "each page has a place in far memory");
