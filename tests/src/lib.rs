//! End-to-end tests: real programs run natively and under Hinterland, and their results are compared.
//!
//! Reading order: [`Scenario`] (what a program is), [`programs`] (the list), [`process`] (running and measuring a
//! process tree), [`native`] and [`managed`] (the two runs), [`Variant`], [`pairs`] and [`runs`] (under which
//! settings), [`runtimes`] (languages, one by one), [`node`] (memory nodes), [`authority`] (certificates and keys),
//! [`field`] (cases reported by others), [`unprivileged`] (runs without privileges), [`verdict`] (what must hold),
//! [`results`] (where the rows go).
//!
//! Invariant: nothing here knows how Hinterland works inside. It is started through its command line, as a user would,
//! and judged by the program's output, the kernel's figures and its own `--stats` file. Only [`ledger`] reads what a run says of
//! itself before it has ended, so that a test can wait for a state.

pub mod authority;
pub mod field;
pub mod frozen;
pub mod installation;
pub mod launch;
pub mod ledger;
pub mod managed;
pub mod native;
pub mod needles;
pub mod node;
pub mod pairs;
pub mod places;
pub mod process;
pub mod programs;
pub mod promises;
pub mod published;
pub mod reach;
pub mod results;
pub mod runs;
pub mod runtimes;
mod scenario;
pub mod skips;
pub mod stacks;
mod stats;
pub mod suite;
pub mod tree;
pub mod unprivileged;
mod variant;
pub mod verdict;

pub use scenario::{Line, Need, Place, Scenario};
pub use stats::{BackendStats, FaultTimes, Stats};
pub use variant::{AUTO, EVICTS, FARS, FEATURES, HEAPS, PATHS, Variant, features_of};

/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
