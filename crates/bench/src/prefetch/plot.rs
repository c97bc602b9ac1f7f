//! The report as a picture: which share of the accesses took how long, as in Leap's figures 2 and 7; a row for each pattern, a column
//! for each link, a line for each prefetcher, on each fault path.

use super::rows::{Report, Row};
use crate::report::bars::COLOURS;
use crate::report::plot::distinct;
use hinterland_units::ByteCount;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

type Outcome = Result<(), Box<dyn std::error::Error>>;

const PANEL: (u32, u32) = (330, 240);
const TITLE_HEIGHT: u32 = 30;
/// Durations that are shown, in microseconds.
const SHOWN_US: std::ops::Range<f64> = 0.03..1_000.0;

/// Draws the report as SVG.
///
/// # Errors
/// The picture cannot be written.
pub fn draw(report: &Report, path: &Path) -> Outcome {
    let links = distinct(report.rows.iter().map(|row| row.link.as_str()));
    let patterns = distinct(report.rows.iter().map(|row| row.pattern));
    let names = distinct(report.rows.iter().map(Row::name));
    let size =
        (PANEL.0 * u32::try_from(links.len())?.max(1), TITLE_HEIGHT + PANEL.1 * u32::try_from(patterns.len())?.max(1));
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "Share of accesses by duration: {} of data, half local, far memory {}, {} rounds",
        ByteCount(report.size_bytes),
        report.far,
        report.repeat
    );
    let root = root.titled(&title, ("sans-serif", 16))?;
    let panels = root.split_evenly((patterns.len().max(1), links.len().max(1)));
    let cases = patterns.iter().flat_map(|pattern| links.iter().map(move |link| (*pattern, *link)));
    for (place, (area, (pattern, link))) in panels.iter().zip(cases).enumerate() {
        let rows = report.rows.iter().filter(|row| row.pattern == pattern && row.link == link);
        let caption = if link == "none" { format!("{pattern}, no link") } else { format!("{pattern}, {link}") };
        panel(area, &caption, &rows.collect::<Vec<_>>(), &names, place == 0)?;
    }
    root.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend, Shift>,
    caption: &str,
    rows: &[&Row],
    names: &[String],
    labelled: bool,
) -> Outcome {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 13))
        .margin(6)
        .x_label_area_size(30)
        .y_label_area_size(36)
        .build_cartesian_2d(SHOWN_US.log_scale(), 0.0..1.0)?;
    chart.configure_mesh().x_desc("µs").max_light_lines(0).y_labels(6).draw()?;
    for (place, name) in names.iter().enumerate() {
        let Some(row) = rows.iter().find(|row| row.name() == *name) else { continue };
        let colour = COLOURS[place % COLOURS.len()];
        let points = row.distribution.iter().map(|(share, us)| (us.clamp(SHOWN_US.start, SHOWN_US.end), *share));
        let line = PathElement::new(points.collect::<Vec<_>>(), colour.stroke_width(2));
        let series = chart.draw_series(std::iter::once(line))?;
        if labelled {
            series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2)));
        }
    }
    if labelled {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE)
            .border_style(BLACK.mix(0.2))
            .draw()?;
    }
    Ok(())
}
