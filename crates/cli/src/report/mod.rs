//! The report of a run, for people (`text`) and for scripts (`json`).

mod features;
mod json;
pub mod members;
mod prefetch;
mod summary;
mod text;
mod verdict;

#[cfg(test)]
pub use features::LargerMemory;
pub use features::RunFeatures;
pub use json::STATS_VERSION;
#[cfg(test)]
pub use json::{Backend, Document, FaultNs, Others, Outside, Process, Service, Unmanaged, WaitNs};
#[cfg(test)]
pub use members::Members;
pub use summary::{Ending, Run, ServiceReport, Shortage, Summary, waiting};
pub use text::{bytes, count, duration, percent, stalled};
