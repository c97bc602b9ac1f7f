//! Microseconds for each page stored and loaded, one thread, batches of 64, for each backend.
//!
//! `cargo run --release -p hinterland-backend --example throughput [-- URL…]`. The page is the standard one: 2 KiB random
//! and 2 KiB repeating. Rounds are interleaved over the backends; the median of 9 is printed, with the fastest and slowest,
//! and the median of the processor time, which other load on the machine disturbs less.

use hinterland_backend::samples::{Kind, Rng, page};
use hinterland_backend::{Backend, LoadItem, Location, Paths, Priority, open};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::time::Instant;

const PAGES: usize = 16_384;
const BATCH: usize = 64;
const ROUNDS: usize = 9;

/// A page where direct I/O wants it.
#[repr(align(4096))]
struct Aligned(PageBytes);

/// Microseconds for each page.
#[derive(Clone, Copy)]
struct Time {
    wall: f64,
    cpu: f64,
}

/// What one round took.
#[derive(Clone, Copy)]
struct Round {
    store: Time,
    load: Time,
    load_one: Time,
    free: Time,
}

/// Runs `work` on all pages.
#[allow(clippy::cast_precision_loss, reason = "times are printed with three digits")]
fn timed(work: impl FnOnce()) -> Time {
    let (start, cpu_ns) = (Instant::now(), thread_cpu_ns());
    work();
    let per_page = |ns: f64| ns / PAGES as f64 / 1000.0;
    Time { wall: per_page(start.elapsed().as_nanos() as f64), cpu: per_page((thread_cpu_ns() - cpu_ns) as f64) }
}

/// Processor time of this thread so far.
fn thread_cpu_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer to a plain structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn main() {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    if urls.is_empty() {
        let file = format!("file:{}?size=1G", std::env::temp_dir().display());
        let defaults =
            ["reference:1G", "compressed:1G", "compressed:1G?codec=zstd", &file, &format!("{file}&io=plain")];
        urls = defaults.map(str::to_owned).to_vec();
    }
    let backends: Vec<(String, Arc<Paths>)> = urls
        .into_iter()
        .map(|url| match open(std::slice::from_ref(&url)) {
            Ok(backend) => (url, backend),
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(2);
            }
        })
        .collect();
    let pages: Vec<Aligned> = (0..PAGES).map(|seed| Aligned(page(Kind::HalfRandom, seed as u64))).collect();
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); backends.len()];
    for _ in 0..ROUNDS {
        for ((_, backend), rounds) in backends.iter().zip(&mut rounds) {
            rounds.push(measure(&**backend, &pages));
        }
    }
    println!("us per page: median (min - max)");
    for ((url, _), rounds) in backends.iter().zip(&rounds) {
        println!("{url}");
        print_row("store, 64 at once", rounds, |round| round.store);
        print_row("load in order, 64 at once", rounds, |round| round.load);
        print_row("load at random, one by one", rounds, |round| round.load_one);
        print_row("free, 64 at once", rounds, |round| round.free);
    }
}

fn measure(backend: &dyn Backend, pages: &[Aligned]) -> Round {
    let mut out = vec![Ok(Location(0)); BATCH];
    let mut locations = Vec::with_capacity(pages.len());
    let store = timed(|| {
        for batch in pages.chunks(BATCH) {
            let references: Vec<&PageBytes> = batch.iter().map(|page| &page.0).collect();
            backend.store(&references, Priority::WriteBack, &mut out);
            locations.extend(out.iter().map(|answer| answer.clone().expect("room for all pages")));
        }
    });

    let mut rooms: Vec<Aligned> = (0..BATCH).map(|_| Aligned([0; PAGE_BYTES])).collect();
    let load_batch = |locations: &[Location], rooms: &mut [Aligned]| {
        let mut items: Vec<LoadItem<'_>> = locations
            .iter()
            .zip(rooms)
            .map(|(location, room)| LoadItem { location: *location, into: &mut room.0 })
            .collect();
        backend.load(&mut items, Priority::Demand, &mut |_, result| assert!(result.is_ok()));
    };
    let load = timed(|| locations.chunks(BATCH).for_each(|batch| load_batch(batch, &mut rooms)));
    assert!(rooms[BATCH - 1].0 == pages[PAGES - 1].0, "the last page came back");

    let mut rng = Rng(1);
    let load_one = timed(|| (0..PAGES).for_each(|_| load_batch(&[locations[rng.index(PAGES)]], &mut rooms)));
    let free = timed(|| locations.chunks(BATCH).for_each(|batch| backend.free(batch)));
    Round { store, load, load_one, free }
}

fn print_row(what: &str, rounds: &[Round], time: impl Fn(&Round) -> Time) {
    let sorted = |part: &dyn Fn(Time) -> f64| {
        let mut times: Vec<f64> = rounds.iter().map(|round| part(time(round))).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (wall, cpu) = (sorted(&|time| time.wall), sorted(&|time| time.cpu));
    let median = ROUNDS / 2;
    println!("  {what:<28} {:8.3} ({:.3} - {:.3})  cpu {:.3}", wall[median], wall[0], wall[ROUNDS - 1], cpu[median]);
}
