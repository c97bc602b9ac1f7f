//! Which thread serves faults, and how a program ends that cannot be served.

pub use hinterland_paging::FaultPath;

/// Exit code of a program that Hinterland had to end.
pub const FATAL_EXIT_CODE: i32 = 125;
