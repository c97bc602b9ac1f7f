//! The launcher's `--stats` file, read by the names that it promises.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Fault service times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FaultTimes {
    /// Median, in nanoseconds.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Longest.
    pub max: u64,
}

/// One backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendStats {
    /// As the user wrote it.
    pub url: String,
    /// Bytes stored.
    pub bytes_in: u64,
    /// Bytes loaded.
    pub bytes_out: u64,
    /// Bytes that the stored pages occupy.
    pub stored_bytes: u64,
    /// Pages stored.
    pub pages: u64,
}

/// What the tests read of the statistics; a name that is absent is an error, because scripts rely on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// The program's exit code.
    pub exit_code: i32,
    /// `monitor`, `inline` or empty.
    pub fault_path: String,
    /// Wall time.
    pub wall_seconds: f64,
    /// Local budget.
    pub local_budget_bytes: u64,
    /// Most bytes that were managed.
    pub managed_peak_bytes: u64,
    /// Share of the process's anonymous memory that is managed.
    pub managed_share_of_anonymous: f64,
    /// Most managed bytes that were local.
    pub resident_managed_peak_bytes: u64,
    /// Peak resident memory as the kernel saw it.
    pub process_rss_peak_bytes: u64,
    /// Most bytes of the pager's tables.
    pub metadata_peak_bytes: u64,
    /// Pages touched for the first time.
    pub touched_pages: u64,
    /// Faults that waited for far memory.
    pub major_faults: u64,
    /// Faults served from the swap cache.
    pub minor_faults: u64,
    /// Fault service times.
    pub fault_ns: FaultTimes,
    /// Pages brought in ahead.
    pub prefetched_pages: u64,
    /// Of those, used.
    pub prefetch_hits: u64,
    /// Pages dropped without a write.
    pub evicted_clean_pages: u64,
    /// Pages written.
    pub evicted_dirty_pages: u64,
    /// Time that threads waited for faults.
    pub stall_seconds: f64,
    /// One row for each backend.
    pub backends: Vec<BackendStats>,
}

impl Stats {
    /// Reads a statistics file.
    ///
    /// # Errors
    /// The file is missing, is no JSON, or lacks a promised name.
    pub fn read(path: &Path) -> Result<Stats> {
        let text = std::fs::read(path).with_context(|| format!("no statistics in {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} lacks what scripts rely on", path.display()))
    }
}
