//! The report as a picture: time beside native under both systems, and Hinterland's beside zram's, at each share.

use super::report::{Report, Row};
use crate::report::bars::{self, COLOURS, Chart, Series};
use crate::report::plot::distinct;
use crate::report::statistics::{Interval, Spread};
use plotters::prelude::*;
use std::path::Path;

const PANEL: (u32, u32) = (1200, 340);
const TITLE_HEIGHT: u32 = 30;

/// What is drawn of a row.
type Value = fn(&Row) -> Option<Interval>;

/// Draws the report as SVG.
///
/// # Errors
/// The picture cannot be written.
pub fn draw(report: &Report, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let shares = distinct(report.rows.iter().map(|row| row.local_percent));
    let panels = shares.len().max(1) * 2;
    let root = SVGBackend::new(path, (PANEL.0, TITLE_HEIGHT + PANEL.1 * u32::try_from(panels)?)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&report.heading(), ("sans-serif", 16))?;
    let charts = shares.iter().flat_map(|share| {
        let native: [(&str, Value); 2] =
            [("Hinterland", |row| row.hinterland_by_native), ("zram", |row| row.zram_by_native)];
        let zram: [(&str, Value); 1] = [("Hinterland", |row| row.hinterland_by_zram)];
        [
            (*share, "Time beside native", "× native", native.to_vec()),
            (*share, "Time beside zram", "× zram", zram.to_vec()),
        ]
    });
    for ((share, what, measure, values), area) in charts.zip(root.split_evenly((panels, 1))) {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.local_percent == share).collect();
        let series = values.into_iter().map(|(name, value)| {
            // The colours of the other pictures: Hinterland's and zram's.
            let colour = COLOURS[if name == "zram" { 1 } else { 6 }];
            Series { name: name.into(), colour, bars: rows.iter().map(|row| value(row).map(ends)).collect() }
        });
        let chart = Chart {
            caption: &format!("{what}, {share} % of the native peak local; median and its interval"),
            measure,
            groups: &rows.iter().map(|row| row.program.clone()).collect::<Vec<_>>(),
            series: &series.collect::<Vec<_>>(),
        };
        bars::draw(&area, &chart)?;
    }
    root.present()?;
    Ok(())
}

/// An interval as a bar with its whiskers.
fn ends(interval: Interval) -> Spread {
    Spread { median: interval.median, min: interval.low, max: interval.high }
}
