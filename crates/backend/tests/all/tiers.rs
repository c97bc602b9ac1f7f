//! Tiers against the model: demotion under concurrency, shrinking.

use hinterland_backend::samples::{Kind, page};
use hinterland_backend::{
    Backend, CodecName, Compressed, FileBackend, FileOptions, IoMethod, Location, Priority, Reference, StoreError,
    Tiers,
};
use hinterland_testkit::contract::{fuzz, fuzz_threads, load, page_of, rows, store};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn reference(pages: u64) -> Arc<dyn Backend> {
    Arc::new(Reference::new("reference".into(), pages * PAGE_BYTES as u64).unwrap())
}

fn compressed(bytes: u64) -> Arc<dyn Backend> {
    Arc::new(Compressed::new("compressed".into(), CodecName::Lz4, bytes).expect("address space"))
}

fn file(pages: u64) -> Arc<dyn Backend> {
    let options = FileOptions {
        path: std::env::temp_dir(),
        capacity_bytes: pages * PAGE_BYTES as u64,
        io: IoMethod::Auto,
        direct: true,
    };
    Arc::new(FileBackend::new("file".into(), options).expect("the file can be made"))
}

fn assert_empty(backend: &dyn Backend) {
    for row in rows(backend) {
        assert_eq!(row.pages, 0, "{row:?}");
    }
}

#[test]
fn the_oldest_pages_go_down() {
    let tiers = Tiers::new(vec![reference(300), reference(200), reference(200)]).expect("address space");
    let pages: Vec<PageBytes> = (0..700).map(|seed| page(Kind::Random, seed)).collect();
    let mut locations = Vec::new();
    for batch in pages.chunks(20) {
        locations.extend(store(&tiers, batch).into_iter().map(|answer| answer.expect("room in some tier")));
    }
    let held: Vec<u64> = rows(&tiers).iter().map(|row| row.pages).collect();
    assert_eq!(held.iter().sum::<u64>(), 700, "{held:?}");
    assert_eq!(held, [300, 200, 200]);
    assert!(matches!(store(&tiers, &pages[..1])[0], Err(StoreError::Full { .. })));
    let loaded_before: Vec<u64> = rows(&tiers).iter().map(|row| row.bytes_out).collect();
    for (page, loaded) in pages.iter().zip(load(&tiers, &locations, Priority::Demand)) {
        assert!(loaded.expect("stored") == *page);
    }
    // The youngest pages are in the first tier, the oldest in the last.
    load(&tiers, &locations[690..], Priority::Demand);
    load(&tiers, &locations[..10], Priority::Demand);
    let loaded: Vec<u64> = rows(&tiers).iter().zip(loaded_before).map(|(row, before)| row.bytes_out - before).collect();
    assert_eq!(loaded, [310, 200, 210].map(|pages| pages * PAGE_BYTES as u64));
    tiers.free(&locations);
    assert_empty(&tiers);
}

#[test]
fn any_mix_of_pages_comes_back() {
    for seed in 0..4 {
        let tiers = Tiers::new(vec![compressed(1 << 20), reference(300), file(400)]).expect("address space");
        assert!(fuzz(&tiers, seed, 1500, 4000) > 0, "the limit was never reached");
        assert_empty(&tiers);
    }
}

#[test]
fn demotion_disturbs_nobody() {
    for seed in 0..3 {
        let tiers = Tiers::new(vec![compressed(2 << 20), file(600), reference(100_000)]).expect("address space");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let demoter = scope.spawn(|| {
                let mut demoted = 0;
                while !over.load(Relaxed) {
                    demoted += tiers.demote(20);
                    std::thread::yield_now();
                }
                demoted
            });
            fuzz_threads(&tiers, seed, 4, 600, 500);
            over.store(true, Relaxed);
            assert!(demoter.join().expect("no panic") > 100);
        });
        assert_empty(&tiers);
    }
}

#[test]
fn ram_can_be_asked_back() {
    let tiers = Tiers::new(vec![compressed(1 << 30), file(100_000)]).expect("address space");
    let seeds: Vec<u64> = (0..8000).collect();
    let pages: Vec<PageBytes> = seeds.iter().map(|seed| page_of(*seed)).collect();
    let locations: Vec<Location> = store(&tiers, &pages).into_iter().map(|answer| answer.expect("room")).collect();
    let before = tiers.ram_bytes();
    let won = tiers.shrink_ram(4 << 20);
    assert!(won >= 4 << 20, "{won}");
    assert!(tiers.ram_bytes() <= before - (3 << 20), "{} of {before} bytes left", tiers.ram_bytes());
    assert!(rows(&tiers)[0].pages > 0, "more went than was asked for");
    tiers.shrink_ram(u64::MAX);
    assert_eq!(rows(&tiers)[0].pages, 0);
    assert!(tiers.ram_bytes() < 2 << 20, "{}", tiers.ram_bytes());
    for (page, loaded) in pages.iter().zip(load(&tiers, &locations, Priority::Demand)) {
        assert!(loaded.expect("stored") == *page);
    }
    assert_eq!(reference(10).shrink_ram(1 << 20), 0);
}
