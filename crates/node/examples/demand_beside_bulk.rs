//! A demand beside bulk on one link: what demand loads take on the idle link, beside a thread that loads ahead all the time, and beside one that
//! stores, and what those get.
//!
//! ```text
//! unshare -rn sh -c 'ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 1gbit burst 8kb latency 50ms &&
//!     exec target/release/examples/demand_beside_bulk 5 "" "?share=strict"'
//! ```
//! Arguments: the number of rounds, and what follows the node's URL, once for each variant; each round takes every variant in turn. Median (least–most).

use hinterland_backend::samples::{Kind, Rng, page};
use hinterland_backend::{Backend, LoadItem, Location, Priority, StoreError, open};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// 16 MiB.
const PAGES: usize = 4096;
const BATCH: usize = 64;
const DEMANDS: usize = 1000;

struct Filled {
    backend: Arc<dyn Backend>,
    at: Vec<Location>,
}

impl Filled {
    fn new(url: String) -> Filled {
        let backend = open(&[url]).unwrap_or_else(|error| panic!("{error}"));
        let mut at = Vec::new();
        for batch in 0..PAGES / BATCH {
            let pages: Vec<PageBytes> = (0..BATCH).map(|n| page(Kind::Random, (batch * BATCH + n) as u64)).collect();
            at.extend(store(&*backend, &pages));
        }
        Filled { backend, at }
    }

    /// Demand loads of random pages, in µs: p50 and p99.
    fn demands(&self) -> [f64; 2] {
        let (mut rng, mut into) = (Rng(7), [0; PAGE_BYTES]);
        let mut times: Vec<f64> = (0..DEMANDS)
            .map(|_| {
                let mut items = [LoadItem { location: self.at[rng.index(PAGES)], into: &mut into }];
                let begun = Instant::now();
                self.backend.load(&mut items, Priority::Demand, &mut |_, page| assert!(page.is_ok()));
                begun.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        [times[DEMANDS / 2], times[DEMANDS * 99 / 100]]
    }

    /// The same while `bulk` works, and its MB/s.
    fn beside(&self, bulk: impl Fn(&Filled, &mut Rng) -> u64 + Sync) -> [f64; 3] {
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
        let from = rng.index(PAGES - BATCH);
        let mut buffers = vec![[0; PAGE_BYTES]; BATCH];
        let items = self.at[from..][..BATCH].iter().zip(&mut buffers);
        let mut items: Vec<_> = items.map(|(location, into)| LoadItem { location: *location, into }).collect();
        self.backend.load(&mut items, Priority::Prefetch, &mut |_, page| assert!(page.is_ok()));
        (BATCH * PAGE_BYTES) as u64
    }

    fn write_back(&self, rng: &mut Rng) -> u64 {
        let pages = vec![page(Kind::Random, rng.next_u64()); BATCH];
        self.backend.free(&store(&*self.backend, &pages));
        (BATCH * PAGE_BYTES) as u64
    }
}

fn store(backend: &dyn Backend, pages: &[PageBytes]) -> Vec<Location> {
    let mut out: Vec<Result<Location, StoreError>> = vec![Ok(Location(0)); pages.len()];
    backend.store(&pages.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
    out.into_iter().map(|answer| answer.expect("room")).collect()
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
    let filled: Vec<Filled> =
        variants.iter().map(|variant| Filled::new(format!("{}{variant}", node.endpoint()))).collect();
    let mut found: Vec<Vec<[f64; 8]>> = vec![Vec::new(); variants.len()];
    for _ in 0..rounds {
        for (filled, found) in filled.iter().zip(&mut found) {
            let [idle50, idle99] = filled.demands();
            let [load50, load99, loaded] = filled.beside(Filled::load_ahead);
            let [store50, store99, stored] = filled.beside(Filled::write_back);
            found.push([idle50, idle99, load50, load99, loaded, store50, store99, stored]);
        }
    }
    for (variant, found) in variants.iter().zip(found) {
        let text = |at: usize| {
            let mut values: Vec<f64> = found.iter().map(|figures| figures[at]).collect();
            values.sort_by(f64::total_cmp);
            format!("{:.0} ({:.0}–{:.0})", values[values.len() / 2], values[0], values[values.len() - 1])
        };
        println!("'{variant}' idle p50 {} p99 {} µs", text(0), text(1));
        println!("  beside loads p50 {} p99 {} µs, {} MB/s", text(2), text(3), text(4));
        println!("  beside stores p50 {} p99 {} µs, {} MB/s", text(5), text(6), text(7));
    }
}
