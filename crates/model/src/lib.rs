//! Two models. The first is one of DaeMon ("DaeMon: Architectural Support for Efficient Data Movement in Disaggregated Systems", SIGMETRICS 2023): data move between
//! remote memory and a processor as lines of 64 bytes, as pages of 4 KiB, or both.
//!
//! ```text
//!   workload, or lines of text ──loads, stores──► filter: L1, L2, LLC ──► Stream ──► replay(stream, scheme, parameters) ──► ModelStats
//!                                                                   │ core: a window of instructions
//!                                                                   └ machine: local memory, network, remote memory, DaeMon's engines
//! ```
//!
//! The second is one of a cluster over which programs with far memory are dispatched, as xDM does (Algorithm 1 and figure 16 of its paper): [`cluster`].
//!
//! No clock, no `unsafe`; everything that is random has a seed.
#![forbid(unsafe_code)]

mod bus;
mod cache;
mod cli;
pub mod cluster;
mod compression;
mod core;
mod filter;
mod inflight;
mod lines;
mod local;
mod machine;
pub mod parameters;
mod placement;
mod programs;
mod random;
mod report;
mod scheme;
mod source;
mod stats;
mod time;
pub mod workloads;

pub use cli::{Cli, main};
pub use compression::Compressor;
pub use filter::{Data, Filter, Miss, Stream};
pub use machine::{replay, replay_together};
pub use parameters::{Disturbance, Link, Parameters, Replacement};
pub use placement::Placement;
pub use programs::Running;
pub use random::Random;
pub use scheme::Scheme;
pub use stats::{Counts, ModelStats};
pub use time::{Rate, TICKS_PER_CYCLE, TICKS_PER_NS, cycles, ns};
