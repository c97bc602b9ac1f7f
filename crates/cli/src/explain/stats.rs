//! The figures of a run, read back, and why a file may have none to explain.

use crate::report::{RunFeatures, STATS_VERSION};
use crate::statistics::{Activity, HintSite};
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longer files are none of ours: 256 processes take some 200 KiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Not JSON, or not ours.
    #[error("{}: {why}; `hinterland run --stats FILE -- PROGRAM` writes such figures", path.display())]
    NoStats {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Written by another version.
    #[error(
        "{}: these figures have version {found}, and this hinterland reads version {STATS_VERSION}; take the hinterland that wrote them, \
         or run the program again", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// As found.
        found: String,
    },
    /// The program ran without Hinterland.
    #[error("{}: {program} was not managed ({reason}), so no prefetcher saw anything", path.display())]
    NotManaged {
        /// The file.
        path: PathBuf,
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// The program fitted into its budget.
    #[error(
        "{}: no page of {program} was ever evicted ({managed} of a budget of {budget}), so there was nothing to fetch; a smaller \
         --local makes it page", path.display()
    )]
    NothingPaged {
        /// The file.
        path: PathBuf,
        /// The program.
        program: String,
        /// The most that was managed.
        managed: String,
        /// The budget.
        budget: String,
    },
    /// The findings cannot be written as JSON.
    #[error("the findings cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Standard output cannot be written.
    #[error("stdout: {0}")]
    Output(io::Error),
}

/// Percentiles.
#[derive(Deserialize)]
pub struct Times {
    /// Half took no longer.
    pub p50: u64,
}

/// A path to far memory.
#[derive(Deserialize)]
pub struct Backend {
    /// What is there.
    pub url: String,
    /// The most that was there.
    #[serde(default)]
    pub stored_peak_bytes: u64,
    /// Its tier among several paths, from 1; 0: none.
    #[serde(default)]
    pub tier: u64,
    /// How often measured times changed it.
    #[serde(default)]
    pub tier_changes: u64,
    /// A page that is loaded alone, and what it waits for others.
    #[serde(default)]
    pub load_one_ns: u64,
    #[serde(default)]
    pub load_queue_ns: u64,
}

/// What became of `--slowdown`.
#[derive(Deserialize)]
#[allow(missing_docs, reason = "the names are those of the document")]
pub struct Service {
    pub slowdown_asked: f64,
    #[serde(default)]
    pub short_share_bytes: Option<u64>,
    #[serde(default)]
    pub short_wanted_bytes: Option<u64>,
}

/// What is read of the figures; `report/json.rs` says what they are.
#[derive(Deserialize)]
#[allow(missing_docs, reason = "the names are those of the document")]
pub struct Stats {
    pub program: String,
    pub fault_path: String,
    pub reason: String,
    pub process_count: u64,
    pub local_budget_bytes: u64,
    pub managed_peak_bytes: u64,
    pub stall_seconds: f64,
    pub stall_share: f64,
    pub first_touch_faults: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
    #[serde(default)]
    pub service_level: Option<Service>,
    pub evicted_clean_pages: u64,
    pub evicted_dirty_pages: u64,
    pub evicted_zero_pages: u64,
    pub evicted_free_pages: u64,
    #[serde(default)]
    pub random_victim_pages: u64,
    pub prefetcher: String,
    pub prefetcher_source: Option<String>,
    pub read_ahead_pages: Option<u32>,
    pub prefetched_pages: u64,
    pub prefetch_hits: u64,
    pub prefetch_hits_observed: u64,
    pub prefetch_hits_inferred: u64,
    pub prefetched_unmapped_pages: u64,
    pub prefetch_unused_pages: u64,
    pub prefetch_accuracy: Option<f64>,
    pub prefetch_coverage: Option<f64>,
    pub prefetch_wait_ns: Times,
    pub prefetch_late_faults: u64,
    pub prefetch_windows: u64,
    pub prefetch_window_pages: u64,
    pub prefetch_window_pages_max: u64,
    pub prefetch_window_bound_pages: u64,
    pub load_one_ns: u64,
    pub load_page_ns: u64,
    pub prefetch_is_sparing: bool,
    pub prefetch_windows_dropped: u64,
    pub tape_source: Option<String>,
    pub tape_threads: u64,
    pub tape_threads_without: u64,
    pub tape_batches: u64,
    pub tape_pages: u64,
    pub tape_left: u64,
    pub tape_left_position: u64,
    pub tape_left_page: u64,
    pub tape_resumed: u64,
    pub prefetch_windows_refused: u64,
    pub threads: Vec<Activity>,
    pub regions: Vec<Activity>,
    #[serde(default)]
    pub backends: Vec<Backend>,
    // Figures that were written before there were features, threads of stalls, blocks, hints, patches, unordered tapes or these counts have none of them.
    #[serde(default)]
    pub features: RunFeatures,
    #[serde(default)]
    pub stall_threads: u64,
    #[serde(default)]
    pub tape_processes: u64,
    #[serde(default)]
    pub tape_processes_without: u64,
    #[serde(default)]
    pub tape_beside_faults: u64,
    #[serde(default)]
    pub tape_early_faults: u64,
    #[serde(default)]
    pub tape_phases: u64,
    #[serde(default)]
    pub tape_phases_begun: u64,
    #[serde(default)]
    pub tape_phases_given_up: u64,
    #[serde(default)]
    pub blocks_asked: u64,
    #[serde(default)]
    pub block_pages: u64,
    #[serde(default)]
    pub block_used_pages: u64,
    #[serde(default)]
    pub block_faults: u64,
    #[serde(default)]
    pub block_page_first: u64,
    #[serde(default)]
    pub blocks_refused_full: u64,
    #[serde(default)]
    pub blocks_refused_unused: u64,
    #[serde(default)]
    pub block_size_pages: u64,
    #[serde(default)]
    pub patched_pages: u64,
    #[serde(default)]
    pub patched_bytes: u64,
    #[serde(default)]
    pub hint_fetched_pages: u64,
    #[serde(default)]
    pub hint_used_pages: u64,
    #[serde(default)]
    pub hint_unused_pages: u64,
    #[serde(default)]
    pub hint_refused_pages: u64,
    #[serde(default)]
    pub hint_evicted_pages: u64,
    #[serde(default)]
    pub hint_kept_pages: u64,
    #[serde(default)]
    pub hint_overwritten_pages: u64,
    #[serde(default)]
    pub hints_dropped: u64,
    #[serde(default)]
    pub hint_loops: u64,
    #[serde(default)]
    pub hint_plain_loops: u64,
    #[serde(default)]
    pub hint_phases: u64,
    #[serde(default)]
    pub hint_sites: Vec<HintSite>,
}

/// Reads the figures of a run in which something was paged.
///
/// # Errors
/// See [`Refusal`].
pub fn read(path: &Path) -> Result<Stats, Refusal> {
    let bytes = bytes(path).map_err(|source| Refusal::Io { path: path.into(), source })?;
    let stats = parse(path, &bytes)?;
    let (path, program) = (path.to_owned(), stats.program.clone());
    if stats.fault_path == "none" {
        return Err(Refusal::NotManaged { path, program, reason: stats.reason });
    }
    let left =
        stats.evicted_clean_pages + stats.evicted_dirty_pages + stats.evicted_zero_pages + stats.evicted_free_pages;
    if left + stats.requests() == 0 {
        let [managed, budget] = [stats.managed_peak_bytes, stats.local_budget_bytes].map(crate::report::bytes);
        return Err(Refusal::NothingPaged { path, program, managed, budget });
    }
    Ok(stats)
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let source: Box<dyn Read> =
        if path.as_os_str() == "-" { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    let length = source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if length as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "is too long for the figures of a run"));
    }
    Ok(bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Stats, Refusal> {
    let no_stats = |why: String| Refusal::NoStats { path: path.into(), why };
    let value: Value = serde_json::from_slice(bytes).map_err(|error| no_stats(not_json(bytes, &error)))?;
    match value.get("stats_version") {
        Some(version) if *version == STATS_VERSION => {}
        Some(version) => return Err(Refusal::Version { path: path.into(), found: version.to_string() }),
        // Figures had no version before they had what is read here.
        None if value.get("fault_path").is_some() && value.get("major_faults").is_some() => {
            return Err(Refusal::Version { path: path.into(), found: "0".into() });
        }
        None => return Err(no_stats("is JSON, but not the figures of a run".into())),
    }
    serde_json::from_value(value).map_err(|error| no_stats(format!("is damaged: {error}")))
}

/// Why a file is not the JSON of a run's figures.
fn not_json(bytes: &[u8], error: &serde_json::Error) -> String {
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        Category::Eof if bytes.is_empty() => "is empty".into(),
        Category::Eof => format!("is cut off: its JSON has no end ({place})"),
        _ => format!("is not JSON ({place})"),
    }
}

impl Stats {
    /// Requests that reached the pager for content that was not mapped.
    pub fn requests(&self) -> u64 {
        self.major_faults + self.minor_faults + self.prefetch_hits_observed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(Path::new("out.json"), text.as_bytes()).err().map_or_else(String::new, |refusal| refusal.to_string())
    }

    #[test]
    fn what_is_no_figures_is_refused_with_the_reason() {
        assert!(
            refusal("{\"a\":")
                .contains("out.json: is cut off: its JSON has no end (line 1, column 5); `hinterland run")
        );
        assert!(refusal("").contains("out.json: is empty; `hinterland run --stats"));
        assert!(refusal("{\n}}").contains("out.json: is not JSON (line 2, column 2); `hinterland run"));
        assert!(refusal("{\"rows\": []}").contains("not the figures of a run; `hinterland run --stats"));
        assert!(refusal("[1, 2]").contains("not the figures of a run"));
        assert!(refusal("{\"fault_path\": \"inline\", \"major_faults\": 3}").contains("have version 0, and this"));
        assert!(refusal("{\"stats_version\": 99}").contains("have version 99"));
        assert!(refusal("{\"stats_version\": 2, \"program\": 5}").contains("is damaged"));
    }
}
