//! The figures as JSON. The names are a promise to scripts; a figure that is zero is there and zero.
//!
//! What is counted comes from the table of statistics (`hinterland_abi::statistics`), under the names that it says; what is derived,
//! and what the launcher knows, stands here, each member with its meaning. docs/reference/statistics.md is made of both.

use super::features::RunFeatures;
use super::members::{Members, documented};
use super::summary::{Summary, compression_ratio};
use crate::statistics::{
    Activity, BackendStatistics, BackendTotal, Counters, Gauges, HintSite, NotManaged, ProcessStatistics,
    UnmanagedSource,
};
use hinterland_abi::statistics::process::{Maxima, Own, Principal};
use serde::Serialize;

/// The version of the document: another one when a name changes its meaning or goes away.
pub const STATS_VERSION: u64 = 2;

/// Statistics that a process has in its own row of the document, too, by their names in the ledger.
const OF_EACH_PROCESS: [&str; 12] = [
    "managed_bytes",
    "resident_managed_bytes",
    "touched_pages",
    "major_faults",
    "minor_faults",
    "tape_threads",
    "tape_pages",
    "tape_left",
    "evicted_clean_pages",
    "evicted_dirty_pages",
    "stall_ns",
    "forks",
];

documented! {
    /// The document. Peaks are over the whole run.
    pub struct Document<'a> {
        /// The version of the document's names.
        stats_version: u64,
        /// The program's exit code; 128 + n when signal n ended it.
        exit_code: u8,
        /// The signal that ended it, or null.
        signal: Option<i32>,
        /// The program, as it was named.
        program: &'a str,
        /// `monitor` or `inline`; `none`: nothing was managed, and `reason` says why.
        fault_path: &'a str,
        /// Why that fault path, or why nothing was managed.
        reason: &'a str,
        /// What Hinterland ended processes for; empty when it did not.
        fatal: &'a [String],
        /// From the program's start to the end of the last process that it left.
        wall_seconds: f64,
        /// Processor time of the processes that have ended and were waited for (those whose parents ignore SIGCHLD are not), Hinterland's own threads in them included; a modelled link (`link=`) polls, which counts.
        processor_seconds: f64,
        /// Where the local budget comes from when it is not given as a size; else null.
        budget_source: Option<&'a str>,
        /// What became of `--slowdown`, or null.
        service_level: Option<Service>,
        /// Managed / (managed + unmanaged anonymous); Hinterland's own counts in neither; null when the run was too short to look.
        managed_share_of_anonymous: Option<f64>,
        /// The largest resident set of any process, as the kernel counts it.
        process_rss_peak_bytes: u64,
        /// The largest proportional set of the process tree, sampled; 0 when the run was too short.
        tree_pss_peak_bytes: u64,
        /// Memory that is not managed, by kind, each at its peak.
        unmanaged: Unmanaged,
        /// Fault service times: percentiles and the longest.
        fault_ns: FaultNs,
        /// The prefetcher, as `--prefetch` names it.
        prefetcher: &'a str,
        /// The flag, variable or file that chose it; null: none did.
        prefetcher_source: Option<&'a str>,
        /// Where the tape of `--tape` comes from, or what was recorded for later runs; null: neither.
        tape_source: Option<&'a str>,
        /// What `--read-ahead` says; null: it was not set.
        read_ahead_pages: Option<u32>,
        /// What `--prefetch-cache` says; null: it was not set.
        prefetch_cache_bytes: Option<u64>,
        /// Uses of pages that were prefetched and mapped, inferred from the use of their window's key page.
        prefetch_hits_inferred: u64,
        /// Observed hits / unmapped pages, without those that a thread waited for and had with their block; null when none were left unmapped.
        prefetch_accuracy: Option<f64>,
        /// Hits / (major faults + minor faults + hits), above the line without those for whose block a thread waited; null when there were none of these.
        prefetch_coverage: Option<f64>,
        /// From prefetch to first use, where it is observed: percentiles.
        prefetch_wait_ns: WaitNs,
        /// `stall_seconds` / `wall_seconds`; above 1 when several threads waited at once.
        stall_share: f64,
        /// Threads over which `stall_seconds` is summed, of all processes; 16: or more.
        stall_threads: u64,
        /// Of compressed backends: bytes of pages / bytes stored, at their peaks; null when they stored nothing.
        compression_ratio: Option<f64>,
        /// Processes that ever ran.
        process_count: u64,
        /// Of those, still running when the launcher ended, because a signal ended its wait for them.
        processes_left_running: u64,
        /// Processes that found no free row.
        processes_uncounted: u64,
        /// Processes, or parts of them, that held memory outside the budget for a second and more; at most 64.
        not_managed: Vec<Outside<'a>>,
        /// What the table of statistics has for a run.
        #[serde(flatten)]
        statistics: Members,
        /// The features of its pages, as far as the pager saw them.
        features: RunFeatures,
        /// The busiest threads, at most 16.
        threads: &'a [Activity],
        /// The busiest regions of 64 MiB, at most 16.
        regions: &'a [Activity],
        /// Places in programs that give hints, at most 64: those that had most pages fetched.
        hint_sites: &'a [HintSite],
        /// One object for each tier.
        backends: Vec<Backend<'a>>,
        /// At most 256, those with the most managed memory.
        processes: Vec<Process<'a>>,
        /// The rest of them: counts are sums, peaks the largest of any.
        processes_others: Others,
    }
}

documented! {
    /// What became of `--slowdown`.
    pub struct Service {
        /// The slowdown that was asked for.
        slowdown_asked: f64,
        /// The slowdown as it was measured: the time of the program's threads over that time without their stall for far memory.
        slowdown: f64,
        /// The local budget in the end.
        local_budget_last_bytes: u64,
        /// The mean of local memory over the run's time.
        local_mean_bytes: u64,
        /// Whether the slowdown was exceeded at the ceiling, where only a larger `--local` would have helped.
        out_of_reach: bool,
        /// The least share of the machine's memory with which the run could not keep its slowdown beside other runs; null: it always could.
        short_share_bytes: Option<u64>,
        /// What the slowdown would have needed then: what had been enough, or all that the program had where no size had; null: see above.
        short_wanted_bytes: Option<u64>,
    }
}

documented! {
    /// Memory that is not managed.
    pub struct Unmanaged {
        /// What the table of statistics has.
        #[serde(flatten)]
        statistics: Members,
        /// `library`: the process looked itself; `sampled`: the launcher estimated from outside; `none`: neither could look.
        source: &'static str,
    }
}

documented! {
    /// Fault service times.
    pub struct FaultNs {
        /// Half of the faults took no longer, within 1/8.
        p50: u64,
        /// 99 of 100 took no longer, within 1/8.
        p99: u64,
        /// What the table of statistics has.
        #[serde(flatten)]
        statistics: Members,
    }
}

documented! {
    /// Memory outside the budget.
    pub struct Outside<'a> {
        /// The process.
        pid: i32,
        /// Its name.
        program: &'a str,
        /// Why it is not managed; `a part of its memory`: it is, but for that.
        reason: &'a str,
        /// The most anonymous memory outside the budget that was seen.
        anonymous_bytes: u64,
    }
}

documented! {
    /// Times from prefetch to use.
    pub struct WaitNs {
        /// Half of the pages waited no longer, within 1/8.
        p50: u64,
        /// 99 of 100 waited no longer, within 1/8.
        p99: u64,
    }
}

documented! {
    /// One tier over all processes.
    pub struct Backend<'a> {
        /// As the user wrote it.
        url: &'a str,
        /// What the table of statistics has for a backend: what is stored is that of the program's end.
        #[serde(flatten)]
        statistics: Members,
        /// Bytes of pages / bytes stored, at their peaks; null when it is not compressed or stored nothing.
        compression_ratio: Option<f64>,
        /// Of a memory node: no page of the run would have been lost with it at the program's end, as far as was known; else null.
        removable: Option<bool>,
    }
}

documented! {
    /// One process.
    pub struct Process<'a> {
        /// Its kernel id.
        pid: i32,
        /// That of its parent.
        parent_pid: i32,
        /// Its program's path.
        program: &'a str,
        /// `monitor` or `inline`; empty: it was not managed.
        fault_path: &'a str,
        /// Why that fault path, or why it was not managed.
        reason: &'a str,
        /// What Hinterland ended it for; empty when it did not.
        fatal: &'a str,
        /// It was forked from a managed process and began with that one's memory.
        forked: bool,
        /// The file of the tape that it followed; null: it followed none.
        tape: Option<&'a str>,
        /// Some of what the table of statistics has for a run.
        #[serde(flatten)]
        statistics: Members,
    }
}

documented! {
    /// Processes that have no object of their own.
    pub struct Others {
        /// How many.
        count: u64,
        /// As of one process.
        #[serde(flatten)]
        statistics: Members,
    }
}

impl Summary<'_> {
    /// The figures as a JSON document, ended by a newline.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.document()).unwrap_or_default();
        text.push('\n');
        text
    }

    /// What the table of statistics has, at its place in the document: at the top, or in an object.
    fn statistics(&self, place: &str) -> Members {
        let totals = self.totals;
        let maxima = Maxima { local_budget_bytes: self.local_budget_bytes, ..totals.maxima };
        let principal = totals.principal().map(|row| row.principal).unwrap_or_default();
        of_the_run(place, &totals.counters, &totals.peak, &maxima, &principal)
    }

    fn features(&self) -> RunFeatures {
        let totals = self.totals;
        let has_looked = totals.unmanaged_source != UnmanagedSource::Nobody;
        RunFeatures::of(&totals.counters, totals.maxima.feature_run_pages_max, &totals.peak, has_looked)
    }

    fn document(&self) -> Document<'_> {
        let Summary { run, totals, .. } = self;
        let (times, prefetching) = (self.fault_times(), self.prefetching());
        Document {
            stats_version: STATS_VERSION,
            exit_code: run.ending.exit_code(),
            signal: run.ending.signal(),
            program: &run.program,
            fault_path: &self.fault_path,
            reason: &self.reason,
            fatal: &self.fatal,
            wall_seconds: run.wall.as_secs_f64(),
            processor_seconds: run.processor.as_secs_f64(),
            budget_source: run.budget_source.as_deref(),
            managed_share_of_anonymous: self.managed_share_of_anonymous(),
            process_rss_peak_bytes: run.kernel_rss_peak_bytes,
            tree_pss_peak_bytes: run.tree_pss_peak_bytes,
            unmanaged: Unmanaged { statistics: self.statistics("unmanaged."), source: source(totals.unmanaged_source) },
            fault_ns: FaultNs { p50: times.p50, p99: times.p99, statistics: self.statistics("fault_ns.") },
            prefetcher: &run.prefetch,
            prefetcher_source: run.prefetch_source.as_deref(),
            tape_source: run.tape_source.as_deref(),
            service_level: run.service.map(|service| Service {
                slowdown_asked: service.asked.factor(),
                slowdown: service.achieved,
                local_budget_last_bytes: service.budget_bytes,
                local_mean_bytes: service.local_mean_bytes,
                out_of_reach: service.out_of_reach,
                short_share_bytes: service.shortage.map(|shortage| shortage.share_bytes),
                short_wanted_bytes: service.shortage.map(|shortage| shortage.wanted_bytes),
            }),
            read_ahead_pages: run.read_ahead_pages,
            prefetch_cache_bytes: run.prefetch_cache.map(|size| size.0),
            prefetch_hits_inferred: prefetching.hits_inferred,
            prefetch_accuracy: prefetching.accuracy,
            prefetch_coverage: prefetching.coverage,
            prefetch_wait_ns: WaitNs { p50: prefetching.wait_p50_ns, p99: prefetching.wait_p99_ns },
            stall_share: self.stall_share(),
            stall_threads: self.stall_threads(),
            compression_ratio: compression_ratio(totals.backends()),
            process_count: totals.process_count,
            processes_left_running: totals.left_running,
            processes_uncounted: totals.uncounted,
            not_managed: totals.not_managed.iter().map(outside).collect(),
            statistics: self.statistics(""),
            features: self.features(),
            threads: &totals.threads,
            regions: &totals.regions,
            hint_sites: &totals.hint_sites,
            backends: totals.backends().iter().map(backend).collect(),
            processes: totals.processes.iter().map(|row| process(row, &run.tapes)).collect(),
            processes_others: Others {
                count: totals.others.count,
                statistics: of_each_process(&totals.others.counters, &totals.others.peak),
            },
        }
    }
}

fn source(source: UnmanagedSource) -> &'static str {
    match source {
        UnmanagedSource::Nobody => "none",
        UnmanagedSource::Sampled => "sampled",
        UnmanagedSource::Library => "library",
    }
}

fn backend(total: &BackendTotal) -> Backend<'_> {
    let figures = &total.statistics;
    let statistics = of_a_backend(figures);
    let removable = hinterland_backend::names_nodes(&figures.url).then_some(figures.now.needed == 0);
    Backend { url: &figures.url, statistics, compression_ratio: compression_ratio([total]), removable }
}

fn outside(found: &NotManaged) -> Outside<'_> {
    let NotManaged { pid, program, why, anonymous_bytes, .. } = found;
    Outside { pid: *pid, program, reason: why, anonymous_bytes: *anonymous_bytes }
}

fn process<'a>(row: &'a ProcessStatistics, tapes: &'a [String]) -> Process<'a> {
    let tape = usize::try_from(row.tape).ok().and_then(|number| tapes.get(number.checked_sub(1)?));
    Process {
        pid: row.pid,
        parent_pid: row.parent_pid,
        program: &row.program,
        fault_path: &row.fault_path,
        reason: &row.reason,
        fatal: &row.fatal,
        forked: row.forked,
        tape: tape.map(String::as_str),
        statistics: of_a_process(&row.own, &row.counters, &row.peak),
    }
}

// Which statistics an object has: the document and its schema are made of these.

fn of_the_run(place: &str, counters: &Counters, peak: &Gauges, maxima: &Maxima, principal: &Principal) -> Members {
    let figures = [counters.figures(), peak.figures(), maxima.figures(), principal.figures()];
    Members::at(place, figures.concat())
}

fn of_a_backend(figures: &BackendStatistics) -> Members {
    let counted = [figures.counters.figures(), figures.now.figures(), figures.maxima.figures()].concat();
    Members::at("", counted).and(Members::peaks(&figures.peak.figures()))
}

fn of_a_process(own: &Own, counters: &Counters, peak: &Gauges) -> Members {
    Members::of(own.figures()).and(of_each_process(counters, peak))
}

fn of_each_process(counters: &Counters, peak: &Gauges) -> Members {
    let mut figures = [peak.figures(), counters.figures()].concat();
    figures.retain(|(statistic, _)| OF_EACH_PROCESS.contains(&statistic.name));
    Members::of(figures)
}

#[cfg(test)]
mod counted {
    //! The statistics of each object, for its schema.

    use super::*;
    use crate::schema::Counted;

    fn at(place: &str) -> Members {
        of_the_run(place, &Counters::default(), &Gauges::default(), &Maxima::default(), &Principal::default())
    }

    impl Counted for Document<'_> {
        fn members() -> Members {
            at("")
        }
    }

    impl Counted for Unmanaged {
        fn members() -> Members {
            at("unmanaged.")
        }
    }

    impl Counted for FaultNs {
        fn members() -> Members {
            at("fault_ns.")
        }
    }

    impl Counted for Backend<'_> {
        fn members() -> Members {
            of_a_backend(&BackendStatistics::default())
        }
    }

    impl Counted for Process<'_> {
        fn members() -> Members {
            of_a_process(&Own::default(), &Counters::default(), &Gauges::default())
        }
    }

    impl Counted for Others {
        fn members() -> Members {
            of_each_process(&Counters::default(), &Gauges::default())
        }
    }
}
