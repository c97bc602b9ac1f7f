//! Why is DaeMon slower over Remote than in its paper? For each of the paper's settings, its machine, and the same with one cause taken away at a time,
//! from DaeMon and Remote alike.
//!
//! `cargo run --release -p hinterland-model --example deviations 2000000` (references that are measured, after as many of warm-up; geometric means over
//! the workloads and links of a setting). With `workloads` behind the number, PQ and DaeMon of each workload on one core, too.

use hinterland_model::workloads::{WORKLOADS, Workload};
use hinterland_model::{
    Compressor, Filter, Link, Parameters, Rate, Replacement, Running, Scheme, Stream, ns, replay, replay_together,
};

/// The bandwidth of a memory bus by that of a link.
const PARTS: [u64; 3] = [2, 4, 8];
const SWITCHES_NS: [u64; 2] = [100, 400];

/// What is changed of a machine.
type Change = fn(Parameters) -> Parameters;
/// Name, change, and whether pages compress by the paper's ratios.
type Case = (&'static str, Change, bool);

const CASES: [Case; 5] = [
    ("as it is", |machine| machine, false),
    ("paper's ratios", |machine| machine, true),
    ("and buses × 8", fast_buses, true),
    ("and 5 % for lines", |machine| few_lines(fast_buses(machine)), true),
    ("only 5 % for lines", few_lines, false),
];

/// What the paper says of a machine, or of some.
struct Setting {
    name: &'static str,
    paper: f64,
    threads: u8,
    machines: fn() -> Vec<Parameters>,
}

const SETTINGS: [Setting; 8] = [
    Setting { name: "one core (§6.1)", paper: 2.38, threads: 1, machines: all_links },
    Setting { name: "8 threads (§6.7)", paper: 2.73, threads: 8, machines: all_links },
    Setting { name: "8 threads, 1/16, 100 ns (§A.3)", paper: 3.95, threads: 8, machines: || vec![link(16, 100)] },
    Setting { name: "FIFO (§6.8)", paper: 2.63, threads: 1, machines: fifo },
    Setting { name: "several components (§6.9)", paper: 3.25, threads: 1, machines: mixed_links },
    Setting { name: "2 components, 1/4, 100 ns (§A.4)", paper: 2.09, threads: 1, machines: || vec![components(2)] },
    Setting { name: "4 components, 1/4, 100 ns (§A.4)", paper: 1.88, threads: 1, machines: || vec![components(4)] },
    Setting { name: "1000 ns, 1/4 (§A.2)", paper: 1.49, threads: 1, machines: || vec![link(4, 1000)] },
];

/// Programs at once, and the percentage of their pages that local memory has room for (§6.10).
const AT_ONCE: [(&[&str], u64); 4] =
    [(&["pr", "nw"], 15), (&["bf", "dr"], 15), (&["pr", "nw", "ts", "sp"], 9), (&["kc", "bf", "sl", "dr"], 9)];

/// The network stays as it is.
fn fast_buses(machine: Parameters) -> Parameters {
    Parameters { dram_rate: Rate(8 * machine.dram_rate.0), ..machine }
}

fn few_lines(machine: Parameters) -> Parameters {
    Parameters { line_share_percent: 5, ..machine }
}

fn rate(part: u64) -> Rate {
    Rate(Parameters::paper().dram_rate.0 / part)
}

fn link(part: u64, switch_ns: u64) -> Parameters {
    Parameters { network_rate: rate(part), switch_ticks: ns(switch_ns), ..Parameters::paper() }
}

fn all_links() -> Vec<Parameters> {
    SWITCHES_NS.into_iter().flat_map(|switch| PARTS.map(|part| link(part, switch))).collect()
}

fn fifo() -> Vec<Parameters> {
    all_links().into_iter().map(|machine| Parameters { replacement: Replacement::Fifo, ..machine }).collect()
}

fn components(components: u32) -> Parameters {
    Parameters { components, ..link(4, 100) }
}

/// The links that `benches/daemon.py` mixes.
fn mixed_links() -> Vec<Parameters> {
    let of = |links: &[(u64, u64)]| {
        let links: Vec<Link> =
            links.iter().map(|(part, switch)| Link { rate: rate(*part), switch_ticks: ns(*switch) }).collect();
        Parameters { components: u32::try_from(links.len()).expect("few"), links, ..Parameters::paper() }
    };
    vec![
        of(&[(4, 100), (8, 100)]),
        of(&[(4, 100), (4, 400)]),
        of(&[(4, 100), (4, 400), (8, 100), (8, 400)]),
        components(2),
        components(4),
    ]
}

/// A workload's misses, and its pages' bytes after compression.
struct Traced {
    stream: Stream,
    measured: Vec<u16>,
    paper: Vec<u16>,
}

impl Traced {
    fn new(workload: &Workload, threads: u8, programs: usize, references: u64) -> Traced {
        let trace = workload.trace_through(workload.size, 1, Compressor::Lz, |bytes| {
            Filter::new(bytes, references, references).on(threads, programs)
        });
        let paper = vec![workload.paper_bytes(Compressor::Lz); trace.stream.pages as usize];
        Traced { stream: trace.stream, measured: trace.measured_bytes, paper }
    }

    fn running(&self, papers_ratios: bool) -> Running<'_> {
        Running { stream: &self.stream, compressed_bytes: if papers_ratios { &self.paper } else { &self.measured } }
    }
}

fn speedup(traced: &Traced, scheme: Scheme, machine: &Parameters, papers_ratios: bool) -> f64 {
    let Running { stream, compressed_bytes } = traced.running(papers_ratios);
    let run = |scheme| replay(stream, compressed_bytes, scheme, machine);
    run(scheme).speedup_over(&run(Scheme::Remote))
}

fn mean(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (sum / f64::from(u32::try_from(values.len()).expect("few"))).exp()
}

fn print_row(name: &str, paper: f64, cases: &[Vec<f64>]) {
    let means: Vec<String> = cases.iter().map(|speedups| format!("{:.2}", mean(speedups))).collect();
    println!("| {name} | {paper} | {} |", means.join(" | "));
}

fn main() {
    let mut words = std::env::args().skip(1);
    let references = words.next().map_or(2_000_000, |text| text.parse().expect("a number"));
    if words.next().is_some_and(|word| word == "workloads") {
        each_workload(references);
    }
    let names: Vec<&str> = CASES.iter().map(|(name, ..)| *name).collect();
    println!("| DaeMon over Remote | paper | {} |\n|{}", names.join(" | "), "---|".repeat(CASES.len() + 2));
    for setting in &SETTINGS {
        let mut cases = vec![Vec::new(); CASES.len()];
        for workload in &WORKLOADS {
            let traced = Traced::new(workload, setting.threads, 1, references);
            for (speedups, (_, change, papers_ratios)) in cases.iter_mut().zip(CASES) {
                let machines = (setting.machines)().into_iter().map(change);
                speedups.extend(machines.map(|machine| speedup(&traced, Scheme::DaeMon, &machine, papers_ratios)));
            }
        }
        print_row(setting.name, setting.paper, &cases);
    }
    at_once(references);
}

fn at_once(references: u64) {
    let mut cases = vec![Vec::new(); CASES.len()];
    for (names, local_percent) in AT_ONCE {
        let workloads = names.iter().map(|name| WORKLOADS.iter().find(|one| one.name == *name).expect("one of them"));
        let traced: Vec<Traced> = workloads.map(|one| Traced::new(one, 1, names.len(), references)).collect();
        for (speedups, (_, change, papers_ratios)) in cases.iter_mut().zip(CASES) {
            let machine = Parameters { local_percent, ..change(link(4, 100)) };
            let running: Vec<Running> = traced.iter().map(|one| one.running(papers_ratios)).collect();
            let run = |scheme| replay_together(&running, scheme, &machine);
            let both = run(Scheme::DaeMon).into_iter().zip(run(Scheme::Remote));
            speedups.extend(both.map(|(daemon, remote)| daemon.speedup_over(&remote)));
        }
    }
    print_row("2 and 4 programs at once, some mixes (§6.10)", 1.96, &cases);
}

/// PQ and DaeMon over Remote on one core, with the paper's ratios, at 1/2, 1/4 and 1/8 with 100 ns.
fn each_workload(references: u64) {
    println!("| 1/2, 1/4, 1/8 | PQ | PQ, 5 % for lines | DaeMon | DaeMon, buses × 8 |\n|---|---|---|---|---|");
    let cases: [(Scheme, Change); 4] = [
        (Scheme::Pq, |machine| machine),
        (Scheme::Pq, few_lines),
        (Scheme::DaeMon, |machine| machine),
        (Scheme::DaeMon, fast_buses),
    ];
    for workload in &WORKLOADS {
        let traced = Traced::new(workload, 1, 1, references);
        let cells = cases.map(|(scheme, change)| {
            PARTS.map(|part| format!("{:.2}", speedup(&traced, scheme, &change(link(part, 100)), true))).join(" ")
        });
        println!("| `{}` | {} |", workload.name, cells.join(" | "));
    }
    println!();
}
