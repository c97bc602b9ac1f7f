//! Faults of each eviction policy on a set of access patterns, beside the offline optimum.
//!
//! `cargo run --release -p hinterland-policy --example faults [budget in pages]`

#[path = "../tests/all/harness/mod.rs"]
mod harness;

use harness::model::{Pager, SWAP_CACHE_PART};
use harness::{Faults, optimum};
use hinterland_policy::{EVICTION_POLICIES, Streams, make};
use hinterland_testkit::patterns;

/// Prices in µs for the column ms: a major fault on the compressed backend and a minor fault, both on the monitor path.
const MAJOR_US: usize = 8;
const MINOR_US: usize = 5;
/// A page mapped ahead: decompression and its share of a batch.
const AHEAD_US: usize = 2;
const WINDOW_PAGES_MAX: u32 = 64;

fn main() {
    let budget: usize = std::env::args().nth(1).map_or(8192, |text| text.parse().expect("a number of pages"));
    let pages = u32::try_from(budget).expect("a budget of less than 2^32 pages");
    println!("budget n = {budget} pages mapped + n/{SWAP_CACHE_PART} in the swap cache; in thousands:");
    for read_ahead in [false, true] {
        print!("\n{:<24}{:>8}", if read_ahead { "with read-ahead" } else { "without read-ahead" }, "touches");
        EVICTION_POLICIES.iter().for_each(|name| print!("{name:>26}"));
        println!("{:>10}", "optimum");
        print!("{:<32}", "");
        EVICTION_POLICIES.iter().for_each(|_| print!("{:>26}", "major minor ahead    ms"));
        println!("{:>10}", "major");
        for (name, trace) in patterns::all(pages) {
            print!("{name:<24}{:>8}", trace.len() / 1000);
            EVICTION_POLICIES.iter().for_each(|name| print_faults(name, budget, &trace, read_ahead));
            println!("{:>10.1}", thousands(optimum(budget + budget / SWAP_CACHE_PART, &trace).major));
        }
    }
}

fn print_faults(name: &str, budget: usize, trace: &[u32], read_ahead: bool) {
    let mut policy = make(name, budget).expect("a name from the list");
    let pages = trace.iter().max().map_or(0, |&page| page as usize + 1);
    let mut streams = Streams::sequential(if read_ahead { WINDOW_PAGES_MAX } else { 0 });
    let mut pager = Pager::new(&mut *policy, budget, pages).reading_ahead(&mut streams);
    trace.iter().for_each(|&page| pager.touch(page));
    let Faults { major, minor, key, ahead, .. } = pager.faults();
    let price = (major * MAJOR_US + (minor + key) * MINOR_US + ahead * AHEAD_US) / 1000;
    let (major, minor, ahead) = (thousands(major), thousands(minor + key), thousands(ahead));
    print!("{:>26}", format!("{major:.1} {minor:5.1} {ahead:5.1} {price:>5}"));
}

fn thousands(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from) / 1000.0
}
