//! `hinterland explain`: what the prefetcher saw and did in a run, as text or JSON, from the figures that `run --stats` wrote.
//!
//! ```text
//! stats (read, checked) ─▶ findings (shares, patterns, advice) ─▶ messages or JSON
//! ```

mod advice;
mod findings;
mod messages;
mod stats;

use crate::error::{EXIT_REFUSED, complain};
use crate::print;
use clap::Args;
use findings::Findings;
use stats::Refusal;
use std::path::PathBuf;
use std::process::ExitCode;

/// `hinterland explain`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The figures of a run, as `hinterland run --stats` writes them; - for stdin
    stats: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hinterland run --local 512M --stats out.json -- ./app
  hinterland explain out.json
  hinterland explain out.json --json | jq '.advice[].change'

A request is a fault on content that is not mapped. Prefetched pages that are mapped already cause none when they are used: their use is inferred \
from that of the key page of their window. Patterns are those of the requests of each thread.

Exit code: 0, or 125 when there is nothing to explain.";

/// Runs the command.
pub fn run(args: &ExplainArgs) -> ExitCode {
    match explain(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            complain(refusal);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

fn explain(args: &ExplainArgs) -> Result<(), Refusal> {
    let stats = stats::read(&args.stats)?;
    let findings = Findings::of(&stats);
    let written = if args.json { print::json(&findings.json()?) } else { print::text(&messages::of(&findings)) };
    written.map(drop).map_err(Refusal::Output)
}
