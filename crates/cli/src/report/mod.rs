//! The truth about a run, for people (`text`) and for scripts (`json`).

mod json;
pub mod members;
mod prefetch;
mod summary;
mod text;
mod verdict;

pub use json::STATS_VERSION;
#[cfg(test)]
pub use json::{Backend, Document, FaultNs, Others, Outside, Process, Service, Unmanaged, WaitNs};
#[cfg(test)]
pub use members::Members;
pub use summary::{Ending, Run, ServiceReport, Shortage, Summary, waiting};
pub use text::{bytes, count, duration, percent, stalled};
