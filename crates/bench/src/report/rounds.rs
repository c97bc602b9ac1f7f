//! Programs that several systems ran by turns (`./dev bench tapes`, `sets`, `compiled` and `sub-page`), as a picture: a panel for each link and
//! share of local memory, in it a group of bars for each program, its times beside the median of one system's.

use super::bars::{self, Chart};
use super::plot::distinct;
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
    bench: String,
    what: String,
    #[serde(alias = "far", alias = "rows")]
    programs: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(alias = "walk")]
    program: String,
    link: Option<String>,
    percent: Option<u32>,
    /// By system.
    runs: BTreeMap<String, Vec<Run>>,
}

#[derive(Deserialize)]
struct Run {
    /// Not there if it did not end in order.
    seconds: Option<f64>,
}

/// A program's row and the seconds that its times are divided by.
struct Case<'a> {
    row: &'a Row,
    one: f64,
}

/// Draws the report as SVG.
///
/// # Errors
/// There is no row with the system that the others are compared with, or the picture cannot be written.
pub fn draw(report: &Report, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let beside = match report.bench.as_str() {
        "tapes" => "all-local",
        "compiled" => "plain/auto",
        "sub-page" => "off",
        _ => "auto",
    };
    let of = |row| Some(Case { row, one: median(row, beside)? });
    let cases: Vec<Case> = report.programs.iter().filter_map(of).collect();
    let places = distinct(cases.iter().map(|case| place(case.row)));
    if places.is_empty() {
        return Err(format!("the report has no program that '{beside}' ran").into());
    }
    let height = TITLE_HEIGHT + u32::try_from(places.len())? * PANEL.1;
    let root = SVGBackend::new(path, (PANEL.0, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&report.what, ("sans-serif", 14))?;
    for (area, place_of) in root.split_evenly((places.len(), 1)).iter().zip(&places) {
        let cases: Vec<&Case> = cases.iter().filter(|case| place(case.row) == *place_of).collect();
        let chart = Chart {
            caption: place_of,
            measure: &format!("× {beside}"),
            groups: &cases.iter().map(|case| case.row.program.clone()).collect::<Vec<_>>(),
            series: &bars::series(&cases, |case| &case.row.runs, |case, run| Some(run.seconds? / case.one)),
        };
        bars::draw(area, &chart)?;
    }
    root.present()?;
    Ok(())
}

/// Where a row was measured, as a caption.
fn place(row: &Row) -> String {
    let link = match row.link.as_deref() {
        None | Some("none") => "no link".to_owned(),
        Some(link) => link.replace(':', ", "),
    };
    row.percent.map_or_else(|| link.clone(), |percent| format!("{link}, {percent} % local"))
}

fn median(row: &Row, system: &str) -> Option<f64> {
    Some(Spread::of(row.runs.get(system)?.iter().filter_map(|run| run.seconds))?.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(name: &str, report: &str) -> Result<String, String> {
        let report = serde_json::from_str(report).expect("a report");
        let path = std::env::temp_dir().join(format!("rounds-{}-{name}.svg", std::process::id()));
        draw(&report, &path).map_err(|error| error.to_string())?;
        let text = std::fs::read_to_string(&path).expect("drawn");
        std::fs::remove_file(path).expect("removed");
        Ok(text)
    }

    #[test]
    fn each_link_is_a_panel_and_runs_that_failed_have_no_bar() {
        let tapes = r#"{"bench": "tapes", "what": "Tapes", "programs": [
            {"program": "fft", "percent": 20, "link": "15us:10Gb/s", "runs": {"all-local": [{"seconds": 2}], "tape": [{"seconds": 3}], "zram": [{"failed": "killed"}]}},
            {"program": "fft", "percent": 20, "link": "none", "runs": {"all-local": [{"seconds": 2}], "tape": [{"seconds": 3}]}},
            {"program": "mvmul", "percent": 20, "link": "none", "runs": {"tape": [{"seconds": 3}]}}]}"#;
        let picture = drawn("tapes", tapes).expect("drawn");
        assert!(picture.contains("15us, 10Gb/s, 20 % local") && picture.contains("no link, 20 % local"), "{picture}");
        assert!(picture.contains("× all-local") && !picture.contains("mvmul"));
        let compiled = r#"{"bench": "compiled", "what": "Compiled", "far": [{"walk": "sum", "runs": {"plain/auto": [{"seconds": 1}]}}]}"#;
        assert!(drawn("compiled", compiled).expect("drawn").contains("× plain/auto"));
        let none = drawn("none", &tapes.replace("all-local", "local")).expect_err("nothing to compare with");
        assert_eq!(none, "the report has no program that 'all-local' ran");
    }
}
