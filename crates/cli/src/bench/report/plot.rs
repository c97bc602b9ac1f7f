//! A report as a picture. Of `bench paging`: time per access by pattern, one bar for each system.

use super::model::{Report, Row};
use crate::bench::error::BenchError;
use crate::bench::paging::System;
use crate::bench::prefetch;
use hinterland_units::ByteCount;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Draws a report of bench paging (time per access, one bar for each system) or bench prefetch (distributions) as SVG
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:
  hinterland bench plot docs/results/paging.json -o docs/results/paging.svg")]
pub struct PlotArgs {
    /// A report of `hinterland bench paging` or `prefetch` with `--format json`
    pub report: PathBuf,
    /// Where to draw
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

const WIDTH: u32 = 960;
const PANEL_HEIGHT: u32 = 340;
const TITLE_HEIGHT: u32 = 30;
/// Room that a group of bars takes of its pattern's width.
const GROUP_SHARE: f64 = 0.8;

/// Reads a report and draws it.
///
/// # Errors
/// The report cannot be read or the picture not be written.
pub fn run(args: &PlotArgs) -> Result<(), BenchError> {
    let text = std::fs::read_to_string(&args.report).map_err(BenchError::io("read", &args.report))?;
    let refused = |source| BenchError::Report { path: args.report.clone(), source };
    let kind: Kind = serde_json::from_str(&text).map_err(refused)?;
    let drawn = match kind.bench.as_deref() {
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
    let systems = distinct(rows.iter().map(|row| row.system));
    let top = rows.iter().filter_map(|row| bounds(row)).map(|(_, _, max)| max).fold(0.0, f64::max);
    let (left, right) = (-0.5, f64::from(u32::try_from(patterns.len())?) - 0.5);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{threads} thread{}", if threads == 1 { "" } else { "s" }), ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(48)
        .build_cartesian_2d(left..right, 0.0..(top * 1.1).max(0.001))?;
    let names: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    chart.configure_mesh().disable_x_mesh().disable_x_axis().y_desc("µs per access").max_light_lines(0).draw()?;
    for (place, name) in names.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(f64::from(u32::try_from(place)?), 0.0));
        let centre = x - i32::try_from(name.len())? * 3;
        area.draw(&Text::new(name.clone(), area_point(area, (centre, y + 6)), ("sans-serif", 12)))?;
    }
    let width = GROUP_SHARE / f64::from(u32::try_from(systems.len().max(1))?);
    for (turn, system) in systems.iter().enumerate() {
        let colour = colour(*system);
        let offset = width * f64::from(u32::try_from(turn)?) - GROUP_SHARE / 2.0;
        let bars: Vec<(f64, (f64, f64, f64))> = rows
            .iter()
            .filter(|row| row.system == *system)
            .filter_map(|row| {
                let place = patterns.iter().position(|p| *p == row.pattern)?;
                Some((f64::from(u32::try_from(place).ok()?) + offset, bounds(row)?))
            })
            .collect();
        let rectangles = bars
            .iter()
            .map(|(x, (median, _, _))| Rectangle::new([(*x, 0.0), (x + width * 0.92, *median)], colour.filled()));
        chart
            .draw_series(rectangles)?
            .label(system.to_string())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        let whiskers = bars
            .iter()
            .map(|(x, (_, min, max))| PathElement::new([(x + width * 0.46, *min), (x + width * 0.46, *max)], BLACK));
        chart.draw_series(whiskers)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.2))
        .draw()?;
    Ok(())
}

/// A point of the whole picture as a point of `area`.
fn area_point(area: &DrawingArea<SVGBackend, Shift>, (x, y): (i32, i32)) -> (i32, i32) {
    let (left, top) = area.get_base_pixel();
    (x - left, y - top)
}

/// Median, least and greatest time per access, in microseconds.
fn bounds(row: &Row) -> Option<(f64, f64, f64)> {
    let (seconds, median) = (row.seconds?, row.us_per_access?);
    let per = median / seconds.median;
    Some((median, seconds.min * per, seconds.max * per))
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
