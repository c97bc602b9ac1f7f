//! The truth about a run, for people (`text`) and for scripts (`json`).

mod json;
mod prefetch;
mod summary;
mod text;

pub use json::STATS_VERSION;
pub use summary::{Ending, Run, Summary};
pub use text::{bytes, count, duration, percent};
