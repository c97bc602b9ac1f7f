//! One run of one program, in a memory cgroup of its own: natively, under Hinterland, or under a limit with the kernel's swap or without.

use super::program::{Program, STDERR};
use super::swap::{SwapTo, swapped_bytes};
use super::trials::Setting;
use crate::error::BenchError;
use crate::paging::process::in_words;
use crate::rivals;
use crate::rivals::cgroup::{Cgroup, Hierarchy};
use crate::rivals::undo::{Changes, Guard};
use crate::worker::machine_seconds;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use procfs::process::{StatFlags, all_processes};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at the memory of a run.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Bytes of the end of what a failed run wrote to its standard error.
const STDERR_BYTES_MAX: usize = 600;
/// A run that exceeds `--local` by more than this part of it is not scored.
const OVERSHOOT_PART: u64 = 100;
/// The same of `--ram`, which bounds the store only once a batch of pages has been stored.
const RAM_OVERSHOOT_PART: u64 = 50;

/// What bounds Hinterland, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// `--local`.
    Local(u64),
    /// `--ram`, with a file below compressed RAM.
    Ram(u64),
}

/// How a program is run.
#[derive(Clone, Debug)]
pub enum How {
    /// Without a limit.
    Native,
    /// Under `hinterland run`.
    Hinterland {
        /// Its bound.
        budget: Budget,
        /// Size of the compressed store, more than it fills.
        far_bytes: u64,
    },
    /// With a limit and nothing to swap to: only copies of files can leave.
    Bounded {
        /// The group's limit.
        limit_bytes: u64,
    },
    /// Under the kernel's swap.
    Swap {
        /// Its settings.
        setting: Setting,
        /// The group's limit.
        limit_bytes: u64,
        /// Size of the swap area, more than it fills.
        swap_bytes: u64,
    },
}

/// What a run took.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Wall time; of a server, its client's.
    pub seconds: f64,
    /// Processor time of all its processes, Hinterland's threads among them.
    pub cpu_seconds: f64,
    /// Processor time of the kernel's threads meanwhile, whatever they did.
    pub kernel_threads_cpu_seconds: f64,
    /// Processor time of the machine meanwhile, unrelated programs too.
    pub machine_cpu_seconds: f64,
    /// Faults that waited for swap or far memory.
    pub major_faults: u64,
    /// The most at any moment of what was charged to the group less copies of files, and zram's `mem_used_total`.
    pub total_ram_peak_bytes: u64,
    /// The most anonymous memory that was mapped.
    pub anonymous_peak_bytes: u64,
    /// The most that zram occupied.
    pub zram_peak_bytes: u64,
    /// The most that the swap area held, in zram as it is compressed.
    #[serde(default)]
    pub swap_peak_bytes: u64,
    /// Read from swap, by the whole machine.
    #[serde(default)]
    pub swapped_in_bytes: u64,
    /// Written to swap, by the whole machine.
    #[serde(default)]
    pub swapped_out_bytes: u64,
    /// What the launcher says of the run.
    pub hinterland: Option<Statistics>,
}

/// Of `--stats`: what is reported.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Statistics {
    /// As the launcher counts it: local pages, store and tables.
    pub total_ram_peak_bytes: u64,
    /// Local pages.
    pub resident_managed_peak_bytes: u64,
    /// Managed pages, local and far.
    pub managed_peak_bytes: u64,
    /// Faults that waited.
    pub major_faults: u64,
    /// Time that threads waited, summed over threads.
    pub stall_seconds: f64,
    /// Pages stored.
    pub evicted_dirty_pages: u64,
    /// Pages brought in before they were asked for.
    pub prefetched_pages: u64,
    /// Read and written below RAM.
    #[serde(default)]
    pub file_bytes: u64,
}

/// A run's figures and its digest, or why there are none.
pub type Outcome = Result<(Run, u64), String>;

/// What all runs share.
pub struct Machine<'a> {
    pub hierarchy: Hierarchy,
    pub changes: &'a Changes,
    pub launcher: PathBuf,
    /// Words for `hinterland run`.
    pub options: Vec<String>,
    /// What its rival has.
    pub swap_to: SwapTo,
    /// The longest that a run may take.
    pub longest: Duration,
    /// For inputs and working directories.
    pub directory: PathBuf,
    /// What removes it.
    _directory: Guard,
}

impl<'a> Machine<'a> {
    /// With a directory that is removed with the other changes.
    ///
    /// # Errors
    /// There is no memory controller, or no directory can be made.
    pub fn begin(
        changes: &'a Changes,
        launcher: PathBuf,
        options: Vec<String>,
        seconds_max: u64,
    ) -> Result<Machine<'a>, BenchError> {
        let (directory, guard) = changes.directory()?;
        Ok(Machine {
            hierarchy: Hierarchy::find()?,
            changes,
            launcher,
            options,
            swap_to: SwapTo::Zram,
            longest: Duration::from_secs(seconds_max),
            directory,
            _directory: guard,
        })
    }
}

impl Machine<'_> {
    /// Runs `program` once.
    ///
    /// # Errors
    /// The machine cannot be set up for it. A run that fails is an outcome, not an error.
    pub fn run(&self, program: &Program, how: &How) -> Result<Outcome, BenchError> {
        let directory =
            tempfile::tempdir_in(&self.directory).map_err(BenchError::io("make a directory in", &self.directory))?;
        let statistics = directory.path().join("statistics.json");
        let mut command = program.command(&self.launcher_words(how, &statistics), directory.path())?;
        let _swap = match how {
            How::Swap { setting, swap_bytes, .. } => Some(self.swap_to.begin(setting, *swap_bytes, self.changes)?),
            _ => None,
        };
        let cgroup = self.hierarchy.make(&rivals::name(), self.changes)?;
        if let How::Swap { limit_bytes, .. } | How::Bounded { limit_bytes } = how {
            cgroup.set_limit(*limit_bytes)?;
        }
        cgroup.admit(&mut command)?;
        let before = Used::now();
        let begun = Instant::now();
        let name = PathBuf::from(command.get_program());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("cannot start {}: {error}", name.display()))),
        };
        let ended = self.follow(program, child, &cgroup, matches!(how, How::Swap { .. }), directory.path());
        let (took, used) = (begun.elapsed(), Used::now());
        let killed = cgroup.killed();
        // What is left of the run dies with its group, before its output is read.
        drop(cgroup);
        let finished = ended.and_then(|(seen, peaks)| {
            let (seconds, seen) = seen.unwrap_or((took.as_secs_f64(), String::new()));
            let hinterland = matches!(how, How::Hinterland { .. }).then(|| read_statistics(&statistics)).transpose()?;
            if let (Some(said), How::Hinterland { budget, .. }) = (&hinterland, how) {
                check(said, *budget)?;
            }
            let faults = used.major_faults.saturating_sub(before.major_faults);
            let run = Run {
                seconds,
                cpu_seconds: used.processes - before.processes,
                kernel_threads_cpu_seconds: (used.kernel_threads - before.kernel_threads).max(0.0),
                machine_cpu_seconds: used.machine - before.machine,
                major_faults: hinterland.as_ref().map_or(faults, |said| said.major_faults),
                total_ram_peak_bytes: peaks.total,
                anonymous_peak_bytes: peaks.anonymous,
                zram_peak_bytes: peaks.zram,
                swap_peak_bytes: peaks.swap,
                swapped_in_bytes: used.swapped_in_bytes.saturating_sub(before.swapped_in_bytes),
                swapped_out_bytes: used.swapped_out_bytes.saturating_sub(before.swapped_out_bytes),
                hinterland,
            };
            Ok((run, program.digest(directory.path(), &seen)?))
        });
        Ok(finished.map_err(|reason| {
            let by_limit = if killed > 0 { "killed by its memory limit; " } else { "" };
            format!("{by_limit}{reason}{}", tail(&directory.path().join(STDERR)))
        }))
    }

    fn launcher_words(&self, how: &How, statistics: &Path) -> Vec<String> {
        let How::Hinterland { budget, far_bytes } = how else { return Vec::new() };
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut words = vec![path(&self.launcher), "run".into(), "--quiet".into()];
        words.extend(["--far".into(), format!("compressed:{far_bytes}"), "--stats".into(), path(statistics)]);
        match budget {
            Budget::Local(bytes) => words.extend(["--local".into(), bytes.to_string()]),
            Budget::Ram(bytes) => {
                let file = format!("file:{}?size={far_bytes}", path(&self.directory));
                words.extend(["--ram".into(), bytes.to_string(), "--far".into(), file]);
            }
        }
        words.extend(self.options.iter().cloned());
        words.push("--".into());
        words
    }

    /// Waits for the end, looking at the group's memory meanwhile. Of a server: what its client measured and saw.
    fn follow(
        &self,
        program: &Program,
        mut child: Child,
        cgroup: &Cgroup,
        swaps: bool,
        directory: &Path,
    ) -> Result<(Option<(f64, String)>, Peaks), String> {
        let (ended, late) = (AtomicBool::new(false), AtomicBool::new(false));
        let begun = Instant::now();
        let kill_all = || {
            for pid in cgroup.pids() {
                // It may have ended by itself.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        };
        let look = || {
            let mut peaks = Peaks::default();
            while !ended.load(Ordering::Acquire) {
                peaks.look(cgroup, swaps.then_some(&self.swap_to));
                if begun.elapsed() > self.longest {
                    late.store(true, Ordering::Release);
                    kill_all();
                }
                std::thread::sleep(SAMPLE_EVERY);
            }
            peaks
        };
        let (seen, status, peaks) = std::thread::scope(|scope| {
            let looking = scope.spawn(look);
            let alive = || !late.load(Ordering::Acquire) && !cgroup.pids().is_empty();
            let seen = program.client.as_ref().map(|client| client.load(directory, alive)).transpose();
            if seen.is_err() {
                kill_all();
            }
            let status = child.wait();
            ended.store(true, Ordering::Release);
            (seen, status, looking.join().expect("looking at memory does not panic"))
        });
        if late.load(Ordering::Acquire) {
            return Err(format!("not finished within {} s", self.longest.as_secs()));
        }
        let seen = seen?;
        let status = status.map_err(|error| error.to_string())?;
        if ExitStatus::success(&status) { Ok((seen, peaks)) } else { Err(in_words(Some(status))) }
    }
}

/// The most of each at any moment that was looked at.
#[derive(Clone, Copy, Default, Debug)]
struct Peaks {
    total: u64,
    anonymous: u64,
    zram: u64,
    swap: u64,
}

impl Peaks {
    fn look(&mut self, cgroup: &Cgroup, swap_to: Option<&SwapTo>) {
        let held = swap_to.map_or(0, SwapTo::held_bytes);
        let zram = if swap_to == Some(&SwapTo::Zram) { held } else { 0 };
        // The group is there until the run has ended.
        if let Ok(charge) = cgroup.charge() {
            self.total = self.total.max(charge.without_file_cache() + zram);
            self.anonymous = self.anonymous.max(charge.anonymous_bytes);
        }
        self.zram = self.zram.max(zram);
        self.swap = self.swap.max(held);
    }
}

/// Processor time and faults until now.
struct Used {
    /// Of all children that have been waited for, and theirs.
    processes: f64,
    major_faults: u64,
    kernel_threads: f64,
    machine: f64,
    swapped_in_bytes: u64,
    swapped_out_bytes: u64,
}

impl Used {
    fn now() -> Used {
        let children =
            getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage of children takes no argument that could be wrong");
        #[allow(clippy::cast_precision_loss, reason = "microseconds of a bench")]
        let processes = (children.user_time() + children.system_time()).num_microseconds() as f64 * 1e-6;
        let major_faults = u64::try_from(children.major_page_faults()).unwrap_or(0);
        let [swapped_in_bytes, swapped_out_bytes] = swapped_bytes();
        Used {
            processes,
            major_faults,
            kernel_threads: kernel_threads_seconds(),
            machine: machine_seconds(),
            swapped_in_bytes,
            swapped_out_bytes,
        }
    }
}

/// Processor time of the kernel's threads until now: reclaim, writeback, work queues.
fn kernel_threads_seconds() -> f64 {
    let stats = all_processes().into_iter().flatten().flatten().filter_map(|process| process.stat().ok());
    let threads = stats.filter(|stat| stat.flags().is_ok_and(|flags| flags.contains(StatFlags::PF_KTHREAD)));
    let ticks: u64 = threads.map(|stat| stat.utime + stat.stime).sum();
    #[allow(clippy::cast_precision_loss, reason = "clock ticks since the machine started")]
    let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
    seconds
}

fn read_statistics(path: &Path) -> Result<Statistics, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("no statistics: {error}"))?;
    statistics_of(&text).map_err(|error| format!("unreadable statistics: {error}"))
}

fn statistics_of(text: &str) -> Result<Statistics, serde_json::Error> {
    /// What is said of each far memory.
    #[derive(Deserialize)]
    struct Far {
        url: String,
        bytes_in: u64,
        bytes_out: u64,
    }
    #[derive(Deserialize)]
    struct Said {
        #[serde(flatten)]
        statistics: Statistics,
        backends: Vec<Far>,
    }
    let Said { statistics, backends } = serde_json::from_str(text)?;
    let files = backends.iter().filter(|far| far.url.starts_with("file:"));
    Ok(Statistics { file_bytes: files.map(|far| far.bytes_in + far.bytes_out).sum(), ..statistics })
}

/// Refuses a run that was not managed, or that had more than it should.
fn check(said: &Statistics, budget: Budget) -> Result<(), String> {
    if said.managed_peak_bytes == 0 {
        return Err("the program was not managed".into());
    }
    let (bytes, had, part) = match budget {
        Budget::Local(bytes) => (bytes, said.resident_managed_peak_bytes, OVERSHOOT_PART),
        Budget::Ram(bytes) => (bytes, said.total_ram_peak_bytes, RAM_OVERSHOOT_PART),
    };
    if had > bytes + bytes / part {
        return Err(format!("the budget of {bytes} bytes was exceeded: {had} bytes were used"));
    }
    Ok(())
}

/// The end of a text, behind a colon; nothing when it is empty.
fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(STDERR_BYTES_MAX)..]).trim().to_owned();
    if text.is_empty() { text } else { format!(": {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_above_its_budget_is_not_scored() {
        let said = |managed: u64, resident: u64| {
            let text = format!(
                r#"{{"managed_peak_bytes": {managed}, "resident_managed_peak_bytes": {resident}, "total_ram_peak_bytes": 1021,
                    "major_faults": 1, "stall_seconds": 0.5, "evicted_dirty_pages": 1, "prefetched_pages": 1, "more": [1],
                    "backends": [{{"url": "compressed:1M", "bytes_in": 1, "bytes_out": 2}}, {{"url": "file:/f", "bytes_in": 4, "bytes_out": 8}}]}}"#
            );
            statistics_of(&text).unwrap()
        };
        let check_local = |managed: u64, resident: u64| check(&said(managed, resident), Budget::Local(1000));
        assert_eq!(check_local(4000, 1010), Ok(()));
        assert!(check_local(4000, 1011).unwrap_err().contains("exceeded"));
        assert!(check_local(0, 0).unwrap_err().contains("not managed"));
        assert_eq!(check(&said(4000, 4000), Budget::Ram(1001)), Ok(()));
        assert!(check(&said(4000, 4000), Budget::Ram(1000)).unwrap_err().contains("1021 bytes were used"));
        assert_eq!(said(1, 1).file_bytes, 12);
    }

    #[test]
    fn the_kernel_has_threads() {
        let first = kernel_threads_seconds();
        assert!(kernel_threads_seconds() >= first && first >= 0.0);
        let ours = Used::now();
        assert!(ours.machine >= 0.0 && ours.processes >= 0.0);
    }

    #[test]
    fn only_the_end_of_a_long_complaint_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(tail(file.path()), "");
        std::fs::write(file.path(), "x".repeat(5000) + " the end\n").unwrap();
        let told = tail(file.path());
        assert!(told.ends_with(" the end") && told.len() < 700);
    }
}
