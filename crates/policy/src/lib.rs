//! Eviction and prefetch algorithms, and how a budget is divided: one file each, its source cited.
//!
//! Pure code: no clock, no I/O, no `unsafe`. The runtime drives it with real faults, a simulator with a trace.
#![forbid(unsafe_code)]

mod arbiter;
mod auto;
mod blocks;
mod contract;
mod fair_share;
mod features;
mod fifo;
mod hints;
mod ideal;
mod leap;
mod machine_share;
mod make;
mod miss_curve;
mod near_fit;
mod next_line;
mod page_lists;
mod page_map;
mod pattern;
mod per_thread;
mod probation;
mod readahead;
mod readahead_vma;
mod s3_fifo;
mod second_chance;
mod service_level;
mod streams;
mod stride;
pub mod tape;
mod two_q;
mod window_bound;
mod zero_ahead;

pub use arbiter::{Arbiter, Wanted};
pub use auto::{Auto, REGION_PAGES};
pub use blocks::{
    BlockSource, BlockStatistics, Blocks, DemandLoad, Granularity, InFlight, SET_BLOCK_PAGES_MAX, bounded_block_pages,
};
pub use contract::{
    Arrival, Block, Bounded, Choice, EvictionPolicy, HintBatch, Prefetch, PrefetchWindow, Prefetcher, Request, Source,
    TapeBatch, Thread, Unmapped,
};
pub use fair_share::{SHARE_FLOOR, fair_level};
pub use features::{FRAGMENT_PAGES, FeatureSample, RequestFeatures, WINDOW_REFERENCES};
pub use fifo::Fifo;
pub use hints::{HintSource, HintStatistics};
pub use ideal::{Ideal, Lru, Min, NEVER, NextUses};
pub use leap::Leap;
pub use machine_share::{MachineShare, RunMemory};
pub use make::{EVICTION_POLICIES, PREFETCHERS, make, make_prefetcher};
pub use miss_curve::{LARGER_PERCENT, LoadCurve, WithCurve};
pub use next_line::NextLine;
pub use pattern::{Pattern, Recent};
pub use per_thread::PerThread;
pub use readahead::ReadAhead;
pub use readahead_vma::ReadAheadVma;
pub use s3_fifo::S3Fifo;
pub use second_chance::SecondChance;
pub use service_level::{Interval, ServiceLevel};
pub use streams::Streams;
pub use stride::Stride;
pub use two_q::TwoQ;
pub use window_bound::{BoundedByLink, WINDOW_PART, WindowBound};
pub use zero_ahead::ZeroAhead;
