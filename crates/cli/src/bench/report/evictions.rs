//! What `benches/evictions.py` writes, as a picture: eviction policies on recorded traces beside the optimum, and in real runs.

use super::bars::{self, Chart};
use plotters::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const PANEL: (u32, u32) = (960, 340);
const TITLE_HEIGHT: u32 = 30;

/// The report, as far as it is drawn.
#[derive(Deserialize)]
pub struct Report {
    programs: Vec<Case>,
}

/// One program at one share of local memory.
#[derive(Deserialize)]
struct Case {
    program: String,
    local_percent: u32,
    native_seconds: f64,
    /// Of its trace, by policy, the optimum included.
    simulated: BTreeMap<String, Vec<Replay>>,
    /// By policy.
    runs: BTreeMap<String, Vec<Run>>,
}

#[derive(Deserialize)]
struct Replay {
    /// Absent where the optimum misses nothing.
    misses_by_min: Option<f64>,
}

#[derive(Deserialize)]
struct Run {
    seconds: f64,
    major_faults: u64,
}

/// Draws the report as SVG.
///
/// # Errors
/// The picture cannot be written.
pub fn draw(report: &Report, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let cases = &report.programs;
    let root = SVGBackend::new(path, (PANEL.0, TITLE_HEIGHT + 3 * PANEL.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled("Eviction policies, without prefetching", ("sans-serif", 16))?;
    let groups: Vec<String> = cases.iter().map(|case| format!("{}, {} %", case.program, case.local_percent)).collect();
    let simulated = bars::series(cases, |case| &case.simulated, |_, replay: &Replay| replay.misses_by_min);
    let faults = bars::series(cases, |case| &case.runs, |_, run: &Run| Some(run.major_faults as f64 / 1e6));
    let times = bars::series(cases, |case| &case.runs, |case, run: &Run| Some(run.seconds / case.native_seconds));
    let charts = [
        ("Misses of recorded traces, by program and local share", "× those of the optimum", simulated),
        ("Major faults of real runs", "millions", faults),
        ("Time of real runs beside native", "× native", times),
    ];
    for ((caption, measure, series), area) in charts.iter().zip(root.split_evenly((3, 1))) {
        bars::draw(&area, &Chart { caption, measure, groups: &groups, series })?;
    }
    root.present()?;
    Ok(())
}
