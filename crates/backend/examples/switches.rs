//! What a switch takes: the pages of one path move to another, from each of the URLs to each other one, beside the slower of both sides by itself.
//!
//! `cargo run --release -p hinterland-backend --example switches [-- [--sides] MIB URL…]`. Pages are the standard ones: 2 KiB random and 2 KiB
//! repeating. Of each URL: seconds in which one thread stores all pages there, and loads them. Of each pair: seconds until all have moved, the
//! bound (the slower of loading from the one and storing at the other, or 4 µs a page if that is more), their ratio, and the
//! processor time. With `--sides` no pairs.

use hinterland_abi::PathChange;
use hinterland_backend::samples::{Kind, page};
use hinterland_backend::{Backend, LoadItem, Location, Paths, Priority, open};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::time::Instant;

/// Pages at once: as many as a path ever has under way.
const BATCH: usize = 1024;
const PAGE_SECONDS: f64 = 4e-6;

#[repr(align(4096))]
struct Aligned(PageBytes);

fn opened(url: &str) -> Arc<Paths> {
    open(&[url.to_owned()]).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    })
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

/// Processor time of this thread so far.
#[allow(clippy::cast_precision_loss, reason = "a figure to print")]
fn thread_cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid pointer to a plain structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn store(paths: &dyn Backend, contents: &[Aligned], pages: usize) -> Vec<Location> {
    let mut locations = Vec::with_capacity(pages);
    while locations.len() < pages {
        let batch: Vec<&PageBytes> =
            contents.iter().take(pages - locations.len()).take(BATCH).map(|page| &page.0).collect();
        let mut out = vec![Ok(Location(0)); batch.len()];
        paths.store(&batch, Priority::WriteBack, &mut out);
        locations.extend(out.into_iter().map(|answer| answer.expect("room for all pages")));
    }
    locations
}

fn load(paths: &dyn Backend, locations: &[Location], rooms: &mut [Aligned]) {
    for locations in locations.chunks(BATCH) {
        let items = locations.iter().zip(&mut *rooms);
        let mut items: Vec<LoadItem<'_>> =
            items.map(|(location, room)| LoadItem { location: *location, into: &mut room.0 }).collect();
        paths.load(&mut items, Priority::WriteBack, &mut |_, page| assert!(page.is_ok()));
    }
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let only_sides = words.first().is_some_and(|word| word == "--sides");
    words.drain(..usize::from(only_sides));
    let Some((mib, urls)) = words.split_first() else {
        eprintln!("usage: switches [--sides] MIB URL…");
        std::process::exit(2);
    };
    let pages = mib.parse::<usize>().expect("a number of MiB") << 20 >> PAGE_BYTES.ilog2();
    let contents: Vec<Aligned> = (0..BATCH).map(|seed| Aligned(page(Kind::HalfRandom, seed as u64))).collect();
    let mut rooms: Vec<Aligned> = (0..BATCH).map(|_| Aligned([0; PAGE_BYTES])).collect();
    let mut sides = Vec::new();
    for url in urls {
        let paths = opened(url);
        let mut locations = Vec::new();
        // The first time there is no room yet.
        paths.free(&store(&*paths, &contents, pages));
        let stored = seconds(|| locations = store(&*paths, &contents, pages));
        let loaded = seconds(|| load(&*paths, &locations, &mut rooms));
        println!("{url}\tstored {stored:.3} s\tloaded {loaded:.3} s");
        sides.push((url, stored, loaded));
    }
    for (from, _, loaded) in sides.iter().filter(|_| !only_sides) {
        for (to, stored, _) in sides.iter().filter(|(to, ..)| to != from) {
            let paths = opened(from);
            let locations = store(&*paths, &contents, pages);
            paths.change(1, vec![PathChange::Add((*to).clone()), PathChange::Drop((*from).clone())]);
            let cpu = thread_cpu();
            let took = seconds(|| {
                while paths.changed_version() != 1 {
                    paths.maintain();
                    assert_eq!(paths.obstacle(), "");
                }
            });
            let cpu = thread_cpu() - cpu;
            load(&*paths, &locations[pages - 1..], &mut rooms);
            assert!(rooms[0].0 == contents[(pages - 1) % BATCH].0, "the last page is another one");
            #[allow(clippy::cast_precision_loss, reason = "figures to print")]
            let bound = loaded.max(*stored).max(pages as f64 * PAGE_SECONDS);
            println!("{from} -> {to}\t{took:.3} s\tbound {bound:.3} s\tratio {:.2}\tcpu {cpu:.3} s", took / bound);
        }
    }
}
