//! Recompression in the compressed store: what stays is compressed again, and loads, stores and forks find their pages.

use hinterland_backend::samples::{Kind, page};
use hinterland_backend::{Backend, CodecName, Compressed, Location, Priority, Recompression};
use hinterland_testkit::contract::{fuzz, fuzz_threads, load, page_of, store, usage};
use hinterland_testkit::{maintain_until, maintained};
use hinterland_units::PageBytes;
use std::time::Duration;

/// One pass begins when the one before is over, and steps do not wait for an idle processor.
fn recompressing(capacity_bytes: u64) -> Compressed {
    let store = Compressed::new("compressed".into(), CodecName::Lz4, capacity_bytes).expect("address space");
    store.recompressing(Recompression { longest_wait: Duration::ZERO, late: Duration::MAX })
}

fn stored(backend: &Compressed, pages: &[PageBytes]) -> Vec<Location> {
    store(backend, pages).into_iter().map(|answer| answer.expect("room")).collect()
}

/// Until there is nothing left to do.
fn settle(backend: &Compressed) {
    maintain_until(backend, "everything settles", || !backend.needs_maintenance());
}

#[test]
fn what_stays_takes_less_and_comes_back() {
    let backend = recompressing(64 << 20);
    let pages: Vec<PageBytes> = (0..2000).map(|seed| page(Kind::Text, seed)).collect();
    let locations = stored(&backend, &pages);
    let before = usage(&backend);
    assert!(backend.needs_maintenance());
    maintain_until(&backend, "all text is compressed again", || usage(&backend).recompressed_pages == 2000);
    let after = usage(&backend);
    assert_eq!(after.stored_bytes + after.recompression_saved_bytes, before.stored_bytes);
    assert!(after.stored_bytes * 8 < before.stored_bytes * 7, "{after:?}");
    // What the fragments take, and the tools, comes out of the gain.
    assert!(after.ram_bytes < before.ram_bytes, "{} -> {}", before.ram_bytes, after.ram_bytes);
    for (page, loaded) in pages.iter().zip(load(&backend, &locations, Priority::Demand)) {
        assert!(loaded.expect("stored") == *page);
    }
    settle(&backend);
    backend.free(&locations);
    assert_eq!((usage(&backend).pages, usage(&backend).stored_bytes), (0, 0));
}

#[test]
fn what_does_not_shrink_stays_as_it_is_and_is_left_alone() {
    let backend = recompressing(64 << 20);
    let pages: Vec<PageBytes> = (0..500).map(|seed| page(Kind::Random, seed)).collect();
    let locations = stored(&backend, &pages);
    let before = usage(&backend);
    settle(&backend);
    let after = usage(&backend);
    assert_eq!((after.recompressed_pages, after.stored_bytes, after.plain_pages), (0, before.stored_bytes, 500));
    assert_eq!(backend.maintain(), None);
    for (page, loaded) in pages.iter().zip(load(&backend, &locations, Priority::Demand)) {
        assert!(loaded.expect("stored") == *page);
    }
}

#[test]
fn what_is_loaded_stays_as_it_is() {
    let backend = recompressing(64 << 20);
    let pages: Vec<PageBytes> = (0..64).map(|seed| page(Kind::Text, seed)).collect();
    let locations = stored(&backend, &pages);
    let mut passing = Vec::new();
    for round in 0..40 {
        // More than a turnover, so that each round is a pass or more; whatever the hand made aged is loaded before it comes again.
        passing.push(stored(&backend, &vec![page(Kind::Random, round); 128]));
        for (page, loaded) in pages.iter().zip(load(&backend, &locations, Priority::Demand)) {
            assert!(loaded.expect("stored") == *page);
        }
        std::thread::sleep(backend.maintain().unwrap_or_default());
        backend.free(&passing.remove(0));
    }
    assert_eq!(usage(&backend).recompressed_pages, 0);
    // The same pages, when they are left alone.
    maintain_until(&backend, "they are compressed again", || usage(&backend).recompressed_pages == 64);
}

#[test]
fn nothing_is_compressed_again_unless_that_is_wanted() {
    let backend = Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("address space");
    stored(&backend, &(0..100).map(|seed| page(Kind::Text, seed)).collect::<Vec<_>>());
    assert!(!backend.needs_maintenance());
    assert_eq!(backend.maintain(), None);
}

#[test]
fn threads_compaction_and_recompression_disturb_nobody() {
    let backend = recompressing(1 << 30);
    maintained(&backend, || {
        // Pages that stay while others come and go.
        let pages: Vec<PageBytes> = (0..600).map(page_of).collect();
        let locations = stored(&backend, &pages);
        for seed in 0..8 {
            fuzz_threads(&backend, seed, 3, 1000, 300);
        }
        for (page, loaded) in pages.iter().zip(load(&backend, &locations, Priority::Demand)) {
            assert!(loaded.expect("stored") == *page);
        }
        backend.free(&locations);
    });
    let row = usage(&backend);
    assert!(row.recompressed_pages > 0, "{row:?}");
    assert_eq!((row.pages, row.stored_bytes, row.plain_pages, row.same_filled_pages), (0, 0, 0, 0));
}

/// Where there is no room for the new object beside the old one, the old one stays.
#[test]
fn a_full_store_keeps_what_it_has() {
    let backend = recompressing(1 << 20);
    maintained(&backend, || assert!(fuzz(&backend, 7, 4000, 2000) > 0, "the limit was never reached"));
    assert_eq!((usage(&backend).pages, usage(&backend).stored_bytes), (0, 0));
}
