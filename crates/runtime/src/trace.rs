//! Where the tracer's records go: files that are written block by block while the program runs.
//!
//! ```text
//!   HINTERLAND_TRACE=FILE      the first process of the run that is managed: the program that the launcher started. When it calls exec, the
//!                              file begins anew, with the new program. No other process is recorded
//!   HINTERLAND_TRACE=FOLDER/   every process: PID.trace; PID-2.trace and so on, where it calls exec, or its number is used again. Children of
//!                              a fork, too, unless the launcher forbids it
//! ```
//!
//! When nothing more can be written (the disk is full, a limit on the length of files, or what all traces of the run may take), the last
//! whole block becomes the end of the file, recording stops and the program goes on.

mod file;

use crate::build_id;
use crate::fork::path;
use crate::ledger;
use crate::mapping::{self, MapRequest};
use crate::tape;
use file::File;
use hinterland_abi::{PROCESSOR_WORDS, Settings, TRACES_MAX, TraceRow};
use hinterland_pager::{DiscardCause, FAR_PAGES, FaultPath, Recorder, Trace};
use hinterland_sys::processors::Processors;
use hinterland_sys::{confinement, mem, thread};
use hinterland_tape::{Cause, Discard, Head, INDEX_MAX, MICROSET_PAGES, Reference, Region, Writer, Written};
use hinterland_units::{ByteCount, PAGE_BYTES, PageNo, cut};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a killed program loses of its trace at most, while it faults.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Programs that a process can call exec for, each with a trace.
const PROGRAMS_MAX: u32 = 64;
/// Bytes of a command that are kept.
const COMMAND_BYTES_MAX: usize = 255;

/// Begins the trace, if there is to be one of this process; keeps the process on one processor.
///
/// One processor, because page tables are changed all the time, and a change is cheap where no other processor has to hear of
/// it; and because threads that take turns are seen one after the other (3PO §3.4).
///
/// # Errors
/// The process cannot be traced, in words.
pub fn begin(settings: &Settings, path: FaultPath) -> Result<Option<Trace>, String> {
    let Some(ledger) = ledger::get().filter(|_| !settings.trace.is_empty()) else { return Ok(None) };
    let row = &ledger.trace;
    let target = TraceTarget::of(&settings.trace);
    if matches!(target, TraceTarget::File(_)) && !take(row) {
        // It may have the processor of the recorded process, from the fork that it came by.
        let recorded = Processors::allowed_to(row.pid.load(Relaxed));
        if recorded.is_some() && recorded == Processors::allowed() {
            let_go(row);
        }
        return Ok(None);
    }
    if path != FaultPath::Monitor {
        return Err("programs are traced on the monitor path only".into());
    }
    let microset_pages = settings.microset_pages.unwrap_or(MICROSET_PAGES);
    match TapeRecorder::begin(target, microset_pages, row) {
        Ok(recorder) => Ok(recorder.map(|recorder| {
            keep_on_one_processor(row);
            Trace { microset_pages, recorder: Box::new(recorder) }
        })),
        // The launcher could write there. The program runs all the same, as when the disk becomes full later.
        Err(error) => {
            failed(row, &error);
            Ok(None)
        }
    }
}

/// Whether this process, or the one that it was forked from, is kept on one processor.
static ON_ONE_PROCESSOR: AtomicBool = AtomicBool::new(false);

/// Keeps this process on the processor where it is. The run's first one says where it could run before: later ones inherit its processor.
fn keep_on_one_processor(row: &TraceRow) {
    if untraced(row).count() == 0 {
        let allowed = Processors::allowed().map_or([0; PROCESSOR_WORDS], |allowed| allowed.words());
        row.processors.iter().zip(allowed).for_each(|(word, bits)| word.store(bits, Relaxed));
    }
    ON_ONE_PROCESSOR.store(thread::run_on(thread::processor()), Relaxed);
}

/// A process that is not recorded runs where it could untraced.
fn let_go(row: &TraceRow) {
    let processors = untraced(row);
    if processors.count() > 0 && processors.keep_to() {
        ON_ONE_PROCESSOR.store(false, Relaxed);
    }
}

/// The processors on which the run's first process could run before it was kept on one. None: nothing is traced.
fn untraced(row: &TraceRow) -> Processors {
    Processors::of(std::array::from_fn(|word| row.processors[word].load(Relaxed)))
}

/// The processors that the program may take for its own, where it is kept on one. A program that makes as many threads as it
/// has processors makes as many as in any other run; otherwise neither its threads nor its memory would be those that the trace is for.
pub fn processors() -> Option<Processors> {
    Some(untraced(&ledger::get().filter(|_| ON_ONE_PROCESSOR.load(Relaxed))?.trace))
}

/// Takes the run's only trace; false: it is another process's. One that calls exec begins it anew.
fn take(row: &TraceRow) -> bool {
    let pid = i32::try_from(thread::process()).unwrap_or(0);
    if row.pid.compare_exchange(0, pid, AcqRel, Acquire).is_err_and(|traced| traced != pid) {
        return false;
    }
    row.error.set("");
    row.begun.store(1, Relaxed);
    [&row.closed, &row.failed].into_iter().for_each(|count| count.store(0, Relaxed));
    [&row.references, &row.microsets, &row.bytes].into_iter().for_each(|count| count.store(0, Relaxed));
    true
}

/// A trace was not begun, or not written to its end.
fn failed(row: &TraceRow, error: &io::Error) {
    if row.failed.fetch_add(1, Relaxed) == 0 {
        row.error.set(&error.to_string());
    }
}

/// Where traces are to be.
enum TraceTarget {
    /// The only trace of the run.
    File(String),
    /// The folder of all of them, with its last `/`.
    Folder(String),
}

impl TraceTarget {
    fn of(setting: &str) -> TraceTarget {
        let is_folder = setting.ends_with('/');
        if is_folder { TraceTarget::Folder(setting.into()) } else { TraceTarget::File(setting.into()) }
    }

    /// The file of this process's trace. `None`: the run has as many as it may have.
    fn open(&self, row: &TraceRow) -> io::Result<Option<File>> {
        let folder = match self {
            TraceTarget::File(path) => return File::create(path).map(Some),
            TraceTarget::Folder(folder) => folder,
        };
        let room = |begun: u32| (begun < TRACES_MAX).then_some(begun + 1);
        if row.begun.fetch_update(Relaxed, Relaxed, room).is_err() {
            row.beyond.fetch_add(1, Relaxed);
            return Ok(None);
        }
        let process = thread::process();
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for program in 1..=PROGRAMS_MAX {
            let more = if program == 1 { String::new() } else { format!("-{program}") };
            match File::create_new(&format!("{folder}{process}{more}.trace")) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                made => return made.map(Some),
            }
        }
        Err(last)
    }
}

/// What a fault on the monitor path costs the thread that it stops, in processor time: the least that touching the pages of a
/// fresh mapping took, some at a time.
pub fn fault_cost() -> Duration {
    /// Pages between two looks at the clock, so that the looks cost little.
    const BATCH_PAGES: usize = 16;
    const BATCHES: usize = 16;
    const BYTES: usize = BATCHES * BATCH_PAGES * PAGE_BYTES;
    let request = MapRequest {
        address: 0,
        bytes: BYTES,
        protection: libc::PROT_READ | libc::PROT_WRITE,
        flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        fd: -1,
        offset: 0,
    };
    let Ok(start) = mapping::map(request, 0) else { return Duration::ZERO };
    let batches = (start..start + BYTES).step_by(BATCH_PAGES * PAGE_BYTES).map(|batch| {
        let begun = thread::cpu_time();
        for page in (batch..).step_by(PAGE_BYTES).take(BATCH_PAGES) {
            // SAFETY: just mapped, for us alone.
            unsafe { mem::touch(page) };
        }
        thread::cpu_time().saturating_sub(begun)
    });
    let least = batches.min().unwrap_or_default();
    // What cannot be unmapped is lost address space, and nothing else.
    let _ = mapping::unmap(start, BYTES);
    least / u32::try_from(BATCH_PAGES).expect("a few")
}

/// Files with code that are mapped. None where no file can be opened any more.
fn mapped_objects() -> Vec<String> {
    let maps = confinement::with_files(|| std::fs::read("/proc/self/maps").unwrap_or_default());
    objects_in(&maps.unwrap_or_default())
}

/// Files with code that /proc/self/maps names, whose format this is. A name that is not UTF-8 is one that is not there.
fn objects_in(maps: &[u8]) -> Vec<String> {
    let maps = String::from_utf8_lossy(maps);
    let code = maps.lines().filter_map(|line| {
        let (_, rest) = line.split_once(' ')?;
        let path = rest.find('/').map(|at| &rest[at..])?;
        rest.get(..4).filter(|rights| rights.contains('x')).map(|_| path.to_owned())
    });
    let mut objects: Vec<String> = code.collect();
    objects.sort_unstable();
    objects.dedup();
    objects
}

fn head(microset_pages: u32, has_intervals: bool, objects: Vec<String>) -> Head {
    let (command, arguments_digest) = tape::command_and_digest();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Not how many this process may use: that is one, when a program that was traced calls exec.
    let processors = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Head {
        origin: concat!("hinterland ", env!("CARGO_PKG_VERSION")).into(),
        program: std::fs::read_link("/proc/self/exe").unwrap_or_default().to_string_lossy().into_owned(),
        arguments_digest,
        page_bytes: u32::try_from(PAGE_BYTES).unwrap_or(0),
        microset_pages,
        has_cpu_times: true,
        machine: format!(
            "{}, Linux {}, processors {}",
            std::env::consts::ARCH,
            kernel.trim_end(),
            processors.trim_end()
        ),
        begun_unix_s: begun.as_secs(),
        begun_ns: begun.subsec_nanos(),
        has_intervals,
        objects,
        process: thread::process(),
        // SAFETY: getppid(2) takes nothing and cannot fail.
        parent: u32::try_from(unsafe { libc::syscall(libc::SYS_getppid) }).unwrap_or(0),
        is_forked: false,
        forks: path::of_process(),
        build_id: build_id::of_program(),
        command: cut(&String::from_utf8_lossy(&command).replace('\0', " "), COMMAND_BYTES_MAX).trim_end().to_owned(),
    }
}

/// Writes what the tracer sees.
struct TapeRecorder {
    target: TraceTarget,
    writer: Writer<File>,
    microset_pages: u32,
    objects: Vec<String>,
    region: u32,
    /// The trace's number of each thread, by kernel id.
    threads: HashMap<u32, u32>,
    begun: Instant,
    flushed: Instant,
    row: &'static TraceRow,
    /// What the row has of this trace: references, microsets, bytes.
    published: [u64; 3],
    is_forked: bool,
}

/// A trace with its region.
fn open(file: File, head: &Head) -> io::Result<(Writer<File>, u32)> {
    let mut writer = Writer::new(file, head)?;
    // The far range begins at the same address in every run: a page's number in it is a position that ASLR does not change.
    let region = writer.region(&Region { name: "far".into(), pages: FAR_PAGES.into() })?;
    Ok((writer, region))
}

impl TapeRecorder {
    fn begin(target: TraceTarget, microset_pages: u32, row: &'static TraceRow) -> io::Result<Option<TapeRecorder>> {
        let Some(file) = target.open(row)? else { return Ok(None) };
        let objects = mapped_objects();
        let (writer, region) = open(file, &head(microset_pages, false, objects.clone()))?;
        let (threads, begun, published) = (HashMap::new(), Instant::now(), [0; 3]);
        let mut recorder = TapeRecorder {
            target,
            writer,
            microset_pages,
            objects,
            region,
            threads,
            begun,
            flushed: begun,
            row,
            published,
            is_forked: false,
        };
        recorder.publish();
        Ok(Some(recorder))
    }

    /// Begins the file anew, with a trace of intervals.
    fn restart(&mut self) -> io::Result<()> {
        let file = std::mem::replace(self.writer.sink(), File::NONE);
        file.empty()?;
        let head = Head { is_forked: self.is_forked, ..head(self.microset_pages, true, self.objects.clone()) };
        (self.writer, self.region) = open(file, &head)?;
        self.begun = Instant::now();
        self.threads.clear();
        Ok(())
    }

    /// Begins a forked child's own trace; false: it has none.
    fn begin_forked(&mut self, has_intervals: bool) -> io::Result<bool> {
        let Some(file) = self.target.open(self.row)? else { return Ok(false) };
        let head = Head { is_forked: true, ..head(self.microset_pages, has_intervals, self.objects.clone()) };
        (self.writer, self.region) = open(file, &head)?;
        self.threads.clear();
        (self.begun, self.published, self.is_forked) = (Instant::now(), [0; 3], true);
        self.flushed = self.begun;
        self.publish();
        Ok(true)
    }

    fn thread(&mut self, id: u32) -> u32 {
        let next = u32::try_from(self.threads.len()).unwrap_or(u32::MAX).min(INDEX_MAX - 1);
        *self.threads.entry(id).or_insert(next)
    }

    /// Adds to the row what was written since the last time; returns the bytes of all traces of the run.
    fn publish(&mut self) -> u64 {
        let now = [self.writer.references_written(), self.writer.microsets_written(), self.writer.whole_bytes()];
        let row = self.row;
        if now != self.published {
            for ((count, now), before) in
                [&row.references, &row.microsets, &row.bytes].into_iter().zip(now).zip(self.published)
            {
                // Less than before, where the trace has begun anew.
                count.fetch_add(now.wrapping_sub(before), Relaxed);
            }
            self.published = now;
        }
        row.bytes.load(Relaxed)
    }

    /// Notes how a write went; false: it was the last.
    fn done(&mut self, outcome: io::Result<()>) -> bool {
        let (all, most) = (self.publish(), self.row.bytes_max.load(Relaxed));
        let outcome = match outcome {
            Ok(()) if most > 0 && all > most => {
                Err(io::Error::other(format!("traces take {} at most", ByteCount(most))))
            }
            outcome => outcome,
        };
        let Err(error) = outcome else { return true };
        failed(self.row, &error);
        let whole = self.writer.whole_bytes();
        self.writer.sink().cut(whole);
        false
    }
}

impl Recorder for TapeRecorder {
    fn touched(&mut self, page: PageNo, thread: u32, cpu_ns: u64, is_first: bool) -> bool {
        let (thread, region) = (self.thread(thread), self.region);
        let touch = Reference { thread, region, page: page.0, cpu_ns, is_first, ..Reference::default() };
        let mut outcome = self.writer.touch(&touch);
        if outcome.is_ok() && self.flushed.elapsed() >= FLUSH_EVERY {
            outcome = self.writer.flush();
            self.flushed = Instant::now();
        }
        self.done(outcome)
    }

    fn discarded(&mut self, first: PageNo, count: u32, cause: DiscardCause) -> bool {
        let cause = match cause {
            DiscardCause::Freed => Cause::Freed,
            DiscardCause::Discarded => Cause::Discarded,
            DiscardCause::Unmapped => Cause::Unmapped,
            DiscardCause::Moved => Cause::Moved,
        };
        let outcome = self.writer.discard(&Discard { region: self.region, page: first.0, pages: count, cause });
        self.done(outcome)
    }

    fn microset_ended(&mut self, written: &[u8]) -> bool {
        let outcome = self.writer.end_microset(Written::Bits(written));
        self.done(outcome)
    }

    fn begin_again(&mut self) -> bool {
        let outcome = self.restart();
        self.done(outcome)
    }

    fn interval_began(&mut self, number: u32) -> bool {
        let outcome = self.writer.begin_interval(number);
        self.done(outcome)
    }

    fn finished(&mut self) {
        self.writer.took(self.begun.elapsed());
        let mut opened = mapped_objects();
        opened.retain(|object| self.objects.binary_search(object).is_err());
        self.writer.opened(opened);
        let outcome = self.writer.finish();
        if self.done(outcome) {
            self.row.closed.fetch_add(1, Relaxed);
        }
    }

    fn begin_child(&mut self, has_intervals: bool) -> bool {
        self.writer.sink().close();
        if matches!(self.target, TraceTarget::File(_)) {
            let_go(self.row);
            return false;
        }
        if self.row.with_forked.load(Relaxed) == 0 {
            return false;
        }
        // A confined process cannot open a file.
        let begun = confinement::with_files(|| self.begin_forked(has_intervals)).unwrap_or(Ok(false));
        begun.unwrap_or_else(|error| {
            failed(self.row, &error);
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_code_are_named_beside_one_whose_name_is_not_utf8() {
        let maps = b"5000-6000 r-xp 00001000 08:01 17    /usr/bin/sort\n\
                     6000-7000 rw-p 00002000 08:01 17    /usr/bin/sort\n\
                     6800-7000 rw-p 00000000 00:00 0     [heap]\n\
                     7000-8000 r--p 00000000 08:01 18    /tmp/data \xff\n\
                     7800-8000 r-xp 00000000 08:01 20    /lib/a plugin.so\n\
                     8000-9000 r-xp 00001000 08:01 19    /lib/libc.so.6\n\
                     9000-a000 r-xp 00009000 08:01 19    /lib/libc.so.6\n";
        assert_eq!(objects_in(maps), ["/lib/a plugin.so", "/lib/libc.so.6", "/usr/bin/sort"]);
    }
}
