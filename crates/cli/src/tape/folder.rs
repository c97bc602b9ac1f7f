//! Folders: of the traces of a run's processes, a tape is planned for each; `hinterland run --tape FOLDER/` has each process follow its own.
//!
//! ```text
//!   TRACES/PID.trace, PID-2.trace … ──► when each process lived, and what it touched ──► its share of --local ──► TAPES/PID.tape, PID-2.tape …
//! ```
//!
//! But for children that another thread than their parent's first has forked: in another run it is not known which these are.

use super::planned::{self, NOT_KNOWN, open};
use super::report::{self, Report};
use super::{OrderArg, PlanArgs, Refusal};
use crate::error::complain;
use crate::print;
use crate::table::table;
use crate::trace::folder as traces;
use hinterland_tape::plan::{self, Life, PlanError};
use hinterland_tape::tape::{Tape, TapeHead};
use hinterland_tape::{Head, Trace};
use hinterland_units::{Budget, ByteCount, Foreign, PAGE_BYTES, PageCount};
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Tapes that are listed for people.
const LISTED_MAX: usize = 32;
/// How the names of tapes end.
const ENDING: &str = "tape";
/// What is wrong with a folder that has none.
pub const WITHOUT_TAPES: &str = "a folder without tapes, whose names would end in .tape; `hinterland tape TRACES/ --local 50% -o TAPES/` plans one for \
                                 each trace of a folder";

/// The files of a folder that are called tapes.
///
/// # Errors
/// It cannot be read.
pub fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    traces::with_ending(folder, ENDING)
}

/// The order of tapes: that in which their traces were begun, as far as it is known. A process that calls exec has begun several, which
/// their names count: `7.tape`, `7-2.tape`, …, `7-10.tape`.
pub fn order<'a>(head: &TapeHead, path: &'a Path) -> (u64, u32, u32, &'a Path) {
    let name = path.file_stem().map(OsStr::to_string_lossy);
    let number = name.as_deref().and_then(|name| name.rsplit_once('-')?.1.parse().ok());
    (head.begun_unix_s, head.process, number.unwrap_or(1), path)
}

/// Plans a tape for each trace of a folder.
pub(super) fn run(args: &PlanArgs) -> Result<(), Refusal> {
    if args.order == Some(OrderArg::Sets) {
        return Err(Refusal::OneTrace);
    }
    if let Some(flag) = args.figures_flag() {
        return Err(Refusal::RunOfFolder(flag));
    }
    let folder = args.traces.first().cloned().unwrap_or_default();
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Refusal::Io { path, source }
    };
    let mut found = traces::paths(&folder).map_err(io(&folder))?;
    if found.is_empty() {
        return Err(Refusal::NoTraces { folder });
    }
    found.sort();
    if let Some(output) = &args.output {
        begin(output).map_err(io(output))?;
    }
    let shares = match args.local {
        Some(Budget::Bytes(local)) => shares(local, &found)?,
        // Each one's own peak divides it already.
        _ => vec![None; found.len()],
    };
    let (mut reports, mut forked, mut untouched) = (Vec::new(), 0, 0);
    for (path, share) in found.iter().zip(shares) {
        match plan_one(args, share, path) {
            Ok(Some(report)) => reports.push(report),
            Ok(None) => forked += 1,
            Err(Refusal::Plan { source: PlanError::Empty, .. }) => untouched += 1,
            // The tape cannot be written, or the trace not be read.
            Err(refusal @ (Refusal::Io { .. } | Refusal::Unread { .. })) => return Err(refusal),
            Err(refusal) => complain(format_args!("{refusal}; there is no tape of it")),
        }
    }
    for (count, why) in [(forked, NOT_KNOWN), (untouched, "without a reference")] {
        if count > 0 {
            complain(format_args!("{}: no tapes of {count} traces, each {why}", folder.display()));
        }
    }
    if reports.is_empty() {
        return Err(Refusal::NonePlanned { folder });
    }
    reports.sort_by(|one, other| (other.pages, &one.trace).cmp(&(one.pages, &other.trace)));
    let written = match args.json {
        true => print::json(&(serde_json::to_string_pretty(&reports)? + "\n")),
        false => print::text(&planned_text(&reports)),
    };
    written.map(drop).map_err(Refusal::Output)
}

/// Makes the folder for tapes, which has none.
fn begin(output: &Path) -> io::Result<()> {
    match fs::create_dir(output) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if paths(output)?.is_empty() {
        return Ok(());
    }
    Err(io::Error::other("it has tapes of another run; name another folder, or remove them"))
}

/// The bytes of a trace. One is in memory at a time, though each is read twice: all of a build's together may be more than the machine has.
fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    fs::read(path).map_err(|source| Refusal::Unread { path: path.into(), source })
}

/// The pages that each process of a folder has of local memory ([`plan::shares`]), by trace; `None`: all of it, because it is not known when
/// the process lived.
fn shares(local: ByteCount, paths: &[PathBuf]) -> Result<Vec<Option<u64>>, Refusal> {
    let recorded = paths.iter().map(|path| read(path).map(|bytes| Recorded::of(&bytes)));
    let recorded = recorded.collect::<Result<Vec<_>, _>>()?;
    let known: Vec<&Recorded> = recorded.iter().filter(|process| process.is_known).collect();
    if known.len() < recorded.len() {
        let count = recorded.len() - known.len();
        complain(format_args!(
            "of {count} traces it is not known when their processes lived (older ones, imported ones): each is planned for all of --local; record them \
             again for their shares"
        ));
    }
    let lives: Vec<Life> = known.iter().map(|process| process.life(&known)).collect();
    let mut shares = plan::shares(local.0 / PAGE_BYTES as u64, &lives).into_iter();
    Ok(recorded.iter().map(|process| if process.is_known { shares.next() } else { None }).collect())
}

/// What a trace says of its process; of one that cannot be read, nothing.
#[derive(Default)]
struct Recorded {
    /// When it lived is.
    is_known: bool,
    process: u32,
    begun_ns: u64,
    /// 0: its trace was not closed.
    took_ns: u64,
    pages: u64,
}

impl Recorded {
    fn of(bytes: &[u8]) -> Recorded {
        let Ok(trace) = Trace::open(bytes) else { return Recorded::default() };
        let Head { process, begun_unix_s, begun_ns, .. } = *trace.head();
        let mut references = trace.references();
        let pages: HashSet<u64> = references.by_ref().flatten().map(|reference| reference.position()).collect();
        let begun_ns = begun_unix_s.saturating_mul(1_000_000_000).saturating_add(begun_ns.into());
        let took_ns = references.took_ns();
        // Versions 1 to 5 do not say how long it took, and imported ones nothing of the process.
        let is_known = process != 0 && begun_ns > 0 && !(references.is_whole() && took_ns == 0);
        Recorded { is_known, process, begun_ns, took_ns, pages: pages.len() as u64 }
    }

    /// When it was: a program that has not closed its trace may have called exec, after which there is another one; else it may have gone on to
    /// the end of the run.
    fn life(&self, all: &[&Recorded]) -> Life {
        let next = all.iter().filter(|other| other.process == self.process && other.begun_ns > self.begun_ns);
        let ended_ns = match self.took_ns {
            0 => next.map(|next| next.begun_ns).min().unwrap_or(u64::MAX),
            took => self.begun_ns.saturating_add(took),
        };
        Life { begun_ns: self.begun_ns, ended_ns, pages: self.pages }
    }
}

/// The plan of one trace, whose tape is written. `None`: it is of a child that is not known again.
fn plan_one(args: &PlanArgs, share: Option<u64>, path: &Path) -> Result<Option<Report>, Refusal> {
    let bytes = read(path)?;
    let trace = open(path, &bytes)?;
    if !trace.head().forks.is_known() {
        return Ok(None);
    }
    let name = path.with_extension(ENDING);
    let output = args.output.as_ref().zip(name.file_name()).map(|(folder, name)| folder.join(name));
    let args = PlanArgs { output, ..args.clone() };
    let planned = planned::of(&args, share, path.into(), trace)?;
    Ok(Some(report::of(&args, &planned)))
}

fn bytes_of(pages: u64) -> String {
    ByteCount(PageCount(pages).bytes()).to_string()
}

fn planned_text(reports: &[Report]) -> String {
    let mut rows = table(&["tape", "peak", "share", "eviction", "fetched", "in", "out", "slowdown", "program"], 1..8);
    for report in reports.iter().take(LISTED_MAX) {
        let file = report.tape.as_ref().unwrap_or(&report.trace);
        let wanted = &report.wanted;
        rows.add_row([
            Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes_of(report.pages),
            bytes_of(wanted.local_pages),
            wanted.eviction.to_owned(),
            wanted.fetched_pages.to_string(),
            ByteCount(wanted.bytes_in).to_string(),
            ByteCount(wanted.bytes_out).to_string(),
            wanted.slowdown.map_or("–".into(), |slowdown| format!("{slowdown:.2}")),
            forked(&report.forks, &report.program),
        ]);
    }
    format!("{rows}\n{}", more(reports.len()))
}

/// A program, and by which forks the process came from it.
fn forked(forks: &str, program: &str) -> String {
    let program = Foreign(program);
    if forks.is_empty() { program.to_string() } else { format!("fork {forks} of {program}") }
}

fn more(count: usize) -> String {
    match count.saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!("{more} more: --json lists all\n"),
    }
}

/// One tape of a folder.
#[derive(Serialize, Default)]
struct Listed {
    /// Where it is.
    tape: PathBuf,
    /// The traced process; 0: not known.
    process: u32,
    /// The program.
    program: String,
    /// Program and arguments; cut where they are long.
    command: String,
    /// The program's build-id, hexadecimal; empty: none is known, and the name of its file counts.
    build_id: String,
    /// Tells its arguments apart; hexadecimal.
    arguments_digest: String,
    /// By which forks the process came from the program: `2.1` is the first child of its second; empty: by none.
    forks: String,
    /// Local memory that it was planned for, in pages.
    local_pages: u64,
    /// Different pages in the trace.
    peak_pages: u64,
    /// ordered: pages in their order, sets: the sets of phases.
    order: &'static str,
    /// Threads that it is for.
    threads: usize,
    /// Pages to fetch, of all threads.
    fetched_pages: u64,
    /// Bytes of the file.
    bytes: u64,
    /// Why it cannot be used.
    damage: Option<String>,
}

impl Listed {
    fn of(tape: PathBuf) -> io::Result<Listed> {
        let bytes = fs::read(&tape)?;
        let length = bytes.len() as u64;
        let found = match Tape::open(&bytes) {
            Ok(found) => found,
            Err(error) => {
                return Ok(Listed { tape, bytes: length, damage: Some(error.to_string()), ..Listed::default() });
            }
        };
        let head = found.head();
        Ok(Listed {
            tape,
            process: head.process,
            program: head.program.clone(),
            command: head.command.clone(),
            build_id: head.build_id.clone(),
            arguments_digest: format!("{:016x}", head.arguments_digest),
            forks: head.forks.to_string(),
            local_pages: head.local_pages,
            peak_pages: head.peak_pages,
            order: head.order.name(),
            threads: found.threads().len(),
            fetched_pages: found.threads().iter().map(|thread| thread.fetched).sum(),
            bytes: length,
            damage: None,
        })
    }
}

/// Shows what is in a folder of tapes, those of most pages first.
pub(super) fn show(folder: &Path, json: bool) -> Result<(), Refusal> {
    let io = |source| Refusal::Io { path: folder.into(), source };
    let mut tapes =
        paths(folder).map_err(io)?.into_iter().map(Listed::of).collect::<io::Result<Vec<_>>>().map_err(io)?;
    if tapes.is_empty() {
        return Err(Refusal::NoTapes { folder: folder.into() });
    }
    tapes.sort_by(|one, other| (other.peak_pages, &one.tape).cmp(&(one.peak_pages, &other.tape)));
    let written = match json {
        true => print::json(&(serde_json::to_string_pretty(&tapes)? + "\n")),
        false => print::text(&shown_text(&tapes)),
    };
    written.map(drop).map_err(Refusal::Output)
}

fn shown_text(tapes: &[Listed]) -> String {
    let mut rows = table(&["tape", "process", "peak", "local", "threads", "fetched", "size", "order", "command"], 1..7);
    for of in tapes.iter().take(LISTED_MAX) {
        let command = if of.command.is_empty() { &of.program } else { &of.command };
        rows.add_row([
            of.tape.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            of.process.to_string(),
            bytes_of(of.peak_pages),
            bytes_of(of.local_pages),
            of.threads.to_string(),
            of.fetched_pages.to_string(),
            ByteCount(of.bytes).to_string(),
            if of.damage.is_some() { "damaged".to_owned() } else { of.order.to_owned() },
            forked(&of.forks, command),
        ]);
    }
    format!("{rows}\n{}", more(tapes.len()))
}
