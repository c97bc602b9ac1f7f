//! The report of `bench programs`. The names are a promise to scripts: add, never rename.

use super::rounds::{Case, Round, Share};
use super::run::{Budget, Run};
use super::trials::{RAM_LEAST, Trial, is_empty};
use super::{Bound, ProgramsArgs};
use crate::report::model::{OK, Origin};
use crate::report::statistics::{CONFIDENCE, Interval, geometric_mean, median};
use crate::report::table::table;
use crate::report::target::{self, Target};
use hinterland_units::ByteCount;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A target is met when the upper end of the interval is no more than this above it.
const SLACK: f64 = 0.03;
/// The most of zram's time, each program.
const BESIDE_ZRAM: f64 = 1.0;
/// … and the geometric mean of all.
const BESIDE_ZRAM_MEAN: f64 = 0.6;
/// … and of SQLite with half of its memory.
const SQLITE: f64 = 0.85;
/// The most of the native time, of sort with a quarter of its memory.
const SORT: f64 = 4.0;

/// A whole bench.
#[derive(Serialize, Deserialize)]
pub struct Report {
    bench: String,
    what: String,
    #[serde(flatten)]
    origin: Origin,
    note: String,
    /// Before and after.
    load_average: [f64; 2],
    size_bytes: u64,
    /// What bounds Hinterland.
    #[serde(default)]
    budget: Bound,
    rounds: u32,
    pub rows: Vec<Row>,
    skipped: Vec<Skipped>,
    targets: Vec<Target>,
}

/// One program at one share of its memory.
#[derive(Serialize, Deserialize)]
pub struct Row {
    pub program: String,
    /// Percent of the native peak that is local under Hinterland.
    pub local_percent: u32,
    /// Anonymous memory, of the first native run.
    native_peak_bytes: u64,
    /// That share: Hinterland's budget, if it has no `ram_bytes`.
    local_bytes: u64,
    /// What Hinterland had in all, and divided by itself.
    #[serde(default)]
    ram_bytes: Option<u64>,
    /// Of the kernel's setting and limit; the chosen one is `zram`.
    trials: Vec<Trial>,
    zram: Option<Trial>,
    /// `native`, `hinterland` and `zram`: one for each round, none where a run gave no result.
    pub runs: BTreeMap<String, Vec<Option<Run>>>,
    /// Medians of them.
    seconds: BTreeMap<String, f64>,
    /// Ratios of times within rounds.
    pub hinterland_by_zram: Option<Interval>,
    pub hinterland_by_native: Option<Interval>,
    pub zram_by_native: Option<Interval>,
    /// Ratios of processor times of the runs' processes.
    cpu_by_zram: Option<Interval>,
    /// zram's total RAM over Hinterland's, within rounds.
    zram_ram_by_hinterland: Option<Interval>,
    /// Whether the kernel had as much RAM as Hinterland, or as much as it could use.
    equal_ram: bool,
    /// `ok`, or why a run gave no result, or which system had no run.
    ended: String,
}

/// A program that was not measured.
#[derive(Serialize, Deserialize)]
pub struct Skipped {
    pub program: String,
    pub reason: String,
}

impl Row {
    /// The row of a program at a share.
    pub fn of(case: &Case, share: &Share) -> Row {
        let series = [("native", &case.natives), ("hinterland", &share.hinterland), ("zram", &share.zram)];
        let figures = |rounds: &[Round]| rounds.iter().map(|round| round.as_ref().ok().copied()).collect();
        let runs: BTreeMap<String, Vec<Option<Run>>> =
            series.iter().map(|(name, rounds)| ((*name).to_owned(), figures(rounds))).collect();
        let failed = |(name, rounds): &(&str, &Vec<Round>)| {
            Some(format!("{name}: {}", rounds.iter().find_map(|round| round.as_ref().err())?))
        };
        let none =
            |(name, rounds): &(&str, &Vec<Round>)| rounds.is_empty().then(|| format!("{name}: no round was run"));
        let ended = share.chosen.as_ref().err().cloned();
        let ended = ended.or_else(|| series.iter().find_map(failed)).or_else(|| series.iter().find_map(none));
        let middle = |rounds: &Vec<Option<Run>>| median(rounds.iter().flatten().map(|run| run.seconds));
        let seconds = runs.iter().filter_map(|(name, rounds)| Some((name.clone(), middle(rounds)?))).collect();
        #[allow(clippy::cast_precision_loss, reason = "bytes of a machine")]
        let ram = paired(&runs, "zram", "hinterland", |run| run.total_ram_peak_bytes as f64);
        let swapped = runs["zram"].iter().flatten().any(|run| !is_empty(run.zram_peak_bytes));
        Row {
            program: case.name().into(),
            local_percent: share.percent,
            native_peak_bytes: case.native.anonymous_peak_bytes,
            local_bytes: share.local_bytes,
            ram_bytes: if let Budget::Ram(bytes) = share.budget { Some(bytes) } else { None },
            trials: share.trials.clone(),
            zram: share.chosen.as_ref().ok().cloned(),
            seconds,
            hinterland_by_zram: paired(&runs, "hinterland", "zram", |run| run.seconds),
            hinterland_by_native: paired(&runs, "hinterland", "native", |run| run.seconds),
            zram_by_native: paired(&runs, "zram", "native", |run| run.seconds),
            cpu_by_zram: paired(&runs, "hinterland", "zram", |run| run.cpu_seconds),
            equal_ram: ram.is_some_and(|ram| ram.median >= RAM_LEAST || !swapped),
            zram_ram_by_hinterland: ram,
            ended: ended.unwrap_or_else(|| OK.into()),
            runs,
        }
    }

    fn name(&self) -> String {
        format!("{} at {} %", self.program, self.local_percent)
    }

    /// A figure's median over the rounds of a system.
    fn middle(&self, system: &str, figure: impl Fn(&Run) -> f64) -> Option<f64> {
        median(self.runs.get(system)?.iter().flatten().map(figure))
    }
}

/// The ratios within the rounds that both finished.
fn paired(
    runs: &BTreeMap<String, Vec<Option<Run>>>,
    of: &str,
    by: &str,
    figure: impl Fn(&Run) -> f64,
) -> Option<Interval> {
    let pairs = runs.get(of)?.iter().zip(runs.get(by)?);
    Interval::of(pairs.filter_map(|(of, by)| Some(figure(of.as_ref()?) / figure(by.as_ref()?))))
}

impl Report {
    /// Of the rows.
    pub fn new(
        args: &ProgramsArgs,
        origin: Origin,
        load_average: [f64; 2],
        rows: Vec<Row>,
        skipped: Vec<Skipped>,
    ) -> Report {
        Report {
            bench: "programs".into(),
            what: "whole programs natively, under Hinterland, and under kernel swap to zram with a limit that gives it the same total RAM".into(),
            origin,
            note: args.note.clone(),
            load_average,
            size_bytes: args.size.0,
            budget: args.budget,
            rounds: args.rounds,
            targets: targets(&rows),
            rows,
            skipped,
        }
    }

    /// What was aimed at, for people.
    pub fn heading(&self) -> String {
        let size = ByteCount(self.size_bytes);
        let bound = match self.budget {
            Bound::Local => "",
            Bound::Ram => ", which each divides by itself",
        };
        format!("Whole programs of about {size}, at equal total RAM{bound}; up to {} rounds", self.rounds)
    }
}

/// What the project has set itself. Rows without equal RAM do not count, nor does an interval of fewer rounds than [`CONFIDENCE`] needs.
fn targets(rows: &[Row]) -> Vec<Target> {
    let bounded = |what: String, interval: Option<Interval>, most: f64| {
        Target::at_most(what, interval.filter(is_sure).map(|interval| interval.high), most + SLACK)
    };
    let fair = || rows.iter().filter(|row| row.equal_ram);
    let mut found: Vec<Target> = fair()
        .filter_map(|row| bounded(format!("{}: time beside zram", row.name()), row.hinterland_by_zram, BESIDE_ZRAM))
        .collect();
    let mean = mean_by_round(&fair().collect::<Vec<_>>());
    found.extend(bounded("geometric mean beside zram".into(), mean, BESIDE_ZRAM_MEAN));
    let row =
        |program: &str, percent: u32| rows.iter().find(|row| row.program == program && row.local_percent == percent);
    let sqlite = row("sqlite", 50).filter(|row| row.equal_ram);
    found.extend(sqlite.and_then(|row| bounded(format!("{} beside zram", row.name()), row.hinterland_by_zram, SQLITE)));
    let sort = row("sort", 25);
    found.extend(sort.and_then(|row| bounded(format!("{} beside native", row.name()), row.hinterland_by_native, SORT)));
    found
}

/// The geometric mean over the rows, round by round, of the rounds that all rows have.
fn mean_by_round(rows: &[&Row]) -> Option<Interval> {
    let ratio = |row: &Row, round: usize| {
        let seconds = |system: &str| Some(row.runs.get(system)?.get(round)?.as_ref()?.seconds);
        Some(seconds("hinterland")? / seconds("zram")?)
    };
    let rounds = rows.iter().map(|row| row.runs.get("zram").map_or(0, Vec::len)).min()?;
    let all = |round: usize| rows.iter().map(|row| ratio(row, round)).collect::<Option<Vec<f64>>>();
    Interval::of((0..rounds).filter_map(|round| geometric_mean(all(round)?)))
}

/// The report in words and columns.
pub fn render(report: &Report) -> String {
    let names = [
        "program",
        "local",
        "native s",
        "hinterland s",
        "zram s",
        "hinterland/zram",
        "interval",
        "zram RAM/ours",
        "disk MiB",
        "majors",
        "zram's",
        "CPU s",
        "zram's",
        "zram's setting",
    ];
    let mut rows = table(&names, 1);
    let figure =
        |figure: Option<f64>, digits: usize| figure.map_or("–".into(), |figure| format!("{figure:.digits$}"));
    for row in &report.rows {
        let middle = |system: &str, digits: usize, of: fn(&Run) -> f64| figure(row.middle(system, of), digits);
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let majors: fn(&Run) -> f64 = |run| run.major_faults as f64;
        #[allow(clippy::cast_precision_loss, reason = "mebibytes of one run")]
        let disk: fn(&Run) -> f64 = |run| run.hinterland.map_or(0.0, |said| (said.file_bytes >> 20) as f64);
        let interval = row.hinterland_by_zram.as_ref().map_or("–".into(), in_words);
        let unfair = if row.equal_ram { "" } else { " (not equal)" };
        rows.add_row([
            row.program.clone(),
            format!("{} %", row.local_percent),
            middle("native", 2, |run| run.seconds),
            middle("hinterland", 2, |run| run.seconds),
            middle("zram", 2, |run| run.seconds),
            figure(row.hinterland_by_zram.map(|ratio| ratio.median), 3),
            interval,
            figure(row.zram_ram_by_hinterland.map(|ratio| ratio.median), 2) + unfair,
            middle("hinterland", 0, disk),
            middle("hinterland", 0, majors),
            middle("zram", 0, majors),
            middle("hinterland", 2, |run| run.cpu_seconds),
            middle("zram", 2, |run| run.cpu_seconds),
            row.zram.as_ref().map_or("–".into(), |trial| trial.setting.to_string()),
        ]);
    }
    let mut text = format!("{}\n\n{rows}\n", report.heading());
    for row in report.rows.iter().filter(|row| row.ended != OK) {
        let _ = writeln!(text, "\n{}: {}", row.name(), row.ended);
    }
    for skipped in &report.skipped {
        let _ = writeln!(text, "\n{} was left out: {}", skipped.program, skipped.reason);
    }
    let unsure = |row: &&Row| row.equal_ram && row.hinterland_by_zram.is_some_and(|ratio| !is_sure(&ratio));
    let unsure = report.rows.iter().filter(unsure).count();
    if unsure > 0 {
        let least = CONFIDENCE * 100.0;
        let _ = writeln!(
            text,
            "\nNo target is judged by an interval of less than {least:.0} %: it takes six rounds; rows with fewer: {unsure}"
        );
    }
    text + &target::render(&report.targets)
}

/// Whether an interval says enough to judge by.
fn is_sure(interval: &Interval) -> bool {
    interval.confidence >= CONFIDENCE
}

/// The ends, with the confidence where that is less than [`CONFIDENCE`].
fn in_words(interval: &Interval) -> String {
    let confidence = if is_sure(interval) { String::new() } else { format!(" ({:.0} %)", interval.confidence * 100.0) };
    format!("{:.2}–{:.2}{confidence}", interval.low, interval.high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(program: &str, percent: u32, ours: &[f64], zram: &[f64]) -> Row {
        let runs = |seconds: &[f64]| {
            let run = |seconds: &f64| {
                json!({"seconds": seconds, "cpu_seconds": 1.0, "kernel_threads_cpu_seconds": 0.0, "machine_cpu_seconds": 1.0,
                    "major_faults": 3, "total_ram_peak_bytes": 1000, "anonymous_peak_bytes": 900, "zram_peak_bytes": 100})
            };
            seconds.iter().map(|seconds| if *seconds > 0.0 { run(seconds) } else { json!(null) }).collect::<Vec<_>>()
        };
        let runs = json!({"native": runs(&vec![1.0; ours.len()]), "hinterland": runs(ours), "zram": runs(zram)});
        let all: BTreeMap<String, Vec<Option<Run>>> = serde_json::from_value(runs).unwrap();
        let by = |of: &str, by: &str| paired(&all, of, by, |run| run.seconds);
        Row {
            program: program.into(),
            local_percent: percent,
            native_peak_bytes: 1000,
            local_bytes: 500,
            ram_bytes: None,
            trials: vec![],
            zram: None,
            seconds: BTreeMap::new(),
            hinterland_by_zram: by("hinterland", "zram"),
            hinterland_by_native: by("hinterland", "native"),
            zram_by_native: by("zram", "native"),
            cpu_by_zram: None,
            zram_ram_by_hinterland: None,
            equal_ram: true,
            ended: OK.into(),
            runs: all,
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The machine was slow in the second round; in the third, zram gave no result.
        let row = row("fft", 50, &[1.0, 10.0, 1.0], &[2.0, 20.0, 0.0]);
        assert_eq!(row.hinterland_by_zram.unwrap().median, 0.5);
        assert_eq!(row.hinterland_by_zram.unwrap().confidence, 0.5);
        assert_eq!(row.hinterland_by_native.unwrap().high, 10.0);
    }

    #[test]
    fn a_target_is_met_by_the_upper_end() {
        let met = |rows: &[Row], what: &str| {
            targets(rows).iter().find(|target| target.what.contains(what)).map(|target| target.met)
        };
        let six = |less: f64, most: f64| [less, less, less, less, less, most];
        let quick = || row("sqlite", 50, &six(0.8, 0.87), &[1.0; 6]);
        assert_eq!(met(&[quick()], "sqlite at 50 %: time"), Some(true));
        assert_eq!(met(&[quick()], "sqlite at 50 % beside"), Some(true));
        assert_eq!(met(&[row("sqlite", 50, &six(0.8, 0.89), &[1.0; 6])], "sqlite at 50 % beside"), Some(false));
        assert_eq!(met(&[row("sort", 25, &six(3.9, 4.1), &[9.0; 6])], "sort at 25 % beside native"), Some(false));
        let unfair = Row { equal_ram: false, ..quick() };
        assert_eq!(met(&[unfair], "sqlite"), None);
    }

    #[test]
    fn no_target_is_judged_by_too_few_rounds() {
        for (rounds, confidence) in [(1, Some("(0 %)")), (2, Some("(50 %)")), (5, Some("(94 %)")), (6, None)] {
            use clap::Parser;
            #[derive(Parser)]
            struct Line {
                #[command(flatten)]
                args: ProgramsArgs,
            }
            let rows = vec![row("sqlite", 50, &vec![0.9; rounds], &vec![1.0; rounds])];
            let judged = targets(&rows);
            let report = Report::new(&Line::parse_from(["programs"]).args, Origin::now(), [0.0, 0.0], rows, vec![]);
            let text = render(&report);
            assert!(!text.contains("95 %") || confidence.is_some(), "{text}");
            match confidence {
                Some(said) => {
                    assert!(judged.is_empty() && text.contains(said) && text.contains("No target"), "{judged:?} {text}")
                }
                // What is written beside a verdict is what it was judged by.
                None => {
                    let time = &judged[0];
                    assert!(time.met && time.at_most == Some(BESIDE_ZRAM + SLACK) && judged.len() == 3, "{judged:?}");
                    assert!(text.contains("≤ 1.03") && text.contains("0.90–0.90 "), "{text}");
                }
            }
        }
    }

    #[test]
    fn the_mean_is_over_rounds_that_all_have() {
        let rows = [row("fft", 50, &[0.5, 0.5, 9.0], &[1.0, 1.0, 1.0]), row("sort", 50, &[2.0, 0.5], &[1.0, 1.0])];
        let mean = mean_by_round(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert!((mean.low - 0.5).abs() < 1e-12 && (mean.high - 1.0).abs() < 1e-12, "{mean:?}");
        assert_eq!(mean_by_round(&[]), None);
    }

    #[test]
    fn what_is_written_can_be_read_and_shown() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: ProgramsArgs,
        }
        let args = Line::parse_from(["programs", "--note", "busy"]).args;
        let skipped = vec![Skipped { program: "forest".into(), reason: "no scikit-learn".into() }];
        let report = Report::new(&args, Origin::now(), [0.5, 1.5], vec![row("fft", 50, &[1.0], &[2.0])], skipped);
        let read: Report = serde_json::from_str(&crate::report::to_json(&report)).unwrap();
        let text = render(&read);
        assert!(text.contains("0.500") && text.contains("forest was left out: no scikit-learn"), "{text}");
        assert_eq!(read.note, "busy");
    }
}
