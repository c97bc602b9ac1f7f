//! What a bench hands to people and scripts: JSON, a table, plots.

pub mod bars;
mod cluster;
mod costs;
mod evictions;
pub mod model;
mod paper_figures;
pub mod plot;
mod ratios;
mod rounds;
pub mod statistics;
pub mod table;
pub mod target;

use super::error::BenchError;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where a bench's report goes, and as what.
#[derive(clap::Args, Clone, Debug)]
pub struct Destination {
    /// As JSON; the table goes to standard error then
    #[arg(long)]
    json: bool,
    /// Write there instead of to standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Destination {
    /// Writes `report`, as JSON or as `table` shows it. Where JSON is asked for, people see the table on standard error.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write<R: Serialize>(&self, report: &R, table: impl Fn(&R) -> String) -> Result<(), BenchError> {
        if !self.json {
            return write_text(&table(report), self.output.as_deref());
        }
        write_text(&to_json(report), self.output.as_deref())?;
        eprint!("{}", table(report));
        Ok(())
    }
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
