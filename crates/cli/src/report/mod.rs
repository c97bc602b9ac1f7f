//! The truth about a run, for people (`text`) and for scripts (`json`).

mod json;
mod prefetch;
mod summary;
mod text;

pub use summary::{Ending, Run, Summary};
