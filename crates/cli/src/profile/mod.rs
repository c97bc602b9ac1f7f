//! `hinterland profile`: which functions of a program wait for far memory, and for which allocations. `report` shows a profile, `plan`
//! chooses from it what is worth a compiler's work.
//!
//! ```text
//! run ─▶ segment, filled by the library ─▶ aggregate (symbols) ─▶ FILE ─▶ report: table, JSON, flame graph
//!                                                                    └──▶ plan: TOML
//! ```

mod aggregate;
mod file;
mod names;
mod plan;
mod record;
mod report;
mod symbols;

pub use file::ProfileFile;
pub use plan::{HEAD, PlanArgs, choose, lies_at, part, run as plan};
pub use record::{ProfileArgs, Profiling, Taken, run as profile};
pub use report::{ReportArgs, run as report};

use crate::error::{EXIT_REFUSED, complain};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Why a profile cannot be shown or planned from.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("{flag}: {}: {source}", path.display())]
    Output { flag: &'static str, path: PathBuf, source: io::Error },
    #[error("{flag}: {} is the file that is read, and would be replaced; name another one", path.display())]
    Own { flag: &'static str, path: PathBuf },
    #[error("{0}")]
    Words(String),
}

fn ended(outcome: Result<(), Refusal>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            complain(refusal);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
