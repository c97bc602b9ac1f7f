//! The report of `bench nodes`. The names are a promise to scripts: add, never rename.

use super::shaped::Shaped;
use super::{Percentile, STORED_PAGES};
use crate::report::model::Origin;
use crate::report::statistics::{Spread, median};
use crate::report::table::table;
use crate::report::target::{self, Target};
use hinterland_units::PAGE_BYTES;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What one round measured, by name, and what it could not.
#[derive(Clone, Default, Debug)]
pub struct Round {
    figures: BTreeMap<String, f64>,
    skipped: BTreeMap<String, String>,
}

impl Round {
    /// Notes a figure, or why there is none.
    pub fn figure(&mut self, name: &str, figure: Result<f64, String>) {
        match figure {
            Ok(figure) => drop(self.figures.insert(name.into(), figure)),
            Err(why) => self.skip(name, &why),
        }
    }

    /// Notes why there is no figure.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skipped.insert(name.into(), why.into());
    }

    /// Notes two percentiles of sorted durations.
    pub fn percentiles(&mut self, name: &str, times_us: Result<Vec<f64>, String>) {
        for percent in [50, 99] {
            let of = times_us.as_ref().map(|times| times.percentile(percent)).map_err(Clone::clone);
            self.figure(&format!("{name}_us_p{percent}"), of);
        }
    }

    /// Notes the measurement on the shaped link.
    pub fn shaped(&mut self, shaped: &Shaped) {
        for (name, figure) in [
            ("idle_us_p50", shaped.idle_p50_us),
            ("idle_us_p99", shaped.idle_p99_us),
            ("busy_us_p50", shaped.busy_p50_us),
            ("busy_us_p99", shaped.busy_p99_us),
            ("busy_us_mean", shaped.busy_mean_us),
            ("bulk_bytes_per_second", shaped.bulk_bytes_per_second),
        ] {
            self.figure(&format!("shaped_by_{}_{name}", shaped.by), Ok(figure));
        }
    }
}

/// A whole bench.
#[derive(Serialize)]
pub struct Report {
    /// Its origin.
    #[serde(flatten)]
    pub origin: Origin,
    /// Always `nodes`: tells the report from others.
    pub bench: &'static str,
    /// Rounds.
    pub repeat: usize,
    /// Seed of contents and accesses.
    pub seed: u64,
    /// Over the rounds, by name; units come last in names.
    pub figures: BTreeMap<String, Spread>,
    /// What could not be measured, and why.
    pub skipped: BTreeMap<String, String>,
    /// What was reached of what the project has set itself.
    pub targets: Vec<Target>,
}

impl Report {
    /// Sums the rounds up.
    pub fn new(rounds: &[Round], seed: u64, origin: Origin) -> Report {
        let names = rounds.iter().flat_map(|round| round.figures.keys());
        let spread = |name: &String| {
            let spread = Spread::of(rounds.iter().filter_map(|round| round.figures.get(name).copied()))?;
            Some((name.clone(), spread))
        };
        Report {
            origin,
            bench: "nodes",
            repeat: rounds.len(),
            seed,
            figures: names.filter_map(spread).collect(),
            skipped: rounds.iter().flat_map(|round| round.skipped.clone()).collect(),
            targets: targets(rounds),
        }
    }
}

/// Microseconds that a fault may take beside the raw round trip.
const FAULT_MORE_US: f64 = 4.0;
/// Bytes that a node may hold beside the pages: a share of them, and some.
const BESIDE_SHARE: f64 = 0.02;
const BESIDE_BYTES: f64 = (32 << 20) as f64;
/// Milliseconds that the loss of a node may keep a load, and what ends a run that cannot do without.
const STALL_MS: f64 = 2000.0;
const END_MS: f64 = 5000.0;

fn targets(rounds: &[Round]) -> Vec<Target> {
    // The median over the rounds that have both figures.
    let both = |a: &str, b: &str, of: fn(f64, f64) -> f64| {
        median(rounds.iter().filter_map(|round| Some(of(*round.figures.get(a)?, *round.figures.get(b)?))))
    };
    let ratio = |a: &str, b: &str| both(a, b, |a, b| a / b);
    let one = |name: &str| median(rounds.iter().filter_map(|round| round.figures.get(name).copied()));
    #[allow(clippy::cast_precision_loss, reason = "a page")]
    let beside_most = f64::from(STORED_PAGES) * PAGE_BYTES as f64 * BESIDE_SHARE + BESIDE_BYTES;
    let more = |raw: &str| both("tcp_fault_us_p50", raw, |fault, raw| fault - raw);
    let most = Target::at_most;
    let least = Target::at_least;
    let mut targets = vec![
        most("random fault over TCP − raw round trip, p50, µs".into(), more("raw_round_trip_us_p50"), FAULT_MORE_US),
        most(
            "random fault over TCP − raw round trip that looks first, p50, µs".into(),
            more("raw_looking_round_trip_us_p50"),
            FAULT_MORE_US,
        ),
        most("random fault on the same host, p50, µs".into(), one("same_host_fault_us_p50"), 4.5),
        least(
            "sequential scan / raw stream".into(),
            ratio("scan_bytes_per_second", "raw_stream_bytes_per_second"),
            0.7,
        ),
        least(
            "processor time of a memcached get / of a node's read".into(),
            ratio("memcached_cpu_us_per_get", "node_cpu_us_per_read"),
            3.0,
        ),
        least(
            "write-back with 2 replicas / with 1".into(),
            ratio("write_back_2_replicas_bytes_per_second", "write_back_bytes_per_second"),
            0.45,
        ),
        most("encrypted fault / plain, p50".into(), ratio("encrypted_fault_us_p50", "tcp_fault_us_p50"), 1.3),
        most("node's memory beside the pages, bytes".into(), one("node_beside_slabs_bytes"), beside_most),
    ];
    for how in ["killed", "stopped"] {
        let (load, end) = (format!("{how}_longest_load_ms"), format!("{how}_without_replica_end_ms"));
        targets.push(most(
            format!("longest load when one of three nodes is {how}, 2 replicas, ms"),
            one(&load),
            STALL_MS,
        ));
        targets.push(most(format!("a node is {how} to the error, without replicas, ms"), one(&end), END_MS));
    }
    targets.push(most(
        "load beside 4,096 connections with half requests / alone, p99".into(),
        ratio("crowd_load_us_p99", "alone_load_us_p99"),
        3.0,
    ));
    for by in ["tc", "link"] {
        let p99 = ratio(&format!("shaped_by_{by}_busy_us_p99"), &format!("shaped_by_{by}_idle_us_p99"));
        targets.push(most(format!("demand beside bulk / alone, 1 Gb/s by {by}, p99"), p99, 2.0));
    }
    targets.into_iter().flatten().collect()
}

/// The report in words and columns.
pub fn render(report: &Report) -> String {
    let mut figures = table(&["figure", "median", "min–max"], 1);
    for (name, spread) in &report.figures {
        let range = format!("{}–{}", number(spread.min), number(spread.max));
        figures.add_row([name.clone(), number(spread.median), range]);
    }
    let mut text = format!("{} rounds\n\n{figures}\n{}", report.repeat, target::render(&report.targets));
    for (name, why) in &report.skipped {
        let _ = writeln!(text, "\nskipped: {name}: {why}");
    }
    text
}

fn number(figure: f64) -> String {
    if figure.abs() >= 1e6 { format!("{:.1}M", figure * 1e-6) } else { format!("{figure:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(figures: &[(&str, f64)]) -> Round {
        let mut round = Round::default();
        figures.iter().for_each(|(name, figure)| round.figure(name, Ok(*figure)));
        round
    }

    #[test]
    fn differences_and_ratios_are_taken_within_a_round() {
        let rounds = [
            round(&[("tcp_fault_us_p50", 30.0), ("raw_round_trip_us_p50", 27.0)]),
            round(&[("tcp_fault_us_p50", 90.0), ("raw_round_trip_us_p50", 86.0)]),
            // The fault of this round is missing: its round trip compares with nothing.
            round(&[("raw_round_trip_us_p50", 1.0)]),
        ];
        let targets = targets(&rounds);
        assert_eq!((targets.len(), targets[0].met), (1, true));
        assert!((targets[0].reached - 3.5).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_measured_is_said_and_not_judged() {
        let mut round = round(&[("scan_bytes_per_second", 5e8), ("raw_stream_bytes_per_second", 1e9)]);
        round.figure("memcached_cpu_us_per_get", Err("memcached cannot be started".into()));
        let report = Report::new(&[round], 1, Origin::now());
        assert_eq!((report.targets.len(), report.targets[0].met), (1, false));
        let text = render(&report);
        assert!(text.contains("skipped: memcached_cpu_us_per_get: memcached cannot be started"), "{text}");
        assert!(text.contains("500.0M") && text.contains("0.500"), "{text}");
    }
}
