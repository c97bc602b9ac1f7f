//! What `benches/cluster.py` writes, as a picture: programs that end, beside a cluster without far memory (xDM, figure 16).

use super::bars::{self, COLOURS, Chart, Series};
use super::plot::distinct;
use super::statistics::Spread;
use plotters::prelude::*;
use serde::Deserialize;
use std::path::Path;

const SIZE: (u32, u32) = (960, 370);

/// The report, as far as it is drawn.
#[derive(Deserialize)]
pub struct Report {
    machines: u32,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    friendly_percent: u32,
    slowdown: Option<f64>,
    gain: f64,
}

/// Draws the report as SVG.
///
/// # Errors
/// The picture cannot be written.
pub fn draw(report: &Report, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mixes = distinct(report.rows.iter().map(|row| row.friendly_percent));
    let slowdowns = distinct(report.rows.iter().filter_map(|row| row.slowdown));
    let series = slowdowns.iter().zip(COLOURS[1..].iter().cycle()).map(|(slowdown, colour)| {
        let of = |mix| report.rows.iter().find(|row| row.slowdown == Some(*slowdown) && row.friendly_percent == mix);
        let bar = |row: &Row| Spread { median: row.gain, min: row.gain, max: row.gain };
        Series {
            name: format!("slowdown {slowdown}"),
            colour: *colour,
            bars: mixes.iter().map(|mix| of(*mix).map(bar)).collect(),
        }
    });
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled("Dispatching programs over a cluster with far memory", ("sans-serif", 16))?;
    let chart = Chart {
        caption: &format!("{} machines, by the share of friendly programs", report.machines),
        measure: "× without far memory",
        groups: &mixes.iter().map(|mix| format!("{mix} %")).collect::<Vec<_>>(),
        series: &series.collect::<Vec<_>>(),
    };
    bars::draw(&root, &chart)?;
    root.present()?;
    Ok(())
}
