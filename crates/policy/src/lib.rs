//! Eviction and read-ahead algorithms, and how a budget is divided: one file each, its source cited.
//!
//! Pure code: no clock, no I/O, no `unsafe`. The runtime drives it with real faults, a simulator with a trace.
#![forbid(unsafe_code)]

mod contract;
mod fair_share;
mod fifo;
mod make;
mod next_n;
mod page_lists;
mod page_map;
mod s3_fifo;
mod second_chance;
mod two_q;
mod unproven;

pub use contract::{AheadWindow, Arrival, EvictionPolicy, Prefetcher, Request};
pub use fair_share::fair_level;
pub use fifo::Fifo;
pub use make::{EVICTION_POLICIES, make};
pub use next_n::NextN;
pub use s3_fifo::S3Fifo;
pub use second_chance::SecondChance;
pub use two_q::TwoQ;
