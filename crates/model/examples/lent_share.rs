//! Do shares that lines and pages lend each other keep up with the best fixed one? DaeMon with shares of 5 to 80 %, and `ours`.
//!
//! `cargo run --release -p hinterland-model --example lent_share 2000000 4 100 1` (references that are measured, after as many of warm-up; a link of
//! 1/4; nanoseconds of its switch; seed)

use hinterland_model::workloads::WORKLOADS;
use hinterland_model::{Compressor, Parameters, Rate, Scheme, ns, replay};

const SHARES: [u64; 8] = [5, 10, 15, 25, 40, 50, 60, 80];
const PAPER: u64 = 25;

/// Geometric.
fn mean(values: &[f64]) -> f64 {
    let count: f64 = values.iter().map(|_| 1.0).sum();
    (values.iter().map(|value| value.ln()).sum::<f64>() / count).exp()
}

fn main() {
    let given =
        |place, otherwise| std::env::args().nth(place).map_or(otherwise, |text| text.parse().expect("a number"));
    let (references, part, switch_ns, seed) = (given(1, 2_000_000), given(2, 4), given(3, 100), given(4, 1));
    println!("| | best fixed share | ours by the best | ours by 25 % |\n|---|---|---|---|");
    let (mut by_best, mut by_paper) = (Vec::new(), Vec::new());
    for workload in WORKLOADS {
        let trace = workload.trace(workload.size, seed, references, references, Compressor::Lz);
        let run = |scheme, line_share_percent| {
            let paper = Parameters::paper();
            let network_rate = Rate(paper.dram_rate.0 / part);
            let parameters = Parameters { line_share_percent, network_rate, switch_ticks: ns(switch_ns), ..paper };
            replay(&trace.stream, &trace.measured_bytes, scheme, &parameters)
        };
        let fixed = SHARES.map(|share| (share, run(Scheme::DaeMon, share)));
        let (share, best) = fixed.iter().min_by_key(|(_, figures)| figures.ticks).expect("eight shares");
        let (_, paper) = fixed.iter().find(|(share, _)| *share == PAPER).expect("one of the eight");
        let ours = run(Scheme::Ours, PAPER);
        by_best.push(ours.speedup_over(best));
        by_paper.push(ours.speedup_over(paper));
        println!(
            "| `{}` | {share} % | {:.2} | {:.2} |",
            workload.name,
            ours.speedup_over(best),
            ours.speedup_over(paper)
        );
    }
    println!("| mean | | {:.2} | {:.2} |", mean(&by_best), mean(&by_paper));
}
