//! How large should windows be? Predicted run times for each bound on them, by link.
//!
//! `cargo run --release -p hinterland-sim --example windows`

#[path = "../tests/all/suite/mod.rs"]
mod suite;

use hinterland_sim::{Setup, simulate};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};

const LINKS: [&str; 6] = ["1us:100Gb/s", "rdma-25g", "tcp-10g", "ssd", "500us:10Gb/s", "2ms:10Gb/s"];
const WINDOWS: [Option<u32>; 8] = [None, Some(8), Some(16), Some(32), Some(64), Some(128), Some(256), Some(512)];

/// Pages of local memory: 64 MiB, so that windows may have 512.
const LOCAL_PAGES: u32 = 16_384;

fn main() {
    print!("{:<22}{:>14}{:>10}", "pattern", "link", "prefetch");
    WINDOWS.iter().for_each(|pages| print!("{:>10}", pages.map_or("usual".into(), |pages| pages.to_string())));
    println!("   milliseconds");
    for (pattern, work, local) in
        suite::all(LOCAL_PAGES, 500).into_iter().filter(|(name, ..)| suite::REGULAR.contains(name))
    {
        for link in LINKS {
            let setup = Setup::new(Budget::Bytes(ByteCount(local * PAGE_BYTES as u64)), link.parse().expect("a link"));
            for prefetcher in ["streams", "auto"] {
                print!("{pattern:<22}{link:>14}{prefetcher:>10}");
                for window_pages_max in WINDOWS {
                    let setup = Setup { window_pages_max, ..setup.clone() };
                    let figures = simulate(&work, &setup, "s3-fifo", prefetcher, &mut |_| {}).expect("possible");
                    #[allow(clippy::cast_precision_loss, reason = "times for people")]
                    let ms = figures.run_ns() as f64 / 1e6;
                    print!("{ms:>10.1}");
                }
                println!();
            }
        }
    }
}
