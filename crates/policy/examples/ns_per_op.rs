//! Time of each eviction policy's operations, and memory for each page ever resident, at a budget of 1 GiB of 4 GiB
//! touched.
//!
//! `cargo run --release -p hinterland-policy --example ns_per_op`
//!
//! One round is what a major fault at the budget costs the policy: the page arrives, a victim is taken (in batches of
//! 64), an older victim is written back. Every tenth victim comes back as a swap-cache hit instead. "In order" are
//! pages of a scan, "scattered" are pages in random order, where each operation misses the processor's caches.

use hinterland_policy::{
    Arrival, EVICTION_POLICIES, EvictionPolicy, PREFETCHERS, Request, Thread, make, make_prefetcher,
};
use hinterland_units::PageNo;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use std::time::Instant;

const BUDGET: usize = 262_144;
const PAGES: u32 = 4 * 262_144;
const BATCH: usize = 64;
const ROUNDS: u32 = 3;

fn main() {
    println!(
        "{:<16}{:>14}{:>14}{:>20}{:>20}",
        "policy", "in order", "scattered", "bytes per resident", "bytes per known page"
    );
    for name in EVICTION_POLICIES {
        let in_order: Vec<u32> = (0..PAGES).collect();
        let mut scattered = in_order.clone();
        scattered.shuffle(&mut SmallRng::seed_from_u64(1));
        let mut policy = make(name, BUDGET).expect("a name from the list");
        let (first, bytes) = measure(&mut *policy, &in_order);
        let mut policy = make(name, BUDGET).expect("a name from the list");
        let (second, bytes_scattered) = measure(&mut *policy, &scattered);
        println!(
            "{name:<16}{first:>11.1} ns{second:>11.1} ns{:>22.2}{:>22.2}",
            per(bytes, PAGES as usize),
            per(bytes_scattered, PAGES as usize),
        );
    }
    let shuffled: Vec<u32> = (0..PAGES).map(|page| page.wrapping_mul(2_654_435_761) % PAGES).collect();
    let streams: Vec<u32> = (0..PAGES).map(|step| step % 16 * (PAGES / 16) + step / 16).collect();
    let strides: Vec<u32> = (0..PAGES).map(|step| step / 64 % 2 * PAGES + step * 10).collect();
    println!("\n{:<16}{:>14}{:>14}{:>14}", "prefetcher", "random", "16 streams", "strides");
    for name in PREFETCHERS {
        let [a, b, c] = [&shuffled, &streams, &strides].map(|pages| prefetcher_ns(name, pages));
        println!("{name:<16}{a:>11.1} ns{b:>11.1} ns{c:>11.1} ns");
    }
}

/// Nanoseconds for a major fault on each of the pages, none of which is there ahead.
fn prefetcher_ns(name: &str, pages: &[u32]) -> f64 {
    let mut prefetcher = make_prefetcher(name, None).expect("a name from the list");
    let started = Instant::now();
    let request = |page: &&u32| prefetcher.requested(PageNo(**page), Request::Major, Thread(1)).is_some();
    let windows = pages.iter().filter(request).count();
    let elapsed = started.elapsed().as_nanos();
    assert!(windows <= pages.len());
    u32::try_from(elapsed).map_or(f64::NAN, f64::from) / f64::from(PAGES)
}

fn per(total: usize, count: usize) -> f64 {
    u32::try_from(total).map_or(f64::NAN, f64::from) / u32::try_from(count).map_or(f64::NAN, f64::from)
}

/// Nanoseconds per operation, and the most bytes that the policy's tables occupied.
fn measure(policy: &mut dyn EvictionPolicy, pages: &[u32]) -> (f64, usize) {
    let mut operations = 0u32;
    let mut out = Vec::with_capacity(BATCH);
    let (mut elapsed, mut bytes) = (0, 0);
    for round in 0..=ROUNDS {
        let started = Instant::now();
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
            elapsed += started.elapsed().as_nanos();
        }
    }
    let nanoseconds = u32::try_from(elapsed / 1000).map_or(f64::NAN, f64::from) * 1000.0;
    (nanoseconds / f64::from(operations + ROUNDS * PAGES), bytes)
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
