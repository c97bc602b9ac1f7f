//! What each prefetcher makes of a set of access patterns: major faults, coverage, accuracy.
//!
//! `cargo run --release -p hinterland-policy --example prefetchers [budget in pages]`
//!
//! The model of `tests/all/harness`: pages arrive at once, so a page that is asked for is never too late; of those that wait unmapped,
//! a 32nd of the budget at most, the oldest goes.

#[path = "../tests/all/harness/mod.rs"]
mod harness;

use harness::Faults;
use harness::model::Pager;
use hinterland_policy::{PREFETCHERS, make, make_prefetcher};
use hinterland_testkit::patterns;

fn main() {
    let budget: usize = std::env::args().nth(1).map_or(8192, |text| text.parse().expect("a number of pages"));
    let pages = u32::try_from(budget).expect("a budget of less than 2^32 pages");
    println!("budget n = {budget} pages, s3-fifo; thousands of major faults, coverage and accuracy in %\n");
    print!("{:<32}{:>9}", "pattern", "touches");
    PREFETCHERS.iter().for_each(|name| print!("{name:>18}"));
    println!();
    let strides = |count: u32, step: u32| -> Vec<u32> {
        let streams = move |round: u32| (0..count).map(move |stream| stream * pages * 44 + round * step);
        (0..4).flat_map(move |_| (0..pages * 4).flat_map(streams)).collect()
    };
    let made = [
        ("stride 10, 4 n pages", strides(1, 10)),
        ("two interleaved strides of 3", strides(2, 3)),
        ("four interleaved strides of 3", strides(4, 3)),
    ];
    for (name, trace) in made.into_iter().chain(patterns::all(pages)) {
        print!("{name:<32}{:>9}", trace.len() / 1000);
        PREFETCHERS.iter().for_each(|prefetcher| print_faults(prefetcher, budget, &trace));
        println!();
    }
}

fn print_faults(name: &str, budget: usize, trace: &[u32]) {
    let mut policy = make("s3-fifo", budget).expect("a name from the list");
    let mut prefetcher = make_prefetcher(name, None).expect("a name from the list");
    let pages = trace.iter().max().map_or(0, |&page| page as usize + 1);
    let mut pager = Pager::new(&mut *policy, budget, pages).reading_ahead(&mut *prefetcher);
    trace.iter().for_each(|&page| pager.touch(page));
    let Faults { major, minor, key, unmapped, .. } = pager.faults();
    let [coverage, accuracy] = [major + minor + key, unmapped].map(|whole| key * 100 / whole.max(1));
    print!("{:>18}", format!("{:.1} {coverage:3} {accuracy:3}", thousands(major)));
}

fn thousands(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from) / 1000.0
}
