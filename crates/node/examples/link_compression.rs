//! What link compression does on a link: stores, loads ahead and demand loads of pages that shrink and of pages that do not, in each mode, over TCP.
//!
//! ```text
//! unshare -rn sh -c 'ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 1gbit burst 32kb latency 50ms &&
//!     exec target/release/examples/link_compression 5'
//! ```
//! The argument is the number of rounds; each takes every mode in turn. Megabytes of pages a second and microseconds: median (least–most).

use hinterland_backend::samples::{Kind, Rng, page};
use hinterland_backend::{Backend, LoadItem, Location, Priority, StoreError, open};
use hinterland_node::{Listening, Options, SLAB_BYTES};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::time::Instant;

/// 32 MiB.
const PAGES: usize = 8192;
/// What the evictor stores and the read-ahead thread loads at once.
const BATCH: usize = 64;
const DEMANDS: usize = 300;

/// A page of lines of which 20 of 64 bytes differ.
fn records(seed: u64) -> PageBytes {
    let mut rng = Rng(seed);
    let mut page = [0; PAGE_BYTES];
    for line in page.as_chunks_mut::<64>().0 {
        *line = std::array::from_fn(|at| u8::try_from(at).expect("64").wrapping_mul(37));
        line[..16].copy_from_slice(&rng.next_u64().to_le_bytes().repeat(2));
        line[8..16].copy_from_slice(&rng.next_u64().to_le_bytes());
        line[16..20].copy_from_slice(&rng.below_u32(u32::MAX).to_le_bytes());
    }
    page
}

/// What one mode did in one round: stores and loads in MB/s, a demand's median in µs.
fn measure(backend: &dyn Backend, pages: &[PageBytes]) -> [f64; 3] {
    let mut at = Vec::with_capacity(PAGES);
    let bytes = (pages.len() * PAGE_BYTES) as f64;
    let begun = Instant::now();
    for batch in pages.chunks(BATCH) {
        let mut out: Vec<Result<Location, StoreError>> = vec![Ok(Location(0)); batch.len()];
        backend.store(&batch.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
        at.extend(out.into_iter().map(|answer| answer.expect("room")));
    }
    let stored = bytes / 1e6 / begun.elapsed().as_secs_f64();
    let mut buffers = vec![[0; PAGE_BYTES]; BATCH];
    let begun = Instant::now();
    for (turn, batch) in at.chunks(BATCH).enumerate() {
        let items = batch.iter().zip(&mut buffers).map(|(location, into)| LoadItem { location: *location, into });
        backend.load(&mut items.collect::<Vec<_>>(), Priority::Prefetch, &mut |index, page| {
            assert!(page.expect("stored")[..64] == pages[turn * BATCH + index][..64], "another page");
        });
    }
    let loaded = bytes / 1e6 / begun.elapsed().as_secs_f64();
    let mut rng = Rng(7);
    let mut times: Vec<f64> = (0..DEMANDS)
        .map(|_| {
            let index = rng.index(at.len());
            let mut items = [LoadItem { location: at[index], into: &mut buffers[0] }];
            let begun = Instant::now();
            backend.load(&mut items, Priority::Demand, &mut |_, page| assert!(*page.expect("stored") == pages[index]));
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    backend.free(&at);
    [stored, loaded, median(&mut times)]
}

/// Which part of the bytes that are stored is sent.
fn sent_of_each(backend: &dyn Backend, pages: &[PageBytes]) -> f64 {
    let figures = || {
        let mut rows = Vec::new();
        backend.usage(&mut rows);
        [rows[0].sent_bytes as f64, rows[0].bytes_in as f64]
    };
    let before = figures();
    let mut out: Vec<Result<Location, StoreError>> = vec![Ok(Location(0)); pages.len()];
    backend.store(&pages.iter().collect::<Vec<_>>(), Priority::WriteBack, &mut out);
    backend.free(&out.into_iter().map(|answer| answer.expect("room")).collect::<Vec<_>>());
    let after = figures();
    (after[0] - before[0]) / (after[1] - before[1])
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let anywhere = "tcp://127.0.0.1:0".parse().expect("an endpoint");
    let node = Listening::start(&anywhere, Options::new(256 * SLAB_BYTES)).expect("a node");
    let modes = ["off", "on", "auto"];
    let backends = modes.map(|mode| {
        let url = format!("{}?link-compression={mode}", node.endpoint());
        open(&[url]).unwrap_or_else(|error| panic!("{error}"))
    });
    for kind in ["records", "random"] {
        let make = |seed| if kind == "random" { page(Kind::Random, seed) } else { records(seed) };
        let pages: Vec<PageBytes> = (0..PAGES as u64).map(make).collect();
        let mut found = [const { Vec::new() }; 3];
        for round in 0..=rounds {
            for (backend, found) in backends.iter().zip(&mut found) {
                let figures = measure(&**backend, &pages);
                // The first round is for connections and estimates.
                found.extend((round > 0).then_some(figures));
            }
        }
        let of_each = sent_of_each(&*backends[1], &pages[..BATCH]);
        println!("{kind:8} {of_each:.2} of each page is sent when it is compressed");
        for (mode, found) in modes.iter().zip(found) {
            let text = [0, 1, 2].map(|figure| {
                let mut values: Vec<f64> = found.iter().map(|figures: &[f64; 3]| figures[figure]).collect();
                let middle = median(&mut values);
                format!("{middle:.0} ({:.0}–{:.0})", values[0], values[values.len() - 1])
            });
            println!("{kind:8} {mode:5} stores {} MB/s, loads {} MB/s, demand {} µs", text[0], text[1], text[2]);
        }
    }
}
