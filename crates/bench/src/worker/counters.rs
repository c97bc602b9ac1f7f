//! Counters at the edges of the timed phase: the kernel's for this process and, under Hinterland, the process's own row of
//! the ledger, mapped read-only.

use hinterland_abi::{
    FAULT_BUCKETS, LEDGER_MAGIC, LEDGER_VERSION, Ledger, ProcessRow, RowState, bucket_upper_ns, variables,
};
use memmap2::{Mmap, MmapOptions};
use nix::sys::resource::{UsageWho, getrusage};
use procfs::process::Process;
use procfs::{CurrentSI, KernelStats};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// How the names of Hinterland's threads begin (crates/pager).
const THREAD_PREFIX: &str = "far-";
/// The thread that evicts.
const EVICTOR: &str = "far-evictor";
/// Pages that a direct reclaim evicts: it makes one of the two steps (out of the program, into far memory) that the pages of
/// a chunk of 64 take.
const DIRECT_RECLAIM_PAGES: u64 = 32;

/// Processor time of the timed phase, in seconds.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct Processor {
    /// Of the worker, Hinterland's threads in it included.
    pub process: f64,
    /// Of the whole machine, whatever ran: kernel threads, interrupts and unrelated programs too.
    pub machine: f64,
}

/// Faults of the timed phase, and what Hinterland did.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Paging {
    /// Faults that waited for far memory.
    pub major_faults: u64,
    /// Faults that did not.
    pub minor_faults: u64,
    /// Hinterland's further figures.
    pub hinterland: Option<Hinterland>,
}

/// From the ledger.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Hinterland {
    /// How faults were served.
    pub fault_path: String,
    /// Pages brought in ahead of the program.
    pub prefetched_pages: u64,
    /// Of those, used: seen or inferred.
    pub prefetch_hits: u64,
    /// Prefetched pages that were left unmapped, so that their use is seen.
    #[serde(default)]
    pub prefetched_unmapped_pages: u64,
    /// Those of before the phase that waited for their use when it began.
    #[serde(default)]
    pub prefetched_waiting_pages: u64,
    /// Of both, used.
    #[serde(default)]
    pub prefetch_hits_observed: u64,
    /// Pages dropped because their stored copy was right.
    pub evicted_clean_pages: u64,
    /// Pages written to far memory.
    pub evicted_dirty_pages: u64,
    /// Faults that had to reclaim memory themselves.
    pub direct_reclaims: u64,
    /// Time that threads waited for faults, summed over threads.
    pub stall_seconds: f64,
    /// Fault service time that half of the faults did not exceed.
    pub fault_ns_p50: u64,
    /// … that 99 of 100 did not exceed.
    pub fault_ns_p99: u64,
    /// Processor time of Hinterland's threads, by name.
    pub thread_cpu_seconds: BTreeMap<String, f64>,
    /// Processor time of the evictor for each page that left: taking out, hashing, storing, freeing. Pages that faulting
    /// threads evicted (`direct_reclaims`) are not its pages. None when none left.
    pub evictor_us_per_page: Option<f64>,
    /// The most local memory that was in use since the start.
    pub resident_managed_peak_bytes: u64,
    /// The most managed memory since the start.
    pub managed_peak_bytes: u64,
    /// Local memory at the end of the phase.
    #[serde(default)]
    pub resident_managed_bytes: u64,
    /// What far pages occupy in RAM at the end of the phase.
    #[serde(default)]
    pub stored_bytes: u64,
    /// The most that the pager's tables have occupied, by its own count.
    #[serde(default)]
    pub metadata_peak_bytes: u64,
}

/// Counters at one moment.
pub struct Snapshot {
    process_seconds: f64,
    machine_seconds: f64,
    major_faults: u64,
    minor_faults: u64,
    row: Option<RowSnapshot>,
}

struct RowSnapshot {
    counts: [u64; 11],
    thread_ns: BTreeMap<String, u64>,
    stall_ns: u64,
    fault_ns: Box<[u64; FAULT_BUCKETS]>,
}

/// The ledger's mapping, when there is one.
pub struct Counters {
    ledger: Option<Mmap>,
}

impl Counters {
    /// Maps the ledger that the environment names.
    ///
    /// # Errors
    /// The ledger is named but cannot be used.
    pub fn new() -> Result<Counters, String> {
        let path = std::env::var(variables::LEDGER).unwrap_or_default();
        if path.is_empty() {
            return Ok(Counters { ledger: None });
        }
        let file = File::open(&path).map_err(|e| format!("cannot open the ledger {path}: {e}"))?;
        // SAFETY: `MmapOptions::map` asks that the file is not cut while it is mapped: the launcher sizes the ledger once,
        // before it starts the program. The bytes change under us, but they are read through the ledger's atomics only.
        let map = unsafe { MmapOptions::new().map(&file) }.map_err(|e| format!("cannot map the ledger {path}: {e}"))?;
        if map.len() < size_of::<Ledger>() {
            return Err(format!("the ledger {path} is too short: {} bytes", map.len()));
        }
        let counters = Counters { ledger: Some(map) };
        let ledger = counters.ledger().expect("just mapped");
        if ledger.magic.load(Relaxed) != LEDGER_MAGIC || ledger.version.load(Relaxed) != LEDGER_VERSION {
            return Err(format!("{path} is no ledger of this version"));
        }
        Ok(counters)
    }

    fn ledger(&self) -> Option<&Ledger> {
        let map = self.ledger.as_ref()?;
        // SAFETY: the mapping is page-aligned, at least `size_of::<Ledger>()` long (checked in `new`), and lives as long as
        // `self`. A ledger consists of atomics only, for which every bit pattern is valid and shared change is allowed.
        Some(unsafe { &*map.as_ptr().cast::<Ledger>() })
    }

    fn row(&self) -> Option<&ProcessRow> {
        let pid = i32::try_from(std::process::id()).ok()?;
        self.ledger()?
            .processes
            .iter()
            .find(|row| row.pid.load(Relaxed) == pid && row.state.load(Relaxed) == RowState::Live as u32)
    }

    /// The counters now.
    pub fn snapshot(&self) -> Snapshot {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of this process");
        #[allow(clippy::cast_precision_loss, reason = "seconds of one run")]
        let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6;
        Snapshot {
            process_seconds: seconds(usage.user_time()) + seconds(usage.system_time()),
            machine_seconds: machine_seconds(),
            major_faults: usage.major_page_faults().unsigned_abs(),
            minor_faults: usage.minor_page_faults().unsigned_abs(),
            row: self.row().map(RowSnapshot::of),
        }
    }

    /// What happened between two moments.
    pub fn between(&self, start: &Snapshot, end: &Snapshot) -> (Processor, Paging) {
        let processor = Processor {
            process: end.process_seconds - start.process_seconds,
            machine: end.machine_seconds - start.machine_seconds,
        };
        let mut paging = Paging {
            major_faults: end.major_faults - start.major_faults,
            minor_faults: end.minor_faults - start.minor_faults,
            hinterland: None,
        };
        if let (Some(row), Some(before), Some(after)) = (self.row(), &start.row, &end.row) {
            let [major, minor, prefetched, hits, clean, dirty, reclaims, zero, unmapped, observed, _] =
                std::array::from_fn(|i| after.counts[i].saturating_sub(before.counts[i]));
            (paging.major_faults, paging.minor_faults) = (major, minor);
            let (p50, p99) = before.percentiles_until(after);
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of one run")]
            let stall_seconds = after.stall_ns.saturating_sub(before.stall_ns) as f64 * 1e-9;
            let thread_cpu_seconds = before.thread_seconds_until(after);
            let evictor = thread_cpu_seconds.get(EVICTOR).copied();
            #[allow(clippy::cast_precision_loss, reason = "pages of one run")]
            let evicted = (clean + zero + dirty).saturating_sub(reclaims * DIRECT_RECLAIM_PAGES) as f64;
            paging.hinterland = Some(Hinterland {
                fault_path: row.fault_path.get(),
                prefetched_pages: prefetched,
                prefetch_hits: hits,
                prefetched_unmapped_pages: unmapped,
                prefetched_waiting_pages: before.waiting(),
                prefetch_hits_observed: observed,
                evicted_clean_pages: clean + zero,
                evicted_dirty_pages: dirty,
                direct_reclaims: reclaims,
                stall_seconds,
                fault_ns_p50: p50,
                fault_ns_p99: p99,
                thread_cpu_seconds,
                evictor_us_per_page: evictor.filter(|_| evicted > 0.0).map(|seconds| seconds * 1e6 / evicted),
                resident_managed_peak_bytes: row.resident_managed_peak_bytes.load(Relaxed),
                managed_peak_bytes: row.managed_peak_bytes.load(Relaxed),
                resident_managed_bytes: row.resident_managed_bytes.load(Relaxed),
                stored_bytes: stored_in_ram(row),
                metadata_peak_bytes: row.metadata_peak_bytes.load(Relaxed),
            });
        }
        (processor, paging)
    }
}

impl RowSnapshot {
    fn of(row: &ProcessRow) -> RowSnapshot {
        let counters = [
            &row.major_faults,
            &row.minor_faults,
            &row.prefetched_pages,
            &row.prefetch_hits,
            &row.evicted_clean_pages,
            &row.evicted_dirty_pages,
            &row.direct_reclaims,
            &row.evicted_zero_pages,
            &row.prefetched_unmapped_pages,
            &row.prefetch_hits_observed,
            &row.prefetch_unused_pages,
        ];
        let mut fault_ns = Box::new([0; FAULT_BUCKETS]);
        for (copy, bucket) in fault_ns.iter_mut().zip(&row.fault_ns) {
            *copy = bucket.load(Relaxed);
        }
        let stall_ns = row.stall_ns.load(Relaxed);
        RowSnapshot { counts: counters.map(|c| c.load(Relaxed)), thread_ns: thread_ns(), stall_ns, fault_ns }
    }

    /// Prefetched pages that are unmapped, neither used nor given up.
    fn waiting(&self) -> u64 {
        let [.., unmapped, used, given_up] = self.counts;
        unmapped.saturating_sub(used + given_up)
    }

    /// Processor time of Hinterland's threads between the two moments.
    fn thread_seconds_until(&self, after: &RowSnapshot) -> BTreeMap<String, f64> {
        let since = |(name, ns): (&String, &u64)| {
            let ns = ns.saturating_sub(self.thread_ns.get(name).copied().unwrap_or(0));
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of one run")]
            let seconds = ns as f64 * 1e-9;
            (name.clone(), seconds)
        };
        after.thread_ns.iter().map(since).collect()
    }

    /// The 50th and 99th percentile of the faults between the two moments.
    fn percentiles_until(&self, after: &RowSnapshot) -> (u64, u64) {
        let faults = |i: usize| after.fault_ns[i].saturating_sub(self.fault_ns[i]);
        let total: u64 = (0..FAULT_BUCKETS).map(faults).sum();
        let at = |percent: u64| {
            let mut seen = 0;
            let reached = |i: &usize| {
                seen += faults(*i);
                total > 0 && seen * 100 >= total * percent
            };
            (0..FAULT_BUCKETS).find(reached).map_or(0, bucket_upper_ns)
        };
        (at(50), at(99))
    }
}

/// What the pages in backends of RAM occupy.
fn stored_in_ram(row: &ProcessRow) -> u64 {
    let count = row.backend_count.load(Acquire) as usize;
    let in_ram = row.backends.iter().take(count).filter(|backend| !backend.url.get().starts_with("file:"));
    in_ram.map(|backend| backend.stored_bytes.load(Relaxed)).sum()
}

/// Processor time of Hinterland's threads in this process until now, by name; empty when it cannot be read.
fn thread_ns() -> BTreeMap<String, u64> {
    let tasks = Process::myself().and_then(|me| me.tasks()).into_iter().flatten().flatten();
    let mut times = BTreeMap::new();
    for task in tasks {
        if let (Ok(stat), Ok(schedstat)) = (task.stat(), task.schedstat())
            && stat.comm.starts_with(THREAD_PREFIX)
        {
            *times.entry(stat.comm).or_insert(0) += schedstat.sum_exec_runtime;
        }
    }
    times
}

/// Processor time that the machine has spent on anything but idling, in seconds; 0 when it cannot be read.
pub fn machine_seconds() -> f64 {
    let Ok(stats) = KernelStats::current() else { return 0.0 };
    let cpu = stats.total;
    let busy = cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0);
    #[allow(clippy::cast_precision_loss, reason = "clock ticks since the machine started")]
    let seconds = busy as f64 / procfs::ticks_per_second() as f64;
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_only_the_faults_in_between() {
        let fault_ns = || Box::new([0; FAULT_BUCKETS]);
        let empty = || RowSnapshot { counts: [0; 11], thread_ns: BTreeMap::new(), stall_ns: 0, fault_ns: fault_ns() };
        let (mut before, mut after) = (empty(), empty());
        assert_eq!(before.percentiles_until(&after), (0, 0));
        before.fault_ns[10] = 1000;
        after.fault_ns[10] = 1000;
        after.fault_ns[50] = 98;
        after.fault_ns[90] = 2;
        assert_eq!(before.percentiles_until(&after), (bucket_upper_ns(50), bucket_upper_ns(90)));
    }

    #[test]
    fn pages_wait_until_they_are_used_or_given_up() {
        let counts = [1, 2, 3, 4, 5, 6, 7, 8, 100, 60, 15];
        let row =
            RowSnapshot { counts, thread_ns: BTreeMap::new(), stall_ns: 0, fault_ns: Box::new([0; FAULT_BUCKETS]) };
        assert_eq!(row.waiting(), 25);
    }

    #[test]
    fn hinterlands_threads_are_told_from_the_programs() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread =
            std::thread::Builder::new().name("far-evictor".into()).spawn(move || wait.recv().is_err()).unwrap();
        while !thread_ns().contains_key(EVICTOR) {
            std::thread::yield_now();
        }
        assert_eq!(thread_ns().len(), 1);
        drop(done);
        assert!(thread.join().unwrap());
    }

    #[test]
    fn the_kernels_counters_move_forward() {
        let counters = Counters { ledger: None };
        let start = counters.snapshot();
        let touched = vec![1u8; 16 << 20];
        let end = counters.snapshot();
        let (processor, paging) = counters.between(&start, &end);
        assert!(paging.minor_faults > 0 && paging.hinterland.is_none());
        assert!(processor.process >= 0.0 && processor.machine >= 0.0);
        drop(touched);
    }
}
