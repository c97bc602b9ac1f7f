//! How fast references come out of a trace: `cargo run --release -p hinterland-tape --example decode_rate [-- --json]`.

use hinterland_tape::{Head, Reference, Region, Trace, Writer, Written};
use std::time::Instant;

fn main() {
    const REFERENCES: u32 = 50_000_000;
    let json = std::env::args().any(|word| word == "--json");
    let mut rows = Vec::new();
    for (name, random) in [("sequential", false), ("random", true)] {
        let mut writer = Writer::new(Vec::new(), &Head::default()).expect("memory is a good sink");
        let region = writer.region(&Region { name: "far".into(), pages: 1 << 30 }).expect("as above");
        for index in 0..REFERENCES {
            let page = if random { index.wrapping_mul(2_654_435_761) >> 4 } else { index };
            let (thread, cpu_ns) = (index / 1000 % 4, u64::from(index) * 5000);
            let touch = Reference { thread, region, page, cpu_ns, ..Reference::default() };
            writer.touch(&touch).expect("as above");
            if index % 1024 == 1023 {
                writer.end_microset(Written::All).expect("as above");
            }
        }
        writer.finish().expect("as above");
        let bytes = std::mem::take(writer.sink());
        let begun = Instant::now();
        let references = Trace::open(&bytes).expect("just written").references();
        let sum = references.map(|reference| u64::from(reference.expect("just written").page)).sum::<u64>();
        let seconds = begun.elapsed().as_secs_f64();
        let rate = f64::from(REFERENCES) / seconds / 1e6;
        let size = bytes.len() as f64 / f64::from(REFERENCES);
        if json {
            rows.push(format!(r#"{{"trace":"{name}","millions_per_second":{rate:.1}}}"#));
        } else {
            println!("{name}: {rate:.0} M references/s, {size:.2} bytes each (sum {sum})");
        }
    }
    if json {
        println!("[{}]", rows.join(","));
    }
}
