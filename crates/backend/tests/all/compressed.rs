//! The compressed store against the model, its capacity, and its fragmentation.

use hinterland_backend::samples::{Kind, Rng, page};
use hinterland_backend::{Backend, CodecName, Compressed, Location, Priority, Reference, StoreError};
use hinterland_testkit::contract::{fuzz, fuzz_threads, load, page_of, store, usage};
use hinterland_units::PAGE_BYTES;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn compressed(codec: CodecName, capacity_bytes: u64) -> Compressed {
    Compressed::new("compressed".into(), codec, capacity_bytes).expect("address space")
}

#[test]
fn the_reference_keeps_what_it_is_given() {
    let reference = Reference::new("reference".into(), 100 * PAGE_BYTES as u64).unwrap();
    assert!(fuzz(&reference, 1, 3000, 200) > 0, "the limit was never reached");
    assert_eq!(usage(&reference).pages, 0);
}

#[test]
fn any_mix_of_pages_comes_back() {
    for codec in [CodecName::Lz4, CodecName::Zstd] {
        for seed in 0..3 {
            let backend = compressed(codec, 1 << 30);
            assert_eq!(fuzz(&backend, seed, 6000, 4000), 0);
            let row = usage(&backend);
            assert_eq!((row.pages, row.stored_bytes, row.plain_pages, row.same_filled_pages), (0, 0, 0, 0));
            assert!(row.bytes_in > 0 && row.bytes_out > 0);
        }
    }
}

#[test]
fn threads_and_compaction_disturb_nobody() {
    let backend = compressed(CodecName::Lz4, 1 << 30);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let compactor = scope.spawn(|| {
            let mut moves = 0;
            while !over.load(Relaxed) {
                moves += backend.compact(1000);
            }
            moves
        });
        fuzz_threads(&backend, 5, 4, 4000, 500);
        over.store(true, Relaxed);
        assert!(compactor.join().expect("no panic") > 1000, "compaction had nothing to do");
    });
    assert_eq!(usage(&backend).pages, 0);
}

#[test]
fn threads_and_a_tight_limit() {
    let backend = compressed(CodecName::Lz4, 1 << 20);
    fuzz_threads(&backend, 9, 3, 3000, 400);
    assert_eq!(usage(&backend).stored_bytes, 0);
}

#[test]
fn the_capacity_holds_and_a_full_store_still_works() {
    let capacity = 4 << 20;
    let backend = compressed(CodecName::Lz4, capacity);
    let mut held = Vec::new();
    let full = loop {
        match store(&backend, &[page(Kind::HalfRandom, held.len() as u64)]).remove(0) {
            Ok(location) => held.push(location),
            Err(error) => break error,
        }
    };
    let StoreError::Full { used_bytes, capacity_bytes, .. } = full else { panic!("{full}") };
    assert_eq!(capacity_bytes, capacity);
    assert!(used_bytes <= capacity && used_bytes + (64 << 10) > capacity, "{used_bytes}");
    let stored = usage(&backend).stored_bytes;
    assert!(stored * 100 >= capacity * 95, "only {stored} of {capacity} bytes hold pages");
    backend.free(&[held.swap_remove(7)]);
    held.push(store(&backend, &[page(Kind::HalfRandom, 7)]).remove(0).expect("room for one"));
    // Pages of one word need no slab.
    held.push(store(&backend, &[page(Kind::SameFilled, 3)]).remove(0).expect("needs no room"));
    backend.free(&held);
    assert_eq!(usage(&backend).pages, 0);
    assert!(backend.ram_bytes() < 1 << 20, "{} bytes kept by an empty store", backend.ram_bytes());
}

#[test]
fn freed_space_of_one_size_serves_another() {
    let backend = compressed(CodecName::Lz4, 8 << 20);
    let fill = |kind| -> Vec<Location> {
        let pages: Vec<_> = (0..4000).map(|seed| page(kind, seed)).collect();
        store(&backend, &pages).into_iter().filter_map(Result::ok).collect()
    };
    let half = fill(Kind::HalfRandom);
    backend.free(&half);
    let random = fill(Kind::Random);
    assert!(random.len() * PAGE_BYTES > 7 << 20, "{} plain pages", random.len());
    // Every second page goes: now slabs of the other class must come out of compaction.
    let (gone, kept): (Vec<_>, Vec<_>) = random.iter().enumerate().partition(|(index, _)| index % 2 == 0);
    backend.free(&gone.into_iter().map(|(_, location)| *location).collect::<Vec<_>>());
    let half = fill(Kind::HalfRandom);
    assert!(half.len() * 2080 > 3 << 20, "{} pages fit into the freed half", half.len());
    let locations: Vec<Location> = kept.iter().map(|(_, location)| **location).collect();
    for ((seed, _), loaded) in kept.iter().zip(load(&backend, &locations, Priority::Demand)) {
        assert!(loaded.expect("stored") == page(Kind::Random, *seed as u64));
    }
}

#[test]
fn adversarial_frees_leave_little_fragmentation() {
    let backend = compressed(CodecName::Lz4, 1 << 30);
    let mut held: Vec<(Location, u64)> = Vec::new();
    for seed in (0..30_000u64).map(|seed| seed * 6 + 5) {
        held.push((store(&backend, &[page_of(seed)]).remove(0).expect("room"), seed));
    }
    let (kept, gone): (Vec<_>, Vec<_>) = held.iter().enumerate().partition(|(index, _)| index % 10 == 0);
    let mut gone: Vec<Location> = gone.into_iter().map(|(_, (location, _))| *location).collect();
    let mut rng = Rng(3);
    for index in (1..gone.len()).rev() {
        gone.swap(index, rng.index(index + 1));
    }
    for batch in gone.chunks(32) {
        backend.free(batch);
    }
    let bound = |row: &hinterland_backend::BackendUsage| row.stored_bytes * 135 / 100 + (1 << 20);
    let row = usage(&backend);
    println!("by itself: {} KiB of RAM for {} KiB stored", row.ram_bytes >> 10, row.stored_bytes >> 10);
    assert!(row.ram_bytes <= bound(&row) + (1 << 20), "{row:?}");
    while backend.compact(1000) == 1000 {}
    let row = usage(&backend);
    println!("compacted: {} KiB of RAM for {} KiB stored", row.ram_bytes >> 10, row.stored_bytes >> 10);
    assert!(row.ram_bytes <= bound(&row), "{row:?}");
    for (_, (location, seed)) in kept {
        let loaded = load(&backend, &[*location], Priority::Demand).remove(0);
        assert!(loaded.expect("stored") == page_of(*seed));
    }
}

#[test]
fn tables_stay_small() {
    let backend = compressed(CodecName::Lz4, 1 << 30);
    let count = 40_000u64;
    for seed in 0..count {
        store(&backend, &[page(Kind::HalfRandom, seed)]).remove(0).expect("room");
    }
    let row = usage(&backend);
    let slabs = row.stored_bytes * 103 / 100;
    let tables = row.ram_bytes.saturating_sub(slabs);
    assert!(tables <= count * 24, "{} bytes for each page", tables / count);
    assert!(row.ram_bytes * 100 <= row.stored_bytes * 105, "{row:?}");
}
