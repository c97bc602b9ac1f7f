//! `hinterland tape`: plans a tape from a trace, and says what less memory would mean for the program; of several traces, how oblivious it is.
//! Of a folder of traces, a tape for each process. `hinterland tape show`: what is in a tape, or in a folder of them.
//!
//! ```text
//! sizes ─▶ planned (hinterland-tape: the sizes divided among the processors) ─▶ report ─▶ table or JSON
//!                └─▶ FILE: the tape of the first size
//! a folder ──────▶ folder: each trace is planned, as above ──▶ FOLDER/: their tapes
//! several traces ─▶ compared ─▶ ordered: planned, as above, from the first
//!                            └▶ set: FILE: the unordered tape
//! ```

mod compared;
mod costs;
pub mod folder;
mod planned;
mod report;
mod run_trace;
mod show;
mod table;

pub use planned::NOT_KNOWN;
pub use run_trace::RunTrace;

use crate::error::{EXIT_REFUSED, complain};
use clap::{Args, Subcommand, ValueEnum};
use hinterland_sim::LinkModel;
use hinterland_tape::TraceError;
use hinterland_tape::compare::CompareError;
use hinterland_tape::plan::PlanError;
use hinterland_tape::tape::TapeError;
use hinterland_units::{Budget, Foreign, whole_number};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `hinterland tape`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct TapeArgs {
    #[command(subcommand)]
    command: Option<TapeCommand>,
    #[command(flatten)]
    plan: PlanArgs,
}

#[derive(Subcommand)]
enum TapeCommand {
    /// Show what is in a tape: what it was planned for, and what it has for each thread.
    Show(show::ShowArgs),
}

/// What is planned.
#[derive(Args, Clone)]
pub struct PlanArgs {
    /// The trace, as `hinterland trace` writes it. Several, of runs of the same program, are compared: whether they touch the same pages, and
    /// in the same order. A folder of traces, one of each process of a run, is planned for as many tapes
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Local memory to plan for: a size (512M, 2G), or a share of the recorded peak (all pages that the trace touches); at least 16M
    #[arg(long, value_name = "SIZE|PCT%", required = true, value_parser = Budget::of_touched)]
    local: Option<Budget>,
    /// Where the tape goes; an existing file is replaced once the tape is whole. Without it, the plan is only shown. Of a folder of traces, the
    /// folder for their tapes, which must have none
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What evicts in the plan. Default: the one that moves fewer bytes, min if both move as many
    #[arg(long, value_enum, value_name = "POLICY")]
    evict: Option<Eviction>,
    /// What the tape has: pages in their order, from the first trace, or the sets of phases, from all of them. Default: ordered with one trace;
    /// with several, as they agree
    #[arg(long, value_enum, value_name = "ORDER")]
    order: Option<OrderArg>,
    /// Link that the predicted times are for: rdma-25g (5 µs), tcp-10g (15 µs), ssd (90 µs, 4 Gb/s), or LATENCY:BANDWIDTH such as 5us:25Gb/s
    #[arg(long, value_name = "LINK", default_value = "tcp-10g")]
    link: LinkModel,
    /// Of 100 pages that come back from far memory, so many are written to before they leave again (where the trace does not tell: versions 1 and 2, imports)
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = whole_number::<u8>(..=100, "--written 50"))]
    written: u8,
    /// Processor time from each reference to the next, in nanoseconds, instead of the trace's
    #[arg(long, value_name = "NS", value_parser = whole_number::<u64>(..=1_000_000_000, "--reference-ns 200"))]
    reference_ns: Option<u64>,
    /// Figures of a run of the program in which pages came and left, as `hinterland run --stats` writes them: what the pager's work costs with
    /// this data on this machine. Without it the predicted times are lower bounds
    #[arg(long, value_name = "STATS")]
    run: Option<PathBuf>,
    /// Figures of a run of the program with all memory local: the processor times of all threads are corrected to what it takes there, which is less or more
    /// than in the trace, and the pager's work in --run is what goes beyond that
    #[arg(long, value_name = "STATS", conflicts_with = "reference_ns")]
    untraced: Option<PathBuf>,
    /// Processors that the program and the pager's threads share. Default: those that this process may use
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1.., "--processors 2"))]
    processors: Option<u32>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Flags that name figures of runs.
const RUN: &str = "--run";
const UNTRACED: &str = "--untraced";

impl PlanArgs {
    /// The figures of runs that are named, each with its flag.
    fn figures(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let named = [(RUN, &self.run), (UNTRACED, &self.untraced)];
        named.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }

    /// The first of these flags that is given.
    fn figures_flag(&self) -> Option<&'static str> {
        self.figures().next().map(|(flag, _)| flag)
    }
}

/// Evictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Eviction {
    /// The page that was not touched for the longest time.
    Lru,
    /// The page that is needed last.
    Min,
}

/// Kinds of tapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OrderArg {
    /// The sequences of pages.
    Ordered,
    /// The sets of phases.
    Sets,
}

const EXAMPLES: &str = "\
Examples:
  hinterland trace -o fft.trace -- python3 fft.py small-input.npy
  hinterland tape fft.trace --local 20% -o fft.tape
  hinterland tape fft.trace --local 512M --link 5us:25Gb/s
  hinterland run --local 40% --stats fft.json -- python3 fft.py small-input.npy
  hinterland tape fft.trace --local 20% --run fft.json
  hinterland run --stats local.json -- python3 fft.py small-input.npy
  hinterland tape fft.trace --local 20% --run fft.json --untraced local.json
  hinterland tape fft.trace --local 20% --json | jq '.sizes[] | {local_percent, slowdown}'
  hinterland tape query-1.trace query-2.trace --local 25% -o query.tape
  hinterland tape build/ --local 512M -o build-tapes/
  hinterland tape show fft.tape
  hinterland tape show build-tapes/

A tape says for each thread which pages it needs next, which of them must be fetched, and which leave for them. It is right for programs \
that touch the same pages in the same order whatever their input. Times are predicted: threads run one after the other, as they were \
traced, each beside the pager's threads on the processors that there are, and 500 pages at most are asked for ahead of each. What the pager's work \
takes depends on the data, so a run of the program has to say it (--run); without one it is that of the simulator, which compresses nothing. What the \
program takes itself is what the trace says, or a run without the tracer in which all is local (--untraced). A size at \
which everything is hidden from a link speed on waits there for less than 1 % of its processor time longer than without a link.

With several traces of a program the answer is ordered: nine tenths of its pages are touched in the same order in all of them; set: most pages \
are touched in phases whose pages agree, four fifths and more of them, in another order; or neither. Of a program of sets the tape is \
unordered: it has the pages of each phase, which are fetched when the phase begins.

Of a folder of traces (`hinterland trace -o FOLDER/`) each trace gets a tape, planned for its process's share of --local: all of it, or what the \
run leaves it beside those that lived at the same time; a percentage is of its own peak. `hinterland run --tape FOLDER/` has each process of a run \
follow the tape of its program, by build-id, and of its arguments; forked children by the number of their fork.

Exit code: 0, or 125 when it refuses.";

/// Why nothing can be planned or shown.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Trace { path: PathBuf, source: TraceError },
    #[error("{}: {source}; a tape is planned from a whole trace only", path.display())]
    Damaged { path: PathBuf, source: TraceError },
    #[error("{}: {source}", path.display())]
    Plan { path: PathBuf, source: PlanError },
    #[error("{}: {source}", path.display())]
    Tape { path: PathBuf, source: TapeError },
    #[error("{}: its pages have {found} bytes; tapes are of pages of {}", path.display(), hinterland_units::PAGE_BYTES)]
    PageSize { path: PathBuf, found: u32 },
    #[error("{flag}: {}: {why}", path.display())]
    Run { flag: &'static str, path: PathBuf, why: String },
    #[error("{0}: the figures are of one program; of a folder, plan a tape by itself to see its times")]
    RunOfFolder(&'static str),
    #[error(
        "{0}: an unordered tape has no predicted times, so the figures of a run say nothing of it; leave {0} out with --order sets"
    )]
    RunOfSets(&'static str),
    #[error("{}: the trace cannot be read: {source}", path.display())]
    Unread { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Compare { path: PathBuf, source: CompareError },
    #[error("--order sets: the sets of phases are found by comparing runs: name two traces of the program, or more")]
    OneTrace,
    #[error("{} is of {}, and {} of {}: runs of one program are compared", first.display(), Foreign(of), path.display(), Foreign(other))]
    Programs { first: PathBuf, of: String, path: PathBuf, other: String },
    #[error(
        "the runs have neither the order of their pages in common nor the sets of their phases, so no tape was written; --order ordered plans \
         one from {} alone, --order sets makes one of the phases that agree", first.display()
    )]
    Neither { first: PathBuf },
    #[error("{}: {}", folder.display(), crate::trace::folder::WITHOUT_TRACES)]
    NoTraces { folder: PathBuf },
    #[error("{}: {}", folder.display(), folder::WITHOUT_TAPES)]
    NoTapes { folder: PathBuf },
    #[error("{}: no trace in it can be planned", folder.display())]
    NonePlanned { folder: PathBuf },
    #[error("no phase of the runs agrees, so there is no unordered tape of them")]
    NoPhase,
    #[error("--output: {} is {what}, and would be replaced; name another file", path.display())]
    Own { path: PathBuf, what: String },
    #[error("the figures cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("stdout: {0}")]
    Output(io::Error),
}

/// Runs the command.
pub fn run(args: &TapeArgs) -> ExitCode {
    let outcome = match &args.command {
        None if args.plan.traces.len() > 1 => compared::run(&args.plan),
        None if args.plan.traces.iter().any(|path| path.is_dir()) => folder::run(&args.plan),
        None => planned::run(&args.plan),
        Some(TapeCommand::Show(args)) => show::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            complain(refusal);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
