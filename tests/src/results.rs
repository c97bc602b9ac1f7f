//! One row for each managed run, appended to `results.jsonl` in the tests' directory of the build.
//!
//! `./dev results` turns the rows of the last runs into files of `docs/results` ([`crate::published`]); a test run never writes there.

use crate::managed::Managed;
use crate::native::Native;
use crate::{Scenario, Stats, Variant, places};
use anyhow::Result;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A row.
#[derive(Serialize)]
pub struct Row<'a> {
    /// The program.
    pub program: &'a str,
    /// What it does.
    pub about: &'a str,
    /// Its settings.
    #[serde(flatten)]
    pub variant: Variant,
    /// Size that was aimed at.
    pub size_bytes: u64,
    /// `ok`, or what is wrong.
    pub ended: String,
    /// Native peak of anonymous memory.
    pub native_anonymous_peak_bytes: u64,
    /// Native wall time.
    pub native_seconds: f64,
    /// Local budget.
    pub budget_bytes: u64,
    /// Managed wall time.
    pub seconds: f64,
    /// Peak resident memory of the managed tree, as sampled.
    pub resident_peak_bytes: u64,
    /// The launcher's figures.
    pub stats: Option<&'a Stats>,
}

impl<'a> Row<'a> {
    /// The row of one pair of runs.
    pub fn new(
        scenario: &'a Scenario,
        variant: Variant,
        size_bytes: u64,
        native: &Native,
        managed: &'a Managed,
        violations: &[String],
    ) -> Row<'a> {
        Row {
            program: scenario.name,
            about: scenario.about,
            variant,
            size_bytes,
            ended: if violations.is_empty() { "ok".into() } else { violations.join("; ") },
            native_anonymous_peak_bytes: native.finished.anonymous_peak_bytes,
            native_seconds: native.finished.wall.as_secs_f64(),
            budget_bytes: managed.budget_bytes,
            seconds: managed.finished.wall.as_secs_f64(),
            resident_peak_bytes: managed.finished.resident_peak_bytes,
            stats: managed.stats.as_ref().ok(),
        }
    }

    /// Appends the row to a results file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append_to(&self, file: &Path) -> Result<()> {
        std::fs::create_dir_all(places::tests())?;
        let mut file = std::fs::File::options().create(true).append(true).open(file)?;
        Ok(writeln!(file, "{}", serde_json::to_string(self)?)?)
    }
}

/// The results file.
pub fn file() -> PathBuf {
    places::tests().join("results.jsonl")
}

/// The results file of the runtimes.
pub fn runtimes_file() -> PathBuf {
    places::tests().join("runtimes.jsonl")
}
