//! What several equal paths bring against one: pages a second that are stored and loaded in batches of 64 by one thread, or one at a
//! time in a scattered order by 8 threads, and microseconds of a page that one thread waits for; first, what the
//! table of pages costs where there is one path.
//!
//! `cargo run --release -p hinterland-backend --example paths [-- [--json] DELAY:BANDWIDTH …]`. Plain memory behind modelled links; rounds are
//! interleaved over the numbers of paths, and the medians of 5 are printed, with the factor to one path. With `--json` they are one object.

use hinterland_abi::PlacementName;
use hinterland_backend::samples::{Kind, page};
use hinterland_backend::{Backend, CodecName, Compressed, LoadItem, Location, OpenOptions, Paths, Priority, open_with};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::time::Instant;

const PAGES: usize = 4_096;
const BATCH: usize = 64;
const ROUNDS: usize = 5;
const THREADS: usize = 8;
const PATHS: [usize; 3] = [1, 2, 3];
const WHAT: [&str; 4] = ["stored", "loaded", "8 threads", "one waits"];
const TABLE: [&str; 3] = ["stored", "loaded singly", "freed singly"];

fn opened(link: &str, paths: usize) -> Arc<dyn Backend> {
    let urls: Vec<String> = (0..paths).map(|_| format!("reference:64M?link={link}")).collect();
    let options = OpenOptions { placement: PlacementName::Spread, ..OpenOptions::default() };
    open_with(&urls, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Pages a second.
#[allow(clippy::cast_precision_loss, reason = "a figure to print")]
fn rate(pages: usize, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    pages as f64 / begun.elapsed().as_secs_f64()
}

fn load(backend: &dyn Backend, locations: &[Location], priority: Priority, room: &mut [PageBytes]) {
    let items = locations.iter().zip(room).map(|(location, into)| LoadItem { location: *location, into });
    backend.load(&mut items.collect::<Vec<_>>(), priority, &mut |_, page| assert!(page.is_ok()));
}

fn round(backend: &dyn Backend) -> [f64; 4] {
    let content = page(Kind::Text, 1);
    let mut locations = vec![Ok(Location(0)); PAGES];
    let stored = rate(PAGES, || {
        for out in locations.chunks_mut(BATCH) {
            backend.store(&vec![&content; out.len()], Priority::WriteBack, out);
        }
    });
    let locations: Vec<Location> = locations.into_iter().map(|location| location.expect("room")).collect();
    let mut room = vec![[0; PAGE_BYTES]; BATCH];
    let loaded = rate(PAGES, || {
        locations.chunks(BATCH).for_each(|batch| load(backend, batch, Priority::Prefetch, &mut room));
    });
    let singly = |thread: usize, pages: usize| {
        let mut room = vec![[0; PAGE_BYTES]; 1];
        for turn in 0..pages {
            let at = (turn * THREADS + thread) * 1_597 % PAGES;
            load(backend, &locations[at..=at], Priority::Demand, &mut room);
        }
    };
    let scattered = rate(PAGES, || {
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || singly(thread, PAGES / THREADS))));
        });
    });
    let one = rate(PAGES / 4, || singly(0, PAGES / 4));
    backend.free(&locations);
    [stored, loaded, scattered, one]
}

/// Processor nanoseconds of this thread so far.
fn thread_cpu_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer to a plain structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// What the table costs where there is one path: processor nanoseconds of a page with the backend alone and with the table, stored in
/// batches, loaded singly, freed singly.
#[allow(clippy::cast_precision_loss, reason = "figures to print")]
fn single() -> [[f64; 2]; 3] {
    let alone: Arc<dyn Backend> =
        Arc::new(Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("room"));
    let inner = Arc::new(Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("room"));
    let behind: Arc<dyn Backend> = Arc::new(Paths::new(vec![inner], PlacementName::Tiers).expect("room"));
    let contents: Vec<PageBytes> = (0..64).map(|seed| page(Kind::HalfRandom, seed)).collect();
    let mut figures: [[Vec<f64>; 3]; 2] = Default::default();
    for _ in 0..4 * ROUNDS {
        for (backend, figures) in [&alone, &behind].into_iter().zip(&mut figures) {
            let mut per_page = |what: usize, work: &mut dyn FnMut()| {
                let begun = thread_cpu_ns();
                work();
                figures[what].push((thread_cpu_ns() - begun) as f64 / PAGES as f64);
            };
            let mut locations = vec![Ok(Location(0)); PAGES];
            per_page(0, &mut || {
                for out in locations.chunks_mut(BATCH) {
                    backend.store(&contents.iter().collect::<Vec<_>>(), Priority::WriteBack, out);
                }
            });
            let locations: Vec<Location> = locations.iter().map(|location| location.clone().expect("room")).collect();
            let mut room = vec![[0; PAGE_BYTES]; 1];
            per_page(1, &mut || {
                locations.iter().for_each(|at| load(&**backend, &[*at], Priority::Demand, &mut room));
            });
            per_page(2, &mut || locations.iter().for_each(|at| backend.free(&[*at])));
        }
    }
    std::array::from_fn(|what| figures.each_mut().map(|figures| median(&mut figures[what])))
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Pages a second over one link: of each kind of work, by the number of paths.
fn over(link: &str) -> [[f64; PATHS.len()]; WHAT.len()] {
    let backends = PATHS.map(|paths| opened(link, paths));
    let mut figures: [[Vec<f64>; WHAT.len()]; PATHS.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (backend, figures) in backends.iter().zip(&mut figures) {
            round(&**backend).into_iter().zip(figures).for_each(|(figure, of_rounds)| of_rounds.push(figure));
        }
    }
    std::array::from_fn(|what| figures.each_mut().map(|figures| median(&mut figures[what])))
}

/// An object with a list of figures for each name.
fn object<const N: usize>(names: &[&str], figures: &[[f64; N]]) -> String {
    let list = |figures: &[f64; N]| figures.map(|figure| format!("{figure:.1}")).join(", ");
    let members = names.iter().zip(figures).map(|(name, figures)| format!("\"{name}\": [{}]", list(figures)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

fn main() {
    let (options, mut links): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    if links.is_empty() {
        links = vec!["60us:1Gb/s".into(), "60us:2Gb/s".into()];
    }
    let table = single();
    if options.iter().any(|option| option == "--json") {
        let over = links.iter().map(|link| format!("\"{link}\": {}", object(&WHAT, &over(link))));
        let links = over.collect::<Vec<_>>().join(", ");
        println!("{{\"table_ns\": {}, \"pages_per_second\": {{{links}}}}}", object(&TABLE, &table));
        return;
    }
    for (name, [alone, behind]) in TABLE.iter().zip(table) {
        println!(
            "one path, {name:<16} {alone:>6.0} ns alone, {behind:>6.0} ns with the table ({:+.0})",
            behind - alone
        );
    }
    for link in links {
        for (name, medians) in WHAT.iter().zip(over(&link)) {
            let shown = medians.map(|median| format!("{median:>8.0} ({:.2})", median / medians[0]));
            println!("{link:>10}  {:<20} {}", format!("{name}, pages/s"), shown.join("  "));
        }
    }
}
