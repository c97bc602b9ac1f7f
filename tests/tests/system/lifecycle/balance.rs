//! Memory balance effectiveness on the public traces of Alibaba, against the figures of xDM's §V-G. The traces are downloaded after a survey
//! (github.com/alibaba/clusterdata), so they are not here: `HINTERLAND_TEST_ALIBABA` names a directory with `server_usage.csv` (2017) and
//! `machine_usage.csv` (2018).

use anyhow::{Context, Result, ensure};
use hinterland_tests::launch::launcher;
use hinterland_tests::suite::{self, Trial};
use std::path::PathBuf;

/// The variable that names the directory.
const TRACES: &str = "HINTERLAND_TEST_ALIBABA";
/// By how many per cent the effectiveness may differ.
const SLACK: f64 = 0.5;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    // File, α = β, effectiveness.
    let figures = [("2017", "server_usage.csv", "31", 13.8), ("2018", "machine_usage.csv", "80", 19.7)];
    let trial = |(year, file, threshold, effectiveness): (&str, &'static str, &'static str, f64)| {
        let obstacle = move || missing(file);
        suite::trial(format!("lifecycle::balance::alibaba_{year}"), obstacle, move || {
            public(file, threshold, effectiveness)
        })
    };
    figures.map(trial).into()
}

fn place(file: &str) -> Option<PathBuf> {
    std::env::var_os(TRACES).map(|directory| PathBuf::from(directory).join(file))
}

/// Why the trace is not there.
fn missing(file: &str) -> Option<String> {
    match place(file) {
        None => Some(format!("{TRACES} does not name a directory with {file} of github.com/alibaba/clusterdata")),
        Some(path) => (!path.is_file()).then(|| format!("{} is not there", path.display())),
    }
}

fn public(file: &str, threshold: &str, right: f64) -> Result<()> {
    let path = place(file).context("the trace is there")?;
    let output = launcher()?.arg("balance").arg(path).args(["--alpha", threshold, "--json"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let effectiveness = found["most"]["effectiveness"].as_f64().context("no effectiveness")?;
    ensure!((effectiveness - right).abs() <= SLACK, "{effectiveness} % instead of {right} %: {found}");
    Ok(())
}
