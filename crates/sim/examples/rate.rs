//! How fast a replay is: references a second of processor time, for a program that mostly hits, and for one that mostly faults.
//!
//! `cargo run --release -p hinterland-sim --example rate [-- --json]`

use hinterland_sim::{Setup, Workload, pages_in_order, simulate};
use hinterland_units::{Budget, ByteCount, PAGE_BYTES};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Zipf;

const PAGES: u32 = 1 << 18;
const TOUCHES: usize = 1 << 25;

fn workloads() -> [(&'static str, Workload); 3] {
    let mut random = SmallRng::seed_from_u64(1);
    let law = Zipf::new(f64::from(PAGES), 0.99).expect("more than one page");
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is a whole number in 1 ..= PAGES"
    )]
    let zipf: Vec<u32> = (0..TOUCHES).map(|_| random.sample(law) as u32 - 1).collect();
    let scattered: Vec<u32> = (0..TOUCHES).map(|_| random.random_range(0..PAGES)).collect();
    let made = |pages: Vec<u32>| pages_in_order(pages, 100).expect("not empty");
    [
        ("all local, scattered", made(scattered.clone())),
        ("zipf 0.99, half local", made(zipf)),
        ("scattered, half local", made(scattered)),
    ]
}

fn main() {
    let json = std::env::args().any(|word| word == "--json");
    let mut rows = Vec::new();
    if !json {
        println!("{TOUCHES} touches of {PAGES} pages; millions of references a second, and faults in percent");
    }
    for (index, (name, work)) in workloads().into_iter().enumerate() {
        let local = if index == 0 { u64::from(PAGES) * 2 } else { u64::from(PAGES) / 2 };
        let setup =
            Setup::new(Budget::Bytes(ByteCount(local * PAGE_BYTES as u64)), "rdma-25g".parse().expect("a link"));
        for (eviction, prefetcher) in
            [("s3-fifo", "none"), ("s3-fifo", "next-n"), ("s3-fifo", "leap"), ("lru", "none"), ("min", "none")]
        {
            let begun = cpu_seconds();
            let figures = simulate(&work, &setup, eviction, prefetcher, &mut |_| {}).expect("a possible combination");
            let seconds = cpu_seconds() - begun;
            #[allow(clippy::cast_precision_loss, reason = "figures for people")]
            let (rate, faults) = (
                TOUCHES as f64 / seconds / 1e6,
                100.0 * (figures.references - figures.resident) as f64 / TOUCHES as f64,
            );
            if json {
                // No name needs escaping.
                rows.push(format!(
                    "{{\"workload\": \"{name}\", \"evict\": \"{eviction}\", \"prefetch\": \"{prefetcher}\", \
                     \"millions_per_second\": {rate:.2}, \"faults_percent\": {faults:.3}}}"
                ));
            } else {
                println!("{name:<24}{eviction:>8} {prefetcher:<8}{rate:>8.1}{faults:>8.2}");
            }
        }
    }
    if json {
        println!("[{}]", rows.join(", "));
    }
}

/// Processor time of this thread until now, to a tick: other work on the machine does not count, though it takes the caches.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    let nanoseconds: Option<f64> = text.split(' ').next().and_then(|ns| ns.parse().ok());
    nanoseconds.expect("nanoseconds on a processor come first") * 1e-9
}
