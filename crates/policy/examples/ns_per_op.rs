//! Processor time of each eviction policy's operations, and memory for each page ever resident, at a budget of 1 GiB of 4 GiB
//! touched.
//!
//! `cargo run --release -p hinterland-policy --example ns_per_op [-- --json]`
//!
//! One round is what a major fault at the budget costs the policy: the page arrives, a victim is taken (in batches of
//! 64), an older victim is written back. Every tenth victim comes back as a swap-cache hit instead. "In order" are
//! pages of a scan, "scattered" are pages in random order, where each operation misses the processor's caches.
//!
//! Beside them, without `--json`: `s3-fifo` with the curve of its loads, as in a run, and what a request costs the features.

use hinterland_policy::{
    Arrival, EVICTION_POLICIES, EvictionPolicy, FeatureSample, PREFETCHERS, Request, Thread, WithCurve, make,
    make_prefetcher,
};
use hinterland_units::PageNo;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

const BUDGET: usize = 262_144;
const PAGES: u32 = 4 * 262_144;
const BATCH: usize = 64;
const ROUNDS: u32 = 3;

/// The patterns of the prefetchers' faults.
const PATTERNS: [&str; 3] = ["random", "16 streams", "strides"];

fn main() {
    let json = std::env::args().any(|word| word == "--json");
    let evictions =
        EVICTION_POLICIES.map(|name| (name, eviction(|| make(name, BUDGET).expect("a name from the list"))));
    let shuffled: Vec<u32> = (0..PAGES).map(|page| page.wrapping_mul(2_654_435_761) % PAGES).collect();
    let streams: Vec<u32> = (0..PAGES).map(|step| step % 16 * (PAGES / 16) + step / 16).collect();
    let strides: Vec<u32> = (0..PAGES).map(|step| step / 64 % 2 * PAGES + step * 10).collect();
    let faults = |name| [&shuffled, &streams, &strides].map(|pages| prefetcher_ns(name, pages));
    let prefetchers = PREFETCHERS.map(|name| (name, faults(name)));
    if json {
        let keys = ["in order ns", "scattered ns", "bytes per resident", "bytes per known page"];
        println!(
            "{{\"evictions\": {}, \"prefetchers\": {}}}",
            object(&evictions, keys),
            object(&prefetchers, PATTERNS)
        );
        return;
    }
    println!(
        "{:<16}{:>14}{:>14}{:>20}{:>20}",
        "policy", "in order", "scattered", "bytes per resident", "bytes per known page"
    );
    for (name, [first, second, bytes, known]) in evictions {
        println!("{name:<16}{first:>11.1} ns{second:>11.1} ns{bytes:>22.2}{known:>22.2}");
    }
    let [first, second, bytes, known] = eviction(with_curve);
    println!("{:<16}{first:>11.1} ns{second:>11.1} ns{bytes:>22.2}{known:>22.2}", "s3-fifo, curve");
    println!("\n{:<16}{:>14}{:>14}{:>14}", "prefetcher", PATTERNS[0], PATTERNS[1], PATTERNS[2]);
    for (name, [a, b, c]) in prefetchers {
        println!("{name:<16}{a:>11.1} ns{b:>11.1} ns{c:>11.1} ns");
    }
    let [a, b, c] = [&shuffled, &streams, &strides].map(|pages| features_ns(pages));
    println!("{:<16}{a:>11.1} ns{b:>11.1} ns{c:>11.1} ns", "features");
}

/// The rows as a JSON object of objects. Names and keys need no escaping.
fn object<const N: usize>(rows: &[(&str, [f64; N])], keys: [&str; N]) -> String {
    let row = |(name, figures): &(&str, [f64; N])| {
        let members: Vec<String> =
            keys.iter().zip(figures).map(|(key, figure)| format!("\"{key}\": {figure:.2}")).collect();
        format!("\"{name}\": {{{}}}", members.join(", "))
    };
    format!("{{{}}}", rows.iter().map(row).collect::<Vec<_>>().join(", "))
}

/// Nanoseconds per operation in order and scattered, bytes for each page when pages are in order and scattered.
fn eviction(policy: impl Fn() -> Box<dyn EvictionPolicy>) -> [f64; 4] {
    let in_order: Vec<u32> = (0..PAGES).collect();
    let mut scattered = in_order.clone();
    scattered.shuffle(&mut SmallRng::seed_from_u64(1));
    let (first, bytes) = measure(&mut *policy(), &in_order);
    let (second, bytes_scattered) = measure(&mut *policy(), &scattered);
    [first, second, per(bytes, PAGES as usize), per(bytes_scattered, PAGES as usize)]
}

/// The default, with the curve of its loads.
fn with_curve() -> Box<dyn EvictionPolicy> {
    let mut policy = WithCurve::new(make("s3-fifo", BUDGET).expect("the default"));
    policy.resize(BUDGET);
    Box::new(policy)
}

/// Nanoseconds for a request of each of the pages, none of which is there ahead, whose features are read as in a run.
fn features_ns(pages: &[u32]) -> f64 {
    let mut sample = FeatureSample::default();
    let (started, mut read) = (cpu_ns(), 0);
    for page in pages {
        if sample.requested(PageNo(*page), None) {
            read += sample.figures().windowed;
        }
    }
    let elapsed = cpu_ns() - started;
    assert!(read > 0);
    elapsed / f64::from(PAGES)
}

/// Nanoseconds for a major fault on each of the pages, none of which is there ahead.
fn prefetcher_ns(name: &str, pages: &[u32]) -> f64 {
    let mut prefetcher = make_prefetcher(name, None).expect("a name from the list");
    let started = cpu_ns();
    let request = |page: &&u32| prefetcher.requested(PageNo(**page), Request::Major, Thread(1)).is_some();
    let windows = pages.iter().filter(request).count();
    let elapsed = cpu_ns() - started;
    assert!(windows <= pages.len());
    elapsed / f64::from(PAGES)
}

/// Processor time of this thread until now, to a tick: other work on the machine does not count, though it takes the caches.
fn cpu_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds on a processor come first")
}

fn per(total: usize, count: usize) -> f64 {
    u32::try_from(total).map_or(f64::NAN, f64::from) / u32::try_from(count).map_or(f64::NAN, f64::from)
}

/// Nanoseconds per operation, and the most bytes that the policy's tables occupied.
fn measure(policy: &mut dyn EvictionPolicy, pages: &[u32]) -> (f64, usize) {
    let mut operations = 0u32;
    let mut out = Vec::with_capacity(BATCH);
    let (mut elapsed, mut bytes) = (0.0, 0);
    for round in 0..=ROUNDS {
        let started = cpu_ns();
        for &page in pages {
            let how = if round == 0 { Arrival::FirstTouch } else { Arrival::Demand };
            policy.arrived(PageNo(page), how);
            operations += 1;
            if policy.resident() >= BUDGET + BATCH {
                operations += reclaim(policy, &mut out);
            }
        }
        bytes = bytes.max(policy.metadata_bytes());
        for &page in pages {
            policy.forgotten(PageNo(page));
        }
        if round == 0 {
            operations = 0; // The first round brings the tables into being.
        } else {
            elapsed += cpu_ns() - started;
        }
    }
    (elapsed / f64::from(operations + ROUNDS * PAGES), bytes)
}

/// Takes a batch of victims; one in ten comes back, the others are written back. Returns the number of operations.
fn reclaim(policy: &mut dyn EvictionPolicy, out: &mut Vec<PageNo>) -> u32 {
    out.clear();
    policy.victims(BATCH, out);
    for (at, &page) in out.iter().enumerate() {
        if at % 10 == 0 { policy.arrived(page, Arrival::SwapCacheHit) } else { policy.written_back(page) }
    }
    2 * u32::try_from(BATCH).unwrap_or(0)
}
