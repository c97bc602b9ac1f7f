//! What `benches/evictions.py` writes, as a picture: eviction policies on recorded traces beside the optimum, and in real runs.

use super::bars::{self, Chart};
use plotters::prelude::*;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
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
    /// By prefetcher and policy.
    runs: BTreeMap<String, BTreeMap<String, Vec<Run>>>,
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
    let groups: Vec<String> = cases.iter().map(|case| format!("{}, {} %", case.program, case.local_percent)).collect();
    let simulated = bars::series(cases, |case| &case.simulated, |_, replay: &Replay| replay.misses_by_min);
    let caption = "Misses of recorded traces without prefetching, by program and local share".to_owned();
    let mut charts = vec![(caption, "× those of the optimum", simulated)];
    let prefetchers: BTreeSet<&String> = cases.iter().flat_map(|case| case.runs.keys()).collect();
    for prefetcher in prefetchers {
        let millions = |_: &Case, run: &Run| Some(run.major_faults as f64 / 1e6);
        let faults = bars::series(cases, |case| &case.runs[prefetcher], millions);
        let by_native = |case: &Case, run: &Run| Some(run.seconds / case.native_seconds);
        let times = bars::series(cases, |case| &case.runs[prefetcher], by_native);
        charts.push((format!("Major faults of real runs, --prefetch {prefetcher}"), "millions", faults));
        charts.push((format!("Time of real runs beside native, --prefetch {prefetcher}"), "× native", times));
    }
    let panels = u32::try_from(charts.len())?;
    let root = SVGBackend::new(path, (PANEL.0, TITLE_HEIGHT + panels * PANEL.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled("Eviction policies", ("sans-serif", 16))?;
    for ((caption, measure, series), area) in charts.iter().zip(root.split_evenly((charts.len(), 1))) {
        bars::draw(&area, &Chart { caption, measure, groups: &groups, series })?;
    }
    root.present()?;
    Ok(())
}
