//! A demand beside bulk on one link: what demand loads take on the idle link, beside a thread that loads ahead all the time, and beside one that
//! stores, and what those get.
//!
//! ```text
//! unshare -rn sh -c 'ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 1gbit burst 8kb latency 50ms &&
//!     exec target/release/examples/demand_beside_bulk 5 "" "?share=strict"'
//! ```
//! Arguments: the number of rounds, and what follows the node's URL, once for each variant; each round takes every variant in turn. Median (least–most).

mod loads;

use hinterland_backend::samples::{Kind, Rng, page};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_units::PAGE_BYTES;
use loads::{BATCH, DEMANDS, Filled, store, summary};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

struct Program(Filled);

impl Program {
    /// Demand loads of random pages, in µs: p50 and p99.
    fn demands(&self) -> [f64; 2] {
        let times = self.0.demands(None);
        [times[DEMANDS / 2], times[DEMANDS * 99 / 100]]
    }

    /// The same while `bulk` works, and its MB/s.
    fn beside(&self, bulk: impl Fn(&Program, &mut Rng) -> u64 + Sync) -> [f64; 3] {
        let (over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng(11);
                while !over.load(Relaxed) {
                    bytes.fetch_add(bulk(self, &mut rng), Relaxed);
                }
            });
            let (begun, before) = (Instant::now(), bytes.load(Relaxed));
            let [p50, p99] = self.demands();
            let rate = (bytes.load(Relaxed) - before) as f64 / 1e6 / begun.elapsed().as_secs_f64();
            over.store(true, Relaxed);
            [p50, p99, rate]
        })
    }

    fn load_ahead(&self, rng: &mut Rng) -> u64 {
        self.0.load_ahead(rng, &mut vec![[0; PAGE_BYTES]; BATCH])
    }

    fn write_back(&self, rng: &mut Rng) -> u64 {
        let pages = vec![page(Kind::Random, rng.next_u64()); BATCH];
        self.0.backend.free(&store(&*self.0.backend, &pages));
        (BATCH * PAGE_BYTES) as u64
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let mut variants: Vec<String> = arguments.collect();
    if variants.is_empty() {
        variants.push(String::new());
    }
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    let node = Listening::start(&anywhere, Options::new(256 * SLAB_BYTES)).expect("a node");
    let filled = |variant: &String| Program(Filled::new(format!("{}{variant}", node.endpoint())));
    let programs: Vec<Program> = variants.iter().map(filled).collect();
    let mut found: Vec<Vec<[f64; 8]>> = vec![Vec::new(); variants.len()];
    for _ in 0..rounds {
        for (program, found) in programs.iter().zip(&mut found) {
            let [idle50, idle99] = program.demands();
            let [load50, load99, loaded] = program.beside(Program::load_ahead);
            let [store50, store99, stored] = program.beside(Program::write_back);
            found.push([idle50, idle99, load50, load99, loaded, store50, store99, stored]);
        }
    }
    for (variant, found) in variants.iter().zip(found) {
        let text = |at: usize| summary(found.iter().map(|figures| figures[at]), 0);
        println!("'{variant}' idle p50 {} p99 {} µs", text(0), text(1));
        println!("  beside loads p50 {} p99 {} µs, {} MB/s", text(2), text(3), text(4));
        println!("  beside stores p50 {} p99 {} µs, {} MB/s", text(5), text(6), text(7));
    }
}
