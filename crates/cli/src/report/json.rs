//! The figures as JSON. The names are a promise to scripts; a figure that is zero is there and zero.

use super::summary::{Summary, compression_ratio};
use crate::figures::{Activity, BackendTotal, Counters, Gauges, RowFigures, UnmanagedSource};
use serde::Serialize;
use std::time::Duration;

/// The version of the document: another one when a name changes its meaning or goes away.
pub const STATS_VERSION: u64 = 1;

/// The document. Bytes, pages, seconds and nanoseconds as the names say; peaks over the whole run.
#[derive(Serialize)]
struct Document<'a> {
    /// [`STATS_VERSION`].
    stats_version: u64,
    /// The program's exit code; 128 + n when signal n ended it.
    exit_code: u8,
    /// The signal that ended it, or null.
    signal: Option<i32>,
    program: &'a str,
    /// `monitor`, or `none`: nothing was managed, and `reason` says why.
    fault_path: &'a str,
    reason: &'a str,
    /// What Hinterland ended processes for; empty when it did not.
    fatal: &'a [String],
    wall_seconds: f64,
    local_budget_bytes: u64,
    budget_source: Option<&'a str>,
    managed_peak_bytes: u64,
    /// Managed / (managed + unmanaged anonymous); Hinterland's own counts in neither; null when the run was too short to look.
    managed_share_of_anonymous: Option<f64>,
    /// Mapped, staging and swap cache; pages that processes share since a fork count once.
    resident_managed_peak_bytes: u64,
    process_rss_peak_bytes: u64,
    /// Sampled; 0 when the run was too short.
    tree_pss_peak_bytes: u64,
    total_ram_peak_bytes: u64,
    metadata_peak_bytes: u64,
    unmanaged: Unmanaged,
    touched_pages: u64,
    major_faults: u64,
    minor_faults: u64,
    first_touch_faults: u64,
    spurious_faults: u64,
    fault_ns: FaultNs,
    /// As `--prefetch` names it.
    prefetcher: &'a str,
    /// The flag, variable or file that chose it; null: nobody did.
    prefetcher_source: Option<&'a str>,
    /// What `--read-ahead` says; null: nobody did.
    read_ahead_pages: Option<u32>,
    /// What `--prefetch-cache` says; null: nobody did.
    prefetch_cache_bytes: Option<u64>,
    prefetched_pages: u64,
    /// Prefetched pages that were used, seen and inferred.
    prefetch_hits: u64,
    /// First uses of pages that were left unmapped, so that they are seen.
    prefetch_hits_observed: u64,
    /// Uses of pages mapped ahead, told by the use of their window's key page.
    prefetch_hits_inferred: u64,
    prefetched_unmapped_pages: u64,
    /// Of those, given up before they were used.
    prefetch_unused_pages: u64,
    /// Observed hits / unmapped pages; null when none were left unmapped.
    prefetch_accuracy: Option<f64>,
    /// Hits / (major faults + minor faults + hits); null when there were none of these.
    prefetch_coverage: Option<f64>,
    /// From arrival to first use, where it is seen.
    prefetch_wait_ns: WaitNs,
    /// Faults that waited for a page which was on its way ahead of the program.
    prefetch_late_faults: u64,
    /// Windows asked for in far memory, and the pages in them, wherever these were.
    prefetch_windows: u64,
    prefetch_window_pages: u64,
    prefetch_window_pages_max: u64,
    /// The bound on windows in the end, where it followed the link; 0: it did not. Of the process with the most managed memory.
    prefetch_window_bound_pages: u64,
    /// A load of one page, and each further page of a load, where it was measured for that bound; 0: it was not.
    load_one_ns: u64,
    load_page_ns: u64,
    /// Windows dropped because too many others came after them.
    prefetch_windows_dropped: u64,
    /// Windows given up because no frames were free for them.
    prefetch_windows_refused: u64,
    /// The busiest threads, at most 16.
    threads: &'a [Activity],
    /// The busiest regions of 64 MiB, at most 16.
    regions: &'a [Activity],
    evicted_clean_pages: u64,
    evicted_dirty_pages: u64,
    evicted_zero_pages: u64,
    kept_pages: u64,
    moved_out_pages: u64,
    copied_out_pages: u64,
    direct_reclaims: u64,
    /// Summed over threads.
    stall_seconds: f64,
    /// Of wall time; above 1 when several threads stood still at once.
    stall_share: f64,
    forks: u64,
    /// Null when no compressed backend stored anything.
    compression_ratio: Option<f64>,
    backends: Vec<Backend<'a>>,
    process_count: u64,
    /// Still running when the launcher ended, because a signal ended its wait for them.
    processes_left_running: u64,
    processes_uncounted: u64,
    /// At most 256, those with the most managed memory.
    processes: Vec<Process<'a>>,
    /// The rest of them: counts are sums, peaks the largest of any.
    processes_others: Others,
}

#[derive(Serialize)]
struct Others {
    count: u64,
    #[serde(flatten)]
    figures: ProcessFigures,
}

/// Memory that is not managed, by kind, each at its peak. Stacks are part of anonymous; Hinterland's own is not.
#[derive(Serialize)]
struct Unmanaged {
    anonymous_bytes: u64,
    stack_bytes: u64,
    own_bytes: u64,
    file_bytes: u64,
    shared_bytes: u64,
    /// `library`: the process looked itself; `sampled`: the launcher estimated from outside; `none`: nobody could look.
    source: &'static str,
}

#[derive(Serialize)]
struct FaultNs {
    p50: u64,
    p99: u64,
    max: u64,
}

#[derive(Serialize)]
struct WaitNs {
    p50: u64,
    p99: u64,
}

/// `stored_bytes`, `pages`, `ram_bytes`: when the program ended.
#[derive(Serialize)]
struct Backend<'a> {
    url: &'a str,
    bytes_in: u64,
    bytes_out: u64,
    stored_bytes: u64,
    stored_peak_bytes: u64,
    pages: u64,
    pages_peak: u64,
    ram_bytes: u64,
    ram_peak_bytes: u64,
    same_filled_pages: u64,
    plain_pages: u64,
    /// The most of any process; of a memory node, its quota, 0 while it is lost.
    capacity_bytes: u64,
    /// Losses of a memory node, summed over processes.
    losses: u64,
    /// Pages copied to a memory node in place of lost replicas, summed over processes.
    rebuilt_pages: u64,
    hedged_loads: u64,
    /// It got to see encrypted pages only.
    encrypted: bool,
    compression_ratio: Option<f64>,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: i32,
    parent_pid: i32,
    program: &'a str,
    fault_path: &'a str,
    reason: &'a str,
    fatal: &'a str,
    /// It was forked from a managed process and began with that one's memory.
    forked: bool,
    /// What it might count of the run's local budget when last looked at.
    share_bytes: u64,
    #[serde(flatten)]
    figures: ProcessFigures,
}

/// The figures of one process, or of several together.
#[derive(Serialize)]
struct ProcessFigures {
    managed_peak_bytes: u64,
    /// Pages that it shared with others since a fork included.
    resident_managed_peak_bytes: u64,
    touched_pages: u64,
    major_faults: u64,
    minor_faults: u64,
    evicted_clean_pages: u64,
    evicted_dirty_pages: u64,
    stall_seconds: f64,
    forks: u64,
}

impl Summary<'_> {
    /// The figures as a JSON document, ended by a newline.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.document()).unwrap_or_default();
        text.push('\n');
        text
    }

    fn document(&self) -> Document<'_> {
        let Summary { run, totals, .. } = self;
        let (counters, peak, times) = (&totals.counters, self.peak(), self.fault_times());
        let prefetching = self.prefetching();
        Document {
            stats_version: STATS_VERSION,
            exit_code: run.ending.exit_code(),
            signal: run.ending.signal(),
            program: &run.program,
            fault_path: &self.fault_path,
            reason: &self.reason,
            fatal: &self.fatal,
            wall_seconds: run.wall.as_secs_f64(),
            local_budget_bytes: self.local_budget_bytes,
            budget_source: run.budget_source.as_deref(),
            managed_peak_bytes: peak.managed_bytes,
            managed_share_of_anonymous: self.managed_share_of_anonymous(),
            resident_managed_peak_bytes: peak.counted_local_bytes,
            process_rss_peak_bytes: run.kernel_rss_peak_bytes,
            tree_pss_peak_bytes: run.tree_pss_peak_bytes,
            total_ram_peak_bytes: peak.total_ram_bytes,
            metadata_peak_bytes: peak.metadata_bytes,
            unmanaged: Unmanaged {
                anonymous_bytes: peak.unmanaged_anonymous_bytes,
                stack_bytes: peak.unmanaged_stack_bytes,
                own_bytes: peak.own_bytes,
                file_bytes: peak.file_bytes,
                shared_bytes: peak.shared_bytes,
                source: match totals.unmanaged_source {
                    UnmanagedSource::Nobody => "none",
                    UnmanagedSource::Sampled => "sampled",
                    UnmanagedSource::Library => "library",
                },
            },
            touched_pages: counters.touched_pages,
            major_faults: counters.major_faults,
            minor_faults: counters.minor_faults,
            first_touch_faults: counters.first_touch_faults,
            spurious_faults: counters.spurious_faults,
            fault_ns: FaultNs { p50: times.p50, p99: times.p99, max: times.max },
            prefetcher: &run.prefetch,
            prefetcher_source: run.prefetch_source.as_deref(),
            read_ahead_pages: run.read_ahead_pages,
            prefetch_cache_bytes: run.prefetch_cache.map(|size| size.0),
            prefetched_pages: counters.prefetched_pages,
            prefetch_hits: counters.prefetch_hits,
            prefetch_hits_observed: counters.prefetch_hits_observed,
            prefetch_hits_inferred: prefetching.hits_inferred,
            prefetched_unmapped_pages: counters.prefetched_unmapped_pages,
            prefetch_unused_pages: counters.prefetch_unused_pages,
            prefetch_accuracy: prefetching.accuracy,
            prefetch_coverage: prefetching.coverage,
            prefetch_wait_ns: WaitNs { p50: prefetching.wait_p50_ns, p99: prefetching.wait_p99_ns },
            prefetch_late_faults: counters.prefetch_late_faults,
            prefetch_windows: counters.prefetch_windows,
            prefetch_window_pages: counters.prefetch_window_pages,
            prefetch_window_pages_max: totals.prefetch_window_pages_max,
            prefetch_window_bound_pages: totals.principal().map_or(0, |row| row.prefetch_window_bound_pages),
            load_one_ns: totals.principal().map_or(0, |row| row.load_one_ns),
            load_page_ns: totals.principal().map_or(0, |row| row.load_page_ns),
            prefetch_windows_dropped: counters.prefetch_windows_dropped,
            prefetch_windows_refused: counters.prefetch_windows_refused,
            threads: &totals.threads,
            regions: &totals.regions,
            evicted_clean_pages: counters.evicted_clean_pages,
            evicted_dirty_pages: counters.evicted_dirty_pages,
            evicted_zero_pages: counters.evicted_zero_pages,
            kept_pages: counters.kept_pages,
            moved_out_pages: counters.moved_out_pages,
            copied_out_pages: counters.copied_out_pages,
            direct_reclaims: counters.direct_reclaims,
            stall_seconds: self.stall().as_secs_f64(),
            stall_share: self.stall_share(),
            forks: counters.forks,
            compression_ratio: compression_ratio(totals.backends()),
            backends: totals.backends().iter().map(backend).collect(),
            process_count: totals.process_count,
            processes_left_running: totals.left_running,
            processes_uncounted: totals.uncounted,
            processes: totals.processes.iter().map(process).collect(),
            processes_others: Others {
                count: totals.others.count,
                figures: process_figures(&totals.others.counters, &totals.others.peak),
            },
        }
    }
}

fn backend(total: &BackendTotal) -> Backend<'_> {
    let figures = &total.figures;
    Backend {
        url: &figures.url,
        bytes_in: figures.bytes_in,
        bytes_out: figures.bytes_out,
        stored_bytes: figures.stored_bytes,
        stored_peak_bytes: figures.stored_peak_bytes,
        pages: figures.pages,
        pages_peak: figures.pages_peak,
        ram_bytes: figures.ram_bytes,
        ram_peak_bytes: figures.ram_peak_bytes,
        same_filled_pages: figures.same_filled_pages,
        plain_pages: figures.plain_pages,
        capacity_bytes: figures.capacity_bytes,
        losses: figures.losses,
        rebuilt_pages: figures.rebuilt_pages,
        hedged_loads: figures.hedged_loads,
        encrypted: figures.encrypted,
        compression_ratio: compression_ratio([total]),
    }
}

fn process(row: &RowFigures) -> Process<'_> {
    Process {
        pid: row.pid,
        parent_pid: row.parent_pid,
        program: &row.program,
        fault_path: &row.fault_path,
        reason: &row.reason,
        fatal: &row.fatal,
        forked: row.forked,
        share_bytes: row.share_bytes,
        figures: process_figures(&row.counters, &row.peak),
    }
}

fn process_figures(counters: &Counters, peak: &Gauges) -> ProcessFigures {
    ProcessFigures {
        managed_peak_bytes: peak.managed_bytes,
        resident_managed_peak_bytes: peak.resident_managed_bytes,
        touched_pages: counters.touched_pages,
        major_faults: counters.major_faults,
        minor_faults: counters.minor_faults,
        evicted_clean_pages: counters.evicted_clean_pages,
        evicted_dirty_pages: counters.evicted_dirty_pages,
        stall_seconds: Duration::from_nanos(counters.stall_ns).as_secs_f64(),
        forks: counters.forks,
    }
}
