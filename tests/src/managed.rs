//! The run of a scenario under Hinterland.

use crate::native::{Native, digest, run_with_client, tail};
use crate::process::{Finished, NOW_AND_THEN};
use crate::scenario::STDERR;
use crate::{MIB, Place, Scenario, Stats, Variant, places};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Smallest local budget, as the launcher has it.
pub const BUDGET_FLOOR_BYTES: u64 = 16 * MIB;
/// Local budget as a share of the native peak.
pub const BUDGET_DIVISOR: u64 = 4;

/// What a managed run gave.
#[derive(Debug)]
pub struct Managed {
    /// Time and memory.
    pub finished: Finished,
    /// Digest of the output, or why there is none.
    pub digest: Result<String>,
    /// The launcher's figures, or why there are none.
    pub stats: Result<Stats>,
    /// The budget that was given.
    pub budget_bytes: u64,
    /// Whether the memory nodes, if there were any, got everything back and ended well.
    pub nodes: Result<()>,
    /// The last lines of standard error.
    pub stderr: String,
}

/// A quarter of the native peak of anonymous memory, not below the floor, in whole pages.
pub fn budget_bytes(native: &Native) -> u64 {
    let quarter = native.finished.anonymous_peak_bytes / BUDGET_DIVISOR;
    (quarter.max(BUDGET_FLOOR_BYTES) / 4096) * 4096
}

/// Runs `scenario` under Hinterland with `budget_bytes` of local memory.
///
/// # Errors
/// The launcher is not built, it or a memory node cannot be started, or the scenario's client failed.
pub fn run_managed(
    scenario: &Scenario,
    place: &Place,
    variant: &Variant,
    budget_bytes: u64,
    limit: Duration,
) -> Result<Managed> {
    let directory = places::emptied(place.run.clone())?;
    let mut stats_file = directory.clone().into_os_string();
    stats_file.push(".stats.json");
    let stats_file = PathBuf::from(stats_file);
    let _ = std::fs::remove_file(&stats_file);

    let nodes = variant.start_nodes(place)?;
    let mut launcher: Vec<String> = variant.prefix().iter().map(|word| (*word).to_owned()).collect();
    launcher.extend([places::launcher()?.to_string_lossy().into_owned(), "run".into()]);
    launcher.extend(variant.arguments(place, &nodes, budget_bytes));
    launcher.extend(["--stats".into(), stats_file.to_string_lossy().into_owned(), "--".into()]);
    let command = (scenario.command)(place).command(&launcher, &directory)?;

    let finished = run_with_client(scenario, place, command, limit, NOW_AND_THEN)
        .with_context(|| format!("standard error ends with:\n{}", tail(&directory.join(STDERR))))?;
    Ok(Managed {
        finished,
        digest: digest(scenario, &directory),
        stats: Stats::read(&stats_file),
        budget_bytes,
        nodes: nodes.into_iter().try_for_each(|node| node.wait_until_free().and_then(|()| node.end().map(drop))),
        stderr: tail(&directory.join(STDERR)),
    })
}
