//! `hinterland bench fork`: what a fork of a process costs most of whose memory is far, beside a native process that holds as
//! much as the managed one may keep local; and whether the tree keeps its budget while shared pages leave.
//!
//! All processes live side by side and fork by turns. Before each fork they change pages at random, the same number in each,
//! so that no page is shared from the fork before but for what was not touched since. The child ends at once.

mod process;
mod worker;

pub use worker::{ForkWorkerArgs, run as run_worker};

use super::error::BenchError;
use super::report::Destination;
use super::report::model::Origin;
use super::report::statistics::Spread;
use super::report::table::table;
use crate::executables::Executables;
use hinterland_units::{ByteCount, PAGE_BYTES, whole_number};
use process::Forker;
use serde::Serialize;
use std::time::Duration;
use worker::{FORK, Forked, SHARE, Told};

/// Managed bytes for each byte that may be local.
const DATA_BY_LOCAL: u64 = 4;
/// Pages that are changed before each fork: one in so many of what is local.
const CHANGED_PART: u64 = 4;
/// A fork may take so many times as long as natively,
const TARGET_RATIO: f64 = 1.5;
/// and so many seconds more.
const TARGET_MORE_SECONDS: f64 = 0.05;
/// Time between two looks at what the tree holds. It stands still meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// The tree may hold so many times its budget.
const BUDGET_SLACK: f64 = 1.05;

/// A fork with 25 % of the memory local, beside a native process of the same resident size
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:
  hinterland bench fork --size 1G --repeat 15")]
pub struct ForkArgs {
    /// Managed data; a quarter of it may be local, and is what the native process has
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    size: ByteCount,
    /// Forks of each process
    #[arg(long, default_value_t = 25, value_name = "N", value_parser = whole_number::<u32>(.., "--repeat 25"))]
    repeat: u32,
    /// Fault paths
    #[arg(long, value_delimiter = ',', default_value = "monitor,inline", value_parser = ["monitor", "inline"])]
    fault_path: Vec<String>,
    /// Seed of contents and changes
    #[arg(long, default_value_t = 1, value_parser = whole_number::<u64>(.., "--seed 7"))]
    seed: u64,
    #[command(flatten)]
    to: Destination,
}

/// The result as JSON.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    origin: Origin,
    size_bytes: u64,
    local_bytes: u64,
    repeat: u32,
    seed: u64,
    /// The native process first.
    rows: Vec<Row>,
}

/// One process.
#[derive(Serialize)]
struct Row {
    /// `native`, or the fault path.
    system: String,
    /// The call, in the parent.
    call_seconds: Option<Spread>,
    /// From the call until the parent knows that the child has ended.
    ended_seconds: Option<Spread>,
    /// Against the native process.
    against_native: Option<Against>,
    /// While a child lives and the parent rewrites all that the two share.
    sharing: Option<Sharing>,
}

/// A managed process beside the native one: medians, and the most that they should be.
#[derive(Serialize)]
struct Against {
    call_ratio: f64,
    /// 1.5 times the native `call_seconds`, and 50 ms.
    target_call_seconds: f64,
    call_met: bool,
    ended_ratio: f64,
    /// 1.5 times the native `ended_seconds`, and 50 ms.
    target_ended_seconds: f64,
    ended_met: bool,
}

/// What the tree held.
#[derive(Serialize)]
struct Sharing {
    looks: usize,
    /// Looks that found more than the budget and 5 %.
    looks_over: usize,
    most_bytes: u64,
}

/// Measures and reports.
///
/// # Errors
/// A process cannot be started or fails, or the report cannot be written.
pub fn run(args: &ForkArgs) -> Result<(), BenchError> {
    let executables = Executables::find()?;
    let local_bytes = args.size.0 / DATA_BY_LOCAL;
    let mut forkers = vec![start(&executables, None, local_bytes, args)?];
    for path in &args.fault_path {
        forkers.push(start(&executables, Some((path, local_bytes)), args.size.0, args)?);
    }
    let mut times: Vec<Vec<Forked>> = vec![Vec::new(); forkers.len()];
    // The first round is a warm-up: what it pays for the first time, every process pays once.
    for round in 0..=args.repeat {
        let turns = forkers.len();
        for turn in 0..turns {
            let who = (turn + round as usize) % turns;
            let forked = fork_once(&mut forkers[who])?;
            if round > 0 {
                times[who].push(forked);
            }
        }
        eprintln!("round {round}/{}", args.repeat);
    }
    let mut rows: Vec<Row> = Vec::new();
    let names = std::iter::once("native").chain(args.fault_path.iter().map(String::as_str));
    for ((name, mut forker), times) in names.zip(forkers).zip(times) {
        let call_seconds = Spread::of(times.iter().map(|forked| forked.call_seconds));
        let ended_seconds = Spread::of(times.iter().map(|forked| forked.ended_seconds));
        let native = rows.first().and_then(|row| Some((row.call_seconds?, row.ended_seconds?)));
        let against_native = native.zip(call_seconds.zip(ended_seconds)).map(|(native, ours)| against(native, ours));
        let sharing = if rows.is_empty() { None } else { Some(share(&mut forker, local_bytes)?) };
        forker.end();
        rows.push(Row { system: name.into(), call_seconds, ended_seconds, against_native, sharing });
    }
    let report = Report {
        origin: Origin::now(),
        size_bytes: args.size.0,
        local_bytes,
        repeat: args.repeat,
        seed: args.seed,
        rows,
    };
    args.to.write(&report, render)
}

fn start(
    executables: &Executables,
    managed: Option<(&str, u64)>,
    data_bytes: u64,
    args: &ForkArgs,
) -> Result<Forker, BenchError> {
    let pages = |bytes: u64| u32::try_from(bytes / PAGE_BYTES as u64);
    let too_large = |_| BenchError::Setting(format!("--size {}: too large", args.size));
    let worker = ForkWorkerArgs {
        pages: pages(data_bytes).map_err(too_large)?,
        changed_pages: pages(args.size.0 / DATA_BY_LOCAL / CHANGED_PART).map_err(too_large)?,
        seed: args.seed,
    };
    Forker::start(executables, managed, &worker)
}

fn fork_once(forker: &mut Forker) -> Result<Forked, BenchError> {
    forker.ask(FORK)?;
    match forker.told()? {
        Told::Forked(forked) => Ok(forked),
        other => Err(BenchError::Setting(format!("a worker said {other:?} instead of how long it forked"))),
    }
}

/// Has the parent rewrite what it shares with a child, and looks at the tree meanwhile.
fn share(forker: &mut Forker, local_bytes: u64) -> Result<Sharing, BenchError> {
    forker.ask(SHARE)?;
    forker.told()?;
    let mut held = Vec::new();
    while forker.is_silent(POLL_INTERVAL) {
        held.push(forker.far_bytes());
    }
    forker.told()?;
    #[allow(clippy::cast_precision_loss, reason = "bytes of one machine's memory lie far below 2^52")]
    let over = |bytes: &&u64| **bytes as f64 > local_bytes as f64 * BUDGET_SLACK;
    Ok(Sharing {
        looks: held.len(),
        looks_over: held.iter().filter(over).count(),
        most_bytes: held.iter().copied().max().unwrap_or(0),
    })
}

/// Call and end, natively and managed.
fn against(native: (Spread, Spread), ours: (Spread, Spread)) -> Against {
    let target = |native: Spread| native.median * TARGET_RATIO + TARGET_MORE_SECONDS;
    let (target_call_seconds, target_ended_seconds) = (target(native.0), target(native.1));
    Against {
        call_ratio: ours.0.median / native.0.median,
        target_call_seconds,
        call_met: ours.0.median <= target_call_seconds,
        ended_ratio: ours.1.median / native.1.median,
        target_ended_seconds,
        ended_met: ours.1.median <= target_ended_seconds,
    }
}

fn render(report: &Report) -> String {
    let names =
        ["system", "call ms", "min–max", "target", "ended ms", "min–max", "target", "shared: at most", "looks over"];
    let mut table = table(&names, 1);
    let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
    let median = |spread: Option<Spread>| spread.map_or("–".into(), |s| ms(s.median));
    let range = |spread: Option<Spread>| spread.map_or("–".into(), |s| format!("{}–{}", ms(s.min), ms(s.max)));
    let target = |seconds: f64, met: bool| format!("≤ {} {}", ms(seconds), if met { "met" } else { "missed" });
    for row in &report.rows {
        let against = row.against_native.as_ref();
        let sharing = row.sharing.as_ref();
        table.add_row([
            row.system.clone(),
            median(row.call_seconds),
            range(row.call_seconds),
            against.map_or(String::new(), |a| target(a.target_call_seconds, a.call_met)),
            median(row.ended_seconds),
            range(row.ended_seconds),
            against.map_or(String::new(), |a| target(a.target_ended_seconds, a.ended_met)),
            sharing.map_or(String::new(), |s| ByteCount(s.most_bytes).to_string()),
            sharing.map_or(String::new(), |s| format!("{} of {}", s.looks_over, s.looks)),
        ]);
    }
    let (size, local) = (ByteCount(report.size_bytes), ByteCount(report.local_bytes));
    format!("{size} managed, {local} of it local, beside {local} native; {} forks of each\n\n{table}\n", report.repeat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Spread {
        Spread { median, min: median, max: median }
    }

    #[test]
    fn the_target_is_one_and_a_half_times_native_and_50_ms() {
        let native = (spread(0.010), spread(0.020));
        let of = |call: f64, ended: f64| against(native, (spread(call), spread(ended)));
        assert!(of(0.064, 0.079).call_met && of(0.064, 0.079).ended_met);
        assert!(!of(0.066, 0.081).call_met && !of(0.066, 0.081).ended_met);
        assert!((of(0.03, 0.05).call_ratio - 3.0).abs() < 1e-9 && (of(0.03, 0.05).ended_ratio - 2.5).abs() < 1e-9);
    }
}
