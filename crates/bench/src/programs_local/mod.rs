//! `hinterland bench programs-local`: what Hinterland costs a program all of whose memory is local.
//!
//! Each round runs a program natively and under `hinterland run` with a budget that it doesn't reach; the order of the two
//! alternates. What counts is processor time, user and system, of the program and of all that was started for it: it shows work that
//! another processor does meanwhile, and differs less than wall time on a busy machine. Native and managed output must be the same,
//! and nothing may have been evicted: checked in the statistics.

mod case;

use super::error::BenchError;
use super::report::Destination;
use super::report::model::Origin;
use super::report::statistics::Spread;
use super::report::table::table;
use crate::executables::Executables;
use crate::rivals::undo::Changes;
use case::{Case, Finished, Prefix, Program, Time};
use hinterland_abi::variables;
use hinterland_units::{ByteCount, whole_number};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The most that a program may take longer.
const TARGET: f64 = 1.02;

/// Programs at 100 % local memory, beside native: what does Hinterland cost when nothing is paged?
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:
  hinterland bench programs-local --program sort,numpy --python .venv/bin/python")]
pub struct ProgramsLocalArgs {
    /// Programs
    #[arg(long, value_delimiter = ',', default_value = "sort,numpy,redis")]
    program: Vec<Program>,
    /// A budget larger than any of them needs
    #[arg(long, default_value = "4G", value_name = "SIZE")]
    local: ByteCount,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = whole_number::<u32>(.., "--repeat 15"))]
    repeat: u32,
    /// A Python that has NumPy
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    python: PathBuf,
    #[command(flatten)]
    to: Destination,
    /// Another hinterland to measure instead of this one
    #[arg(long, hide = true, value_name = "PROGRAM")]
    launcher: Option<PathBuf>,
}

/// The result as JSON.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    origin: Origin,
    local_bytes: u64,
    repeat: u32,
    rows: Vec<Row>,
}

/// One program.
#[derive(Serialize)]
struct Row {
    program: Program,
    native_seconds: Option<Spread>,
    hinterland_seconds: Option<Spread>,
    /// Of wall time: Hinterland divided by native, within each round.
    ratio: Option<Spread>,
    native_cpu_seconds: Option<Spread>,
    hinterland_cpu_seconds: Option<Spread>,
    /// The same of processor time.
    cpu_ratio: Option<Spread>,
    /// The most that `cpu_ratio` should be.
    target: f64,
    /// `ok`, or why a round gave no result.
    ended: String,
}

/// Measures and reports.
///
/// # Errors
/// The programs cannot be prepared, or the report not be written.
pub fn run(args: &ProgramsLocalArgs) -> Result<(), BenchError> {
    let launcher = args.launcher.clone().map_or_else(|| Executables::find().map(|found| found.launcher), Ok)?;
    let changes = Changes::begin()?;
    let rows =
        args.program.iter().map(|program| measure(*program, args, &launcher, &changes)).collect::<Result<_, _>>()?;
    let report = Report { origin: Origin::now(), local_bytes: args.local.0, repeat: args.repeat, rows };
    args.to.write(&report, render)
}

fn measure(program: Program, args: &ProgramsLocalArgs, launcher: &Path, changes: &Changes) -> Result<Row, BenchError> {
    let case = Case::prepare(program, &args.python, changes)?;
    let statistics = case.statistics();
    let words = [launcher.as_os_str(), "run".as_ref(), "--quiet".as_ref(), "--stats".as_ref()];
    let words = words.into_iter().chain([statistics.as_os_str(), "--".as_ref()]).map(Into::into).collect();
    let local = (variables::LOCAL.to_owned(), args.local.0.to_string().into());
    let managed = Prefix { words, environment: vec![local] };
    let (mut pairs, mut ended) = (Vec::new(), None);
    for round in 0..args.repeat {
        let run = |with_hinterland: bool| {
            if !with_hinterland {
                return case.run(&Prefix::default());
            }
            let finished = case.run(&managed)?;
            check_statistics(&statistics)?;
            Ok(finished)
        };
        let managed_first = round % 2 == 1;
        let (first, second) = (run(managed_first), run(!managed_first));
        let (native, managed) = if managed_first { (second, first) } else { (first, second) };
        match both(native, managed) {
            Ok((native, managed)) => {
                eprintln!(
                    "{program}, round {}/{}: native {:.2} s, managed {:.2} s; of processors {:.2} and {:.2} s",
                    round + 1,
                    args.repeat,
                    native.wall_seconds,
                    managed.wall_seconds,
                    native.cpu_seconds,
                    managed.cpu_seconds,
                );
                pairs.push((native, managed));
            }
            Err(reason) => {
                eprintln!("{program}, round {}/{}: {reason}", round + 1, args.repeat);
                ended.get_or_insert(reason);
            }
        }
    }
    let spread = |figure: fn(&(Time, Time)) -> f64| Spread::of(pairs.iter().map(figure));
    Ok(Row {
        program,
        native_seconds: spread(|(native, _)| native.wall_seconds),
        hinterland_seconds: spread(|(_, managed)| managed.wall_seconds),
        ratio: spread(|(native, managed)| managed.wall_seconds / native.wall_seconds),
        native_cpu_seconds: spread(|(native, _)| native.cpu_seconds),
        hinterland_cpu_seconds: spread(|(_, managed)| managed.cpu_seconds),
        cpu_ratio: spread(|(native, managed)| managed.cpu_seconds / native.cpu_seconds),
        target: TARGET,
        ended: ended.unwrap_or_else(|| super::report::model::OK.into()),
    })
}

/// The two times, when both runs finished with the same output.
fn both(native: Result<Finished, String>, managed: Result<Finished, String>) -> Result<(Time, Time), String> {
    let native = native.map_err(|e| format!("native: {e}"))?;
    let managed = managed.map_err(|e| format!("managed: {e}"))?;
    if native.output != managed.output {
        return Err("the managed output differs from the native output".into());
    }
    Ok((native.time, managed.time))
}

/// Refuses a run that was not managed, or that paged.
fn check_statistics(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("no statistics: {e}"))?;
    let figures: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("unreadable statistics: {e}"))?;
    let figure = |name: &str| figures[name].as_u64().ok_or(format!("no {name} in the statistics"));
    if figure("managed_peak_bytes")? == 0 {
        return Err("the program was not managed".into());
    }
    let evicted = figure("evicted_clean_pages")? + figure("evicted_dirty_pages")?;
    if evicted > 0 { Err(format!("{evicted} pages were evicted: raise --local")) } else { Ok(()) }
}

fn render(report: &Report) -> String {
    let head = [
        "program",
        "native s",
        "hinterland s",
        "ratio",
        "native cpu s",
        "hinterland cpu s",
        "cpu ratio",
        "min–max",
        "target",
        "ended",
    ];
    let mut table = table(&head, 1);
    let seconds = |spread: Option<Spread>| spread.map_or("–".into(), |s| format!("{:.3}", s.median));
    for row in &report.rows {
        let ratio = row.cpu_ratio;
        let verdict = ratio.map_or("", |r| if r.median <= row.target { " met" } else { " missed" });
        table.add_row([
            row.program.to_string(),
            seconds(row.native_seconds),
            seconds(row.hinterland_seconds),
            seconds(row.ratio),
            seconds(row.native_cpu_seconds),
            seconds(row.hinterland_cpu_seconds),
            seconds(ratio),
            ratio.map_or("–".into(), |r| format!("{:.3}–{:.3}", r.min, r.max)),
            format!("≤ {}{verdict}", row.target),
            row.ended.clone(),
        ]);
    }
    format!("All memory local ({}), {} rounds\n\n{table}\n", ByteCount(report.local_bytes), report.repeat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(text: &str) -> Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        check_statistics(file.path())
    }

    #[test]
    fn a_run_that_paged_or_was_not_managed_does_not_count() {
        let text = |managed: u64, dirty: u64| {
            format!(r#"{{"managed_peak_bytes": {managed}, "evicted_clean_pages": 0, "evicted_dirty_pages": {dirty}}}"#)
        };
        assert_eq!(statistics(&text(100, 0)), Ok(()));
        assert!(statistics(&text(100, 3)).unwrap_err().contains("3 pages were evicted"));
        assert!(statistics(&text(0, 0)).unwrap_err().contains("not managed"));
        assert!(statistics("{}").is_err() && statistics("").is_err());
    }

    #[test]
    fn different_output_is_no_result() {
        let time = Time { wall_seconds: 1.0, cpu_seconds: 1.5 };
        let finished = |output: &[u8]| Ok(Finished { time, output: output.to_vec() });
        assert_eq!(both(finished(b"1"), finished(b"1")), Ok((time, time)));
        assert!(both(finished(b"1"), finished(b"2")).is_err());
        assert!(both(finished(b"1"), Err("broken".into())).unwrap_err().contains("managed: broken"));
    }
}
