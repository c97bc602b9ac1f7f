//! `hinterland optimize`: profile, plan, build, run, and again with more of the program, as long as that gains (Mira §3, §4.1).
//!
//! ```text
//!   build without hints ─▶ measure ─▶ profile ─▶ widen: a larger plan ─▶ build ─▶ measure ─┬─ faster: kept ─▶ profile …
//!                                                  ▲                                       └─ not: rolled back
//!                                                  └── another one ◄───────────────────────────┘
//! ```
//!
//! The loop keeps no state but a plan and what was measured with it; the build with the best plan is made last.

mod build;
mod interrupt;
mod measure;
mod rounds;
mod show;
mod widen;

use crate::args::RunArgs;
use crate::compile;
use crate::config;
use crate::config::flags::{Flags, Optimized};
use crate::error::{EXIT_REFUSED, Error, complain};
use crate::host::Host;
use crate::output;
use crate::plan::{Measured, Plan, Written, path_of};
use crate::profile::{HEAD, Refusal, part};
use crate::program;
use build::Builder;
use clap::Args;
use hinterland_units::whole_number;
use interrupt::Interrupt;
use measure::Runner;
use rounds::Loop;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use widen::Widening;

/// `hinterland optimize`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct OptimizeArgs {
    /// The command that builds the program, for a shell; it finds the compilers in $CC, $CXX and $RUSTC, and the plan in $HINTERLAND_PLAN
    #[arg(long, value_name = "COMMAND")]
    build: String,
    /// Rounds at most
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole_number::<u32>(1..=100, "--rounds 4"))]
    rounds: u32,
    /// Runs in each round, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole_number::<u32>(1..=99, "--repeat 3"))]
    repeat: u32,
    /// In the first round, take this part of the functions that wait, those that wait longest
    #[arg(long, value_name = "PERCENT%", default_value = "10%", value_parser = part)]
    worst: f64,
    /// In the first round, take this part of the allocations that these wait for, the largest
    #[arg(long, value_name = "PERCENT%", default_value = "10%", value_parser = part)]
    largest: f64,
    /// Take so much more of both in each further round
    #[arg(long, value_name = "PERCENT%", default_value = "10%", value_parser = part)]
    step: f64,
    /// Also take what these functions call, to this depth
    #[arg(long, value_name = "CALLS", default_value_t = 2, value_parser = whole_number::<usize>(.., "--depth 2"))]
    depth: usize,
    /// Keep a round that takes less time than the best one before it, by at least this part of it
    #[arg(long, value_name = "PERCENT%", default_value = "2%", value_parser = part)]
    gain: f64,
    /// Try this plan first, and go on from there
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Where the best plan goes [default: PROGRAM.plan, where `hinterland run` finds it]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep a round whose output differs: the program prints times, or in an order of its own
    #[arg(long)]
    ignore_output: bool,
    /// The rounds as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Flags<Optimized>,
    /// The program that is built, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  hinterland optimize --build 'make app' --local 64M -- ./app input
  hinterland optimize --build 'make app' --local 64M --rounds 8 --repeat 5 -o app.plan -- ./app input
  hinterland optimize --build 'make app' --local 64M --plan app.plan -- ./app other-input
  hinterland optimize --build 'cargo build --release' --local 64M -- target/release/app input

The program is built without hints, run, and profiled; each round builds it with a larger plan. A round that is not faster, does not \
compile, fails, or prints something else is rolled back. Two rounds in succession without a gain are the last ones. make and \
cargo compile everything anew in each round (MAKEFLAGS has -B, and $RUSTC is of another version); another build command must do so by itself, or \
depend on $HINTERLAND_PLAN. Standard input of the program is empty.

A signal (Ctrl-C) ends the loop: the best plan until then is written and built. A second one ends that, too.

Exit code: 0, also where nothing was gained; 128 + the signal that ended it; 125 when the build or the program fails without hints, or something else cannot be used.";

/// Why the loop ends before its time.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Ours(#[from] Error),
    #[error(transparent)]
    Profile(#[from] Refusal),
    #[error("--build: '{command}' {how}{}", tail(.said))]
    Build { command: String, how: String, said: String },
    #[error("{program} {how}, as it was built without hints{}", tail(.said))]
    Program { program: String, how: String, said: String },
    #[error(
        "{program} prints something else in each run, so rounds cannot be compared: --ignore-output, if that is as it should be"
    )]
    Unsteady { program: String },
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error("ended by signal {signal}")]
    Interrupted { signal: i32 },
    #[error("{0}")]
    Words(String),
}

/// The end of what a command said, which explains how it ended.
fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.trim_end().lines().collect();
    let last = &lines[lines.len().saturating_sub(5)..];
    if last.is_empty() { String::new() } else { format!(": {}", last.join(" | ")) }
}

/// Runs the command.
pub fn run(args: &OptimizeArgs) -> ExitCode {
    match optimize(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            let code = match stop {
                Stop::Interrupted { signal } => u8::try_from(128 + signal).unwrap_or(EXIT_REFUSED),
                _ => EXIT_REFUSED,
            };
            complain(stop);
            ExitCode::from(code)
        }
    }
}

fn optimize(args: &OptimizeArgs) -> Result<(), Stop> {
    if args.build.trim().is_empty() {
        return Err(Stop::Words(
            "--build: is empty; write the command that builds the program, for example --build 'make app'".into(),
        ));
    }
    compile::ready()?;
    let settings = args.settings.clone().of();
    let run_args = RunArgs { settings, program: args.program.clone() };
    let config = config::resolve(&run_args, |name| std::env::var(name), &Host::here())?;
    let given = args.plan.as_deref().map(Written::read).transpose()?;
    let directory = tempfile::Builder::new().prefix("hinterland-optimize-").tempdir();
    let directory = directory.map_err(|source| Stop::System { what: "cannot make a directory for plans", source })?;
    let builder = Builder::new(&args.build, directory.path())?;
    let until = Interrupt::by_signals().map_err(|source| Stop::System { what: "cannot take signals", source })?;
    let runner = Runner::new(&args.settings, &args.program, args.repeat, directory.path(), until.clone())?;
    let mut rounds = Loop::new(builder, runner, until, args.rounds, args.gain, args.ignore_output);
    rounds.plain()?;
    let file = program_file(&args.program)?;
    let place = args.output.clone().unwrap_or_else(|| path_of(&file));
    let refuse = |source| Stop::Ours(Error::Trace { path: place.clone(), source });
    // A place that is needed or cannot be written is refused now and not after all rounds.
    let arguments = args.program.get(1..).unwrap_or_default();
    if let Some(what) = output::needed_as(&place, &file, arguments, &config.read) {
        return Err(Error::Needed { flag: "--output", path: place, what }.into());
    }
    output::Output::open(&place).map(drop).map_err(refuse)?;
    if let Some(other) = given.as_ref().and_then(|written| of_another(&written.plan, &file)) {
        let plan = args.plan.as_deref().unwrap_or(Path::new("")).display();
        complain(format_args!(
            "warning: {plan} was made for {}: are its functions those of {}?",
            other.display(),
            file.display()
        ));
    }
    let widening = Widening::new(args.worst, args.largest, args.step, args.depth);
    let ended = rounds.widen(given.map(|written| written.plan), widening, &file);
    let restored = rounds.restore();
    let best = rounds.best();
    if !best.plan.functions.is_empty() {
        let measured = measured(&rounds, config.local_bytes().map_or(0, |bytes| bytes.0), &config.settings.far);
        let text = Plan { measured: Some(measured), ..best.plan.clone() }.text(HEAD).map_err(Stop::Words)?;
        output::write(&place, refuse, |out| out.write_all(text.as_bytes()).map_err(refuse))?;
    }
    let shown = if best.plan.functions.is_empty() { None } else { Some(place.as_path()) };
    show::print(&rounds, shown, args.json).map_err(|source| Stop::System { what: "standard output", source })?;
    // One of both is the command's end; the other is said all the same.
    if let (Err(_), Err(why)) = (&ended, &restored) {
        complain(why);
    }
    ended.and(restored)
}

/// The program that a plan was made for, if that has another name.
fn of_another<'a>(plan: &'a Plan, program: &Path) -> Option<&'a Path> {
    let planned = Some(Path::new(&plan.program)).filter(|planned| !planned.as_os_str().is_empty())?;
    (planned.file_name() != program.file_name()).then_some(planned)
}

/// What was measured with the best plan.
fn measured(rounds: &Loop, local_bytes: u64, far: &[String]) -> Measured {
    let (best, plain) = (&rounds.best().measured, &rounds.plain_measured());
    Measured {
        seconds: best.seconds,
        plain_seconds: plain.seconds,
        waiting: best.waiting,
        major_faults: best.major_faults,
        local_bytes,
        far: far.join(" "),
    }
}

/// The file of the program, which is there once it was built.
fn program_file(words: &[OsString]) -> Result<PathBuf, Stop> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let name = words.first().map(Path::new).unwrap_or(Path::new(""));
    Ok(program::find(name.as_os_str(), &search)?)
}
