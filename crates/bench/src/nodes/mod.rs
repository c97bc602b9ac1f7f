//! `hinterland bench nodes`: memory nodes beside what TCP, a fast store and one replica take. Everything is on this machine: the bench
//! starts nodes, memcached and a raw server, and ends them.
//!
//! Each round measures everything once; ratios are taken within each round.

mod bad_days;
mod connection_flood;
mod memcached;
mod pool;
mod process;
mod raw;
mod reader;
mod report;
mod shaped;

pub use raw::serve as serve_raw;
pub use shaped::in_namespace as run_shaped;

use super::error::BenchError;
use super::managed;
use super::report::Destination;
use super::report::model::Origin;
use super::worker::{Measured, Pattern, WorkerArgs};
use crate::executables::Executables;
use crate::rivals::undo::{Changes, Guard};
use hinterland_abi::{FaultPathName, PrefetchName, Settings};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES, whole_number};
use memcached::Memcached;
use pool::Filled;
use process::Node;
use raw::Raw;
use reader::Reader;
use report::{Report, Round};
use std::time::Duration;

/// Round trips of one measurement.
const ROUND_TRIPS: u32 = 5000;
/// Bytes of a page with what the protocol puts before it.
const ANSWER_BYTES: usize = PAGE_BYTES + 52;
/// What the round trips of the raw server are called: with sides that sleep, and with sides that look first.
const RAW: [&str; 2] = ["raw_round_trip", "raw_looking_round_trip"];
/// Bytes of the raw stream.
const STREAM_BYTES: u64 = 512 << 20;
/// Data of a program, at least the second figure, and how much of it is local: few touches find their page there.
const PROGRAM_PAGES: u32 = 16_384;
const PROGRAM_PAGES_MIN: u32 = 8192;
const LOCAL: ByteCount = ByteCount(16 << 20);
/// Pages at the node for reads, and in memcached: 128 MiB.
const STORED_PAGES: u32 = 32_768;
/// How long reads are measured.
const READS: Duration = Duration::from_secs(1);
/// What each node lends.
const CAPACITY_BYTES: u64 = 512 << 20;

/// Memory nodes over loopback: faults, scans, reads beside memcached, replicas, lost nodes, demand beside bulk, memory
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:
  hinterland bench nodes --repeat 5 --json -o nodes.json

What the machine lacks (memcached, the right to make a network namespace) is left out or replaced, and said.")]
pub struct NodesArgs {
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = whole_number::<u32>(.., "--repeat 5"))]
    repeat: u32,
    /// Fault path: inline, monitor, auto (this program makes system calls without libc: auto is monitor)
    #[arg(long, default_value_t = FaultPathName::Inline, value_name = "PATH", value_parser = str::parse::<FaultPathName>)]
    fault_path: FaultPathName,
    /// Seed of contents and accesses
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole_number::<u64>(.., "--seed 7"))]
    seed: u64,
    /// How much each measurement moves, in percent of the usual: less is quicker and less exact
    #[arg(long, default_value_t = 100, value_name = "PERCENT", value_parser = whole_number::<u32>(1..=100, "--scale 10"))]
    scale: u32,
    #[command(flatten)]
    to: Destination,
}

/// The part of `bench nodes` that runs in a network namespace; started by the bench itself.
#[derive(clap::Args, Clone, Debug)]
pub struct ShapedArgs {
    /// Seed of contents and accesses.
    #[arg(long)]
    pub seed: u64,
}

/// A figure of sorted durations.
trait Percentile {
    /// What so many of 100 did not exceed.
    fn percentile(&self, percent: usize) -> f64;
}

impl Percentile for Vec<f64> {
    fn percentile(&self, percent: usize) -> f64 {
        self[(self.len() * percent / 100).min(self.len() - 1)]
    }
}

impl NodesArgs {
    /// As much of `usual` as the scale says.
    fn scaled<T: std::ops::Mul<u32>>(&self, usual: T) -> <T::Output as std::ops::Div<u32>>::Output
    where
        T::Output: std::ops::Div<u32>,
    {
        usual * self.scale / 100
    }

    fn round_trips(&self) -> usize {
        self.scaled(ROUND_TRIPS) as usize
    }

    fn program_pages(&self) -> u32 {
        self.scaled(PROGRAM_PAGES).max(PROGRAM_PAGES_MIN)
    }
}

/// What runs during the bench.
struct Bench {
    args: NodesArgs,
    executables: Executables,
    raw: Raw,
    nodes: [Node; 2],
    /// A node on a socket of this machine, where nodes can listen on one.
    same_host: Result<Node, String>,
    memcached: Result<Memcached, String>,
    /// Removes the socket's directory.
    _directory: Guard,
}

/// Measures and reports.
///
/// # Errors
/// A node cannot be started, or the report cannot be written.
pub fn run(args: &NodesArgs) -> Result<(), BenchError> {
    if args.repeat == 0 {
        return Err(BenchError::Setting("--repeat must be at least 1".into()));
    }
    let seed_of = |round: u32| args.seed.wrapping_add(u64::from(round));
    // Before the rest: for seconds after the other parts, single loads of this one take milliseconds.
    let executables = Executables::find()?;
    let shaped: Vec<_> = (0..args.repeat).map(|round| shaped::measure(&executables, seed_of(round))).collect();
    let mut bench = Bench::start(args, executables, &Changes::begin()?)?;
    let mut rounds = Vec::new();
    for (round, shaped) in (0..args.repeat).zip(shaped) {
        eprintln!("round {}/{}", round + 1, args.repeat);
        let mut figures = bench.round(seed_of(round));
        match shaped {
            Ok(shaped) => figures.shaped(&shaped),
            Err(why) => figures.skip("shaped", &why),
        }
        rounds.push(figures);
    }
    drop(bench);
    let report = Report::new(&rounds, args.seed, Origin::now());
    args.to.write(&report, report::render)
}

impl Bench {
    fn start(args: &NodesArgs, executables: Executables, changes: &Changes) -> Result<Bench, BenchError> {
        let (directory, guard) = changes.directory()?;
        let launcher = &executables.launcher;
        let tcp = || Node::start(launcher, "tcp://127.0.0.1:0", CAPACITY_BYTES).map_err(BenchError::Setting);
        let socket = format!("unix:{}/node.sock", directory.display());
        Ok(Bench {
            args: args.clone(),
            raw: Raw::start(&executables.bench).map_err(BenchError::Setting)?,
            nodes: [tcp()?, tcp()?],
            same_host: Node::start(launcher, &socket, CAPACITY_BYTES),
            memcached: Memcached::start(args.scaled(STORED_PAGES)),
            executables,
            _directory: guard,
        })
    }

    /// Measures everything once.
    fn round(&mut self, seed: u64) -> Round {
        let mut round = Round::default();
        // Before and after what is compared with them.
        let before = self.round_trips();
        round.figure(
            "raw_stream_bytes_per_second",
            self.raw.stream_rate(STREAM_BYTES * u64::from(self.args.scale) / 100),
        );
        let tcp = self.nodes[0].url.clone();
        self.fault(&mut round, "tcp_fault", &tcp, &[], seed);
        for (kind, (mut times, after)) in RAW.into_iter().zip(before.into_iter().zip(self.round_trips())) {
            if let (Ok(before), Ok(after)) = (&mut times, after) {
                before.extend(after);
                before.sort_by(f64::total_cmp);
            }
            round.percentiles(kind, times);
        }
        match &self.same_host {
            Ok(node) => self.fault(&mut round, "same_host_fault", &node.url, &[], seed),
            Err(why) => round.skip("same_host_fault", why),
        }
        self.fault(&mut round, "encrypted_fault", &tcp, &["--encrypt"], seed);
        round.figure("scan_bytes_per_second", self.scan(&tcp, seed));
        self.reads(&mut round, seed);
        self.write_back(&mut round, seed);
        self.losable(&mut round, seed);
        bad_days::measure(&mut round, &self.executables.launcher, seed);
        connection_flood::measure(&mut round, &self.executables.launcher, &self.args, seed);
        round
    }

    /// Of the raw server, as in `RAW`.
    fn round_trips(&mut self) -> [Result<Vec<f64>, String>; 2] {
        [false, true].map(|looks| self.raw.round_trips_us(self.args.round_trips(), ANSWER_BYTES, looks))
    }

    /// The worker under `hinterland run` with a node as far memory.
    fn program(
        &self,
        pattern: Pattern,
        url: &str,
        flags: &[&str],
        prefetch: PrefetchName,
        seed: u64,
    ) -> Result<Measured, String> {
        let pages = self.args.program_pages();
        let worker = WorkerArgs {
            pages,
            hot_pages: 1,
            pattern,
            threads: 1,
            accesses: pages.into(),
            seconds_max: 5,
            seed,
            warm_up: Some(u64::from(pages) / 4),
            access_times: true,
        };
        let settings = Settings {
            local: Some(Budget::Bytes(LOCAL)),
            far: vec![url.to_owned()],
            prefetch,
            fault_path: self.args.fault_path,
            // The bench's own nodes.
            insecure_loopback: true,
            ..Settings::default()
        };
        managed::run(&self.executables, flags, &settings, &worker)
    }

    /// Random reads without read-ahead: the accesses that faulted are the longest ones.
    fn fault(&self, round: &mut Round, name: &str, url: &str, flags: &[&str], seed: u64) {
        let measured = self.program(Pattern::Random, url, flags, PrefetchName::None, seed);
        for (what, share) in [("p50", 0.5), ("p99", 0.99)] {
            let of = |measured: &Measured| {
                let times = measured.access_times.as_ref()?;
                times.quantile_of_longest_ns(measured.paging.major_faults, share)
            };
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of one access")]
            let us = |ns: u64| ns as f64 * 1e-3;
            let figure = measured.clone().and_then(|measured| of(&measured).map(us).ok_or("nothing faulted".into()));
            round.figure(&format!("{name}_us_{what}"), figure);
        }
    }

    /// What a sequential scan brings in from far memory.
    #[allow(clippy::cast_precision_loss, reason = "bytes of a measurement lie far below 2^52")]
    fn scan(&self, url: &str, seed: u64) -> Result<f64, String> {
        let measured = self.program(Pattern::Sequential, url, &[], PrefetchName::default(), seed)?;
        let pages = measured.paging.major_faults + managed::figures(&measured).prefetched_pages;
        Ok(pages as f64 * PAGE_BYTES as f64 / measured.seconds)
    }

    /// Reads of single pages, many under way: the servers' processor time for each. And what the node holds beside the pages.
    #[allow(clippy::cast_precision_loss, reason = "bytes and pages of a measurement lie far below 2^52")]
    fn reads(&mut self, round: &mut Round, seed: u64) {
        let node = &self.nodes[0];
        let (pages, time) = (self.args.scaled(STORED_PAGES), self.args.scaled(READS));
        let cpu_us = Reader::fill(&node.url, pages, seed).and_then(|mut reader| {
            let before = node.server.cpu_time();
            let pages = reader.read_for(time, seed)?;
            let cpu = node.server.cpu_time().saturating_sub(before);
            Ok(cpu.as_secs_f64() * 1e6 / pages.max(1) as f64)
        });
        round.figure("node_cpu_us_per_read", cpu_us);
        let beside = Filled::new(&node.url, pages, seed).map(|filled| {
            round.percentiles("tcp_load", filled.demand_us(self.args.round_trips(), seed));
            node.server.pss_bytes() as f64 - f64::from(pages) * PAGE_BYTES as f64
        });
        round.figure("node_beside_slabs_bytes", beside);
        match &mut self.memcached {
            Ok(memcached) => round.figure("memcached_cpu_us_per_get", memcached.get_us(time, seed)),
            Err(why) => round.skip("memcached_cpu_us_per_get", why),
        }
    }

    /// Stores of evicted pages, in one node and in two.
    fn write_back(&self, round: &mut Round, seed: u64) {
        let [first, second] = &self.nodes;
        let stored = |url: &str| Filled::new(url, self.args.program_pages(), seed).map(|filled| filled.stored_rate);
        round.figure("write_back_bytes_per_second", stored(&first.url));
        let pool = format!("{},{}?replicas=2", first.url, second.url);
        round.figure("write_back_2_replicas_bytes_per_second", stored(&pool));
    }

    /// Replicas beside stripes with parity, each over six nodes of which one is killed at last: stores, memory, and loads of single
    /// pages before and after.
    fn losable(&self, round: &mut Round, seed: u64) {
        let ways = [("replicas_2", "replicas=2"), ("replicas_3", "replicas=3"), ("stripes_2_1", "erasure=2+1")];
        for (name, parameter) in ways.into_iter().chain([("stripes_4_2", "erasure=4+2")]) {
            let start = |_| Node::start(&self.executables.launcher, "tcp://127.0.0.1:0", CAPACITY_BYTES);
            let measured = (0..6).map(start).collect::<Result<Vec<Node>, String>>().and_then(|mut nodes| {
                let urls: Vec<&str> = nodes.iter().map(|node| &*node.url).collect();
                let filled = Filled::new(&format!("{}?{parameter}", urls.join(",")), self.args.program_pages(), seed)?;
                round.figure(&format!("{name}_write_back_bytes_per_second"), Ok(filled.stored_rate));
                round.figure(&format!("{name}_bytes_for_each_stored"), Ok(filled.bytes_for_each_stored()));
                round.percentiles(&format!("{name}_load"), filled.demand_us(self.args.round_trips(), seed));
                nodes.pop();
                // Who is lost is found out once.
                filled.load_for(self.args.scaled(READS), seed)?;
                round.percentiles(&format!("{name}_load_without_one"), filled.demand_us(self.args.round_trips(), seed));
                Ok(())
            });
            if let Err(why) = measured {
                round.skip(name, &why);
            }
        }
    }
}
