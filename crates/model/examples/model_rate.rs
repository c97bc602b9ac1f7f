//! How fast the model is, in processor time: million references a second through the caches, and million misses a second on each scheme.
//!
//! `cargo run --release -p hinterland-model --example model_rate`

use hinterland_model::workloads::Workload;
use hinterland_model::{Compressor, Parameters, Scheme, replay};

const REFERENCES: u64 = 20_000_000;

/// Nanoseconds that this thread has run.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("three numbers")
}

/// What a call returns, and the nanoseconds that it ran.
fn timed<T>(call: impl FnOnce() -> T) -> (T, u64) {
    let before = processor_ns();
    let answer = call();
    (answer, processor_ns() - before)
}

/// Millions in a second.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn millions(count: u64, ns: u64) -> f64 {
    count as f64 * 1e3 / ns as f64
}

fn main() {
    for name in ["pr", "nw", "sp"] {
        let workload = Workload::named(name).expect("a workload");
        // The data are made in both; the difference is the filter's and the program's.
        let (_, making) = timed(|| workload.trace(workload.size, 1, 0, 1, Compressor::Lz));
        let (trace, all) = timed(|| workload.trace(workload.size, 1, 0, REFERENCES, Compressor::Lz));
        println!("{name}: filter {:.1} million references/s", millions(REFERENCES, all.saturating_sub(making).max(1)));
        let misses = trace.stream.misses.len() as u64;
        for scheme in Scheme::ALL {
            let (_, ns) = timed(|| replay(&trace.stream, &trace.measured_bytes, scheme, &Parameters::paper()));
            println!("{name}: {} {:.1} million misses/s", scheme.name(), millions(misses, ns));
        }
    }
}
