//! What Hinterland itself costs: processor time for evictions, RAM for tables, beside the project's targets.

use super::model::Row;
use super::statistics::Spread;
use crate::paging::System;
use crate::worker::Pattern;
use serde::{Deserialize, Serialize};

/// Evictions count as clean when so much of them were.
const CLEAN_SHARE: f64 = 0.95;
/// The targets for clean pages are set with so many threads: the frames of a process whose threads run on several
/// processors are taken away with a TLB shootdown.
const EVICTION_THREADS: u32 = 2;
/// Tables may take so much of the managed bytes …
const METADATA_SHARE: f64 = 0.015;
/// … and this much for every process.
const METADATA_BYTES: u64 = 32 << 20;

/// Evictions with one pattern and one number of threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvictionCost {
    /// The pattern.
    pub pattern: Pattern,
    /// Threads.
    pub threads: u32,
    /// Processor time of the evictor for each page that it evicted, over the rounds.
    pub us_per_page: Spread,
    /// Share of the pages that were dropped without a write.
    pub clean_share: f64,
    /// Times that a faulting thread had to evict.
    pub direct_reclaims: u64,
    /// The most that `us_per_page` should be, where the project has set itself a target.
    pub us_target: Option<f64>,
}

/// Tables with one pattern and one number of threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetadataCost {
    /// The pattern.
    pub pattern: Pattern,
    /// Threads.
    pub threads: u32,
    /// The most managed memory.
    pub managed_bytes: u64,
    /// The most that the tables occupied by the pager's own count.
    pub counted_bytes: u64,
    /// RAM beside the data, less what the same worker needs without Hinterland: tables, read-ahead and staging buffers, the
    /// compressed store's handles and gaps, stacks, the launcher. Absent without all-local rows.
    pub measured_bytes: Option<u64>,
    /// The most that either should be.
    pub target_bytes: u64,
}

/// Of every row of Hinterland's that evicted.
pub fn evictions(rows: &[Row]) -> Vec<EvictionCost> {
    rows.iter().filter(|row| row.is_scored()).filter_map(eviction).collect()
}

fn eviction(row: &Row) -> Option<EvictionCost> {
    let figures = row.hinterland.as_ref()?;
    let evicted = figures.evicted_clean_pages + figures.evicted_dirty_pages;
    #[allow(clippy::cast_precision_loss, reason = "pages of one run")]
    let clean_share = figures.evicted_clean_pages as f64 / evicted.max(1) as f64;
    Some(EvictionCost {
        pattern: row.pattern,
        threads: row.threads,
        us_per_page: row.evictor_us_per_page?,
        clean_share,
        direct_reclaims: figures.direct_reclaims,
        us_target: eviction_target(row.pattern, row.threads, clean_share),
    })
}

/// The project's targets for clean pages: in runs of neighbours, which a scan leaves behind, and one by one.
fn eviction_target(pattern: Pattern, threads: u32, clean_share: f64) -> Option<f64> {
    match pattern {
        _ if threads != EVICTION_THREADS || clean_share < CLEAN_SHARE => None,
        Pattern::Sequential => Some(0.5),
        Pattern::Scattered => Some(3.2),
        _ => None,
    }
}

/// Of every row of Hinterland's.
pub fn metadata(rows: &[Row]) -> Vec<MetadataCost> {
    let ours = rows.iter().filter(|row| row.system == System::Hinterland && row.is_scored());
    ours.filter_map(|our| {
        let same = |row: &&Row| (row.system, row.pattern, row.threads) == (System::AllLocal, our.pattern, our.threads);
        let bare = rows.iter().find(same).and_then(|row| row.ram_beside_data_bytes);
        let figures = our.hinterland.as_ref()?;
        Some(MetadataCost {
            pattern: our.pattern,
            threads: our.threads,
            managed_bytes: figures.managed_peak_bytes,
            counted_bytes: figures.metadata_peak_bytes,
            measured_bytes: bare.and_then(|bare| Some(our.ram_beside_data_bytes?.saturating_sub(bare))),
            target_bytes: metadata_target(figures.managed_peak_bytes),
        })
    })
    .collect()
}

fn metadata_target(managed_bytes: u64) -> u64 {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small share of a size far below 2^52"
    )]
    let share = (managed_bytes as f64 * METADATA_SHARE) as u64;
    share + METADATA_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_for_clean_pages_and_two_threads() {
        assert_eq!(eviction_target(Pattern::Sequential, 2, 0.99), Some(0.5));
        assert_eq!(eviction_target(Pattern::Scattered, 2, 0.99), Some(3.2));
        assert_eq!(eviction_target(Pattern::Sequential, 2, 0.5), None);
        assert_eq!(eviction_target(Pattern::Scattered, 1, 0.99), None);
        assert_eq!(eviction_target(Pattern::Random, 2, 0.99), None);
    }

    #[test]
    fn tables_follow_what_is_managed() {
        assert_eq!(metadata_target(0), 32 << 20);
        assert_eq!(metadata_target(1000 << 20), (32 << 20) + (15 << 20));
    }
}
