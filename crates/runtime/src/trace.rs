//! Where the tracer's records go: a file that the launcher names, written block by block while the program runs.
//!
//! The traced process is the first of the run that is managed: the program that the launcher started. When it calls exec, the new
//! program is traced, and the file begins anew. No other process is: children of a fork close the file, and programs that they
//! start find the trace taken.
//!
//! When nothing more can be written (the disk is full, a limit on the length of files), the last whole block becomes the end of
//! the file, recording stops and the program goes on.

use crate::mapping::{self, MapRequest};
use crate::{descriptors, ledger};
use hinterland_abi::{Settings, TraceRow};
use hinterland_pager::{DiscardCause, FAR_PAGES, FaultPath, Recorder, Trace};
use hinterland_sys::{mem, thread};
use hinterland_tape::{Cause, Discard, Head, INDEX_MAX, MICROSET_PAGES, Reference, Region, Writer, Written};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a killed program loses of its trace at most, while it faults.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Begins the trace, if there is to be one and this is the process to be traced; keeps the process on one processor.
///
/// One processor, because page tables are changed all the time, and a change is cheap where no other processor has to hear of
/// it; and because threads that take turns are seen one after the other (3PO §3.4).
///
/// # Errors
/// The process cannot be traced, in words.
pub fn begin(settings: &Settings, path: FaultPath) -> Result<Option<Trace>, String> {
    let Some(ledger) = ledger::get().filter(|_| !settings.trace.is_empty()) else { return Ok(None) };
    let pid = i32::try_from(hinterland_sys::thread::process()).unwrap_or(0);
    match ledger.trace.pid.compare_exchange(0, pid, AcqRel, Acquire) {
        Err(traced) if traced != pid => return Ok(None),
        _ => {}
    }
    if path != FaultPath::Monitor {
        return Err("programs are traced on the monitor path only".into());
    }
    let microset_pages = settings.microset_pages.unwrap_or(MICROSET_PAGES);
    let row = &ledger.trace;
    row.error.set("");
    row.closed.store(0, Relaxed);
    match TapeRecorder::begin(&settings.trace, microset_pages, row) {
        Ok(recorder) => {
            thread::run_on(thread::processor());
            Ok(Some(Trace { microset_pages, recorder: Box::new(recorder) }))
        }
        // The launcher could write the file. The program runs all the same, as when the disk becomes full later.
        Err(error) => {
            row.error.set(&error.to_string());
            Ok(None)
        }
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

/// Files with code that are mapped: /proc/self/maps, whose format this is.
fn mapped_objects() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
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
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = command.strip_suffix(&[0]).unwrap_or(&command).split(|byte| *byte == 0).skip(1);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Not how many this process may use: that is one, when a program that was traced calls exec.
    let processors = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    Head {
        origin: concat!("hinterland ", env!("CARGO_PKG_VERSION")).into(),
        program: std::fs::read_link("/proc/self/exe").unwrap_or_default().to_string_lossy().into_owned(),
        arguments_digest: Head::digest(arguments),
        page_bytes: u32::try_from(PAGE_BYTES).unwrap_or(0),
        microset_pages,
        has_cpu_times: true,
        machine: format!(
            "{}, Linux {}, processors {}",
            std::env::consts::ARCH,
            kernel.trim_end(),
            processors.trim_end()
        ),
        begun_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        has_intervals,
        objects,
    }
}

/// Writes what the tracer sees.
struct TapeRecorder {
    writer: Writer<File>,
    microset_pages: u32,
    objects: Vec<String>,
    region: u32,
    /// The trace's number of each thread, by kernel id.
    threads: HashMap<u32, u32>,
    flushed: Instant,
    row: &'static TraceRow,
}

/// A trace with its region.
fn open(file: File, head: &Head) -> io::Result<(Writer<File>, u32)> {
    let mut writer = Writer::new(file, head)?;
    // The far range begins at the same address in every run: a page's number in it is a position that ASLR does not change.
    let region = writer.region(&Region { name: "far".into(), pages: FAR_PAGES.into() })?;
    Ok((writer, region))
}

impl TapeRecorder {
    fn begin(path: &str, microset_pages: u32, row: &'static TraceRow) -> io::Result<TapeRecorder> {
        let objects = mapped_objects();
        let (writer, region) = open(File::create(path)?, &head(microset_pages, false, objects.clone()))?;
        let (threads, flushed) = (HashMap::new(), Instant::now());
        let recorder = TapeRecorder { writer, microset_pages, objects, region, threads, flushed, row };
        recorder.publish();
        Ok(recorder)
    }

    /// Begins the file anew, with a trace of intervals.
    fn restart(&mut self) -> io::Result<()> {
        let file = std::mem::replace(self.writer.sink(), File(-1));
        file.empty()?;
        (self.writer, self.region) = open(file, &head(self.microset_pages, true, self.objects.clone()))?;
        self.threads.clear();
        Ok(())
    }

    fn thread(&mut self, id: u32) -> u32 {
        let next = u32::try_from(self.threads.len()).unwrap_or(u32::MAX).min(INDEX_MAX - 1);
        *self.threads.entry(id).or_insert(next)
    }

    fn publish(&self) {
        self.row.references.store(self.writer.references_written(), Relaxed);
        self.row.microsets.store(self.writer.microsets_written(), Relaxed);
        self.row.bytes.store(self.writer.whole_bytes(), Relaxed);
    }

    /// Notes how a write went; false: it was the last.
    fn done(&mut self, outcome: io::Result<()>) -> bool {
        self.publish();
        let Err(error) = outcome else { return true };
        self.row.error.set(&error.to_string());
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
        let outcome = self.writer.finish();
        if self.done(outcome) {
            self.row.closed.store(1, Relaxed);
        }
    }

    fn left_behind(&mut self) {
        self.writer.sink().close();
    }
}

/// A file under a number that survives programs which close everything.
struct File(RawFd);

impl File {
    fn create(path: &str) -> io::Result<File> {
        let path = CString::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o666) };
        match RawFd::try_from(fd) {
            Ok(fd) if fd >= 0 => descriptors::protect(fd).map(File),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes so many bytes the whole file. A refusal leaves part of a block at its end, which readers name.
    fn cut(&self, bytes: u64) {
        // SAFETY: changes the length of a file of ours.
        unsafe { libc::syscall(libc::SYS_ftruncate, self.0, bytes) };
    }

    /// Nothing is in it any more.
    fn empty(&self) -> io::Result<()> {
        // SAFETY: changes a file of ours.
        let (cut, sought) = unsafe {
            (libc::syscall(libc::SYS_ftruncate, self.0, 0), libc::syscall(libc::SYS_lseek, self.0, 0, libc::SEEK_SET))
        };
        if cut == 0 && sought == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn close(&mut self) {
        descriptors::release(std::mem::replace(&mut self.0, -1));
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.close();
    }
}

impl io::Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the bytes outlive the call.
        let written = unsafe { libc::syscall(libc::SYS_write, self.0, bytes.as_ptr(), bytes.len()) };
        let Err(_) = usize::try_from(written) else { return Ok(usize::try_from(written).unwrap_or(0)) };
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EFBIG) {
            take_pending(libc::SIGXFSZ);
        }
        Err(error)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes a signal back that the kernel has just sent to this thread, which has it blocked: the program would die of it.
fn take_pending(signal: libc::c_int) {
    let (set, now) = (1u64 << (signal - 1), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: set and time outlive the call; no information is asked for.
    unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const set, 0usize, &raw const now, size_of::<u64>());
    }
}
