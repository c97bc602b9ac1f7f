//! What a bench hands to people and scripts: JSON, a table, plots.

mod costs;
pub mod model;
pub mod plot;
mod ratios;
pub mod statistics;
pub mod table;
pub mod target;

use super::error::BenchError;
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// How a report is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For scripts.
    Json,
    /// For people.
    Table,
}

/// Writes `report`, as JSON or as `table` shows it, to `output`, or to standard output.
///
/// # Errors
/// It cannot be written.
pub fn write<R: Serialize>(
    report: &R,
    table: impl Fn(&R) -> String,
    format: Format,
    output: Option<&Path>,
) -> Result<(), BenchError> {
    let text = match format {
        Format::Json => to_json(report),
        Format::Table => table(report),
    };
    write_text(&text, output)
}

/// A report as JSON, with a line break at its end.
pub fn to_json(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).expect("a report holds only what JSON can hold") + "\n"
}

/// Writes `text` to `output`, or to standard output.
///
/// # Errors
/// It cannot be written.
pub fn write_text(text: &str, output: Option<&Path>) -> Result<(), BenchError> {
    match output {
        Some(path) => std::fs::write(path, text).map_err(BenchError::io("write", path)),
        None => std::io::stdout().write_all(text.as_bytes()).map_err(BenchError::io("write to", Path::new("stdout"))),
    }
}
