//! What `benches/prefetchers.py` writes, as a picture: whole programs under each prefetcher, as in Leap's figures 9 to 11 and 13.

use super::plot::COLOURS;
use crate::bench::report::bars::{self, Chart, Series};
use crate::bench::report::plot::distinct;
use crate::bench::report::statistics::Spread;
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
    all_at_once: Option<AtOnce>,
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
}

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
    let panels = 2 + usize::from(report.all_at_once.is_some());
    let size = (PANEL.0, TITLE_HEIGHT + PANEL.1 * u32::try_from(panels)?);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("Programs under prefetchers, far memory behind a link of {}", report.link);
    let root = root.titled(&title, ("sans-serif", 16))?;
    let areas = root.split_evenly((panels, 1));
    let groups: Vec<String> =
        report.programs.iter().map(|case| format!("{}, {} %", case.program, case.local_percent)).collect();
    let chart = |caption, measure, value: fn(&Case, &Run) -> f64, area| {
        let series = by_prefetcher(&report.programs, value);
        bars::draw(area, &Chart { caption, measure, groups: &groups, series: &series })
    };
    chart(
        "Time beside native, by program and local share",
        "× native",
        |case, run| run.seconds / case.native_seconds,
        &areas[0],
    )?;
    chart("Major faults", "millions", |_, run| run.major_faults as f64 / 1e6, &areas[1])?;
    if let (Some(beside), Some(area)) = (&report.all_at_once, areas.get(2)) {
        let (programs, spreads): (Vec<_>, Vec<_>) = beside.time_by_alone_and_share.iter().unzip();
        let bars = spreads.into_iter().copied().map(Some).collect();
        let series = [Series { name: beside.prefetcher.clone(), colour: COLOURS[6], bars }];
        let caption = format!(
            "All at once, {} % local: time beside that alone with its share of the processors",
            beside.local_percent
        );
        let groups: Vec<String> = programs.into_iter().cloned().collect();
        bars::draw(area, &Chart { caption: &caption, measure: "×", groups: &groups, series: &series })?;
    }
    root.present()?;
    Ok(())
}

/// The bars of each prefetcher, in the order of their names.
fn by_prefetcher(cases: &[Case], value: fn(&Case, &Run) -> f64) -> Vec<Series> {
    let names = distinct(cases.iter().flat_map(|case| case.runs.keys()));
    let of = |name: &String| {
        cases
            .iter()
            .map(|case| case.runs.get(name).and_then(|runs| Spread::of(runs.iter().map(|run| value(case, run)))))
            .collect()
    };
    let series = names.iter().enumerate();
    series
        .map(|(place, name)| Series { name: (*name).clone(), colour: COLOURS[place % COLOURS.len()], bars: of(name) })
        .collect()
}
