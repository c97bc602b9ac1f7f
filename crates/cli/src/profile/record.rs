//! Taking a profile: `hinterland run` with samples in the library.

use super::aggregate::{RunFacts, aggregate};
use super::file::{PAGES, ProfileFile, Waits};
use super::{Refusal, ended};
use crate::advise::pages_of;
use crate::args::RunArgs;
use crate::config::RunConfig;
use crate::config::flags::{Flags, Run};
use crate::error::{EXIT_REFUSED, Error, complain, tell};
use crate::launch;
use crate::launch::segment::Segment;
use crate::output::{self, Output};
use crate::report;
use crate::statistics::Totals;
use clap::Args;
use hinterland_abi::profile::{PROFILE_MAGIC, PROFILE_VERSION, Profile};
use hinterland_units::{Budget, Foreign};
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// `hinterland profile`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ProfileArgs {
    /// Where the profile goes; what is there is replaced when the program has ended
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// A trace of the program, as `hinterland trace` writes it: features of its pages, misses by local memory and advice go into the profile, too, which
    /// `hinterland advise` then takes. Without a program, they are all that is in it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    settings: Flags<Run>,
    /// The program and its arguments
    #[arg(required_unless_present = "trace", trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  hinterland profile -o app.prof --local 512M -- ./app
  hinterland report app.prof
  hinterland report app.prof --by site --flame app.svg
  hinterland plan app.prof -o app.plan
  hinterland trace -o app.trace -- ./app
  hinterland profile --trace app.trace -o app.prof
  hinterland advise app.prof --slowdown 1.2

The program is unmodified and runs as with `hinterland run`, whose flags it takes; all processes of the run are in the profile. Names \
come from debug information where there is some (-g), else from symbols. A small budget shows more waiting than a large one.

Exit code: the program's own, as for `hinterland run`; 125 also when the profile could not be written.";

/// A profile that a run is to leave.
pub struct Profiling {
    shown: PathBuf,
    /// What a trace says.
    pages: Option<Value>,
    /// The files that say it.
    read: Vec<PathBuf>,
}

/// Runs a program and takes its profile.
pub fn run(args: ProfileArgs) -> ExitCode {
    let refused = |why: String| {
        complain(why);
        ExitCode::from(EXIT_REFUSED)
    };
    if let (true, Some(flag)) = (args.program.is_empty(), args.settings.words().first()) {
        return refused(format!("{flag} is about a run: name the program, or leave it out"));
    }
    let pages = match args.trace.as_deref().map(pages_of).transpose() {
        Ok(pages) => pages,
        Err(why) => return refused(why),
    };
    // `--trace` may name a profile, which names its trace.
    let named = pages.as_ref().and_then(|pages| pages["trace"].as_str()).map(PathBuf::from);
    let read: Vec<PathBuf> = args.trace.iter().cloned().chain(named).collect();
    if let Some(pages) = pages.as_ref().filter(|_| args.program.is_empty()) {
        return ended(write_pages(&args.output, pages.clone(), &read));
    }
    let profiling = Profiling { shown: args.output, pages, read };
    launch::run_and_profile(&RunArgs { settings: args.settings, program: args.program }, &profiling)
}

/// Writes a profile of a program that is not run.
fn write_pages(path: &Path, pages: Value, read: &[PathBuf]) -> Result<(), Refusal> {
    if read.iter().any(|file| output::is_same(path, file)) {
        return Err(Refusal::Own { flag: "-o", path: path.into() });
    }
    let refuse = |source: io::Error| Refusal::Output { flag: "-o", path: path.into(), source };
    let text = serde_json::to_string(&ProfileFile::of_pages(pages)).map_err(|error| refuse(error.into()))?;
    output::write(path, refuse, |out| out.write_all(text.as_bytes()).map_err(refuse))
}

impl Profiling {
    /// Sets a run up for it.
    pub fn settle(&self, config: &mut RunConfig) {
        config.allow_unmanaged = false;
        // A run that is recorded for a tape shows the tracer's waits.
        config.cached_run = None;
        config.read.extend(self.read.iter().map(|file| ("what --trace reads", file.clone())));
    }

    /// Where it goes, as the user wrote it.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Makes what the library fills, and looks whether the file can be written; `program`: the program's file.
    ///
    /// # Errors
    /// It cannot; or there is no memory.
    pub fn begin(&self, program: &Path) -> Result<Taken, Error> {
        let output = Output::open(&self.shown).map_err(|source| Error::Trace { path: self.shown.clone(), source })?;
        // SAFETY: a profile consists of atomics.
        let segment: Segment<Profile> =
            unsafe { Segment::create(c"hinterland-profile", "cannot set up the shared memory for the profile") }?;
        segment.get().version.store(PROFILE_VERSION, Relaxed);
        segment.get().magic.store(PROFILE_MAGIC, Release);
        Ok(Taken { shown: self.shown.clone(), program: program.into(), output, segment, pages: self.pages.clone() })
    }
}

/// A profile that is being taken.
pub struct Taken {
    shown: PathBuf,
    program: PathBuf,
    output: Output,
    segment: Segment<Profile>,
    pages: Option<Value>,
}

impl Taken {
    /// The path by which processes of the run open it.
    pub fn path(&self) -> String {
        self.segment.path()
    }

    /// Its file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.segment.fd().as_fd()
    }

    /// The run has ended: writes the file.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(self, run: &report::Run, totals: &Totals, quiet: bool) -> Result<(), Error> {
        let Taken { shown, program, output, segment, pages } = self;
        let profile = segment.get();
        let local_bytes = match run.budget {
            Some(Budget::Bytes(bytes)) => Some(bytes.0),
            _ => None,
        };
        let wall_ns = u64::try_from(run.program_wall.as_nanos()).unwrap_or(u64::MAX);
        let counters = &totals.counters;
        let waits = Waits {
            faults: totals.histograms.fault_ns.iter().sum(),
            fetches: counters.major_faults,
            first_touches: counters.first_touch_faults,
            wait_ns: counters.stall_ns,
        };
        let facts = RunFacts { name: run.program.clone(), path: &program, wall_ns, local_bytes, waits };
        let mut file = aggregate(profile, &facts);
        file.others.extend(pages.map(|pages| (PAGES.to_owned(), pages)));
        let refuse = |source| Error::Trace { path: shown.clone(), source };
        let text = serde_json::to_string(&file).map_err(|error| refuse(error.into()))?;
        output.write(refuse, |out| out.write_all(text.as_bytes()).map_err(refuse))?;
        let shown = shown.display().to_string();
        let shown = Foreign(&shown);
        let error = profile.error.get();
        if !error.is_empty() {
            complain(format_args!("{shown}: a process of the run is not in the profile: {error}"));
        } else if profile.begun.load(Relaxed) == 0 {
            complain(format_args!("{shown}: the profile is empty: no process of the run was managed"));
        }
        if !quiet {
            let (functions, sites) = (file.functions.len(), file.sites.len());
            tell(format_args!("  {:<14} {functions} functions, {sites} allocation sites: {shown}\n", "profile"));
        }
        Ok(())
    }
}
