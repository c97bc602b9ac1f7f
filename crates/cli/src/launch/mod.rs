//! `hinterland run`: from the command line to the summary at the program's end.
//!
//! ```text
//! settings ─▶ program, library, userfaultfd: refuse now or never ─▶ ledger ─▶ spawn ─▶ watch ─▶ summary ─▶ the program's end
//! ```
//! The launcher stands beside the program, not before it: same process group, same terminal, same standard streams. It
//! passes signals on, reads the ledger, and ends the way the program ended.

mod collect;
mod control;
mod credentials;
mod descent;
mod ending;
mod handover;
mod ledger;
mod library;
mod liveness;
mod look_up;
mod notices;
mod oom;
mod other_runs;
mod outside;
mod paths;
mod pools;
mod readiness;
pub mod segment;
mod service_level;
mod signals;
mod spawn;
mod stopped;
pub mod tape;
mod thread_times;
mod watch;

pub use ledger::LEDGER_BYTES;
pub use library::{beside, find as find_library};
pub use readiness::{ADDRESS_SPACE_BYTES, TRAP_REMEDY, can_monitor, remedy as userfaultfd_remedy};

use crate::args::RunArgs;
use crate::config::{self, RunConfig, StatsTarget};
use crate::error::{Error, complain, tell};
use crate::host::Host;
use crate::output::{self, Output};
use crate::plan as plans;
use crate::print;
use crate::profile::{Profiling, Taken};
use crate::program;
use crate::report::{Ending, Run, Summary};
use crate::statistics::Totals;
use crate::trace::Recording;
use hinterland_abi::{HandoverFile, HeapMode, Settings, variables};
use hinterland_units::ForeignJson;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Whether the program is managed, decided before it starts.
enum Plan {
    /// With the library to preload.
    Managed(PathBuf),
    /// Without; carries why.
    Unmanaged(String),
}

/// Runs a program; returns the exit code that the launcher is to end with.
pub fn run(args: &RunArgs) -> ExitCode {
    run_for(args, RunOutputs::default())
}

/// What a run is to leave, beside its figures.
#[derive(Clone, Copy, Default)]
struct RunOutputs<'a> {
    trace: Option<&'a Recording>,
    profile: Option<&'a Profiling>,
}

/// Runs a program and records its trace.
pub fn run_and_record(args: &RunArgs, recording: &Recording) -> ExitCode {
    run_for(args, RunOutputs { trace: Some(recording), ..RunOutputs::default() })
}

/// Runs a program and takes its profile.
pub fn run_and_profile(args: &RunArgs, profiling: &Profiling) -> ExitCode {
    run_for(args, RunOutputs { profile: Some(profiling), ..RunOutputs::default() })
}

fn run_for(args: &RunArgs, asked: RunOutputs<'_>) -> ExitCode {
    match launch(args, asked) {
        Ok(ending) => ending::end_like(ending),
        Err(error) => {
            // A trace or a profile of what is not managed would be empty.
            let nothing_asked = asked.trace.is_none() && asked.profile.is_none();
            let way_round = if nothing_asked { error.way_round() } else { "" };
            complain(format_args!("{error}{way_round}"));
            ExitCode::from(error.exit_code())
        }
    }
}

fn launch(args: &RunArgs, asked: RunOutputs<'_>) -> Result<Ending, Error> {
    let host = Host::here();
    let mut config = config::resolve(args, |name| std::env::var(name), &host)?;
    if let Some(profiling) = asked.profile {
        profiling.settle(&mut config);
    }
    let kept = config.cached_run.clone().filter(|_| asked.trace.is_none());
    let in_progress = kept.as_ref().and_then(|kept| kept.begin(&config));
    let recording = asked.trace.or(in_progress.as_ref().map(|run| &run.recording));
    if let Some(recording) = recording {
        recording.settle(&mut config);
    }
    let is_traced = recording.is_some();
    let name = args.program.first().cloned().unwrap_or_default();
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let file = program::find(&name, &search)?;
    let plan = plan(&config, &name, &file, &search)?;
    if let Plan::Managed(library) = &plan {
        config.read.push(("the library that is preloaded", library.clone()));
    }
    config.read.push(("the plan of the program", plans::path_of(&file)));
    refuse_needed(&config, recording, asked.profile, &file, arguments(args))?;
    let stats = config.stats.as_ref().map(Stats::open).transpose()?;
    recording.map(Recording::begin).transpose()?;
    let taken = asked.profile.map(|profiling| profiling.begin(&file)).transpose()?;

    // For as long as the launcher lives: threads that follow pools write there.
    let ledger: &'static ledger::LauncherLedger =
        Box::leak(Box::new(ledger::LauncherLedger::create(config.allow_unmanaged)?));
    if let Some(recording) = recording {
        recording.tell(&ledger.get().trace);
    }
    let pools = pools::Pools::find(&config.far_origin, &config.settings, &ledger.get().rosters)?;
    let mut settings = config.settings.clone();
    settings.ledger = ledger.path();
    settings.profile_memory = taken.as_ref().map(Taken::path).unwrap_or_default();
    settings.filters = hinterland_sys::seccomp::filters();
    // Nothing is prefetched in a traced program.
    let tapes = config.tapes.as_ref().filter(|_| recording.is_none());
    let is_kept = config.cached_run.is_some();
    let shared = tapes.map(|tapes| tape::SharedTapes::create(tapes, ledger.get(), is_kept)).transpose()?;
    settings.tape_memory = shared.as_ref().map(tape::SharedTapes::path).unwrap_or_default();
    let tapes_and_profile = [
        shared.as_ref().map(|shared| (HandoverFile::Tapes, shared.file())),
        taken.as_ref().map(|taken| (HandoverFile::Profile, taken.file())),
    ];
    let files = std::iter::once((HandoverFile::Ledger, ledger.file())).chain(tapes_and_profile.into_iter().flatten());
    let is_managed = matches!(plan, Plan::Managed(_));
    let handover = is_managed.then(|| handover::Handover::begin(files.collect())).flatten();
    settings.handover = handover.as_ref().map(handover::Handover::path).unwrap_or_default();
    notices::say(&config, &name.to_string_lossy(), &host);
    let credentials = config.credentials.clone().map(credentials::Watched::begin);
    let signals = signals::Signals::take()?;
    let mut program = spawn::Program::new(&file, args, &signals)?;
    // A launcher inside this program must not write over this run's figures, nor have its tape.
    program.unset(variables::STATS).unset(variables::LEDGER).unset(variables::HANDOVER).unset(variables::TAPE);
    if let Plan::Managed(library) = &plan {
        program.set("LD_PRELOAD", library::preload(library, std::env::var_os("LD_PRELOAD").as_deref())?);
        let (tunables, auditors) = (std::env::var_os("GLIBC_TUNABLES"), std::env::var_os("LD_AUDIT"));
        if let Some(tunables) = library::tunables(tunables.as_deref(), auditors.as_deref()) {
            program.set("GLIBC_TUNABLES", tunables);
        }
        // A launcher inside takes what it finds for the user's word, and reads the settings file for what it does not find.
        let is_told = |name: &str| {
            !args.settings.values(name).is_empty() || std::env::var_os(name).is_some_and(|value| !value.is_empty())
        };
        for ((name, value), (_, default)) in settings.to_env().into_iter().zip(Settings::default().to_env()) {
            if value.is_empty() || value == default && !is_told(name) {
                program.unset(name)
            } else {
                program.set(name, value)
            };
        }
    }

    let started = Instant::now();
    let child = program.start(&name.to_string_lossy())?;
    // The program starts meanwhile.
    let kills = oom::Kills::so_far(&host);
    pools.follow().map_err(Error::system("cannot follow the pools' lists of nodes"))?;
    let watched = credentials.map_or(Ok(()), credentials::Watched::follow);
    watched.map_err(Error::system("cannot look after certificates and keys"))?;
    let mut totals = Totals::default();
    let outside = match &plan {
        Plan::Managed(library) => Some(outside_of(&config, library, ledger.path())),
        // The user has chosen that nobody manages it.
        Plan::Unmanaged(_) => None,
    };
    let control = control::Control::begin(&config, &host, &args.program, is_managed, handover);
    let ended = watch::until_end(child, ledger, &signals, outside, config.strict, control, &mut totals)?;
    let mut run = Run {
        program: name.to_string_lossy().into_owned(),
        ending: ended.ending,
        wall: started.elapsed(),
        program_wall: ended.at.duration_since(started),
        processor: ended.processor,
        kernel_rss_peak_bytes: ended.rss_peak_bytes,
        tree_pss_peak_bytes: ended.pss_peak_bytes,
        budget: config.settings.local,
        budget_source: config.budget_source.clone(),
        prefetch: config.settings.prefetch.to_string(),
        prefetch_source: config.prefetch_source.clone(),
        service: ended.service,
        tape_source: config.tape_source.clone().filter(|_| recording.is_none()),
        tapes: tapes.map(|tapes| tapes.names()).unwrap_or_default(),
        tape_threads: tapes.map_or(0, |tapes| tapes.threads()),
        read_ahead_pages: config.settings.read_ahead_pages,
        prefetch_cache: config.settings.prefetch_cache,
        unmanaged_because: match plan {
            Plan::Managed(_) => None,
            Plan::Unmanaged(why) => Some(why),
        },
    };
    if let Some(killed) = kills.since(&host, &run.program, run.ending) {
        complain(killed);
    }
    if let Some((in_progress, kept)) = in_progress.zip(kept) {
        run.tape_source = kept.finish(in_progress, &ledger.get().trace, &totals, run.program_wall);
    }
    let summary = Summary::new(&run, &totals);
    say(&config, &summary);
    if let Some(tapes) = tapes.filter(|_| summary.is_managed()) {
        let counters = &totals.counters;
        tapes.say(ledger.get(), counters.tape_threads, counters.tape_threads_without);
    }
    let written = stats.map_or(Ok(()), |stats| stats.write(&summary));
    if let Some(recording) = asked.trace {
        recording.say(&ledger.get().trace, &totals, config.quiet);
    }
    let compared = plans::Run {
        waiting: summary.waiting(),
        local_bytes: config.local_bytes().map_or(0, |bytes| bytes.0),
        far: &config.settings.far.join(" "),
    };
    // A service level or a command has changed the run, or the tracer let hardly a page be mapped.
    let is_another_run = ledger.get().commands.newest() != 0 || is_traced;
    let is_judged = summary.is_managed() && !is_another_run;
    if let Some(worse) = plans::regression(&file, &compared).filter(|_| is_judged) {
        complain(format_args!("{}: {worse}", run.program));
    }
    if let Some(foreign) = plans::foreign(&file).filter(|_| !config.quiet) {
        complain(format_args!("{}: {foreign}", run.program));
    }
    let profiled = taken.map_or(Ok(()), |taken| taken.finish(&run, &totals, config.quiet));
    match (written.and(profiled), summary.ending()) {
        // A run whose figures were asked for and are not there has not gone well.
        (Err(error), Ending::Exited(0)) => Err(error),
        (Err(error), ending) => {
            complain(error);
            Ok(ending)
        }
        (Ok(()), ending) => Ok(ending),
    }
}

/// What watches memory outside the budget.
fn outside_of(config: &RunConfig, library: &Path, ledger: String) -> outside::Outside {
    let budget_bytes = config.local_bytes().map_or(0, |bytes| bytes.0);
    outside::Outside::new(budget_bytes, config.settings.heap == HeapMode::Large, library, ledger)
}

/// Refuses to write over the program, what it is given or what the run reads, and two outputs to one file.
fn refuse_needed(
    config: &RunConfig,
    recording: Option<&Recording>,
    profiling: Option<&Profiling>,
    program: &Path,
    arguments: &[OsString],
) -> Result<(), Error> {
    let stats = match &config.stats {
        Some(StatsTarget::File(path)) => Some(("--stats", path.as_path())),
        Some(StatsTarget::Stdout) | None => None,
    };
    let output = recording.map(Recording::shown).or(profiling.map(Profiling::shown)).map(|path| ("--output", path));
    let needed = |(flag, path): (&'static str, &Path)| {
        let what = output::needed_as(path, program, arguments, &config.read)?;
        Some(Error::Needed { flag, path: path.into(), what })
    };
    let one_place = || {
        let ((flag, path), (_, other)) = stats.zip(output)?;
        let what = "the file of --output";
        output::is_same_place(path, other).then(|| Error::Needed { flag, path: path.into(), what })
    };
    stats.into_iter().chain(output).find_map(needed).or_else(one_place).map_or(Ok(()), Err)
}

/// Decides whether the program can be managed here; if not, refuses or, when told so, warns and goes on without.
fn plan(config: &RunConfig, name: &OsStr, file: &Path, search: &OsStr) -> Result<Plan, Error> {
    match manageable(config, name, file, search) {
        Ok(library) => Ok(Plan::Managed(library)),
        Err(refusal) if config.allow_unmanaged => {
            let why = match &refusal {
                Error::Unmanageable { why } => why.to_string(),
                Error::NoUserfaultfd { what, .. } => format!("userfaultfd {what}"),
                Error::NoInline { what, .. } => format!("the inline fault path cannot be used: {what}"),
                Error::AddressSpace { limit, .. } => format!("the address space is limited to {limit}"),
                Error::WritableMemory { limit, .. } => format!("private writable memory is limited to {limit}"),
                Error::Library { what } => what.clone(),
                _ => return Err(refusal),
            };
            complain(format_args!("warning: {} runs unmanaged, without any memory bound: {why}", name.display()));
            Ok(Plan::Unmanaged(why))
        }
        Err(refusal) => Err(refusal),
    }
}

fn manageable(config: &RunConfig, name: &OsStr, file: &Path, search: &OsStr) -> Result<PathBuf, Error> {
    let shown = name.to_string_lossy();
    if let program::Verdict::Unmanageable(why) = program::classify(&shown, file, search)? {
        return Err(Error::Unmanageable { why });
    }
    readiness::check(config.features, config.settings.fault_path)?;
    readiness::check_far(&config.far_origin, &config.settings.far)?;
    library::find()
}

/// Where the JSON goes.
enum Stats {
    Stdout,
    File { path: PathBuf, output: Output },
}

impl Stats {
    /// Looks whether it can be written before the program runs, so that a wrong path is refused now and not after hours.
    fn open(target: &StatsTarget) -> Result<Stats, Error> {
        match target {
            StatsTarget::Stdout => Ok(Stats::Stdout),
            StatsTarget::File(path) => match Output::open(path) {
                Ok(output) => Ok(Stats::File { path: path.clone(), output }),
                Err(source) => Err(Error::Stats { path: path.clone(), source }),
            },
        }
    }

    fn write(self, summary: &Summary) -> Result<(), Error> {
        let json = summary.json();
        match self {
            Stats::Stdout => match print::json(&json) {
                Ok(_) => Ok(()),
                Err(source) => Err(Error::Stats { path: "-".into(), source }),
            },
            Stats::File { path, output } => {
                let refuse = |source| Error::Stats { path: path.clone(), source };
                let written = output
                    .write(refuse, |out| out.write_all(ForeignJson(&json).to_string().as_bytes()).map_err(refuse));
                match written {
                    // The reader of a FIFO has seen enough.
                    Err(Error::Stats { source, .. }) if source.kind() == ErrorKind::BrokenPipe => Ok(()),
                    written => written,
                }
            }
        }
    }
}

/// Tells what happened: the fatal message always, the summary unless told to be quiet.
fn say(config: &RunConfig, summary: &Summary) {
    for message in summary.fatal.iter().chain(&summary.warning()) {
        complain(message);
    }
    if !config.quiet {
        tell(print::escaped(&summary.text()));
    }
}

/// The program's arguments without its name.
fn arguments(args: &RunArgs) -> &[OsString] {
    args.program.get(1..).unwrap_or_default()
}
