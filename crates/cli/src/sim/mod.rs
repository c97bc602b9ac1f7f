//! `hinterland sim`: replays a trace on the runtime's own policies, over modelled links.
//!
//! ```text
//! read ─▶ combinations ─▶ replays (hinterland-sim, one for each processor at a time) ─▶ report ─▶ table or JSON
//! ```

mod combinations;
mod read;
mod replays;
mod report;
mod table;

pub use combinations::Combination;
pub use read::{Whole, whole as read_whole};

use crate::args::prefetchers;
use crate::config::granularity_with;
use crate::error::{EXIT_REFUSED, complain};
use crate::print;
use clap::{Args, ValueEnum};
use hinterland_abi::{
    EnvError, EvictName, GranularityName, PrefetchName, Setting, parse_block, parse_prefetch_cache, variables,
};
use hinterland_sim::{
    Blocks, FaultPath, Granularity, LinkModel, LinkShare, ReplayStats, Setup, SetupError, Workload, WorkloadError,
};
use hinterland_tape::TraceError;
use hinterland_tape::plan::PlanError;
use hinterland_tape::tape::{Tape, TapeError};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, whole_number};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Three years.
const CPU_TIME_MAX: Duration = Duration::from_secs(100_000_000);

/// `hinterland sim`.
#[derive(Args)]
#[command(after_help = prefetchers() + EXAMPLES)]
pub struct SimArgs {
    /// The trace, as `hinterland trace` writes it
    trace: PathBuf,
    /// Bound on local pages: a size (512M, 2G), or a share of all pages that the trace touches; at least 16M
    #[arg(long, value_name = "SIZE|PCT%", default_value = "50%", value_parser = Budget::of_touched)]
    local: Budget,
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "all", help = format!("Prefetchers: all that run has, or some of {}; and tape: a tape planned from this trace is followed, which also evicts", PrefetchName::CHOICES))]
    prefetch: Vec<String>,
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "s3-fifo,min", help = format!("Eviction: all, or some of {}, and the references lru and min (which go with none)", EvictName::CHOICES))]
    evict: Vec<String>,
    /// Links: rdma-25g (5 µs), tcp-10g (15 µs), ssd (90 µs, 4 Gb/s), or LATENCY:BANDWIDTH such as 5us:25Gb/s;
    /// with :half behind it both directions share the bandwidth, as with ssd
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "rdma-25g,tcp-10g,ssd")]
    link: Vec<LinkModel>,
    /// How the links are divided, as share= of a memory node's URL says it: strict (demand fetches first), fixed:PERCENT, weighted:PERCENT, auto
    #[arg(long, value_name = "SHARE", default_value_t = LinkShare::Strict, value_parser = share)]
    share: LinkShare,
    /// Fault path: decides what faults cost, and which pages are evicted together
    #[arg(long, value_enum, value_name = "PATH", default_value_t = FaultPathArg::Inline)]
    fault_path: FaultPathArg,
    #[arg(long, value_name = "PAGES", help = of_run(variables::READ_AHEAD), value_parser = whole_number::<u32>(..=512, "--read-ahead 64"))]
    read_ahead: Option<u32>,
    #[arg(long, value_name = "SIZE", help = of_run(variables::PREFETCH_CACHE), value_parser = parse_prefetch_cache)]
    prefetch_cache: Option<ByteCount>,
    #[arg(long, value_name = "GRANULARITY", help = of_run(variables::GRANULARITY), value_parser = granularity)]
    granularity: Option<GranularityName>,
    #[arg(long, value_name = "SIZE|auto", help = of_run(variables::BLOCK), value_parser = block)]
    block: Option<Block>,
    /// Of 100 pages that come back from far memory, so many are written to before they leave again (where the trace does not tell: versions 1 and 2, imports)
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = whole_number::<u8>(..=100, "--written 50"))]
    written: u8,
    /// Processor time from each reference to the next, in nanoseconds, instead of the trace's
    #[arg(long, value_name = "NS", value_parser = whole_number::<u64>(..=1_000_000_000, "--reference-ns 200"))]
    reference_ns: Option<u64>,
    /// Processor time that the program takes untraced, all threads, in seconds: what the trace is corrected to
    #[arg(long, value_name = "SECONDS", conflicts_with = "reference_ns", value_parser = cpu_seconds)]
    cpu_seconds: Option<Duration>,
    /// Chooses which pages are written to
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u64>(.., "--seed 7"))]
    seed: u64,
    /// Follow this tape, too, which `hinterland tape` made: an unordered one of other runs of the program, say
    #[arg(long, value_name = "FILE")]
    tape: Option<PathBuf>,
    /// Of a damaged trace, replay what can be read
    #[arg(long)]
    partial: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// The help that `run` has for a setting.
fn of_run(variable: &str) -> String {
    Setting::of(variable).map_or_else(String::new, Setting::flag_help)
}

/// Reads a granularity as `run` does.
fn granularity(text: &str) -> Result<GranularityName, EnvError> {
    text.parse()
}

/// Reads a link's share as the URL of a memory node has it.
fn share(text: &str) -> Result<LinkShare, String> {
    text.parse()
        .map_err(|()| format!("'{text}' divides no link; write strict, fixed:PERCENT, weighted:PERCENT or auto"))
}

/// Reads the processor time that a program takes.
pub fn cpu_seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero() && *time <= CPU_TIME_MAX).ok_or_else(|| {
        format!("'{text}' is not a time: seconds above 0 and up to {}, for example 12.5", CPU_TIME_MAX.as_secs())
    })
}

/// A block's size as `run` takes it; `None`: auto.
type Block = Option<ByteCount>;

/// Reads a block's size as `run` does.
fn block(text: &str) -> Result<Block, EnvError> {
    parse_block(text)
}

/// Fault paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FaultPathArg {
    /// A thread beside the program's.
    Monitor,
    /// The thread that faults.
    Inline,
}

impl FaultPathArg {
    /// As it is simulated.
    pub fn model(self) -> FaultPath {
        match self {
            FaultPathArg::Monitor => FaultPath::Monitor,
            FaultPathArg::Inline => FaultPath::Inline,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  hinterland trace -o app.trace -- ./app
  hinterland sim app.trace --local 25%
  hinterland sim app.trace --local 25% --prefetch all --evict all --link rdma-25g,tcp-10g,ssd
  hinterland sim app.trace --local 25% --prefetch none,auto,tape
  hinterland sim app.trace --local 25% --block 64K
  hinterland sim app.trace --local 25% --link 15us:1Gb/s --share auto
  hinterland sim third.trace --local 25% --prefetch none,auto --tape of-first-and-second.tape
  hinterland sim app.trace --local 512M --prefetch none,leap --link 2us:100Gb/s --json | jq '.rows[].slowdown'

Each row is a replay of the whole trace in virtual time. The slowdown is relative to the processor time in the trace, with all memory \
local. min evicts what is needed last (Belady): no policy has fewer major faults without prefetching. Far memory is a memory node \
or a disk, which takes pages as they are. Fault counts without prefetching are those of real runs within a tenth. With prefetching they are \
not where the read-ahead thread waits for a processor, which it never does here. The same trace, settings and seed give the same figures.

Exit code: 0, or 125 when it refuses.";

/// Why nothing can be simulated.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Trace { path: PathBuf, source: TraceError },
    #[error("{}: {source}; {readable} references can be read: --partial replays them", path.display())]
    Partial { path: PathBuf, source: TraceError, readable: usize },
    #[error("{}: {source}", path.display())]
    Workload { path: PathBuf, source: WorkloadError },
    #[error(
        "{}: its pages have {found} bytes; only those of {} can be simulated", path.display(), hinterland_units::PAGE_BYTES
    )]
    PageSize { path: PathBuf, found: u32 },
    #[error("--prefetch tape: {}: {source}; a tape is planned from a whole trace only", path.display())]
    Plan { path: PathBuf, source: PlanError },
    #[error("--tape: {}: {source}", path.display())]
    TapeFile { path: PathBuf, source: io::Error },
    #[error("--prefetch tape: {0}")]
    Tape(TapeError),
    #[error("{0}")]
    Setup(#[from] SetupError),
    #[error("--block: {0}")]
    Block(String),
    #[error("the figures cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("stdout: {0}")]
    Output(io::Error),
}

/// Replays a workload on all combinations, none of which follows a tape.
///
/// # Errors
/// The first combination's that cannot be simulated.
pub fn replay_all(work: &Workload, combinations: &[Combination]) -> Result<Vec<ReplayStats>, SetupError> {
    replays::all(work, None, combinations)
}

/// Runs the command.
pub fn run(args: &SimArgs) -> ExitCode {
    match simulate(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            complain(refusal);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

fn simulate(args: &SimArgs) -> Result<(), Refusal> {
    // Names first: reading may take long.
    args.granularity_with_block().map_err(Refusal::Block)?;
    let combinations = combinations::of(args)?;
    let traced = read::trace(args, combinations.iter().any(Combination::is_tape))?;
    let tape = traced.tape.as_deref().map(Tape::open).transpose().map_err(Refusal::Tape)?;
    let figures = replays::all(&traced.work, tape.as_ref(), &combinations)?;
    let report = report::of(args, &traced, &combinations, &figures);
    let written = match args.json {
        true => print::json(&(serde_json::to_string_pretty(&report)? + "\n")),
        false => print::text(&table::of(&report)),
    };
    written.map(drop).map_err(Refusal::Output)
}

impl SimArgs {
    /// As `run` has it: a block's size asks for blocks.
    fn granularity_with_block(&self) -> Result<GranularityName, String> {
        granularity_with(self.block.flatten(), self.granularity, GranularityName::Page)
    }

    /// What is replayed over a link. That block and granularity go together was checked.
    fn setup(&self, link: &LinkModel) -> Setup {
        let name = self.granularity_with_block().unwrap_or(GranularityName::Page).name();
        let granularity = Granularity::named(name).unwrap_or_default();
        let pages = |size: ByteCount| u32::try_from(size.0 / PAGE_BYTES as u64).unwrap_or(u32::MAX);
        Setup {
            window_pages_max: self.read_ahead,
            prefetch_cache_pages: self.prefetch_cache.map(pages),
            blocks: Blocks { granularity, pages: self.block.flatten().map(pages) },
            written_percent: self.written,
            seed: self.seed,
            ..Setup::new(self.local, LinkModel { share: self.share, ..link.clone() }).on(self.fault_path.model())
        }
    }
}
