//! Statistics of a run: snapshots of ledger rows, and their sum over processes and time.
//!
//! How each statistic is added up stands in the table of statistics (`hinterland_abi::statistics`). A peak over several processes is the
//! largest sum that was ever sampled over the processes alive at that moment, and at least the largest peak of a single process, which
//! its row keeps exactly.

mod activity;
mod backends;
mod hint_site;
mod process;
mod totals;

pub use activity::Activity;
pub use backends::{BackendStatistics, BackendTotal};
pub use hint_site::HintSite;
pub use hinterland_abi::statistics::process::{Counters, Gauges};
pub use process::ProcessStatistics;
pub use totals::{NotManaged, Totals, UnmanagedSource};
