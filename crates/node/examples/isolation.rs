//! Two programs on one node whose link is narrow: what demand loads of one take, alone and beside a program that floods, and how two that flood divide
//! the link (xDM, figure 17).
//!
//! ```text
//! unshare -rn sh -c 'ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 1gbit burst 8kb latency 50ms &&
//!     exec target/release/examples/isolation 5 1Gb/s'
//! ```
//! Arguments: the number of rounds, the rate of the link, and `--json` for one object with all rounds. Each round takes every way of sharing in turn: *shared*, one session for both programs;
//! *isolated*, one for each, and the kernel sends what comes as it comes; *turns*, the same with the node's turns on the link. Median (least–most).

mod loads;

use hinterland_backend::bandwidth;
use hinterland_backend::samples::Rng;
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_units::PAGE_BYTES;
use loads::{BATCH, DEMANDS, Filled, summary};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Between two demands: so the program has less than a third of 1 Gb/s.
const THINK: Duration = Duration::from_micros(50);
const FLOOD_THREADS: usize = 4;
/// How long two flood beside each other.
const CONTEST: Duration = Duration::from_millis(500);
const WAYS: [&str; 3] = ["shared", "isolated", "turns"];

#[derive(Clone)]
struct Program(Filled);

impl Program {
    fn new(node: &Listening) -> Program {
        Program(Filled::new(node.endpoint().to_string()))
    }

    /// Demand loads of random pages, in µs: mean and p99.
    fn demands(&self) -> [f64; 2] {
        let times = self.0.demands(Some(THINK));
        [times.iter().sum::<f64>() / DEMANDS as f64, times[DEMANDS * 99 / 100]]
    }

    /// Loads ahead all that it can until it is over.
    fn flood(&self, over: &AtomicBool, bytes: &AtomicU64) {
        std::thread::scope(|scope| {
            for thread in 0..FLOOD_THREADS {
                scope.spawn(move || {
                    let (mut rng, mut buffers) = (Rng(11 + thread as u64), vec![[0; PAGE_BYTES]; BATCH]);
                    while !over.load(Relaxed) {
                        bytes.fetch_add(self.0.load_ahead(&mut rng, &mut buffers), Relaxed);
                    }
                });
            }
        });
    }

    /// Demands beside a program that floods: mean, p99, and the flood's MB/s.
    fn beside(&self, greedy: &Program) -> [f64; 3] {
        let (over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| greedy.flood(&over, &bytes));
            std::thread::sleep(Duration::from_millis(50));
            let (begun, before) = (Instant::now(), bytes.load(Relaxed));
            let [mean, p99] = self.demands();
            let rate = (bytes.load(Relaxed) - before) as f64 / 1e6 / begun.elapsed().as_secs_f64();
            over.store(true, Relaxed);
            [mean, p99, rate]
        })
    }

    /// Both flood: MB/s together, and percent of it that this one has.
    fn against(&self, other: &Program) -> [f64; 2] {
        let (over, bytes) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::scope(|scope| {
            scope.spawn(|| self.flood(&over, &bytes[0]));
            scope.spawn(|| other.flood(&over, &bytes[1]));
            std::thread::sleep(CONTEST / 4);
            let had = || bytes.each_ref().map(|bytes| bytes.load(Relaxed));
            let (begun, before) = (Instant::now(), had());
            std::thread::sleep(CONTEST);
            let [own, others]: [f64; 2] = std::array::from_fn(|at| (had()[at] - before[at]) as f64);
            let rate = (own + others) / 1e6 / begun.elapsed().as_secs_f64();
            over.store(true, Relaxed);
            [rate, own * 100.0 / (own + others)]
        })
    }
}

/// The figures of a round, in their order.
const FIGURES: [&str; 7] =
    ["alone_mean_us", "alone_p99_us", "beside_mean_us", "beside_p99_us", "flood_mb_s", "both_mb_s", "part_percent"];

/// An object with the rounds of each way.
fn json(found: &[Vec<[f64; 7]>; 3]) -> String {
    let round = |figures: &[f64; 7]| {
        let members = FIGURES.iter().zip(figures).map(|(name, figure)| format!("\"{name}\": {figure:.2}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
    };
    let way = |(way, rounds): (&&str, &Vec<[f64; 7]>)| {
        format!("\"{way}\": [{}]", rounds.iter().map(round).collect::<Vec<_>>().join(", "))
    };
    format!("{{{}}}", WAYS.iter().zip(found).map(way).collect::<Vec<_>>().join(", "))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let rate = bandwidth(&arguments.next().unwrap_or_else(|| "1Gb/s".into())).unwrap_or_else(|error| panic!("{error}"));
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    let start = |link| {
        let options = Options { link_bits_per_second: link, ..Options::new(256 * SLAB_BYTES) };
        Listening::start(&anywhere, options).expect("a node")
    };
    let nodes = [None, None, Some(rate)].map(start);
    let programs: Vec<[Program; 2]> = nodes
        .iter()
        .zip(WAYS)
        .map(|(node, way)| {
            let first = Program::new(node);
            let second = if way == "shared" { first.clone() } else { Program::new(node) };
            [first, second]
        })
        .collect();
    let mut found: [Vec<[f64; 7]>; 3] = Default::default();
    for _ in 0..rounds {
        for ([meek, greedy], found) in programs.iter().zip(&mut found) {
            let [alone, alone_p99] = meek.demands();
            let [beside, beside_p99, flood] = meek.beside(greedy);
            let [both, part] = meek.against(greedy);
            found.push([alone, alone_p99, beside, beside_p99, flood, both, part]);
        }
    }
    if std::env::args().any(|word| word == "--json") {
        println!("{}", json(&found));
        return;
    }
    for (way, found) in WAYS.iter().zip(found) {
        let text = |value: &dyn Fn(&[f64; 7]) -> f64, digits| summary(found.iter().map(value), digits);
        let at = |at: usize| text(&|figures| figures[at], 0);
        println!("{way}: alone mean {} p99 {} µs", at(0), at(1));
        println!("  beside a flood mean {} p99 {} µs, the flood {} MB/s", at(2), at(3), at(4));
        let (mean, p99) = (text(&|figures| figures[2] / figures[0], 2), text(&|figures| figures[3] / figures[1], 2));
        println!("  that is {mean} x the mean alone, {p99} x the p99");
        println!("  two that flood {} MB/s, of which one has {} %", at(5), at(6));
    }
}
