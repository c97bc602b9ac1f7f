//! Is there a prefetcher that is right for everything? Predicted run times of all of them beside the best, for every pattern and link.
//!
//! `cargo run --release -p hinterland-sim --example best [nanoseconds between touches]`

#[path = "../tests/all/suite/mod.rs"]
mod suite;

use hinterland_sim::{Setup, simulate};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};

/// Pages of local memory.
const LOCAL_PAGES: u32 = 4096;

fn main() {
    let gap_ns = std::env::args().nth(1).map_or(500, |text| text.parse().expect("nanoseconds"));
    let names: Vec<&str> = hinterland_sim::PREFETCHERS.to_vec();
    print!("{:<34}{:>10}{:>9}", "pattern", "link", "best ms");
    names.iter().for_each(|name| print!("{name:>16}"));
    println!();
    let mut worst = vec![0.0_f64; names.len()];
    for (pattern, work, local) in suite::all(LOCAL_PAGES, gap_ns) {
        for link in suite::LINKS {
            let setup = Setup::new(Budget::Bytes(ByteCount(local * PAGE_BYTES as u64)), link.parse().expect("a link"));
            #[allow(clippy::cast_precision_loss, reason = "times for people")]
            let times: Vec<f64> = names
                .iter()
                .map(|name| simulate(&work, &setup, "s3-fifo", name, &mut |_| {}).expect("possible").run_ns() as f64)
                .collect();
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            print!("{pattern:<34}{link:>10}{:>9.1}", best / 1e6);
            for (time, worst) in times.iter().zip(&mut worst) {
                print!("{:>16.3}", time / best);
                *worst = worst.max(time / best);
            }
            println!();
        }
    }
    print!("{:<53}", "worst");
    worst.iter().for_each(|ratio| print!("{ratio:>16.3}"));
    println!();
}
