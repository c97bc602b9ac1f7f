//! Reports that have the figures of a paper (`benches/paper_figures.py`), as a picture: a panel of bars for each.

use super::bars::{self, COLOURS, Chart, Series};
use super::statistics::Spread;
use plotters::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const PANEL: (u32, u32) = (960, 300);
const TITLE_HEIGHT: u32 = 30;

/// The report, as far as it is drawn.
#[derive(Deserialize)]
pub struct Report {
    what: String,
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    /// Its number in the paper, or `Table` and that of a table.
    figure: String,
    caption: String,
    measure: String,
    groups: Vec<String>,
    /// A value for each group, `null` where there is none.
    series: BTreeMap<String, Vec<Option<f64>>>,
}

/// Draws the report as SVG.
///
/// # Errors
/// A series lacks values, or the picture cannot be written.
pub fn draw(report: &Report, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    if report.figures.is_empty() {
        return Err("the report has no figures".into());
    }
    let panels = u32::try_from(report.figures.len())?;
    let root = SVGBackend::new(path, (PANEL.0, TITLE_HEIGHT + panels * PANEL.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&report.what, ("sans-serif", 16))?;
    for (figure, area) in report.figures.iter().zip(root.split_evenly((report.figures.len(), 1))) {
        let mut series = Vec::new();
        for ((name, values), colour) in figure.series.iter().zip(COLOURS.iter().cycle()) {
            if values.len() != figure.groups.len() {
                let why = format!(
                    "figure {}: {name} has {} values for {} groups",
                    figure.figure,
                    values.len(),
                    figure.groups.len()
                );
                return Err(why.into());
            }
            let spread = |value| Spread { median: value, min: value, max: value };
            let bars = values.iter().map(|value| value.map(spread)).collect();
            series.push(Series { name: name.clone(), colour: *colour, bars });
        }
        let kind = if figure.figure.starts_with("Table ") { "" } else { "Figure " };
        let caption = format!("{kind}{}: {}", figure.figure, figure.caption);
        bars::draw(
            &area,
            &Chart { caption: &caption, measure: &figure.measure, groups: &figure.groups, series: &series },
        )?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(values: &str) -> Result<String, String> {
        drawn_as("8", values)
    }

    fn drawn_as(number: &str, values: &str) -> Result<String, String> {
        let figure = format!(
            r#"{{"figure": "{number}", "caption": "Schemes", "measure": "× Remote", "groups": ["kc", "tr"], "series": {{"ours": {values}}}}}"#
        );
        let report = format!(r#"{{"what": "A model", "figures": [{figure}, {figure}]}}"#);
        let report = serde_json::from_str(&report).expect("a report");
        let file = tempfile::Builder::new().suffix(".svg").tempfile().expect("a temporary file");
        draw(&report, file.path()).map_err(|error| error.to_string())?;
        Ok(std::fs::read_to_string(file.path()).expect("drawn"))
    }

    #[test]
    fn each_figure_is_a_panel_with_its_number_and_a_series_without_a_value_is_refused() {
        let picture = drawn("[1.5, 2.25]").expect("drawn");
        assert_eq!(picture.matches("Figure 8: Schemes").count(), 2, "{picture}");
        assert!(picture.contains("A model") && picture.contains("ours") && picture.contains("× Remote"));
        let table = drawn_as("Table VI", "[1.5, 2.25]").expect("drawn");
        assert!(table.contains("Table VI: Schemes") && !table.contains("Figure"), "{table}");
        let bars = |picture: &str| picture.matches("<rect").count();
        assert_eq!(bars(&picture) - bars(&drawn("[1.5, null]").expect("drawn")), 2, "a bar less in each panel");
        assert_eq!(drawn("[1.5]"), Err("figure 8: ours has 1 values for 2 groups".to_owned()));
        let empty = draw(&Report { what: String::new(), figures: Vec::new() }, Path::new("/dev/null"))
            .expect_err("nothing to draw");
        assert_eq!(empty.to_string(), "the report has no figures");
    }
}
