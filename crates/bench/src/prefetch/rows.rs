//! The report of `bench prefetch`. The names are a promise to scripts: add, never rename.

use super::targets::targets;
use super::{Entry, PrefetchArgs};
use crate::managed::figures;
use crate::report::model::{OK, Origin};
use crate::report::statistics::{Spread, median, median_count};
use crate::report::table::table;
use crate::report::target::{self, Target};
use crate::worker::{Measured, Pattern, Times};
use hinterland_units::ByteCount;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Shares of the accesses at which the distribution is given.
const SHARES: [f64; 25] = [
    0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95,
    0.97, 0.98, 0.99, 0.995, 0.999,
];

/// A whole bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its origin.
    #[serde(flatten)]
    pub origin: Origin,
    /// Always `prefetch`: tells the report from others.
    pub bench: String,
    /// Data of each run; half of it is local.
    pub size_bytes: u64,
    /// The far memory, without links.
    pub far: String,
    /// Who served faults, as asked for; several with commas.
    pub fault_path: String,
    /// Largest window, when it was set.
    pub read_ahead_pages: Option<u32>,
    /// Rounds.
    pub repeat: u32,
    /// Seed of contents and accesses.
    pub seed: u64,
    /// One for each link, pattern and prefetcher.
    pub rows: Vec<Row>,
    /// What was reached of what the project has set itself.
    pub targets: Vec<Target>,
}

/// One prefetcher with one pattern over one link: medians over the rounds unless said; absent when no round finished.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// As `--link` has it; `none`: no link.
    pub link: String,
    /// The pattern.
    pub pattern: Pattern,
    /// Who served faults; absent in reports of one fault path.
    #[serde(default)]
    pub fault_path: Option<String>,
    /// The prefetcher.
    pub prefetcher: String,
    /// Accesses of a timed phase.
    pub accesses: Option<u64>,
    /// Some round was cut short by its time limit.
    pub cut_short: bool,
    /// Mean duration of an access.
    pub access_us_mean: Option<Spread>,
    /// Half of the accesses took no longer.
    pub access_us_p50: Option<Spread>,
    /// 99 of 100 took no longer.
    pub access_us_p99: Option<Spread>,
    /// Faults that waited for far memory, for each access.
    pub major_faults_per_access: Option<f64>,
    /// Faults that did not, for each access.
    pub minor_faults_per_access: Option<f64>,
    /// Pages that were brought in ahead, for each access.
    pub prefetched_per_access: Option<f64>,
    /// Observed hits / pages left unmapped, those included that waited when the timed phase began; absent when there were too few to say (fewer than 100 in a round).
    pub accuracy: Option<f64>,
    /// Hits / (major faults + minor faults + hits).
    pub coverage: Option<f64>,
    /// Processor time of the read-ahead thread for each prefetched page, in microseconds: less where threads of the program helped.
    pub ahead_us_per_page: Option<f64>,
    /// Duration in microseconds that each share of the accesses did not exceed, of all rounds together.
    pub distribution: Vec<(f64, f64)>,
    /// Mean duration of an access in each round, in microseconds; absent for a round that did not finish.
    pub round_us: Vec<Option<f64>>,
    /// p50 and p99 of each round, in microseconds.
    pub round_quantiles_us: Vec<Option<(f64, f64)>>,
    /// Major faults for each access in each round.
    pub round_major_faults_per_access: Vec<Option<f64>>,
    /// `ok`, or why rounds did not finish.
    pub ended: String,
}

impl Report {
    /// Sums up what was measured.
    pub(super) fn new(args: &PrefetchArgs, entries: &[Entry], origin: Origin) -> Report {
        let several = args.fault_path.len() > 1;
        let row = |entry: &Entry| Row { fault_path: several.then(|| entry.fault_path.to_string()), ..Row::new(entry) };
        let rows: Vec<Row> = entries.iter().map(row).collect();
        let judged: Vec<&Row> =
            rows.iter().filter(|row| Some(&row.fault_path) == rows.last().map(|row| &row.fault_path)).collect();
        Report {
            origin,
            bench: "prefetch".into(),
            size_bytes: args.size.0,
            far: args.far.clone(),
            fault_path: args.fault_path.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            read_ahead_pages: args.read_ahead,
            repeat: args.repeat,
            seed: args.seed,
            targets: targets(&judged),
            rows,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds of one run lie far below 2^52")]
impl Row {
    fn new(entry: &Entry) -> Row {
        let good: Vec<&Measured> = entry.rounds.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
        let us = |ns: Option<u64>| ns.map(|ns| ns as f64 * 1e-3);
        let of_times =
            |measured: &Measured, of: &dyn Fn(&Times) -> Option<f64>| measured.access_times.as_ref().and_then(of);
        let spread = |of: &dyn Fn(&Times) -> Option<f64>| Spread::of(good.iter().filter_map(|one| of_times(one, of)));
        let each =
            |of: &dyn Fn(&Measured) -> u64| median(good.iter().map(|one| of(one) as f64 / one.accesses.max(1) as f64));
        let rounds = |of: &dyn Fn(&Measured) -> Option<f64>| {
            entry.rounds.iter().map(|outcome| outcome.as_ref().ok().and_then(of)).collect()
        };
        let mut all = Times::default();
        good.iter().filter_map(|one| one.access_times.as_ref()).for_each(|times| all.add(times));
        let mean = |times: &Times| times.mean_ns().map(|ns| ns * 1e-3);
        let (p50, p99) = (|times: &Times| us(times.quantile_ns(0.5)), |times: &Times| us(times.quantile_ns(0.99)));
        let major = |one: &Measured| one.paging.major_faults as f64 / one.accesses.max(1) as f64;
        let quantiles = |one: &Measured| Some((of_times(one, &p50)?, of_times(one, &p99)?));
        Row {
            link: entry.link.clone(),
            pattern: entry.pattern,
            fault_path: None,
            prefetcher: entry.prefetcher.to_string(),
            accesses: median_count(good.iter().map(|one| one.accesses)),
            cut_short: good.iter().any(|one| one.cut_short),
            access_us_mean: spread(&mean),
            access_us_p50: spread(&p50),
            access_us_p99: spread(&p99),
            major_faults_per_access: each(&|one| one.paging.major_faults),
            minor_faults_per_access: each(&|one| one.paging.minor_faults),
            prefetched_per_access: each(&|one| figures(one).prefetched_pages),
            accuracy: median(good.iter().filter_map(|one| accuracy(one))),
            coverage: median(good.iter().filter_map(|one| coverage(one))),
            ahead_us_per_page: median(good.iter().filter_map(|one| ahead_us_per_page(one))),
            distribution: SHARES.iter().filter_map(|share| Some((*share, us(all.quantile_ns(*share))?))).collect(),
            round_us: rounds(&|one| of_times(one, &mean)),
            round_quantiles_us: entry.rounds.iter().map(|outcome| outcome.as_ref().ok().and_then(quantiles)).collect(),
            round_major_faults_per_access: rounds(&|one| Some(major(one))),
            ended: entry.rounds.iter().find_map(|outcome| outcome.as_ref().err().cloned()).unwrap_or(OK.into()),
        }
    }
}

impl Row {
    /// Its prefetcher; with the fault path where there are several.
    pub fn name(&self) -> String {
        match &self.fault_path {
            Some(path) => format!("{path}, {}", self.prefetcher),
            None => self.prefetcher.clone(),
        }
    }
}

/// The fewest pages whose use would be seen that tell something.
const UNMAPPED_MIN: u64 = 100;

#[allow(clippy::cast_precision_loss, reason = "pages of one run lie far below 2^52")]
fn accuracy(one: &Measured) -> Option<f64> {
    let figures = figures(one);
    // What waited when the phase began is used in it, too.
    let unmapped = figures.prefetched_unmapped_pages + figures.prefetched_waiting_pages;
    (unmapped >= UNMAPPED_MIN).then(|| figures.prefetch_hits_observed as f64 / unmapped as f64)
}

#[allow(clippy::cast_precision_loss, reason = "pages of one run lie far below 2^52")]
fn coverage(one: &Measured) -> Option<f64> {
    let hits = figures(one).prefetch_hits;
    let requests = one.paging.major_faults + one.paging.minor_faults + hits;
    (requests > 0).then(|| hits as f64 / requests as f64)
}

#[allow(clippy::cast_precision_loss, reason = "pages of one run lie far below 2^52")]
fn ahead_us_per_page(one: &Measured) -> Option<f64> {
    let figures = figures(one);
    let seconds: f64 =
        figures.thread_cpu_seconds.iter().filter(|(name, _)| name.starts_with("far-ahead")).map(|(_, s)| s).sum();
    (figures.prefetched_pages > 0).then(|| seconds * 1e6 / figures.prefetched_pages as f64)
}

/// The report in words and columns.
pub fn render(report: &Report) -> String {
    let names = [
        "link",
        "pattern",
        "prefetcher",
        "µs/access",
        "p50",
        "p99",
        "major/access",
        "prefetched/access",
        "accuracy",
        "coverage",
    ];
    let mut rows = table(&names, 3);
    let median = |spread: Option<Spread>| spread.map_or("–".into(), |spread| format!("{:.2}", spread.median));
    let figure = |figure: Option<f64>| figure.map_or("–".into(), |figure| format!("{figure:.3}"));
    for row in &report.rows {
        let cut = if row.cut_short { "*" } else { "" };
        rows.add_row([
            row.link.clone(),
            row.pattern.to_string(),
            row.name(),
            median(row.access_us_mean) + cut,
            median(row.access_us_p50),
            median(row.access_us_p99),
            figure(row.major_faults_per_access),
            figure(row.prefetched_per_access),
            figure(row.accuracy),
            figure(row.coverage),
        ]);
    }
    let size = ByteCount(report.size_bytes);
    let mut text =
        format!("{size} of data, half of it local; far memory: {}; {} rounds\n\n{rows}\n", report.far, report.repeat);
    text.push_str(&target::render(&report.targets));
    for row in report.rows.iter().filter(|row| row.ended != OK) {
        let _ = writeln!(text, "\n{}, {}, {}: {}", row.link, row.pattern, row.name(), row.ended);
    }
    if report.rows.iter().any(|row| row.cut_short) {
        text.push_str("\n* cut short by --seconds-max; figures per access stand\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Hinterland, Paging};

    fn phase(unmapped: u64, waiting: u64, used: u64) -> Measured {
        let hinterland = Hinterland {
            prefetched_unmapped_pages: unmapped,
            prefetched_waiting_pages: waiting,
            prefetch_hits_observed: used,
            ..Hinterland::default()
        };
        let mut measured: Measured = serde_json::from_value(serde_json::json!({
            "accesses": 1000, "cut_short": false, "seconds": 1.0, "processor": {"process": 1.0, "machine": 1.0},
            "paging": Paging::default(), "stream_digest": 0, "access_times": null,
        }))
        .unwrap();
        measured.paging.hinterland = Some(hinterland);
        measured
    }

    #[test]
    fn uses_of_pages_that_waited_when_the_phase_began_make_no_accuracy_above_one() {
        assert_eq!(accuracy(&phase(200, 8, 206)), Some(206.0 / 208.0));
        assert_eq!(accuracy(&phase(200, 0, 150)), Some(0.75));
        assert_eq!(accuracy(&phase(20, 8, 28)), None, "too few to say");
    }
}
