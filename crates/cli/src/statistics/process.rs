//! A snapshot of one process's ledger row.

use super::activity::Activity;
use super::backends::BackendStatistics;
use super::hint_site::HintSite;
use crate::process::ProcessMemory;
use hinterland_abi::statistics::process::{Counters, Gauges, Histograms, Maxima, Own, Principal};
use hinterland_abi::{BACKENDS_MAX, ProcessRow};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// One process, at one moment.
#[derive(Clone, Debug, Default)]
pub struct ProcessStatistics {
    /// The process.
    pub pid: i32,
    /// Its parent.
    pub parent_pid: i32,
    /// Its program.
    pub program: String,
    /// `monitor`, or empty when it is not managed.
    pub fault_path: String,
    /// Why.
    pub reason: String,
    /// What Hinterland ended it for; empty when it did not.
    pub fatal: String,
    /// Why its paths to far memory are not yet as commanded.
    pub path_obstacle: String,
    /// Whether it was forked from a managed process.
    pub forked: bool,
    /// The number of the tape that it follows, from 1; 0: none.
    pub tape: u32,
    /// Processor time of its program's threads when it ended, in nanoseconds; 0: it lives, or did not end in order.
    pub worked_ns: u64,
    /// What only grows.
    pub counters: Counters,
    /// What rises and falls, now. Of several processes, it is counted local memory that adds up: without the pages that other processes
    /// count (since a fork).
    pub now: Gauges,
    /// Store and tables now, those that it shares since a fork fully.
    pub beside_bytes: u64,
    /// The most that each gauge has been, as far as the row has kept it.
    pub peak: Gauges,
    /// What counts if it is the largest of any process.
    pub maxima: Maxima,
    /// What counts if it is the process with the most managed memory.
    pub principal: Principal,
    /// What counts for itself.
    pub own: Own,
    /// Histograms.
    pub histograms: Histograms,
    /// Its busiest threads.
    pub threads: Vec<Activity>,
    /// The busiest regions of its far memory.
    pub regions: Vec<Activity>,
    /// Places that give hints.
    pub hint_sites: Vec<HintSite>,
    /// Backends.
    pub backends: Vec<BackendStatistics>,
}

impl ProcessStatistics {
    /// Reads a row.
    pub fn read(row: &ProcessRow) -> ProcessStatistics {
        let backend_count = usize::try_from(row.backend_count.load(Acquire)).unwrap_or(0).min(BACKENDS_MAX);
        let backends: Vec<BackendStatistics> =
            row.backends[..backend_count].iter().map(BackendStatistics::read).collect();
        let store_bytes: u64 = backends.iter().map(|backend| backend.now.ram_bytes).sum();
        let (counters, mut now, mut kept) = (row.counters(), row.gauges(), row.peaks());
        let counted_beside_bytes = row.counted_beside_bytes.load(Relaxed);
        now.total_ram_bytes = now.counted_local_bytes + counted_beside_bytes;
        // Of a process that shares pages, the peak of what it has mapped is not what it has counted.
        let forked = row.forked.load(Relaxed) != 0;
        let may_share = forked || counters.forks > 0;
        if may_share {
            (kept.counted_local_bytes, kept.total_ram_bytes) = (now.counted_local_bytes, now.total_ram_bytes);
        } else {
            kept.counted_local_bytes = kept.resident_managed_bytes;
        }
        let mut peak = now;
        peak.combine(&kept, u64::max);
        ProcessStatistics {
            pid: row.pid.load(Relaxed),
            parent_pid: row.parent_pid.load(Relaxed),
            program: row.program.get(),
            fault_path: row.fault_path.get(),
            reason: row.reason.get(),
            fatal: row.fatal.get(),
            path_obstacle: row.path_obstacle.get(),
            forked,
            tape: row.tape.load(Relaxed),
            worked_ns: row.worked_ns.load(Relaxed),
            counters,
            now,
            beside_bytes: now.metadata_bytes + store_bytes,
            peak,
            maxima: row.maxima(),
            principal: row.principal(),
            own: row.own(),
            histograms: row.histograms(),
            threads: Activity::read(row, &row.threads),
            regions: Activity::read(row, &row.regions),
            hint_sites: HintSite::read(row),
            backends,
        }
    }

    /// Whether Hinterland manages the process.
    pub fn is_managed(&self) -> bool {
        !self.fault_path.is_empty()
    }

    /// Whether the process itself has looked at its unmanaged memory.
    pub fn knows_unmanaged(&self) -> bool {
        self.now.unmanaged_anonymous_bytes > 0
    }

    /// Fills in the unmanaged memory from outside, when the process has not looked itself.
    ///
    /// Everything anonymous that is neither local managed pages (frames and swap cache included) nor Hinterland's own is the
    /// program's unmanaged memory; all of these are private anonymous memory, so the kernel counts them in `RssAnon`.
    pub fn estimate_unmanaged(&mut self, seen: &ProcessMemory) {
        let now = &mut self.now;
        let beside_managed = seen.anonymous_bytes.saturating_sub(now.resident_managed_bytes);
        now.own_bytes = self.beside_bytes.min(beside_managed);
        now.unmanaged_anonymous_bytes = beside_managed - now.own_bytes;
        now.unmanaged_stack_bytes = seen.stack_bytes.min(now.unmanaged_anonymous_bytes);
        now.file_bytes = seen.file_bytes;
        now.shared_bytes = seen.shared_bytes;
    }
}
