//! Eviction and read-ahead algorithms: one file each, its source cited.
//!
//! Pure code: no clock, no I/O, no `unsafe`. The runtime drives it with real faults, a simulator with a trace.
#![forbid(unsafe_code)]

mod contract;

pub use contract::{AheadWindow, Arrival, EvictionPolicy, Prefetcher, Request};
