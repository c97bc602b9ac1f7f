//! A snapshot of one process's ledger row.

use super::activity::Activity;
use super::backends::BackendFigures;
use super::quantities;
use crate::sample::Process;
use hinterland_abi::{BACKENDS_MAX, ProcessRow};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

quantities! {
    /// What only grows.
    Counters {
        touched_pages, major_faults, minor_faults, first_touch_faults, spurious_faults, prefetched_pages, prefetch_hits,
        prefetch_hits_observed, prefetched_unmapped_pages, prefetch_unused_pages,
        prefetch_late_faults, prefetch_windows, prefetch_window_pages, prefetch_windows_dropped, prefetch_windows_refused,
        evicted_clean_pages, evicted_dirty_pages, evicted_zero_pages, kept_pages, direct_reclaims, stall_ns,
        moved_out_pages, copied_out_pages, forks,
    }
}

quantities! {
    /// What rises and falls, in bytes. Unmanaged anonymous memory is the program's alone, stacks included; Hinterland's own
    /// stands beside it. What is counted is local memory without the pages that other processes count (since a fork): of
    /// several processes, that is what adds up.
    Gauges {
        managed_bytes, resident_managed_bytes, counted_local_bytes, metadata_bytes, total_ram_bytes, unmanaged_anonymous_bytes,
        unmanaged_stack_bytes, own_bytes, file_bytes, shared_bytes,
    }
}

/// One process, at one moment.
#[derive(Clone, Debug, Default)]
pub struct RowFigures {
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
    /// The local budget of the run.
    pub local_budget_bytes: u64,
    /// What the process might count of it when last looked at.
    pub share_bytes: u64,
    /// Whether it was forked from a managed process.
    pub forked: bool,
    /// Counters.
    pub counters: Counters,
    /// Gauges now.
    pub now: Gauges,
    /// The largest that the row itself has kept.
    pub peak: Gauges,
    /// Longest fault.
    pub fault_max_ns: u64,
    /// Fault times, by bucket.
    pub fault_ns: Vec<u64>,
    /// Times from arrival ahead of the program to first use, by bucket.
    pub prefetch_wait_ns: Vec<u64>,
    /// Pages of the largest window that its prefetcher asked for in far memory.
    pub prefetch_window_pages_max: u64,
    /// The bound on its windows; 0: it does not follow the link.
    pub prefetch_window_bound_pages: u64,
    /// A load of one page, where it was measured.
    pub load_one_ns: u64,
    /// Each further page of a load.
    pub load_page_ns: u64,
    /// Its busiest threads.
    pub threads: Vec<Activity>,
    /// The busiest regions of its far memory.
    pub regions: Vec<Activity>,
    /// Backends.
    pub backends: Vec<BackendFigures>,
}

impl RowFigures {
    /// Reads a row.
    pub fn read(row: &ProcessRow) -> RowFigures {
        let get = |counter: &hinterland_abi::Counter| counter.load(Relaxed);
        let backend_count = usize::try_from(row.backend_count.load(Acquire)).unwrap_or(0).min(BACKENDS_MAX);
        let backends: Vec<BackendFigures> = row.backends[..backend_count].iter().map(BackendFigures::read).collect();
        let store_bytes: u64 = backends.iter().map(|backend| backend.ram_bytes).sum();
        let counted = get(&row.counted_local_bytes);
        let now = Gauges {
            managed_bytes: get(&row.managed_bytes),
            resident_managed_bytes: get(&row.resident_managed_bytes),
            counted_local_bytes: counted,
            metadata_bytes: get(&row.metadata_bytes),
            total_ram_bytes: counted + get(&row.metadata_bytes) + store_bytes,
            unmanaged_anonymous_bytes: get(&row.unmanaged_anonymous_bytes),
            unmanaged_stack_bytes: get(&row.unmanaged_stack_bytes),
            own_bytes: get(&row.own_bytes),
            file_bytes: get(&row.file_bytes),
            shared_bytes: get(&row.shared_bytes),
        };
        // Of a process that shares pages, the peak of what it has mapped is not what it has counted.
        let may_share = row.forked.load(Relaxed) != 0 || get(&row.forks) > 0;
        let mut peak = now;
        let kept = Gauges {
            managed_bytes: get(&row.managed_peak_bytes),
            resident_managed_bytes: get(&row.resident_managed_peak_bytes),
            counted_local_bytes: if may_share { counted } else { get(&row.resident_managed_peak_bytes) },
            metadata_bytes: get(&row.metadata_peak_bytes),
            total_ram_bytes: get(&row.total_ram_peak_bytes),
            ..Gauges::default()
        };
        peak.combine(&kept, u64::max);
        RowFigures {
            pid: row.pid.load(Relaxed),
            parent_pid: row.parent_pid.load(Relaxed),
            program: row.program.get(),
            fault_path: row.fault_path.get(),
            reason: row.reason.get(),
            fatal: row.fatal.get(),
            local_budget_bytes: get(&row.local_budget_bytes),
            share_bytes: get(&row.share_bytes),
            forked: row.forked.load(Relaxed) != 0,
            counters: counters(row),
            now,
            peak,
            fault_max_ns: get(&row.fault_max_ns),
            fault_ns: row.fault_ns.iter().map(get).collect(),
            prefetch_wait_ns: row.prefetch_wait_ns.iter().map(get).collect(),
            prefetch_window_pages_max: get(&row.prefetch_window_pages_max),
            prefetch_window_bound_pages: get(&row.prefetch_window_bound_pages),
            load_one_ns: get(&row.load_one_ns),
            load_page_ns: get(&row.load_page_ns),
            threads: Activity::read(row, &row.threads),
            regions: Activity::read(row, &row.regions),
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
    pub fn estimate_unmanaged(&mut self, seen: &Process) {
        let now = &mut self.now;
        let beside_managed = seen.anonymous_bytes.saturating_sub(now.resident_managed_bytes);
        now.own_bytes = (now.total_ram_bytes - now.counted_local_bytes).min(beside_managed);
        now.unmanaged_anonymous_bytes = beside_managed - now.own_bytes;
        now.unmanaged_stack_bytes = seen.stack_bytes.min(now.unmanaged_anonymous_bytes);
        now.file_bytes = seen.file_bytes;
        now.shared_bytes = seen.shared_bytes;
    }
}

fn counters(row: &ProcessRow) -> Counters {
    let get = |counter: &hinterland_abi::Counter| counter.load(Relaxed);
    Counters {
        touched_pages: get(&row.touched_pages),
        major_faults: get(&row.major_faults),
        minor_faults: get(&row.minor_faults),
        first_touch_faults: get(&row.first_touch_faults),
        spurious_faults: get(&row.spurious_faults),
        prefetched_pages: get(&row.prefetched_pages),
        prefetch_hits: get(&row.prefetch_hits),
        prefetch_hits_observed: get(&row.prefetch_hits_observed),
        prefetched_unmapped_pages: get(&row.prefetched_unmapped_pages),
        prefetch_unused_pages: get(&row.prefetch_unused_pages),
        prefetch_late_faults: get(&row.prefetch_late_faults),
        prefetch_windows: get(&row.prefetch_windows),
        prefetch_window_pages: get(&row.prefetch_window_pages),
        prefetch_windows_dropped: get(&row.prefetch_windows_dropped),
        prefetch_windows_refused: get(&row.prefetch_windows_refused),
        evicted_clean_pages: get(&row.evicted_clean_pages),
        evicted_dirty_pages: get(&row.evicted_dirty_pages),
        evicted_zero_pages: get(&row.evicted_zero_pages),
        kept_pages: get(&row.kept_pages),
        direct_reclaims: get(&row.direct_reclaims),
        stall_ns: get(&row.stall_ns),
        moved_out_pages: get(&row.moved_out_pages),
        copied_out_pages: get(&row.copied_out_pages),
        forks: get(&row.forks),
    }
}
