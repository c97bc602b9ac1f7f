//! `hinterland trace`: records which pages a program touches. `hinterland trace show`: what a trace says of its program.
//! `hinterland trace import`: makes a trace of what others recorded.

pub mod folder;
mod import;
mod picture;
mod record;
mod show;
mod text;

pub use record::Recording;
pub use show::LOCAL_PERCENT;

use crate::error::{EXIT_REFUSED, complain};
use clap::{Args, Subcommand};
use hinterland_tape::TraceError;
use hinterland_tape::import::ImportError;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// `hinterland trace`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: Option<TraceCommand>,
    #[command(flatten)]
    record: record::RecordArgs,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// Show what a trace says of its program: patterns, working set, misses by local memory.
    Show(show::ShowArgs),
    /// Make a trace of Valgrind lackey's output, or of page numbers.
    Import(import::ImportArgs),
}

const EXAMPLES: &str = "\
Examples:
  hinterland trace -o app.trace -- ./app
  hinterland trace -o app.trace --microset 64 --local 1G -- ./app
  hinterland trace -o build/ -- make
  hinterland trace show build/
  hinterland trace show app.trace --svg app.svg
  valgrind --tool=lackey --trace-mem=yes --log-file=app.lackey ./app
  hinterland trace import --from lackey app.lackey -o app.trace

The program runs on one processor and takes a fault for each page that it comes back to; where it asks libc how many processors \
there are it gets the number that it has untraced, and makes as many threads. Traced is the process that is started (and what it calls exec for). With a folder (a path that \
ends with a slash, or is one) all processes of the run are, each in a trace of its own: children of forks, and programs behind a shell. \
Faults are served on the monitor path (`hinterland doctor` says whether that is allowed here).

Exit code: the program's own, as for `hinterland run`; also when the trace could not be written to its end (the message says \
why, and the file holds what was recorded until then). `show` and `import`: 0, or 125 when they refuse.";

/// Why a trace cannot be shown or made.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Trace { path: PathBuf, source: TraceError },
    #[error("{}: {source}; {readable} references can be read: `hinterland trace show --partial` shows them", path.display())]
    Partial { path: PathBuf, source: TraceError, readable: u64 },
    #[error("{}: {source}", path.display())]
    Import { path: PathBuf, source: ImportError },
    #[error("{flag}: {} is the file that is read, and would be replaced; name another one", path.display())]
    Own { flag: &'static str, path: PathBuf },
    #[error("{}: {}", folder.display(), folder::WITHOUT_TRACES)]
    NoTraces { folder: PathBuf },
    #[error("--svg: {}: {reason}", path.display())]
    Picture { path: PathBuf, reason: String },
    #[error("{0}")]
    Words(String),
}

impl Refusal {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Refusal {
        let path = path.into();
        move |source| Refusal::Io { path, source }
    }
}

/// Runs the command.
pub fn run(args: TraceArgs) -> ExitCode {
    let TraceArgs { command, record } = args;
    let outcome = match command {
        None => return record::run(record),
        Some(TraceCommand::Show(args)) => show::run(&args),
        Some(TraceCommand::Import(args)) => import::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            complain(refusal);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
