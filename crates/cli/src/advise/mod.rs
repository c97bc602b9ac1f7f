//! `hinterland advise`: which far memory suits a program, how much local memory it needs, and with which parameters (xDM, §IV-A and §IV-B).
//!
//! ```text
//! trace ─▶ features (hinterland-tape)
//!       └▶ predict: replays for each backend and size ─▶ report: effectiveness, cost, the least local memory ─▶ table or JSON
//! costs ───┘
//! ```

mod costs;
mod predict;
mod report;

pub use costs::stated as stated_costs;
pub use report::Advice;
#[cfg(test)]
pub use report::{ADVICE_VERSION, Misses, Ranked, RegionTraits, Traits};

use crate::error::{EXIT_REFUSED, complain};
use crate::file_magic;
use crate::print;
use crate::profile::ProfileFile;
use crate::sim::{FaultPathArg, cpu_seconds, read_whole};
use clap::Args;
use costs::{Costs, DEFAULTS};
use hinterland_sim::SetupError;
use hinterland_units::{ByteCount, Slowdown};
use predict::Sizes;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const DEFAULT_SLOWDOWN: &str = "1.2";

/// `hinterland advise`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// The trace, as `hinterland trace` writes it, or a profile that was made with one (`hinterland profile --trace`)
    #[arg(required_unless_present = "example_costs")]
    trace: Option<PathBuf>,
    /// The backends to choose from, with their links and costs (see --example-costs)
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Print a file for --costs: what is taken without it
    #[arg(long)]
    example_costs: bool,
    /// The slowdown that the least local memory is looked for
    #[arg(long, value_name = "FACTOR", default_value = DEFAULT_SLOWDOWN)]
    slowdown: Slowdown,
    /// Processor time that the program takes untraced, all threads, in seconds (`time`: user and sys): what the trace is corrected to
    #[arg(long, value_name = "SECONDS", value_parser = cpu_seconds)]
    cpu_seconds: Option<Duration>,
    /// Fault path: decides what faults cost, and which pages are evicted together
    #[arg(long, value_enum, value_name = "PATH", default_value_t = FaultPathArg::Inline)]
    fault_path: FaultPathArg,
    /// As JSON (schema: share/hinterland/advice.schema.json)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hinterland trace -o job.trace -- ./job
  hinterland advise job.trace
  hinterland advise job.trace --cpu-seconds 12.5
  hinterland advise --example-costs > costs.toml
  hinterland advise job.trace --costs costs.toml --slowdown 1.1 --json

Backends are ranked by their effectiveness for this program: run time on the slowest of them / run time, over their cost, with half of the \
memory local. For each: predicted slowdowns at several sizes, the least local memory that keeps the slowdown, and what local \
and far memory cost then, beside all memory local. Sizes are whole MiB, 16 at least, as a run has them. Predictions are replays of the trace in virtual time, with the policies of a run.

Exit code: 0, or 125 when it refuses.";

/// Runs the command.
pub fn run(args: &AdviseArgs) -> ExitCode {
    match advise(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(why);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// What a program needs of a machine, with the far memory with which its memory costs least, or with `backend`; `cpu`: the processor time that it takes
/// untraced, else the trace's; `costs`: a file, else the defaults.
///
/// # Errors
/// A file that cannot be read, a trace that cannot be replayed, or a backend that is not there.
pub fn needs(
    trace: &Path,
    cpu: Option<Duration>,
    slowdown: Slowdown,
    costs: Option<&Path>,
    backend: Option<&str>,
) -> Result<Needs, String> {
    let costs = Costs::read(costs)?;
    let advice = advice_of(trace, cpu, slowdown, FaultPathArg::Inline, &costs)?;
    let name = backend.unwrap_or_else(|| advice.cheapest());
    let found = costs.backends.iter().find(|backend| backend.name == name).zip(advice.least_local_bytes(name));
    let (backend, local_bytes) = found.ok_or_else(|| {
        let known: Vec<&str> = costs.backends.iter().map(|backend| backend.name.as_str()).collect();
        format!("'{name}' is no backend; the cost file has {}", known.join(", "))
    })?;
    Ok(Needs {
        backend: backend.name.clone(),
        far: backend.far.clone(),
        cost: backend.cost,
        touched_bytes: advice.touched_bytes(),
        local_bytes,
    })
}

/// See [`needs`].
#[derive(Clone, PartialEq, Debug)]
pub struct Needs {
    /// Its name in the cost file.
    pub backend: String,
    /// What `--far` is to say for it.
    pub far: Option<String>,
    /// Of a GiB, beside a GiB of local RAM.
    pub cost: f64,
    /// Memory that the program touches.
    pub touched_bytes: u64,
    /// Local memory that keeps the slowdown: whole MiB, as a run can have it, or all that is touched.
    pub local_bytes: u64,
}

impl Needs {
    /// Whether far memory brings the program nothing.
    pub fn is_all_local(&self) -> bool {
        self.local_bytes >= self.touched_bytes
    }
}

/// What a profile has of its program's pages: the advice with the default backends, which names the trace.
///
/// # Errors
/// As for a trace.
pub fn pages_of(trace: &Path) -> Result<Value, String> {
    let trace = trace.canonicalize().map_err(|error| format!("{}: {error}", trace.display()))?;
    let slowdown = DEFAULT_SLOWDOWN.parse().expect("it is one");
    let advice = advice_of(&trace, None, slowdown, FaultPathArg::Inline, &Costs::read(None)?)?;
    serde_json::to_value(&advice).map_err(|error| error.to_string())
}

/// The trace that a file is, or that a profile names.
fn trace_of(path: &Path) -> Result<PathBuf, String> {
    if file_magic::of(path) != Some(*b"{") {
        return Ok(path.into());
    }
    let profile = ProfileFile::read(path).map_err(|why| why.to_string())?;
    profile.trace().ok_or_else(|| {
        format!(
            "{}: this profile says which functions wait, and nothing of all pages that are touched: `hinterland trace -o FILE` records those, and \
             `hinterland profile --trace FILE` puts them into a profile; or give the trace itself",
            path.display()
        )
    })
}

fn advice_of(
    trace: &Path,
    cpu: Option<Duration>,
    slowdown: Slowdown,
    path: FaultPathArg,
    costs: &Costs,
) -> Result<Advice, String> {
    let trace = &trace_of(trace)?;
    let traced = read_whole(trace, cpu)?;
    let refuse = |why: SetupError| format!("{}: {why}", trace.display());
    let sizes = Sizes::of(&traced);
    if sizes.is_bounded_by_microset() {
        let (microset, least) = (traced.microset_pages, ByteCount(sizes.least_bytes()));
        let why = format!(
            "its microsets have up to {microset} pages, so it tells of {least} of local memory and more only; trace with a smaller --microset"
        );
        if sizes.is_all_local() {
            return Err(format!("{}: {why}: it touches no more than that", trace.display()));
        }
        complain(format_args!("{}: {why}", trace.display()));
    }
    let predictions =
        predict::all(&traced.work, sizes, path.model(), &costs.backends, slowdown.factor()).map_err(refuse)?;
    Ok(Advice::of(trace, &traced, sizes, path, slowdown, costs, &predictions))
}

fn advise(args: &AdviseArgs) -> Result<(), String> {
    let output = |error: std::io::Error| format!("stdout: {error}");
    let Some(path) = args.trace.as_ref().filter(|_| !args.example_costs) else {
        return print::text(DEFAULTS).map(drop).map_err(output);
    };
    let costs = Costs::read(args.costs.as_deref())?;
    let advice = advice_of(path, args.cpu_seconds, args.slowdown, args.fault_path, &costs)?;
    let written = match args.json {
        true => print::json(&(serde_json::to_string_pretty(&advice).map_err(|error| error.to_string())? + "\n")),
        false => print::text(&advice.text()),
    };
    written.map(drop).map_err(output)
}
