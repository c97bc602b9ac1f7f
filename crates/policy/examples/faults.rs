//! Faults of each eviction policy on a set of access patterns, beside the offline optimum.
//!
//! `cargo run --release -p hinterland-policy --example faults [budget in pages]`

#[path = "../tests/harness/mod.rs"]
mod harness;

use harness::{Faults, optimum, patterns, replay};
use hinterland_policy::{EVICTION_POLICIES, make};

/// Prices in µs for the last column: a major fault on the compressed backend and a minor fault, both on the monitor path.
const MAJOR_US: usize = 8;
const MINOR_US: usize = 5;

fn main() {
    let budget: usize = std::env::args().nth(1).map_or(8192, |text| text.parse().expect("a number of pages"));
    let pages = u32::try_from(budget).expect("a budget of less than 2^32 pages");
    println!(
        "budget n = {budget} pages mapped + n/16 in the swap cache; major / minor faults in thousands, and their price in ms"
    );
    print!("{:<24}{:>9}", "pattern", "touches");
    for name in EVICTION_POLICIES {
        print!("{name:>24}");
    }
    println!("{:>10}", "optimum");
    for (name, trace) in patterns::all(pages) {
        print!("{name:<24}{:>8}k", trace.len() / 1000);
        for policy in EVICTION_POLICIES {
            let mut policy = make(policy, budget).expect("a name from the list");
            let Faults { major, minor, .. } = replay(&mut *policy, budget, &trace);
            let price = (major * MAJOR_US + minor * MINOR_US) / 1000;
            print!("{:>24}", format!("{:.1} / {:.1} {price:>5}", thousands(major), thousands(minor)));
        }
        println!("{:>10.1}", thousands(optimum(budget + budget / 16, &trace).major));
    }
}

fn thousands(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from) / 1000.0
}
