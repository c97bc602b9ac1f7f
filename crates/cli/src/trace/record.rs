//! Recording: `hinterland run` with a tracer in the library, which writes a trace of one process, or into a folder one of each.

use super::folder;
use crate::args::RunArgs;
use crate::config::RunConfig;
use crate::config::flags::{Flags, Traced};
use crate::error::{EXIT_REFUSED, Error, complain, tell};
use crate::launch;
use crate::output;
use crate::statistics::Totals;
use clap::Args;
use hinterland_abi::{EnvError, FaultPathName, PrefetchName, TRACES_MAX, TraceRow, parse_microset, variables};
use hinterland_tape::Trace;
use hinterland_units::{ByteCount, Foreign};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

/// What is recorded, and how the program runs meanwhile.
#[derive(Args)]
pub struct RecordArgs {
    /// Where the trace goes; what is there is replaced, but not the program or a file that it is given. A folder (FOLDER/) gets a trace of
    /// each process, and must have none
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
    /// It is a folder, for a trace of each process.
    is_folder: bool,
    /// Bytes that all traces may take; 0: no bound.
    bytes_max: u64,
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
    let is_folder = shown.as_os_str().as_bytes().ends_with(b"/") || shown.is_dir();
    Ok(Recording { path, shown, microset_pages, is_folder, bytes_max: 0, is_asked_for: true })
}

fn run_args(args: RecordArgs) -> RunArgs {
    RunArgs { settings: args.settings.of(), program: args.program }
}

impl Recording {
    /// Those of a run for later ones with `--tape auto`: into a folder that is there, `bytes_max` at most. What is forked is not recorded.
    pub fn to_be_kept(path: PathBuf, bytes_max: u64) -> Recording {
        Recording { shown: path.clone(), path, microset_pages: None, is_folder: true, bytes_max, is_asked_for: false }
    }

    /// Sets a run up for it.
    pub fn settle(&self, config: &mut RunConfig) {
        config.settings.trace = self.path.to_string_lossy().into_owned();
        if self.is_folder && !config.settings.trace.ends_with('/') {
            config.settings.trace.push('/');
        }
        config.settings.microset_pages = self.microset_pages;
        config.settings.fault_path = FaultPathName::Monitor;
        config.settings.prefetch = PrefetchName::None;
        config.allow_unmanaged &= !self.is_asked_for;
    }

    /// Where it goes, as the user wrote it.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Empties the file before the program runs, or makes the folder, so that a wrong path is refused now.
    ///
    /// # Errors
    /// It cannot be written, or its name not be handed over.
    pub fn begin(&self) -> Result<(), Error> {
        let refuse = |source| Error::Trace { path: self.shown.clone(), source };
        if self.path.to_str().is_none() {
            return Err(refuse(std::io::Error::other("the path is not UTF-8")));
        }
        if !self.is_folder {
            return output::empty(&self.path).map_err(refuse);
        }
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refuse(error)),
            _ => {}
        }
        if folder::paths(&self.path).map_err(refuse)?.is_empty() {
            return Ok(());
        }
        Err(refuse(std::io::Error::other("it has traces of another run; name another folder, or remove them")))
    }

    /// What the run's processes are to know before they start.
    pub fn tell(&self, row: &TraceRow) {
        row.with_forked.store(self.is_asked_for.into(), Relaxed);
        row.bytes_max.store(self.bytes_max, Relaxed);
    }

    /// Tells what was recorded.
    pub fn say(&self, row: &TraceRow, totals: &Totals, quiet: bool) {
        let (references, microsets) = (row.references.load(Relaxed), row.microsets.load(Relaxed));
        let shown = self.shown.display().to_string();
        let shown = Foreign(&shown);
        let error = row.error.get();
        if self.is_folder {
            return self.say_of_all(row, totals, quiet);
        }
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
            tell(format_args!("  {:<14} {references} references in {microsets} microsets, {size}: {shown}\n", "trace"));
            let others = totals.processes_beside(row.pid.load(Relaxed));
            if others > 0 {
                let are = if others == 1 { "process of the run is" } else { "processes of the run are" };
                let which = programs(totals, row.pid.load(Relaxed));
                let instead = "`-o FOLDER/` records each";
                tell(format_args!("  {:<14} {others} other {are} not in the trace{which}: {instead}\n", ""));
            }
        }
    }

    /// Tells what was recorded of all processes.
    fn say_of_all(&self, row: &TraceRow, totals: &Totals, quiet: bool) {
        let shown = self.shown.display().to_string();
        let shown = Foreign(&shown);
        let [begun, closed, failed, beyond] =
            [&row.begun, &row.closed, &row.failed, &row.beyond].map(|of| of.load(Relaxed));
        if failed > 0 {
            complain(format_args!(
                "{shown}: {failed} traces were not written to their end; the first: {}",
                row.error.get()
            ));
        }
        if beyond > 0 {
            complain(format_args!(
                "{shown}: {beyond} programs were not recorded: a run has {TRACES_MAX} traces at most"
            ));
        }
        if begun == 0 {
            complain(format_args!("{shown}: nothing was recorded: no process of the run was managed"));
        }
        if quiet {
            return;
        }
        let (references, size) = (row.references.load(Relaxed), ByteCount(row.bytes.load(Relaxed)));
        let open = begun.saturating_sub(closed);
        let open = if open > 0 {
            format!(", {open} of them not closed (killed, or another program since)")
        } else {
            String::new()
        };
        tell(format_args!("  {:<14} {begun} with {references} references, {size}: {shown}{open}\n", "traces"));
        if let Some(largest) = totals.principal() {
            let file = largest_trace(&self.shown, largest.pid, &largest.program);
            let file = file.map_or(String::new(), |file| format!(": {}", Foreign(&file.display().to_string())));
            tell(format_args!(
                "  {:<14} most memory was that of {}, process {}{file}\n",
                "",
                Foreign(&largest.program),
                largest.pid
            ));
        }
    }
}

/// The largest trace of a process in a folder while it was that program; where it calls exec, each program has a trace of its own.
fn largest_trace(folder: &Path, pid: i32, program: &str) -> Option<PathBuf> {
    /// Holds the head of any trace.
    const HEAD_BYTES_MAX: u64 = 2 << 20;
    let pid = pid.to_string();
    let is_of = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_named = name.strip_prefix(&pid).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        let head = || {
            let mut head = Vec::new();
            File::open(path)?.take(HEAD_BYTES_MAX).read_to_end(&mut head).map(|_| head)
        };
        is_named && head().is_ok_and(|head| Trace::open(&head).is_ok_and(|trace| trace.head().program == program))
    };
    let of_program = folder::paths(folder).ok()?.into_iter().filter(is_of);
    of_program.max_by_key(|path| fs::metadata(path).map_or(0, |file| file.len()))
}

/// The programs of the processes beside `pid` that held the most, in brackets.
fn programs(totals: &Totals, pid: i32) -> String {
    /// Programs that are named.
    const NAMED_MAX: usize = 3;
    let mut rows: Vec<_> = totals.processes.iter().filter(|row| row.pid != pid && !row.program.is_empty()).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.peak.managed_bytes));
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(&row.program));
    let name = |program: &str| Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named: Vec<String> = rows.iter().take(NAMED_MAX).map(|row| Foreign(&name(&row.program)).to_string()).collect();
    let more = if rows.len() > NAMED_MAX { " …" } else { "" };
    if named.is_empty() { String::new() } else { format!(" ({}{more})", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_tape::{Head, Writer};

    #[test]
    fn of_a_process_that_called_exec_the_trace_of_the_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for (name, program) in [("7.trace", "/bin/sh"), ("7-2.trace", "/bin/app"), ("71.trace", "/bin/app")] {
            let head = Head { program: program.into(), ..Head::default() };
            let mut writer = Writer::new(Vec::new(), &head).unwrap();
            writer.finish().unwrap();
            fs::write(folder.path().join(name), writer.sink()).unwrap();
        }
        let named = |pid: i32, program: &str| {
            let path = largest_trace(folder.path(), pid, program)?;
            Some(path.file_name().unwrap().to_string_lossy().into_owned())
        };
        assert_eq!(named(7, "/bin/app").as_deref(), Some("7-2.trace"));
        assert_eq!(named(7, "/bin/sh").as_deref(), Some("7.trace"));
        assert_eq!([named(7, "/bin/other"), named(8, "/bin/app")], [None, None]);
    }
}
