//! What `benches/prefetchers.py` writes, as a picture: whole programs under each prefetcher, as in Leap's figures 9 to 11 and 13.

use crate::report::bars::{self, COLOURS, Chart, Series};
use crate::report::plot::distinct;
use crate::report::statistics::Spread;
use plotters::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const PANEL: (u32, u32) = (960, 340);
const TITLE_HEIGHT: u32 = 30;

/// The report, as far as it is drawn.
#[derive(Deserialize)]
pub struct Report {
    link: String,
    programs: Vec<Case>,
    /// One for each prefetcher.
    all_at_once: Vec<AtOnce>,
}

/// One program at one share of local memory.
#[derive(Deserialize)]
struct Case {
    program: String,
    local_percent: u32,
    native_seconds: f64,
    /// By prefetcher.
    runs: BTreeMap<String, Vec<Run>>,
}

#[derive(Deserialize)]
struct Run {
    seconds: f64,
    major_faults: u64,
    /// Of prefetched pages that were left unmapped, the used ones; absent where there were none.
    accuracy: Option<f64>,
    /// Of requests for content, those that prefetching answered.
    coverage: Option<f64>,
}

/// What is drawn of a run.
type Value = fn(&Case, &Run) -> Option<f64>;

/// Programs side by side.
#[derive(Deserialize)]
struct AtOnce {
    local_percent: u32,
    prefetcher: String,
    /// By program.
    time_by_alone_and_share: BTreeMap<String, Spread>,
}

/// Draws the report as SVG.
///
/// # Errors
/// The picture cannot be written.
pub fn draw(report: &Report, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let panels = 4 + usize::from(!report.all_at_once.is_empty());
    let size = (PANEL.0, TITLE_HEIGHT + PANEL.1 * u32::try_from(panels)?);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("Programs under prefetchers, far memory behind a link of {}", report.link);
    let root = root.titled(&title, ("sans-serif", 16))?;
    let areas = root.split_evenly((panels, 1));
    let groups: Vec<String> =
        report.programs.iter().map(|case| format!("{}, {} %", case.program, case.local_percent)).collect();
    let charts: [(&str, &str, Value); 4] = [
        ("Time beside native, by program and local share", "× native", |case, run| {
            Some(run.seconds / case.native_seconds)
        }),
        ("Major faults", "millions", |_, run| Some(run.major_faults as f64 / 1e6)),
        ("Coverage: requests for content that prefetching answered", "share", |_, run| run.coverage),
        ("Accuracy: use of prefetched pages that were watched", "share", |_, run| run.accuracy),
    ];
    for ((caption, measure, value), area) in charts.into_iter().zip(&areas) {
        let series = bars::series(&report.programs, |case| &case.runs, value);
        bars::draw(area, &Chart { caption, measure, groups: &groups, series: &series })?;
    }
    if let (Some(first), Some(area)) = (report.all_at_once.first(), areas.get(charts.len())) {
        let programs = distinct(report.all_at_once.iter().flat_map(|beside| beside.time_by_alone_and_share.keys()));
        let of = |(place, beside): (usize, &AtOnce)| Series {
            name: beside.prefetcher.clone(),
            colour: COLOURS[place % COLOURS.len()],
            bars: programs.iter().map(|program| beside.time_by_alone_and_share.get(*program).copied()).collect(),
        };
        let series: Vec<Series> = report.all_at_once.iter().enumerate().map(of).collect();
        let caption = format!(
            "All at once, {} % local: time beside that alone with its share of the processors",
            first.local_percent
        );
        let groups: Vec<String> = programs.into_iter().cloned().collect();
        bars::draw(area, &Chart { caption: &caption, measure: "×", groups: &groups, series: &series })?;
    }
    root.present()?;
    Ok(())
}
