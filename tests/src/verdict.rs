//! What must hold for a managed run beside its native one. Every violated demand is named, not only the first.

use crate::managed::Managed;
use crate::native::Native;
use crate::{AUTO, MIB, Scenario, Stats, Variant};

/// Managed share of anonymous memory that every program must reach.
pub const MANAGED_SHARE_MIN: f64 = 0.90;
/// Thousandths of the managed bytes that the pager's tables may take …
pub const METADATA_PER_MILLE: u64 = 15;
/// … and this much for every process.
pub const METADATA_BYTES: u64 = 32 * MIB;
/// Room for pages in flight between two looks at the budget.
pub const BUDGET_SLACK: f64 = 1.05;

/// The demands that `managed` violates; none when all is well.
pub fn violations(scenario: &Scenario, variant: &Variant, native: &Native, managed: &Managed) -> Vec<String> {
    let mut found = Vec::new();
    if managed.finished.timed_out {
        found.push(format!("was killed after {:.0} s", managed.finished.wall.as_secs_f64()));
    } else if managed.finished.code != 0 {
        found.push(format!("ended with {} instead of 0", managed.finished.code));
    }
    match &managed.digest {
        Ok(digest) if *digest == native.digest => {}
        Ok(_) => found.push("gave another output than the native run".into()),
        Err(error) => found.push(format!("gave no output: {error:#}")),
    }
    match &managed.stats {
        Ok(stats) => figures(scenario, variant, managed, stats, &mut found),
        Err(error) => found.push(format!("{error:#}")),
    }
    if let Err(error) = &managed.nodes {
        found.push(format!("left its memory nodes in a bad state: {error:#}"));
    }
    found
}

/// The demands on the launcher's figures.
fn figures(scenario: &Scenario, variant: &Variant, managed: &Managed, stats: &Stats, found: &mut Vec<String>) {
    if stats.exit_code != managed.finished.code {
        found.push(format!("the statistics say exit code {}, the shell {}", stats.exit_code, managed.finished.code));
    }
    if variant.path != AUTO && stats.fault_path != variant.fault_path() {
        found.push(format!("ran on the fault path '{}' instead of '{}'", stats.fault_path, variant.fault_path()));
    }
    if exceeds(stats.resident_managed_peak_bytes, managed.budget_bytes, BUDGET_SLACK) {
        let (peak, budget) = (stats.resident_managed_peak_bytes / MIB, managed.budget_bytes / MIB);
        found.push(format!("held {peak} MiB local in a budget of {budget} MiB"));
    }
    let metadata_most = stats.managed_peak_bytes * METADATA_PER_MILLE / 1000 + METADATA_BYTES;
    if stats.metadata_peak_bytes > metadata_most {
        let (tables, most) = (stats.metadata_peak_bytes / MIB, metadata_most / MIB);
        found.push(format!("needed {tables} MiB of tables instead of at most {most} MiB"));
    }
    // With `--heap large`, a program of small objects keeps most of them near: it need not page at all.
    if variant.heap == "large" && scenario.small_objects {
        return;
    }
    if stats.major_faults == 0 {
        found.push("had no major fault: nothing was far".into());
    }
    if variant.far == "nodes" && stats.backends.iter().skip(1).all(|node| node.bytes_in == 0) {
        found.push("sent nothing to its memory nodes".into());
    }
    // The share is promised for `--heap all`; `large` leaves small allocations near by design.
    if variant.heap == "all" && stats.managed_share_of_anonymous < MANAGED_SHARE_MIN {
        let share = stats.managed_share_of_anonymous * 100.0;
        found.push(format!("only {share:.1} % of its anonymous memory was managed"));
    }
}

/// Whether `value > bound × slack`, for byte counts below 2^53.
#[allow(clippy::cast_precision_loss, reason = "byte counts far below 2^53 are exact")]
fn exceeds(value: u64, bound: u64, slack: f64) -> bool {
    value as f64 > bound as f64 * slack
}
