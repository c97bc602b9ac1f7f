//! How fast tapes are planned: references a second of processor time, for each eviction, one size at 20 % of the peak.
//!
//! `cargo run --release -p hinterland-tape --example plan_rate [-- [--json] TRACE …]`: without a trace, for a walk, and for random touches.

use hinterland_tape::plan::{Case, Eviction, PlanCosts, Recording, plan};
use hinterland_tape::tape::{TapeHead, TapeWriter};
use hinterland_tape::{Head, Reference, Region, Trace, Writer, Written};

const PAGES: u32 = 1 << 18;
const REFERENCES: u32 = 20_000_000;
const LOCAL_PERCENT: u64 = 20;

fn made(page: impl Fn(u32) -> u32) -> Vec<u8> {
    let head = Head { microset_pages: 1024, has_cpu_times: true, page_bytes: 4096, ..Head::default() };
    let mut writer = Writer::new(Vec::new(), &head).expect("memory is a good sink");
    let region = writer.region(&Region { name: "far".into(), pages: 1 << 30 }).expect("as above");
    for index in 0..REFERENCES {
        let cpu_ns = u64::from(index) * 500;
        let touch = Reference { region, page: page(index), cpu_ns, ..Reference::default() };
        writer.touch(&touch).expect("as above");
        if index % 1024 == 1023 {
            writer.end_microset(Written::All).expect("as above");
        }
    }
    writer.finish().expect("as above");
    std::mem::take(writer.sink())
}

fn main() {
    let (flags, paths): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word == "--json");
    let (mut rows, mut texts) = (Vec::new(), Vec::new());
    let mut add = |name: &str, bytes: &[u8]| measure(name, bytes, &mut rows, &mut texts);
    if paths.is_empty() {
        add("round after round", &made(|index| index % PAGES));
        add("random", &made(|index| index.wrapping_mul(2_654_435_761) >> 14));
    }
    for path in paths {
        add(&path, &std::fs::read(&path).expect("a file that can be read"));
    }
    match flags.is_empty() {
        true => println!("{}", texts.join("\n")),
        false => println!("[{}]", rows.join(",")),
    }
}

/// Figures for scripts in `rows`, and for people in `texts`.
fn measure(name: &str, bytes: &[u8], rows: &mut Vec<String>, texts: &mut Vec<String>) {
    let trace = Trace::open(bytes).expect("a trace");
    let begun = cpu_seconds();
    let recording = Recording::read(&trace, None).expect("a whole trace");
    let read_seconds = cpu_seconds() - begun;
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    let millions = recording.references() as f64 / 1e6;
    texts.push(format!(
        "{name}: {millions:.2} M references to {} pages, read at {:.1} M/s",
        recording.pages(),
        millions / read_seconds
    ));
    let local_pages = (recording.pages() * LOCAL_PERCENT / 100).max(1);
    let costs = PlanCosts {
        latency_ns: 15_000,
        page_ns: 3_277,
        fault_ns: 2_950,
        first_touch_ns: 2_950,
        written_percent: 100,
        ..PlanCosts::default()
    };
    for eviction in [Eviction::Lru, Eviction::Min] {
        let case = Case { local_pages, reserve_pages: 0, eviction };
        let mut tape = TapeWriter::new(std::io::sink(), &TapeHead::default(), recording.regions()).expect("as above");
        let begun = cpu_seconds();
        let mut sink = |thread, arrival, departure| tape.push(thread, arrival, departure);
        let plans = plan(&trace, &recording, &[case], &costs, Some(&mut sink)).expect("it was read once");
        let seconds = cpu_seconds() - begun;
        let tape_bytes = tape.finish(&[]).expect("as above");
        let (eviction, rate) = (eviction.name(), millions / seconds);
        rows.push(format!(r#"{{"trace":{name:?},"evict":"{eviction}","millions_per_second":{rate:.2}}}"#));
        texts.push(format!(
            "  {eviction}: {rate:.1} M/s, with the first pass {:.1}; {} pages moved, tape of {tape_bytes} bytes, {} MiB resident at most",
            millions / (seconds + read_seconds),
            plans[0].pages_moved(),
            resident_peak_kib() / 1024,
        ));
    }
}

/// Processor time of this thread until now.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    let nanoseconds: Option<f64> = text.split(' ').next().and_then(|ns| ns.parse().ok());
    nanoseconds.expect("nanoseconds on a processor come first") * 1e-9
}

fn resident_peak_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("a kernel with /proc");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak is there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
