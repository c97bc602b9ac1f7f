//! `hinterland bench prefetch`: prefetchers under access patterns, over modelled links (decision 0029) and over far
//! memory without one.
//!
//! Every prefetcher runs once in each round, with each fault path, in an order that rotates; each run is a process of its own. Ratios are taken within
//! each round. The duration of every access is measured, of those that do not fault too.

mod plot;
mod programs;
mod rows;
mod targets;

pub use plot::draw;
pub use programs::draw as draw_programs;
pub use rows::Report;

use super::error::BenchError;
use super::managed;
use super::report::Destination;
use super::report::model::Origin;
use super::worker::{Measured, Pattern, WorkerArgs};
use crate::executables::Executables;
use hinterland_abi::{FaultPathName, PrefetchName, Settings};
use hinterland_backend::LinkModel;
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, whole_number};

/// One access in so many pages before the timed phase: the streams are known and the memory is full.
const WARM_UP_PART: u64 = 4;
/// Those that Leap is compared with, and Hinterland's own.
const PREFETCHERS: [&str; 8] = ["none", "readahead", "readahead-vma", "stride", "leap", "next-n", "streams", "auto"];

/// Prefetchers over links: time per access, major faults, accuracy, coverage
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  hinterland bench prefetch --json -o prefetch.json && hinterland bench plot prefetch.json -o prefetch.svg
  hinterland bench prefetch --pattern stride-10 --link 5us:25Gb/s --prefetcher none,leap,streams --repeat 5
  hinterland bench prefetch --fault-path monitor,inline --prefetcher none,leap --far file:/var/tmp --link none")]
pub struct PrefetchArgs {
    /// How much data each run touches; half of it is local
    #[arg(long, default_value = "64M", value_name = "SIZE")]
    size: ByteCount,
    /// Far memory, before which the links are put
    #[arg(long, default_value = "compressed", value_name = "URL")]
    far: String,
    /// Links: none (the far memory as it is), rdma-25g, tcp-10g, ssd, or LATENCY:BANDWIDTH
    #[arg(long, value_delimiter = ',', default_value = "none,5us:25Gb/s,15us:10Gb/s,90us:4Gb/s", value_name = "LINK")]
    link: Vec<String>,
    /// Access patterns
    #[arg(long, value_delimiter = ',', default_value = "sequential,stride-10,interleaved-2,interleaved-4,random")]
    pattern: Vec<Pattern>,
    /// Prefetchers. Default: none, readahead, readahead-vma, stride, leap, next-n, streams, auto
    #[arg(long, value_delimiter = ',', value_name = "PREFETCHER", value_parser = str::parse::<PrefetchName>)]
    prefetcher: Vec<PrefetchName>,
    /// Fault path: inline, monitor, auto (this program makes system calls without libc: auto is monitor). Of several, targets are
    /// judged with the last
    #[arg(long, value_delimiter = ',', default_value = "inline", value_name = "PATH", value_parser = str::parse::<FaultPathName>)]
    fault_path: Vec<FaultPathName>,
    /// Largest window, instead of what is usual for each prefetcher
    #[arg(long, value_name = "PAGES", value_parser = whole_number::<u32>(.., "--read-ahead 64"))]
    read_ahead: Option<u32>,
    /// Rounds
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = whole_number::<u32>(.., "--repeat 3"))]
    repeat: u32,
    /// The longest that a timed phase may take; it is cut short then
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = whole_number::<u64>(.., "--seconds-max 1"))]
    seconds_max: u64,
    /// Seed of contents and accesses
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole_number::<u64>(.., "--seed 7"))]
    seed: u64,
    #[command(flatten)]
    to: Destination,
}

/// A run's figures, or why there are none.
type Outcome = Result<Measured, String>;

/// One prefetcher with one pattern over one link, on one fault path.
struct Entry {
    link: String,
    pattern: Pattern,
    fault_path: FaultPathName,
    prefetcher: PrefetchName,
    rounds: Vec<Outcome>,
}

/// Measures and reports.
///
/// # Errors
/// What was asked makes no sense, or the report cannot be written.
pub fn run(args: &PrefetchArgs) -> Result<(), BenchError> {
    let executables = Executables::find()?;
    let prefetchers = if args.prefetcher.is_empty() {
        PREFETCHERS.map(|name| name.parse().expect("a name of a prefetcher")).to_vec()
    } else {
        args.prefetcher.clone()
    };
    let pages = check(args)?;
    let mut entries = Vec::new();
    for link in &args.link {
        let far = far(&args.far, link)?;
        for pattern in &args.pattern {
            eprintln!("{pattern} over {far}");
            entries.extend(run_case(args, &executables, (link, &far), *pattern, pages, &prefetchers));
        }
    }
    let report = Report::new(args, &entries, Origin::now());
    args.to.write(&report, rows::render)
}

fn check(args: &PrefetchArgs) -> Result<u32, BenchError> {
    let refuse = |text: String| Err(BenchError::Setting(text));
    if args.repeat == 0 {
        return refuse("--repeat must be at least 1".into());
    }
    if args.size.0 / 2 < Budget::FLOOR.0 {
        return refuse(format!(
            "--size {}: half of it is local, and that must be at least {}",
            args.size,
            Budget::FLOOR
        ));
    }
    match u32::try_from(args.size.0 / PAGE_BYTES as u64) {
        Ok(pages) => Ok(pages),
        Err(_) => refuse(format!("--size {} is more than 2^32 pages", args.size)),
    }
}

/// The far memory with a link before it.
fn far(url: &str, link: &str) -> Result<String, BenchError> {
    if link == "none" {
        return Ok(url.to_owned());
    }
    let model: LinkModel = link.parse().map_err(|error| BenchError::Setting(format!("--link: {error}")))?;
    let separator = if url.contains('?') { '&' } else { '?' };
    Ok(format!("{url}{separator}link={model}"))
}

fn run_case(
    args: &PrefetchArgs,
    executables: &Executables,
    (link, far): (&str, &str),
    pattern: Pattern,
    pages: u32,
    prefetchers: &[PrefetchName],
) -> Vec<Entry> {
    let worker = WorkerArgs {
        pages,
        hot_pages: 1,
        pattern,
        threads: 1,
        accesses: u64::from(pages),
        seconds_max: args.seconds_max,
        seed: args.seed,
        warm_up: Some(u64::from(pages) / WARM_UP_PART),
        access_times: true,
    };
    let entry = |fault_path: FaultPathName, prefetcher: PrefetchName| Entry {
        link: link.into(),
        pattern,
        fault_path,
        prefetcher,
        rounds: vec![],
    };
    let on = |path: &FaultPathName| prefetchers.iter().map(|prefetcher| entry(*path, *prefetcher)).collect::<Vec<_>>();
    let mut entries: Vec<Entry> = args.fault_path.iter().flat_map(on).collect();
    for round in 0..args.repeat as usize {
        for turn in 0..entries.len() {
            let place = (turn + round) % entries.len();
            let entry = &mut entries[place];
            let settings = Settings {
                local: Some(Budget::Bytes(ByteCount(args.size.0 / 2))),
                far: vec![far.to_owned()],
                prefetch: entry.prefetcher,
                read_ahead_pages: args.read_ahead,
                fault_path: entry.fault_path,
                ..Settings::default()
            };
            let outcome = managed::run(executables, &[], &settings, &worker);
            tell(round + 1, entry, &outcome);
            entry.rounds.push(outcome);
        }
    }
    entries
}

fn tell(round: usize, entry: &Entry, outcome: &Outcome) {
    let (path, prefetcher) = (entry.fault_path, entry.prefetcher);
    match outcome {
        Ok(measured) => {
            let mean = measured.access_times.as_ref().and_then(|times| times.mean_ns()).unwrap_or(0.0);
            let cut = if measured.cut_short { ", cut short" } else { "" };
            let faults = measured.paging.major_faults;
            eprintln!(
                "  round {round}: {path}, {prefetcher}: {:.2} µs per access, {faults} major faults{cut}",
                mean * 1e-3
            );
        }
        Err(reason) => eprintln!("  round {round}: {path}, {prefetcher}: {reason}"),
    }
}
