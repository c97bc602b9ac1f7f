//! `--tape auto` (AUTO of 3PO, Table 1): a run for which there is no tape is recorded, and later runs of the same program with the same
//! arguments follow tapes that are planned from that trace, for whatever local memory they have.
//!
//! ```text
//!   key of the run ──► KEY.json: is the trace of these files? ──yes──► KEY-PAGES.tape, or planned now from KEY.trace ──► followed
//!                                └──no──► this run is recorded; when the program has ended in order: KEY.trace, then KEY.json
//! ```
//!
//! All processes are recorded, and the trace of the one that held the most is kept: so a program behind `sh -c` or `make` has a tape, too. It is
//! followed by the processes of a run that are that program with those arguments. The trace says which files with code were mapped when it
//! began and when it ended; when one of them has changed, it is of no use. Whatever is wrong with the folder, or with what lies in it, costs
//! the tape and a message, and nothing else.

mod folder;
mod key;

use crate::config::RunConfig;
use crate::error::complain;
use crate::launch::can_monitor;
use crate::launch::tape::CheckedTape;
use crate::program;
use crate::statistics::Totals;
use crate::tape::RunTrace;
use crate::trace::Recording;
use crate::trace::folder::paths as traces;
use folder::{BYTES_MAX, Folder, NewFolder};
use hinterland_abi::{FaultPathName, Settings, TraceRow};
use hinterland_tape::plan;
use hinterland_tape::{Head, Trace};
use hinterland_units::{ByteCount, Foreign, PAGE_BYTES};
use key::{Key, identity};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the cache has for a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachedRun {
    key: Key,
    folder: Folder,
    /// A trace of it, and what is known of that.
    description: Option<Description>,
}

/// What stands in KEY.json.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Description {
    /// The text of the key.
    key: String,
    /// Different pages in the trace.
    peak_pages: u64,
    /// Files with code that were mapped when recording began, and their identities.
    objects: Vec<(String, String)>,
    /// Those that the program had opened when it ended.
    opened: Vec<(String, String)>,
}

/// Parts of the recorded peak for which there is a tape each.
const SIZES: u64 = 100;

/// The size that a tape is planned for where a program has so many pages: with all that it touched it needs no more, and below it is a whole number of
/// hundredths of that. So runs whose local memory differs by little have the same tape.
fn planned_size(local_pages: u64, peak_pages: u64) -> u64 {
    let step = (peak_pages / SIZES).max(1);
    match local_pages {
        all if all >= peak_pages => peak_pages,
        little if little < step => little,
        some => some / step * step,
    }
}

/// References in a plan, several for each of the trace, that are planned for at the start of a run at most.
const STEPS_MAX: u64 = 16 << 20;
/// For each reference of the trace; a trace that is long by itself is planned.
const STEPS_EACH_MAX: u64 = 8;

/// Whether the plan of a trace has too many references for the start of a run.
fn is_too_mixed(references: u64, steps: u64) -> bool {
    steps > STEPS_MAX && steps > STEPS_EACH_MAX * references
}

/// Why there is no tape.
enum Unplanned {
    /// The trace is of no use.
    Useless(String),
    /// It takes too long.
    TooMixed(String),
}

/// Says something of `--tape auto`.
fn say(what: impl std::fmt::Display) {
    complain(format_args!("--tape auto: {what}"));
}

impl CachedRun {
    /// Looks for a trace of a run. `None`, with a message: nothing can be kept here, or the program is not there.
    pub fn look_up(
        program: &[OsString],
        settings: &Settings,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Option<CachedRun> {
        let name = program.first()?;
        // What cannot be found is refused when it is to be started.
        let file = program::find(name, &std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into())).ok()?;
        let nothing = |why: String| say(format_args!("{why}; nothing is recorded, and no tape is followed"));
        let key = Key::of(&file, &program[1..], settings, env);
        let key = key.map_err(|error| nothing(format!("{}: {error}", file.display()))).ok()?;
        let folder = Folder::open(env).map_err(nothing).ok()?;
        let mut cached = CachedRun { key, folder, description: None };
        cached.description = cached.read().unwrap_or_else(|why| {
            say(format_args!("{why}: the program is recorded anew"));
            None
        });
        Some(cached)
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.path(&format!("{}{ending}", self.key.name))
    }

    /// The description of a trace that is of use.
    fn read(&self) -> Result<Option<Description>, String> {
        let path = self.path(".json");
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        let description: Description =
            serde_json::from_slice(&bytes).map_err(|_| format!("{} is damaged", path.display()))?;
        if description.key != self.key.text {
            return Err(format!("{} is of another run", path.display()));
        }
        let now = |object: &String| identity(Path::new(object)).ok();
        let mut linked = description.objects.iter().filter(|(object, was)| now(object).as_ref() != Some(was));
        // Programs unpack libraries under names of one run: what is not there any more does not count.
        let mut opened = description.opened.iter().filter(|(object, was)| now(object).is_some_and(|now| now != *was));
        match linked.next().or_else(|| opened.next()) {
            Some((object, _)) => Err(format!("{} has changed since the program was recorded", Foreign(object))),
            None => Ok(Some(description)),
        }
    }

    /// All that the program touched when it was recorded, and the trace that says so; `None`: it was not.
    pub fn recorded_peak(&self) -> Option<(ByteCount, PathBuf)> {
        let description = self.description.as_ref()?;
        Some((ByteCount(description.peak_pages.saturating_mul(PAGE_BYTES as u64)), self.path(".trace")))
    }

    /// The tape for so much local memory, which is planned if there is none yet, and where it comes from. `None`: the program is to be
    /// recorded.
    pub fn tape(&mut self, local: ByteCount) -> Option<(CheckedTape, String)> {
        let local_pages = planned_size(local.0 / PAGE_BYTES as u64, self.description.as_ref()?.peak_pages);
        let path = self.path(&format!("-{local_pages}.tape"));
        let kept = if path.exists() { CheckedTape::read(&path).map_err(say).ok() } else { None };
        if let Some(tape) = kept {
            self.folder.used(&self.key.name, &path);
            return Some((tape, format!("kept in {}", path.display())));
        }
        let begun = Instant::now();
        match self.plan(local_pages) {
            Ok(bytes) => {
                if let Err(error) = self.folder.keep_tape(&self.key.name, &path, &bytes, BYTES_MAX) {
                    say(format_args!("{}: {error}; the tape is followed, and not kept", path.display()));
                }
                self.folder.used(&self.key.name, &path);
                let tape = CheckedTape::of(&path, bytes).map_err(say).ok()?;
                let took = begun.elapsed().as_secs_f64();
                Some((tape, format!("planned in {took:.1} s from {}", self.path(".trace").display())))
            }
            Err(Unplanned::TooMixed(why)) => {
                say(why);
                None
            }
            Err(Unplanned::Useless(why)) => {
                say(format_args!("{why}: the program is recorded anew"));
                self.description = None;
                None
            }
        }
    }

    fn plan(&self, local_pages: u64) -> Result<Vec<u8>, Unplanned> {
        let path = self.path(".trace");
        let trace = RunTrace::read(&path).map_err(Unplanned::Useless)?;
        let (references, steps) = (trace.recording.references(), trace.recording.steps());
        if is_too_mixed(references, steps) {
            return Err(Unplanned::TooMixed(format!(
                "the threads of this program take turns so often that its {references} references are {steps} in the plan, \
                 too many to plan for at the start of a run; no tape is followed (hinterland tape {} plans one)",
                path.display()
            )));
        }
        trace.plan(local_pages).map(|(bytes, _)| bytes).map_err(Unplanned::Useless)
    }

    /// Prepares the recording of a run for which there is no trace; `None`, with a message: it cannot be recorded.
    pub fn begin(&self, config: &RunConfig) -> Option<InProgress> {
        if self.description.is_some() {
            return None;
        }
        let unrecorded = |why: String| say(format_args!("{why}; no tape yet, and this run is not recorded"));
        if config.settings.fault_path == FaultPathName::Inline {
            unrecorded("programs are recorded on the monitor path, and --fault-path inline forbids it".into());
            return None;
        }
        can_monitor(config.features).map_err(|error| unrecorded(error.to_string())).ok()?;
        // What there is of this key is of no use.
        self.folder.remove(&self.key.name);
        let Some(room) = self.folder.room_to_record(BYTES_MAX) else {
            unrecorded("runs that are being recorded leave too little room for the trace of another one".into());
            return None;
        };
        let place = self.folder.begin_folder().map_err(|error| unrecorded(error.to_string())).ok()?;
        let recording = Recording::to_be_kept(place.path().to_path_buf(), room);
        Some(InProgress { place, recording })
    }

    /// The program has ended: its trace is kept if it is whole. Returns the message about it.
    pub fn finish(&self, run: InProgress, row: &TraceRow, totals: &Totals, wall: Duration) -> Option<String> {
        match self.keep(run, row, totals) {
            Ok((references, bytes)) => {
                let faults = Duration::from_nanos(totals.counters.stall_ns);
                Some(format!(
                    "{references} references were recorded for later runs ({}); the tracer's faults took {:.1} s of {:.1} s",
                    ByteCount(bytes),
                    faults.as_secs_f64(),
                    wall.as_secs_f64()
                ))
            }
            Err(why) => {
                say(format_args!("the trace of this run is not kept: {why}"));
                None
            }
        }
    }

    fn keep(&self, run: InProgress, row: &TraceRow, totals: &Totals) -> Result<(u64, u64), String> {
        let error = row.error.get();
        if !error.is_empty() {
            return Err(error);
        }
        let Some(principal) = totals.principal().filter(|_| row.begun.load(Relaxed) > 0) else {
            return Err("the program was not managed".into());
        };
        if row.closed.load(Relaxed) == 0 {
            return Err("the program did not exit normally".into());
        }
        let refuse = |error: &dyn std::fmt::Display| error.to_string();
        let unrecorded = |why: &str| format!("most memory was that of {}, {why}", Foreign(&principal.program));
        // Of the programs that a process has called exec for, the last one has closed its trace.
        let WholeTrace { path, bytes, opened } = whole_trace(run.place.path(), principal.pid)
            .map_err(|error| refuse(&error))?
            .ok_or_else(|| unrecorded("which was forked, or did not exit normally"))?;
        let length = bytes.len() as u64;
        let trace = Trace::open(&bytes).map_err(|error| refuse(&error))?;
        let recording = plan::Recording::read(&trace, None).map_err(|error| refuse(&error))?;
        let description = self.describe(trace.head(), &opened, recording.pages())?;
        let failed = |error: std::io::Error| format!("{}: {error}", self.path(".trace").display());
        self.folder.remove(&self.key.name);
        self.folder.make_room_for_trace(&self.key.name, BYTES_MAX);
        self.folder.take(&path, &format!("{}.trace", self.key.name)).map_err(failed)?;
        let json = serde_json::to_vec_pretty(&description).map_err(|error| refuse(&error))?;
        self.folder.write(&format!("{}.json", self.key.name), &json).map_err(failed)?;
        Ok((recording.references(), length))
    }

    fn describe(&self, head: &Head, opened: &[String], peak_pages: u64) -> Result<Description, String> {
        let of = |path: &String| match identity(Path::new(path)) {
            Ok(id) => Ok((path.clone(), id)),
            Err(error) => Err(format!("{}: {error}", Foreign(path))),
        };
        let objects = head.objects.iter().map(of).collect::<Result<_, _>>()?;
        // Its identity is that of what the program did not run.
        if let Some(changed) = head.objects.iter().find(|path| has_changed_since(head, Path::new(path))) {
            return Err(format!("{} has changed while the program was recorded", Foreign(changed)));
        }
        // What a program compiles while it runs lies in files without a name, or that are gone.
        let opened = opened.iter().filter(|path| Path::new(path).is_file()).filter_map(|path| of(path).ok()).collect();
        Ok(Description { key: self.key.text.clone(), peak_pages, objects, opened })
    }
}

/// Whether a file, or what lies in its place, was changed since the trace was begun.
fn has_changed_since(head: &Head, path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return true };
    let changed = u64::try_from(found.ctime()).ok().zip(u32::try_from(found.ctime_nsec()).ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The clock of a file server may be ahead.
    let recorded = Duration::new(head.begun_unix_s, head.begun_ns)..=now;
    changed.is_some_and(|(seconds, nanoseconds)| recorded.contains(&Duration::new(seconds, nanoseconds)))
}

/// A run that is being recorded. Where it is dropped, nothing is left of it.
pub struct InProgress {
    place: NewFolder,
    /// How it is recorded.
    pub recording: Recording,
}

/// A trace that its process has closed.
struct WholeTrace {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Files with code that the process had opened when it closed it.
    opened: Vec<String>,
}

/// The trace of a process that has closed it, and was not forked into its program.
fn whole_trace(folder: &Path, pid: i32) -> std::io::Result<Option<WholeTrace>> {
    let names = [format!("{pid}.trace"), format!("{pid}-")];
    for path in traces(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != names[0] && !name.starts_with(&names[1]) {
            continue;
        }
        let bytes = fs::read(&path)?;
        let Ok(trace) = Trace::open(&bytes) else { continue };
        let mut references = trace.references();
        if !trace.head().is_forked && references.by_ref().all(|reference| reference.is_ok()) && references.is_whole() {
            let opened = references.opened().to_vec();
            return Ok(Some(WholeTrace { path, bytes, opened }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_traces_of_threads_that_take_turns_are_too_long_for_the_start_of_a_run() {
        assert!(is_too_mixed(3 << 20, 30 << 20));
        assert!(!is_too_mixed(1 << 30, 2 << 30), "one that is long by itself");
        assert!(!is_too_mixed(1_000, 16_000), "a short one");
    }

    #[test]
    fn sizes_that_differ_by_little_have_the_same_tape() {
        assert_eq!(
            [10_000, 10_001, u64::MAX].map(|local| planned_size(local, 10_000)),
            [10_000; 3],
            "all that it touched"
        );
        assert_eq!([9_999, 5_099, 5_000, 100].map(|local| planned_size(local, 10_000)), [9_900, 5_000, 5_000, 100]);
        assert_eq!([99, 1].map(|local| planned_size(local, 10_000)), [99, 1], "never none");
        assert_eq!([7, 40].map(|local| planned_size(local, 50)), [7, 40], "a page at least");
    }

    #[test]
    fn a_file_with_code_that_has_changed_while_the_program_was_recorded_is_named() {
        let home = tempfile::tempdir().unwrap();
        let library = home.path().join("library").display().to_string();
        fs::write(&library, "code").unwrap();
        let folder = Folder::open(&|name| (name == "HOME").then(|| home.path().display().to_string())).unwrap();
        let key = Key { text: "a run".into(), name: "0".into() };
        let run = CachedRun { key, folder, description: None };
        let describe = |begun_unix_s| {
            let head = Head { begun_unix_s, objects: vec![library.clone()], ..Head::default() };
            run.describe(&head, &[], 1).map(|description| description.objects.len())
        };
        let hour = Duration::from_secs(3600);
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(describe(seconds(SystemTime::now() + hour)), Ok(1));
        let said = format!("{library} has changed while the program was recorded");
        assert_eq!(describe(seconds(SystemTime::now() - hour)), Err(said));
    }
}
