//! A report as a picture. Of `bench paging`: time per access by pattern, one bar for each system.

use super::bars::{self, Chart, Series};
use super::model::{Report, Row};
use super::statistics::Spread;
use super::{cluster, evictions, paper_figures, rounds};
use crate::error::BenchError;
use crate::paging::System;
use crate::prefetch;
use crate::programs;
use hinterland_units::ByteCount;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Draws a report as SVG: of bench paging the time per access, of bench prefetch distributions, of programs under prefetchers slowdowns,
/// of eviction policies misses and slowdowns, of a cluster what it gains, of DaeMon's model, sweeps of tapes, features and xDM the figures of their papers,
/// of granularities, placements and slowdowns panels of their own,
/// of bench programs slowdowns, of other programs by several systems their times beside one of these
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:
  hinterland bench plot docs/results/paging.json -o docs/results/paging.svg")]
pub struct PlotArgs {
    /// A report of `hinterland bench paging`, `programs` or `prefetch` with `--json`, or of a part of `./dev bench` that runs a script
    pub report: PathBuf,
    /// Where to draw
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

const WIDTH: u32 = 960;
const PANEL_HEIGHT: u32 = 340;
const TITLE_HEIGHT: u32 = 30;

/// Reads a report and draws it.
///
/// # Errors
/// The report cannot be read or the picture not be written.
pub fn run(args: &PlotArgs) -> Result<(), BenchError> {
    let text = std::fs::read_to_string(&args.report).map_err(BenchError::io("read", &args.report))?;
    let refused = |source| BenchError::Report { path: args.report.clone(), source };
    let kind: Kind = serde_json::from_str(&text).map_err(refused)?;
    let drawn = match kind.bench.as_deref() {
        Some("prefetchers") => prefetch::draw_programs(&serde_json::from_str(&text).map_err(refused)?, &args.output),
        Some("evictions") => evictions::draw(&serde_json::from_str(&text).map_err(refused)?, &args.output),
        Some("cluster") => cluster::draw(&serde_json::from_str(&text).map_err(refused)?, &args.output),
        Some("daemon" | "tape-sweeps" | "granularity" | "placement" | "slowdown" | "features" | "xdm") => {
            paper_figures::draw(&serde_json::from_str(&text).map_err(refused)?, &args.output)
        }
        Some("tapes" | "sets" | "compiled" | "sub-page") => {
            rounds::draw(&serde_json::from_str(&text).map_err(refused)?, &args.output)
        }
        Some("programs") => programs::draw(&serde_json::from_str(&text).map_err(refused)?, &args.output),
        Some("prefetch") => prefetch::draw(&serde_json::from_str(&text).map_err(refused)?, &args.output),
        _ => draw(&serde_json::from_str(&text).map_err(refused)?, &args.output),
    };
    drawn.map_err(|e| BenchError::Plot { path: args.output.clone(), reason: e.to_string() })
}

/// What tells reports apart.
#[derive(serde::Deserialize)]
struct Kind {
    bench: Option<String>,
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn draw(report: &Report, path: &Path) -> Outcome {
    let threads = distinct(report.rows.iter().map(|row| row.threads));
    let height = TITLE_HEIGHT + PANEL_HEIGHT * u32::try_from(threads.len())?;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "Time per access: {} of data, {} local (median, least and greatest of {} rounds)",
        ByteCount(report.size_bytes),
        ByteCount(report.local_bytes),
        report.repeat
    );
    let root = root.titled(&title, ("sans-serif", 16))?;
    for (area, threads) in root.split_evenly((threads.len(), 1)).iter().zip(threads) {
        let rows: Vec<&Row> =
            report.rows.iter().filter(|row| row.threads == threads && row.seconds.is_some()).collect();
        panel(area, threads, &rows)?;
    }
    root.present()?;
    Ok(())
}

fn panel(area: &DrawingArea<SVGBackend, Shift>, threads: u32, rows: &[&Row]) -> Outcome {
    let patterns = distinct(rows.iter().map(|row| row.pattern));
    let series = distinct(rows.iter().map(|row| row.system)).into_iter().map(|system| {
        let of = |pattern| rows.iter().find(|row| row.system == system && row.pattern == pattern);
        let bars = patterns.iter().map(|pattern| of(*pattern).and_then(|row| bounds(row))).collect();
        Series { name: system.to_string(), colour: colour(system), bars }
    });
    let chart = Chart {
        caption: &format!("{threads} thread{}", if threads == 1 { "" } else { "s" }),
        measure: "µs per access",
        groups: &patterns.iter().map(ToString::to_string).collect::<Vec<_>>(),
        series: &series.collect::<Vec<_>>(),
    };
    bars::draw(area, &chart)
}

/// Median, least and greatest time per access, in microseconds.
fn bounds(row: &Row) -> Option<Spread> {
    let (seconds, median) = (row.seconds?, row.us_per_access?);
    let per = median / seconds.median;
    Some(Spread { median, min: seconds.min * per, max: seconds.max * per })
}

/// Each value once, in the order of their coming.
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}

/// One colour for each system in every picture (Okabe and Ito's, which colour-blind readers can tell apart).
fn colour(system: System) -> RGBColor {
    match system {
        System::Hinterland => RGBColor(0, 114, 178),
        System::Zram => RGBColor(230, 159, 0),
        System::SsdSwap => RGBColor(213, 94, 0),
        System::AllLocal => RGBColor(0, 158, 115),
    }
}
