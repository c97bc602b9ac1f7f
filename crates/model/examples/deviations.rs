//! Why is DaeMon slower over Remote than in its paper? The paper's machine, and the same with one cause taken away at a time, for DaeMon and Remote alike.
//!
//! `cargo run --release -p hinterland-model --example deviations 2000000` (references that are measured, after as many of warm-up; links of 1/2, 1/4 and
//! 1/8 with 100 ns, geometric means over the workloads, data that compress by the paper's ratios)

use hinterland_model::workloads::WORKLOADS;
use hinterland_model::{Compressor, Figures, Parameters, Rate, Scheme, replay};

const PARTS: [u64; 3] = [2, 4, 8];

/// Name, scheme, and what is changed of the paper's machine.
type Case = (&'static str, Scheme, fn(Parameters) -> Parameters);

const CASES: [Case; 7] = [
    ("PQ", Scheme::Pq, |paper| paper),
    ("PQ, 5 % for lines", Scheme::Pq, |paper| Parameters { line_share_percent: 5, ..paper }),
    ("DaeMon", Scheme::DaeMon, |paper| paper),
    ("DaeMon, 5 % for lines", Scheme::DaeMon, |paper| Parameters { line_share_percent: 5, ..paper }),
    ("DaeMon, memory buses of 8 times the bandwidth", Scheme::DaeMon, fast_buses),
    ("DaeMon, both", Scheme::DaeMon, |paper| Parameters { line_share_percent: 5, ..fast_buses(paper) }),
    ("Local", Scheme::Local, |paper| paper),
];

/// The network stays as it is.
fn fast_buses(paper: Parameters) -> Parameters {
    Parameters { dram_rate: Rate(8 * paper.dram_rate.0), ..paper }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value.ln()));
    (sum / count).exp()
}

fn main() {
    let references = std::env::args().nth(1).map_or(2_000_000, |text| text.parse().expect("a number"));
    let mut speedups = vec![vec![Vec::new(); PARTS.len()]; CASES.len()];
    for workload in WORKLOADS {
        let trace = workload.trace(workload.size, 1, references, references, Compressor::Lz);
        let compressed = vec![workload.paper_bytes(Compressor::Lz); trace.stream.pages as usize];
        print!("| `{}` |", workload.name);
        for (case, (_, scheme, change)) in CASES.iter().enumerate() {
            for (link, part) in PARTS.iter().enumerate() {
                let paper = Parameters::paper();
                let machine = change(Parameters { network_rate: Rate(paper.dram_rate.0 / part), ..paper });
                let run = |scheme| -> Figures { replay(&trace.stream, &compressed, scheme, &machine) };
                let speedup = run(*scheme).speedup_over(&run(Scheme::Remote));
                print!(" {speedup:.2}");
                speedups[case][link].push(speedup);
            }
            print!(" |");
        }
        println!();
    }
    println!("\n| over Remote | 1/2 | 1/4 | 1/8 |\n|---|---|---|---|");
    for ((name, ..), links) in CASES.iter().zip(&speedups) {
        let means: Vec<String> = links.iter().map(|link| format!("{:.2}", mean(link.iter().copied()))).collect();
        println!("| {name} | {} |", means.join(" | "));
    }
}
