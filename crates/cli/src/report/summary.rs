//! What a run's figures say: everything that is derived rather than counted.

use crate::statistics::{BackendTotal, Gauges, ProcessStatistics, Totals, UnmanagedSource};
use hinterland_abi::bucket_upper_ns;
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, Slowdown};
use std::fmt;
use std::time::Duration;

/// How the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// With an exit code.
    Exited(u8),
    /// By a signal.
    Killed {
        /// Its number.
        signal: i32,
        /// Whether a core was written.
        core: bool,
    },
}

impl Ending {
    /// The code as a shell gives it: 128 + n for signal n.
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Exited(code) => code,
            Ending::Killed { signal, .. } => u8::try_from(signal).unwrap_or(127).saturating_add(128),
        }
    }

    /// The signal, if one ended the program.
    pub fn signal(self) -> Option<i32> {
        match self {
            Ending::Exited(_) => None,
            Ending::Killed { signal, .. } => Some(signal),
        }
    }
}

/// What became of `--slowdown`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServiceReport {
    /// What was asked for.
    pub asked: Slowdown,
    /// The slowdown of the run as it was measured.
    pub achieved: f64,
    /// The local budget in the end, in bytes.
    pub budget_bytes: u64,
    /// The mean of local memory, in bytes.
    pub local_mean_bytes: u64,
    /// The slowdown was exceeded although the budget was at its ceiling.
    pub out_of_reach: bool,
    /// What the machine lacked when it had least for the run beside others, if it ever had too little.
    pub shortage: Option<Shortage>,
}

/// A run that cannot keep its slowdown because other runs need the machine's memory, too.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shortage {
    /// What was asked for.
    pub asked: Slowdown,
    /// What the run would need.
    pub wanted_bytes: u64,
    /// That has been enough; else less may be.
    pub is_least: bool,
    /// Its share of the machine's memory.
    pub share_bytes: u64,
    /// The other runs on the machine.
    pub others: usize,
}

impl Shortage {
    /// What it would need.
    pub fn wanted(&self) -> String {
        format!("{}{}", if self.is_least { "" } else { "up to " }, ByteCount(self.wanted_bytes))
    }

    /// What it has instead.
    pub fn share(&self) -> String {
        let runs = if self.others == 1 { "run" } else { "runs" };
        format!("{} beside {} other {runs}", ByteCount(self.share_bytes), self.others)
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot keep {}: would need {}, its share is {}", self.asked, self.wanted(), self.share())
    }
}

/// What the launcher knows of a run besides the ledger.
pub struct Run {
    /// The program, as the user wrote it.
    pub program: String,
    /// How it ended.
    pub ending: Ending,
    /// From before its start until after the end of the last process that it left.
    pub wall: Duration,
    /// Until its own end.
    pub program_wall: Duration,
    /// Processor time of its processes that have ended and were waited for.
    pub processor: Duration,
    /// Largest resident set of any of its processes, as the kernel accounts it.
    pub kernel_rss_peak_bytes: u64,
    /// Largest sampled proportional set of its process tree, launcher included; 0: never sampled.
    pub tree_pss_peak_bytes: u64,
    /// The local budget that was set.
    pub budget: Option<Budget>,
    /// Where the budget comes from; `None`: it was given as a size.
    pub budget_source: Option<String>,
    /// The prefetcher.
    pub prefetch: String,
    /// The flag, variable or file that chose it, if any did.
    pub prefetch_source: Option<String>,
    /// What `--slowdown` came to.
    pub service: Option<ServiceReport>,
    /// Where the tape comes from, or what was recorded for later runs; `None`: neither.
    pub tape_source: Option<String>,
    /// The names of the run's tapes, by number from 1.
    pub tapes: Vec<String>,
    /// Threads that its only tape has pages to fetch for; 0 where it has several.
    pub tape_threads: u64,
    /// Largest read-ahead window, when it was set.
    pub read_ahead_pages: Option<u32>,
    /// Bound on prefetched pages, when it was set.
    pub prefetch_cache: Option<ByteCount>,
    /// Why the program was started without Hinterland, if so.
    pub unmanaged_because: Option<String>,
}

/// A run, summed up.
pub struct Summary<'a> {
    /// The launcher's part.
    pub run: &'a Run,
    /// The ledger's part.
    pub totals: &'a Totals,
    /// What Hinterland ended processes for, worded for the user.
    pub fatal: Vec<String>,
    /// `monitor`, or `none` when nothing was managed.
    pub fault_path: String,
    /// Why that fault path, or why nothing was managed.
    pub reason: String,
    /// The local budget in bytes; 0 when nothing was managed and a share was asked for.
    pub local_budget_bytes: u64,
}

/// Fault times in nanoseconds; 0 when there were no faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultTimes {
    /// Half of the faults took no longer.
    pub p50: u64,
    /// 99 of 100 faults took no longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl<'a> Summary<'a> {
    /// Sums up a run.
    pub fn new(run: &'a Run, totals: &'a Totals) -> Summary<'a> {
        let principal = totals.principal();
        let fatal = totals.processes.iter().filter(|row| !row.fatal.is_empty());
        Summary {
            run,
            totals,
            fatal: fatal.map(|row| format!("{} (process {}): {}", short_name(row, run), row.pid, row.fatal)).collect(),
            fault_path: principal.map_or_else(|| "none".to_owned(), |row| row.fault_path.clone()),
            reason: match principal {
                Some(row) => row.reason.clone(),
                None => why_unmanaged(run, totals),
            },
            local_budget_bytes: match (totals.maxima.local_budget_bytes, run.budget) {
                (0, Some(Budget::Bytes(ByteCount(bytes)))) => bytes,
                (bytes, _) => bytes,
            },
        }
    }

    /// How the launcher ends: as the program, but never with success when Hinterland had to end a process of the run. Its parent may
    /// have gone on with less than it asked for.
    pub fn ending(&self) -> Ending {
        match self.run.ending {
            Ending::Exited(0) if !self.fatal.is_empty() => Ending::Exited(crate::error::EXIT_REFUSED),
            ending => ending,
        }
    }

    /// Whether any process was managed.
    pub fn is_managed(&self) -> bool {
        self.totals.principal().is_some()
    }

    /// What must be said even when no summary is wanted: the library was there but could not take hold of anything.
    pub fn warning(&self) -> Option<String> {
        let refused = self.run.unmanaged_because.is_none() && !self.is_managed();
        let ran = |row: &&ProcessStatistics| row.fatal.is_empty() && !row.reason.is_empty();
        let row = self.totals.processes.iter().filter(ran).find(|_| refused)?;
        Some(format!("warning: {} ran unmanaged, without any memory bound: {}", short_name(row, self.run), row.reason))
    }

    /// Peaks.
    pub fn peak(&self) -> &Gauges {
        &self.totals.peak
    }

    /// Managed memory as a share of the program's anonymous memory, Hinterland's own not counted; `None` when nobody could
    /// look at the unmanaged part.
    pub fn managed_share_of_anonymous(&self) -> Option<f64> {
        let peak = self.peak();
        if self.totals.unmanaged_source == UnmanagedSource::Nobody {
            return None;
        }
        ratio(peak.managed_bytes, peak.managed_bytes + peak.unmanaged_anonymous_bytes)
    }

    /// Time that threads waited for faults, summed over threads.
    pub fn stall(&self) -> Duration {
        Duration::from_nanos(self.totals.counters.stall_ns)
    }

    /// That time as a share of the run; above 1 when several threads stood still at once.
    pub fn stall_share(&self) -> f64 {
        let wall = self.run.wall.as_secs_f64();
        if wall > 0.0 { self.stall().as_secs_f64() / wall } else { 0.0 }
    }

    /// The share of its time that a thread stood still for faults, on average over those that did.
    pub fn waiting(&self) -> f64 {
        waiting(self.stall_share(), self.stall_threads())
    }

    /// Threads over which the time is summed; those that waited least are not known beyond 16.
    pub fn stall_threads(&self) -> u64 {
        self.totals.threads.len() as u64
    }

    /// Fault times. Percentiles are the upper bounds of the histogram's buckets, so at most 1/8 too long.
    pub fn fault_times(&self) -> FaultTimes {
        let max = self.totals.maxima.fault_max_ns;
        let [p50, p99] = [50, 99].map(|percent| percentile(&self.totals.histograms.fault_ns, percent).min(max));
        FaultTimes { p50, p99, max }
    }
}

/// So many threads are told apart; of more, those that waited least are not known.
pub const THREADS_KNOWN: u64 = 16;

/// The share of its time that a thread waited, on average, of what `threads` waited together; where there were more, that is the most that
/// it can be.
pub fn waiting(stall_share: f64, threads: u64) -> f64 {
    let each = stall_share / threads.max(1) as f64;
    if threads < THREADS_KNOWN { each } else { each.min(1.0) }
}

/// The upper bound of the histogram's bucket that holds so many percent of its entries; 0 when it has none.
pub(super) fn percentile(histogram: &[u64], percent: u64) -> u64 {
    let total: u64 = histogram.iter().sum();
    let rank = (u128::from(total) * u128::from(percent)).div_ceil(100);
    let mut seen = 0;
    for (bucket, count) in histogram.iter().enumerate() {
        seen += u128::from(*count);
        if *count > 0 && seen >= rank {
            return bucket_upper_ns(bucket);
        }
    }
    0
}

/// Bytes of pages stored per byte that they occupied, at their peaks; `None` when nothing was stored.
pub fn compression_ratio<'a>(backends: impl IntoIterator<Item = &'a BackendTotal>) -> Option<f64> {
    let (mut plain, mut stored) = (0, 0);
    for backend in backends.into_iter().filter(|backend| backend.statistics.url.starts_with("compressed")) {
        plain += backend.statistics.peak.pages * PAGE_BYTES as u64;
        stored += backend.statistics.peak.stored_bytes;
    }
    if plain == 0 { None } else { ratio(plain, stored) }
}

/// `part / whole`; `None` when there is no whole.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    // Bytes of real memory are far below 2^53, where a double still counts exactly.
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The last part of a process's path.
fn short_name<'a>(row: &'a ProcessStatistics, run: &'a Run) -> &'a str {
    let path = if row.program.is_empty() { &run.program } else { &row.program };
    path.rsplit('/').next().unwrap_or(path)
}

fn why_unmanaged(run: &Run, totals: &Totals) -> String {
    if let Some(why) = &run.unmanaged_because {
        return why.clone();
    }
    match totals.processes.iter().find(|row| !row.reason.is_empty()) {
        Some(row) => row.reason.clone(),
        None if totals.process_count > 0 => "the library was loaded but took hold of nothing".into(),
        None => {
            "the library did not report: it was not loaded (the program cleared its environment, or became a program \
                 that cannot be preloaded), or the program ended before it could"
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_abi::{FAULT_BUCKETS, bucket_of};

    fn run() -> Run {
        Run {
            program: "/usr/bin/job".into(),
            ending: Ending::Exited(0),
            wall: Duration::from_secs(2),
            program_wall: Duration::from_secs(2),
            processor: Duration::from_secs(2),
            kernel_rss_peak_bytes: 0,
            tree_pss_peak_bytes: 0,
            budget: None,
            budget_source: None,
            prefetch: "streams".into(),
            prefetch_source: None,
            tape_source: None,
            tapes: Vec::new(),
            tape_threads: 0,
            service: None,
            read_ahead_pages: None,
            prefetch_cache: None,
            unmanaged_because: None,
        }
    }

    #[test]
    fn percentiles_come_from_the_histogram_and_never_pass_the_maximum() {
        let mut totals = Totals::default();
        totals.histograms.fault_ns = vec![0; FAULT_BUCKETS];
        totals.maxima.fault_max_ns = 100_000;
        totals.histograms.fault_ns[bucket_of(5_000)] = 98;
        totals.histograms.fault_ns[bucket_of(100_000)] = 2;
        let run = run();
        let times = Summary::new(&run, &totals).fault_times();
        assert!((5_000..5_700).contains(&times.p50), "{times:?}");
        assert_eq!((times.p99, times.max), (100_000, 100_000));
        assert_eq!(Summary::new(&run, &Totals::default()).fault_times(), FaultTimes::default());
    }

    #[test]
    fn the_managed_share_leaves_hinterlands_own_memory_out() {
        let mut totals = Totals::default();
        totals.unmanaged_source = UnmanagedSource::Library;
        totals.peak =
            Gauges { managed_bytes: 900, unmanaged_anonymous_bytes: 100, own_bytes: 200, ..Gauges::default() };
        let run = run();
        assert_eq!(Summary::new(&run, &totals).managed_share_of_anonymous(), Some(0.9));
        totals.unmanaged_source = UnmanagedSource::Nobody;
        assert_eq!(Summary::new(&run, &totals).managed_share_of_anonymous(), None);
    }

    #[test]
    fn the_first_line_says_that_most_of_the_memory_has_no_bound() {
        let run = run();
        let words = |managed: u64, other: u64, source: UnmanagedSource| {
            let mut totals = Totals::default();
            totals.unmanaged_source = source;
            totals.peak =
                Gauges { managed_bytes: managed, unmanaged_anonymous_bytes: other << 20, ..Gauges::default() };
            Summary::new(&run, &totals).without_bound()
        };
        let says = "; most of its memory, 377 MiB, is not managed and has no bound";
        assert_eq!(words(4096, 377, UnmanagedSource::Library), says);
        assert_eq!(words(400 << 20, 377, UnmanagedSource::Library), "");
        assert_eq!(words(4096, 9, UnmanagedSource::Library), "");
        assert_eq!(words(4096, 377, UnmanagedSource::Nobody), "");
    }

    #[test]
    fn stalls_are_a_share_of_the_run() {
        let mut totals = Totals::default();
        totals.counters.stall_ns = 500_000_000;
        assert_eq!(Summary::new(&run(), &totals).stall_share(), 0.25);
    }

    #[test]
    fn says_why_nothing_was_managed() {
        let reason = |run: &Run, totals: &Totals| Summary::new(run, totals).reason;
        assert!(reason(&run(), &Totals::default()).contains("did not report"));
        let refused = Run { unmanaged_because: Some("static".into()), ..run() };
        assert_eq!(reason(&refused, &Totals::default()), "static");
        let mut totals = Totals::default();
        totals.add(ProcessStatistics { reason: "no userfaultfd".into(), ..ProcessStatistics::default() });
        assert_eq!(reason(&run(), &totals), "no userfaultfd");
    }

    #[test]
    fn names_the_program_that_hinterland_ended() {
        let mut totals = Totals::default();
        totals.add(ProcessStatistics { pid: 7, fatal: "far memory is full".into(), ..ProcessStatistics::default() });
        let given = run();
        assert_eq!(Summary::new(&given, &totals).fatal, ["job (process 7): far memory is full"]);
        let ending = |ending, totals: &Totals| Summary::new(&Run { ending, ..run() }, totals).ending();
        assert_eq!(ending(Ending::Exited(0), &totals), Ending::Exited(125), "no success without that process");
        assert_eq!(ending(Ending::Exited(0), &Totals::default()), Ending::Exited(0));
        assert_eq!(ending(Ending::Exited(3), &totals), Ending::Exited(3), "the program's own word");
    }

    #[test]
    fn exit_codes_follow_the_shell() {
        assert_eq!(Ending::Exited(3).exit_code(), 3);
        assert_eq!(Ending::Killed { signal: 9, core: false }.exit_code(), 137);
        assert_eq!(Ending::Killed { signal: 64, core: false }.exit_code(), 192);
    }
}
