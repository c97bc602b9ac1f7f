//! `hinterland submit`: a program as a job of Slurm, with the memory that it needs and on machines that have its far memory (xDM, Algorithm 1).
//!
//! ```text
//! trace ─▶ advise: backend, least local memory ─▶ job: --constraint, --prefer, --mem, hinterland run … ─▶ sbatch
//! ```
//!
//! Slurm is the scheduler; the job says what the program needs.

mod constraint;
mod job;

use crate::advise;
use crate::error::{EXIT_REFUSED, complain};
use crate::print;
use crate::program;
use crate::sim::cpu_seconds;
use crate::tape_cache::CachedRun;
use clap::Args;
use hinterland_abi::Settings;
use hinterland_units::Slowdown;
use job::Job;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// `hinterland submit`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SubmitArgs {
    /// A trace of the program, as `hinterland trace` writes it, or a profile with one: says how much local memory it needs with each kind of far memory
    /// [default: that which `hinterland run --tape auto` has kept of the program with these arguments]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// To Slurm, as without this: it is the only scheduler so far
    #[arg(long)]
    slurm: bool,
    /// Processor time that the program takes untraced, all threads, in seconds: what the trace is corrected to
    #[arg(long, value_name = "SECONDS", value_parser = cpu_seconds)]
    cpu_seconds: Option<Duration>,
    /// The slowdown that the job may have: the least local memory with it is asked for
    #[arg(long, value_name = "FACTOR", default_value = "1.2")]
    slowdown: Slowdown,
    /// Kinds of far memory of the cluster, with their links and costs (see `hinterland advise --example-costs`)
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Kind of far memory [default: the one with which memory costs least]
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Print the command line, and submit nothing
    #[arg(long)]
    dry_run: bool,
    /// An option for sbatch, such as --sbatch=--time=30; several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    program: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  hinterland trace -o job.trace -- ./job
  hinterland submit --trace job.trace --dry-run -- ./job
  hinterland submit --slurm --dry-run -- ./job
  hinterland submit --trace job.trace --slowdown 1.4 --costs cluster.toml --sbatch=--time=2:00:00 -- ./job

A machine of the cluster that can have far memory NAME has the feature far-NAME; one that has it now has the active feature warm-NAME too. The job asks for \
the first and, where a machine is warm, prefers the second: one is switched only where no warm one is left. PREFIX/lib/hinterland/slurm has the prolog that does it.

Exit code: that of sbatch, or 125 when it refuses.";

/// Becomes sbatch; returns only where that is not possible.
pub fn run(args: &SubmitArgs) -> ExitCode {
    match submit(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(why);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// The trace of the program's last run that was recorded for a tape.
fn kept_trace(program: &[String]) -> Result<PathBuf, String> {
    let words: Vec<OsString> = program.iter().map(OsString::from).collect();
    let env = |name: &str| std::env::var(name).ok();
    let settings = Settings::from_env(env).map_err(|(variable, why)| format!("{variable}: {why}"))?;
    let cached_run = CachedRun::look_up(&words, &settings, &env);
    cached_run.and_then(|cached_run| cached_run.recorded_peak()).map(|(_, trace)| trace).ok_or_else(|| {
        format!(
            "no trace of this program with these arguments is kept for --heap {}: `hinterland run --tape auto -- PROGRAM` keeps one; \
             or name one with --trace, as `hinterland trace -o FILE -- PROGRAM` records it",
            settings.heap
        )
    })
}

fn submit(args: &SubmitArgs) -> Result<(), String> {
    let trace = args.trace.clone().map_or_else(|| kept_trace(&args.program), Ok)?;
    let needs = advise::needs(&trace, args.cpu_seconds, args.slowdown, args.costs.as_deref(), args.backend.as_deref())?;
    let launcher = program::own_path().map_err(|error| error.to_string())?;
    let is_warm = is_warm(&needs.backend);
    let job = Job::new(&needs, is_warm, &launcher.display().to_string(), &args.sbatch, &args.program)?;
    if args.dry_run {
        return print::text(&(job.line() + "\n")).map(drop).map_err(|error| format!("stdout: {error}"));
    }
    let error = Command::new("sbatch").args(job.words()).exec();
    Err(format!("cannot start sbatch: {error}; is Slurm installed here? --dry-run prints the command"))
}

/// Whether a machine has such far memory now, as far as Slurm is here to say so.
fn is_warm(backend: &str) -> bool {
    let said = Command::new("sinfo").args(["--noheader", "--format=%b"]).stderr(Stdio::null()).output();
    let features = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    features.split([',', '\n']).any(|feature| feature.trim() == job::warm(backend))
}
