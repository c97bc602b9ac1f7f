//! Hinterland beside its rivals, and several threads beside one.
//!
//! A ratio is taken within each round and then the median over the rounds, so that a machine that slows down for a while
//! slows both sides. Rounds that either side did not finish are left out.

use super::model::Row;
use super::statistics::Spread;
use crate::paging::System;
use crate::worker::Pattern;
use hinterland_abi::FaultPathName;
use serde::{Deserialize, Serialize};

/// Total RAM may be so much more than the rival's.
const RAM_TARGET: f64 = 1.05;

/// Hinterland divided by a rival, with one pattern and one number of threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ratio {
    /// The pattern.
    pub pattern: Pattern,
    /// Threads.
    pub threads: u32,
    /// The rival.
    pub against: System,
    /// Of times per access, over the rounds.
    pub time: Spread,
    /// The most that `time` should be, where the project has set itself a target.
    pub time_target: Option<f64>,
    /// Of processor time of the whole machine per access. Absent where the rival took less than the kernel's clock shows.
    pub machine_cpu: Option<f64>,
    /// Of total RAM.
    pub total_ram: f64,
    /// The most that `total_ram` should be.
    pub total_ram_target: Option<f64>,
}

/// Major faults per second with several threads, divided by those with one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scaling {
    /// The system.
    pub system: System,
    /// The pattern.
    pub pattern: Pattern,
    /// Threads.
    pub threads: u32,
    /// The quotient; above 1, threads help.
    pub faults_per_second: f64,
}

/// All ratios that the rows allow.
pub fn ratios(rows: &[Row], far: &[String], path: FaultPathName) -> Vec<Ratio> {
    let ours = rows.iter().filter(|row| row.system == System::Hinterland && row.is_scored());
    let pairs = ours.flat_map(|our| {
        let same = move |row: &&Row| row.pattern == our.pattern && row.threads == our.threads;
        rows.iter()
            .filter(same)
            .filter(|row| row.system != System::Hinterland && row.is_scored())
            .map(move |row| (our, row))
    });
    pairs.filter_map(|(our, rival)| ratio(our, rival, far, path)).collect()
}

fn ratio(our: &Row, rival: &Row, far: &[String], path: FaultPathName) -> Option<Ratio> {
    #[allow(clippy::cast_precision_loss, reason = "counts and bytes far below 2^52")]
    let quotient = |a: Option<u64>, b: Option<u64>| Some(a? as f64 / b? as f64);
    let accesses = quotient(our.accesses, rival.accesses)?;
    let rounds = our.round_seconds.iter().zip(&rival.round_seconds);
    let kernel = rival.system.is_kernel_swap();
    Some(Ratio {
        pattern: our.pattern,
        threads: our.threads,
        against: rival.system,
        time: Spread::of(rounds.filter_map(|(a, b)| Some((*a)? / (*b)? / accesses)))?,
        time_target: time_target(our.pattern, our.threads, rival.system, far, path),
        machine_cpu: rival
            .machine_cpu_seconds
            .filter(|seconds| *seconds > 0.0)
            .and_then(|seconds| Some(our.machine_cpu_seconds? / seconds / accesses)),
        total_ram: quotient(our.total_ram_bytes, rival.total_ram_bytes)?,
        total_ram_target: kernel.then_some(RAM_TARGET),
    })
}

/// The project's targets, where the far memory is of the rival's kind.
fn time_target(pattern: Pattern, threads: u32, rival: System, far: &[String], path: FaultPathName) -> Option<f64> {
    let first = far.first().map_or("", |url| url.split(':').next().unwrap_or_default());
    match (first, rival, pattern) {
        ("compressed", System::Zram, Pattern::Sequential) => Some(0.25),
        ("compressed", System::Zram, Pattern::Stride10) => Some(0.35),
        ("compressed", System::Zram, Pattern::Zipf) => Some(0.5),
        ("compressed", System::Zram, Pattern::Random) if path == FaultPathName::Inline => {
            Some(if threads == 1 { 0.5 } else { 0.6 })
        }
        ("compressed", System::Zram, Pattern::Write) if path == FaultPathName::Inline => Some(0.75),
        ("compressed", System::Zram, Pattern::Random | Pattern::Write) => Some(1.0),
        ("file", System::SsdSwap, Pattern::Sequential) => Some(0.3),
        ("file", System::SsdSwap, Pattern::Random) => Some(1.0),
        _ => None,
    }
}

/// Several threads beside one, for every system that pages.
pub fn scalings(rows: &[Row]) -> Vec<Scaling> {
    let one = |row: &Row| {
        let same = |other: &&Row| (other.system, other.pattern, other.threads) == (row.system, row.pattern, 1);
        rows.iter().find(same).filter(|other| other.is_scored())?.major_faults_per_second.filter(|rate| *rate > 0.0)
    };
    let several = rows.iter().filter(|row| row.threads > 1 && row.is_scored());
    several
        .filter_map(|row| {
            let faults_per_second = row.major_faults_per_second? / one(row)?;
            Some(Scaling { system: row.system, pattern: row.pattern, threads: row.threads, faults_per_second })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(system: &str, seconds: f64, machine_cpu_seconds: f64) -> Row {
        let text = json!({
            "system": system, "variant": "", "pattern": "random", "threads": 1, "accesses": 100,
            "round_seconds": [seconds, null, seconds], "machine_cpu_seconds": machine_cpu_seconds,
            "total_ram_bytes": 1000, "cut_short": false, "ended": "ok", "trials": [],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_rival_that_was_too_quick_for_the_clock_leaves_a_report_that_can_be_read() {
        let rows = [row("hinterland", 2.0, 3.0), row("all-local", 0.5, 0.0)];
        let ratios = ratios(&rows, &[], FaultPathName::Auto);
        assert_eq!((ratios[0].time.median, ratios[0].machine_cpu), (4.0, None));
        let read: Vec<Ratio> = serde_json::from_str(&serde_json::to_string(&ratios).unwrap()).unwrap();
        assert_eq!(read.len(), 1);
    }

    #[test]
    fn patterns_have_a_target_beside_compressed_swap_that_goes_by_path_and_threads() {
        let target =
            |pattern, threads, far: &str, path| time_target(pattern, threads, System::Zram, &[far.into()], path);
        let inline = |pattern, far| target(pattern, 1, far, FaultPathName::Inline);
        assert_eq!(inline(Pattern::Sequential, "compressed:2G"), Some(0.25));
        assert_eq!(inline(Pattern::Stride10, "compressed"), Some(0.35));
        assert_eq!(inline(Pattern::Stride10, "file:/far"), None);
        assert_eq!(inline(Pattern::Random, "compressed"), Some(0.5));
        assert_eq!(target(Pattern::Random, 2, "compressed", FaultPathName::Inline), Some(0.6));
        assert_eq!(target(Pattern::Random, 1, "compressed", FaultPathName::Monitor), Some(1.0));
    }

    #[test]
    fn the_machines_time_is_divided_too() {
        let rows = [row("hinterland", 2.0, 3.0), row("zram", 1.0, 1.5)];
        assert_eq!(ratios(&rows, &[], FaultPathName::Auto)[0].machine_cpu, Some(2.0));
    }
}
