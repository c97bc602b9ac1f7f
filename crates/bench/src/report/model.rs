//! The report as JSON. The names are a promise to scripts: add, never rename.

use super::costs::{EvictionCost, MetadataCost, evictions, metadata};
use super::ratios::{Ratio, Scaling, ratios, scalings};
use super::statistics::{Spread, median, median_count};
use crate::paging::rounds::{Case, Entry};
use crate::paging::{Outcome, Ram, Sample, Setting, System};
use crate::worker::{Hinterland, Pattern, Processor};
use procfs::Current;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// `ended` of a row whose runs all finished.
pub const OK: &str = "ok";

/// A whole bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its origin.
    #[serde(flatten)]
    pub origin: Origin,
    /// Data of each run.
    pub size_bytes: u64,
    /// Of that, how much could be local.
    pub local_bytes: u64,
    /// Hinterland's far memory.
    pub far: Vec<String>,
    /// Hinterland's eviction policy.
    pub evict: String,
    /// Who served Hinterland's faults, as asked for.
    #[serde(default)]
    pub fault_path: String,
    /// Hinterland's prefetcher.
    #[serde(default)]
    pub prefetch: String,
    /// Hinterland's largest read-ahead window, when it was set.
    pub read_ahead_pages: Option<u32>,
    /// The feature set that Hinterland pretended; empty: what the kernel has.
    pub features: String,
    /// Rounds.
    pub repeat: u32,
    /// Seed of contents and accesses.
    pub seed: u64,
    /// One row for each system, pattern and number of threads.
    pub rows: Vec<Row>,
    /// Hinterland beside each rival; below 1 is better than the rival.
    pub ratios: Vec<Ratio>,
    /// Faults per second with several threads beside one.
    pub scaling: Vec<Scaling>,
    /// What evictions cost Hinterland.
    #[serde(default)]
    pub evictions: Vec<EvictionCost>,
    /// What Hinterland's tables cost.
    #[serde(default)]
    pub metadata: Vec<MetadataCost>,
}

/// Where a report comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// What was typed.
    pub command: Vec<String>,
    /// Hinterland's version.
    pub version: String,
    /// The commit that is checked out where this program lies, with `-dirty` if files differ from it; `None`: it lies in no repository.
    #[serde(default)]
    pub commit: Option<String>,
    /// When it ended, RFC 3339.
    pub date: String,
    /// Where.
    pub machine: Machine,
}

impl Origin {
    /// This process, this machine, now.
    pub fn now() -> Origin {
        Origin {
            command: command(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: commit(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            machine: Machine::look(),
        }
    }
}

/// As `git describe` names it, by which the benches in Python name it, too.
fn commit() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let mut git = Command::new("git");
    git.arg("-C").arg(program.parent()?).args(["describe", "--always", "--dirty"]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// What was typed (`hinterland bench …`), without the places of files on this machine: of a path, its last part.
fn command() -> Vec<String> {
    let last = |word: String| match Path::new(&word).file_name() {
        Some(name) if word.starts_with('/') => name.to_string_lossy().into_owned(),
        _ => word,
    };
    ["hinterland", "bench"].map(str::to_owned).into_iter().chain(std::env::args().skip(1).map(last)).collect()
}

/// The machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Processor.
    pub cpu: String,
    /// Processors that this program may use.
    pub cores: usize,
    /// Memory.
    pub ram_bytes: u64,
    /// Kernel release.
    pub kernel: String,
}

/// One system with one pattern and one number of threads. Figures are medians over the rounds unless said; they are absent
/// when no round finished.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The system.
    pub system: System,
    /// The kernel rival's setting; empty for others.
    pub variant: String,
    /// The pattern.
    pub pattern: Pattern,
    /// Threads.
    pub threads: u32,
    /// Accesses in the timed phase, by all threads together.
    pub accesses: Option<u64>,
    /// Faults that waited for far memory (kernel: `ru_majflt`).
    pub major_faults: Option<u64>,
    /// Faults that did not.
    pub minor_faults: Option<u64>,
    /// Wall-clock time of the timed phase.
    pub seconds: Option<Spread>,
    /// Wall-clock time for each access.
    pub us_per_access: Option<f64>,
    /// Wall-clock time for each major fault.
    pub us_per_major_fault: Option<f64>,
    /// Major faults in a second.
    pub major_faults_per_second: Option<f64>,
    /// Processor time of the worker's process in the timed phase, the pager's threads in it included.
    pub cpu_seconds: Option<f64>,
    /// Processor time of the whole machine in the timed phase.
    pub machine_cpu_seconds: Option<f64>,
    /// Time to write the data before.
    pub fill_seconds: Option<f64>,
    /// RAM in all: see `ram`.
    pub total_ram_bytes: Option<u64>,
    /// What `total_ram_bytes` consists of, in the round with the most.
    pub ram: Option<Ram>,
    /// What the processes hold beside the data: PSS, less the pages of data and what far pages occupy in RAM. Absent for
    /// kernel swap, whose store is not theirs.
    #[serde(default)]
    pub ram_beside_data_bytes: Option<u64>,
    /// The rival's cgroup limit: the local budget, what the worker had before it held data, and the data's page tables.
    pub limit_bytes: Option<u64>,
    /// Hinterland's own figures in the round of the median time.
    pub hinterland: Option<Hinterland>,
    /// Its `evictor_us_per_page` over the rounds.
    #[serde(default)]
    pub evictor_us_per_page: Option<Spread>,
    /// Wall-clock time of each round; absent for a round that did not finish.
    pub round_seconds: Vec<Option<f64>>,
    /// Some round reached the time limit before its last access.
    pub cut_short: bool,
    /// `ok`, or why rounds did not finish. Figures are of the rounds that did; a row of which half or more did not takes no
    /// part in the ratios.
    pub ended: String,
    /// The variants of this rival that were tried first; the fastest took part.
    pub trials: Vec<Trial>,
}

/// A trial of a variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The setting.
    pub variant: String,
    /// Wall-clock time for each access.
    pub us_per_access: Option<f64>,
    /// `ok`, or why not.
    pub ended: String,
}

impl Report {
    /// Sums up what was measured.
    pub fn new(setting: &Setting, cases: &[Case], origin: Origin) -> Report {
        let rows: Vec<Row> =
            cases.iter().flat_map(|case| case.entries.iter().map(|e| Row::new(case, e, setting.size_bytes))).collect();
        Report {
            origin,
            size_bytes: setting.size_bytes,
            local_bytes: setting.local_bytes,
            far: setting.hinterland.far.clone(),
            evict: setting.hinterland.evict.to_string(),
            fault_path: setting.hinterland.fault_path.to_string(),
            prefetch: setting.hinterland.prefetch.to_string(),
            read_ahead_pages: setting.hinterland.read_ahead_pages,
            features: setting.hinterland.features.clone(),
            repeat: setting.args.repeat,
            seed: setting.args.seed,
            ratios: ratios(&rows, &setting.hinterland.far, setting.hinterland.fault_path),
            scaling: scalings(&rows),
            evictions: evictions(&rows),
            metadata: metadata(&rows),
            rows,
        }
    }
}

impl Machine {
    /// Looks at this machine; what cannot be read is empty or 0.
    pub fn look() -> Machine {
        let cpu = procfs::CpuInfo::current().ok();
        Machine {
            cpu: cpu.and_then(|c| c.model_name(0).map(str::to_owned)).unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            ram_bytes: procfs::Meminfo::current().map_or(0, |m| m.mem_total),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into(),
        }
    }
}

impl Row {
    /// Sums up one system's rounds.
    pub fn new(case: &Case, entry: &Entry, size_bytes: u64) -> Row {
        let good: Vec<&Sample> = entry.rounds.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
        let figures = |of: &dyn Fn(&Sample) -> f64| median(good.iter().map(|sample| of(sample)));
        let counts = |of: &dyn Fn(&Sample) -> u64| median_count(good.iter().map(|sample| of(sample)));
        let processor = |of: &dyn Fn(&Processor) -> f64| figures(&|sample| of(&sample.measured.processor));
        let faults = good.iter().filter_map(|sample| sample.us_per_major_fault());
        let evictor = good.iter().filter_map(|sample| sample.measured.paging.hinterland.as_ref()?.evictor_us_per_page);
        let beside = good.iter().filter_map(|sample| beside_data_bytes(sample, entry.system, size_bytes));
        let most = good.iter().max_by_key(|sample| sample.ram.total_bytes);
        Row {
            system: entry.system,
            variant: entry.variant.to_string(),
            pattern: case.pattern,
            threads: case.threads,
            accesses: counts(&|s| s.measured.accesses),
            major_faults: counts(&|s| s.measured.paging.major_faults),
            minor_faults: counts(&|s| s.measured.paging.minor_faults),
            seconds: Spread::of(good.iter().map(|s| s.measured.seconds)),
            us_per_access: figures(&Sample::us_per_access),
            us_per_major_fault: median(faults),
            major_faults_per_second: figures(&Sample::major_faults_per_second),
            cpu_seconds: processor(&|p| p.process),
            machine_cpu_seconds: processor(&|p| p.machine),
            fill_seconds: figures(&|s| s.fill_seconds),
            total_ram_bytes: most.map(|sample| sample.ram.total_bytes),
            ram: most.map(|sample| sample.ram),
            ram_beside_data_bytes: median_count(beside),
            limit_bytes: good.first().and_then(|sample| sample.limit_bytes),
            hinterland: middle(&good).and_then(|sample| sample.measured.paging.hinterland.clone()),
            evictor_us_per_page: Spread::of(evictor),
            round_seconds: entry.rounds.iter().map(|o| o.as_ref().ok().map(|s| s.measured.seconds)).collect(),
            cut_short: good.iter().any(|sample| sample.measured.cut_short),
            ended: ended(&entry.rounds),
            trials: entry.trials.iter().map(Trial::new).collect(),
        }
    }

    /// Whether every round finished.
    pub fn is_ok(&self) -> bool {
        self.ended == OK
    }

    /// Whether the row may be compared: more than half of its rounds finished.
    pub fn is_scored(&self) -> bool {
        self.finished() * 2 > self.round_seconds.len()
    }

    /// Rounds that finished.
    pub fn finished(&self) -> usize {
        self.round_seconds.iter().flatten().count()
    }
}

impl Trial {
    fn new((variant, outcome): &(impl ToString, Result<f64, String>)) -> Trial {
        Trial {
            variant: variant.to_string(),
            us_per_access: outcome.as_ref().ok().copied(),
            ended: outcome.as_ref().err().cloned().unwrap_or_else(|| OK.into()),
        }
    }
}

/// See [`Row::ram_beside_data_bytes`].
fn beside_data_bytes(sample: &Sample, system: System, size_bytes: u64) -> Option<u64> {
    let data_bytes = match (system, &sample.measured.paging.hinterland) {
        (System::AllLocal, _) => size_bytes,
        (System::Hinterland, Some(figures)) => figures.resident_managed_bytes + figures.stored_bytes,
        _ => return None,
    };
    Some(sample.ram.pss_bytes.saturating_sub(data_bytes))
}

/// The round of the median time (the lower one of an even number).
fn middle<'a>(good: &[&'a Sample]) -> Option<&'a Sample> {
    let mut sorted = good.to_vec();
    sorted.sort_by(|a, b| a.measured.seconds.total_cmp(&b.measured.seconds));
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// `ok`, or the first reason and how many rounds it ended.
fn ended(rounds: &[Outcome]) -> String {
    let reasons: Vec<&String> = rounds.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    match reasons.first() {
        None => OK.into(),
        Some(reason) => format!("{} of {} rounds did not finish: {reason}", reasons.len(), rounds.len()),
    }
}
