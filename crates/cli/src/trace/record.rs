//! Recording: `hinterland run` with a tracer in the library.

use crate::args::RunArgs;
use crate::config::RunConfig;
use crate::config::flags::{Flags, Traced};
use crate::error::{EXIT_REFUSED, Error, complain};
use crate::figures::Totals;
use crate::launch;
use crate::output;
use clap::Args;
use hinterland_abi::{EnvError, FaultPathName, PrefetchName, TraceRow, parse_microset, variables};
use hinterland_units::{ByteCount, Foreign};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

/// What is recorded, and how the program runs meanwhile.
#[derive(Args)]
pub struct RecordArgs {
    /// Where the trace goes; what is there is replaced, but not the program or a file that it is given
    #[arg(long, short, value_name = "FILE", required = true)]
    output: Option<PathBuf>,
    #[command(flatten)]
    settings: Flags<Traced>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM [ARGS]")]
    program: Vec<OsString>,
}

/// A trace that a run is to record.
pub struct Recording {
    path: PathBuf,
    /// As the user wrote it.
    shown: PathBuf,
    microset_pages: Option<u32>,
    /// The user asked for a trace, and for nothing that would have none.
    is_asked_for: bool,
}

/// Runs a program and records its trace.
pub fn run(args: RecordArgs) -> ExitCode {
    match recording(&args) {
        Ok(recording) => launch::run_and_record(&run_args(args), &recording),
        Err(error) => {
            complain(&error);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

fn recording(args: &RecordArgs) -> Result<Recording, Error> {
    let shown = args.output.clone().unwrap_or_default();
    // The program may change its directory before it calls exec.
    let path = std::path::absolute(&shown).map_err(|source| Error::Trace { path: shown.clone(), source })?;
    let refuse = |why: EnvError| Error::Setting { origin: "--microset".into(), why: why.to_string() };
    let microset_pages = args.settings.value(variables::MICROSET).map(parse_microset).transpose().map_err(refuse)?;
    Ok(Recording { path, shown, microset_pages, is_asked_for: true })
}

fn run_args(args: RecordArgs) -> RunArgs {
    RunArgs { settings: args.settings.of(), program: args.program }
}

impl Recording {
    /// One for later runs with `--tape auto`; the file is there.
    pub fn to_be_kept(path: PathBuf) -> Recording {
        Recording { shown: path.clone(), path, microset_pages: None, is_asked_for: false }
    }

    /// Sets a run up for it.
    pub fn settle(&self, config: &mut RunConfig) {
        config.settings.trace = self.path.to_string_lossy().into_owned();
        config.settings.microset_pages = self.microset_pages;
        config.settings.fault_path = FaultPathName::Monitor;
        config.settings.prefetch = PrefetchName::None;
        config.allow_unmanaged &= !self.is_asked_for;
    }

    /// Where it goes, as the user wrote it.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Empties the file before the program runs, so that a wrong path is refused now.
    ///
    /// # Errors
    /// It cannot be written, or its name not be handed over.
    pub fn begin(&self) -> Result<(), Error> {
        let refuse = |source| Error::Trace { path: self.shown.clone(), source };
        if self.path.to_str().is_none() {
            return Err(refuse(std::io::Error::other("the path is not UTF-8")));
        }
        output::empty(&self.path).map_err(refuse)
    }

    /// Tells what was recorded.
    pub fn say(&self, row: &TraceRow, totals: &Totals, quiet: bool) {
        let (references, microsets) = (row.references.load(Relaxed), row.microsets.load(Relaxed));
        let shown = self.shown.display().to_string();
        let shown = Foreign(&shown);
        let error = row.error.get();
        if !error.is_empty() {
            complain(format_args!(
                "{shown}: {error}; the program went on without being traced, and the file holds the {references} references \
                 that were written until then"
            ));
        } else if row.pid.load(Relaxed) == 0 {
            complain(format_args!("{shown}: nothing was recorded: the program was not managed"));
        } else if row.closed.load(Relaxed) == 0 {
            complain(format_args!(
                "{shown}: the program did not exit normally; the file holds the {references} references that were written until then"
            ));
        }
        if !quiet {
            let size = ByteCount(row.bytes.load(Relaxed));
            eprintln!("  {:<14} {references} references in {microsets} microsets, {size}: {shown}", "trace");
            let others = totals.processes_beside(row.pid.load(Relaxed));
            if others > 0 {
                let are = if others == 1 { "process of the run is" } else { "processes of the run are" };
                let instead = "trace the program itself, or use `exec` in the shell";
                eprintln!("  {:<14} {others} other {are} not in the trace ({instead})", "");
            }
        }
    }
}
