//! Several paths against the model: demotion under concurrency, shrinking, batches over all of them at once.

use crate::telling::{Told, telling};
use hinterland_abi::PlacementName;
use hinterland_backend::samples::{Kind, page};
use hinterland_backend::{
    Backend, CodecName, Compressed, FileBackend, FileOptions, FileWidth, IoMethod, Location, OpenOptions, Paths,
    Priority, Reference, StoreError, open_with,
};
use hinterland_testkit::contract::{fuzz, fuzz_threads, load, page_of, rows, store};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
        width: FileWidth::default(),
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
    let tiers =
        Paths::new(vec![reference(300), reference(200), reference(200)], PlacementName::Tiers).expect("address space");
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
        let tiers = Paths::new(vec![compressed(1 << 20), reference(300), file(400)], PlacementName::Tiers)
            .expect("address space");
        assert!(fuzz(&tiers, seed, 1500, 4000) > 0, "the limit was never reached");
        assert_empty(&tiers);
    }
}

#[test]
fn demotion_disturbs_nobody() {
    for seed in 0..3 {
        let tiers = Paths::new(vec![compressed(2 << 20), file(600), reference(100_000)], PlacementName::Tiers)
            .expect("address space");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let demoter = scope.spawn(|| {
                let mut demoted = 0;
                while !over.load(Relaxed) {
                    demoted += tiers.demote(20);
                    tiers.set_ram_scarce(demoted % 3 == 0);
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
    let tiers = Paths::new(vec![compressed(1 << 30), file(100_000)], PlacementName::Tiers).expect("address space");
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

fn opened(urls: &[&str], placement: PlacementName) -> Arc<dyn Backend> {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    let options = OpenOptions { placement, insecure_loopback: true, ..OpenOptions::default() };
    open_with(&urls, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn stored_over(paths: &dyn Backend, count: u64) -> Vec<Location> {
    let pages: Vec<PageBytes> = (0..count).map(page_of).collect();
    let stored = pages.chunks(64).flat_map(|pages| store(paths, pages));
    stored.map(|answer| answer.expect("room")).collect()
}

#[test]
fn any_mix_of_pages_comes_back_from_paths_of_all_kinds_in_any_placement() {
    let urls = ["compressed:1M", "reference:1M?link=20us:4Gb/s", "file:/tmp?size=2M", "reference:300K?delay_us=10"];
    for placement in PlacementName::ALL {
        for seed in 0..2 {
            let paths = opened(&urls, *placement);
            assert!(fuzz(&*paths, seed, 1200, 3000) > 0, "the limit was never reached");
            assert_empty(&*paths);
            fuzz_threads(&*paths, seed, 4, 200, 150);
            assert_empty(&*paths);
        }
    }
}

#[test]
fn all_paths_of_a_batch_are_asked_before_one_is_waited_for() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = |number| {
        // The first costs RAM and waits for nothing: it works while the others wait.
        let inner = if number == 0 { compressed(1 << 20) } else { file(100) };
        let told = told.clone();
        telling(inner, move |what| told.lock().expect("no panic").push((number, what)))
    };
    let paths = Paths::new((0..3).map(telling).collect(), PlacementName::Spread).expect("address space");
    let locations = stored_over(&paths, 60);
    let at_once = |asked, answered| -> Vec<(usize, Told)> {
        [1, 2, 0].map(|n| (n, asked)).into_iter().chain([0, 2, 1].map(|n| (n, answered))).collect()
    };
    assert_eq!(std::mem::take(&mut *told.lock().expect("no panic")), at_once(Told::Stores, Told::Stored));
    for (seed, page) in (0..).zip(load(&paths, &locations, Priority::Prefetch)) {
        assert!(page.expect("stored") == page_of(seed));
    }
    assert_eq!(std::mem::take(&mut *told.lock().expect("no panic")), at_once(Told::Loads, Told::Loaded));
}

/// Of two paths of plain memory the faster gets the pages although it is named last, and when it is full its oldest go to the other.
#[test]
fn auto_prefers_the_path_where_time_times_memory_is_least() {
    let paths = opened(&["reference:64M?link=3ms:10Gb/s", "reference:1M?link=20us:10Gb/s"], PlacementName::Auto);
    let mut locations = stored_over(&*paths, 128);
    let held = |paths: &dyn Backend| rows(paths).iter().map(|row| row.pages).collect::<Vec<u64>>();
    // Nothing is known: the first, but for a few pages that show what the other is.
    let begun = held(&*paths);
    assert!((1..=8).contains(&begun[1]), "{begun:?}");
    locations.iter().for_each(|location| drop(load(&*paths, &[*location], Priority::Demand)));
    std::thread::sleep(Duration::from_millis(1100));
    locations.extend(stored_over(&*paths, 200));
    let known = held(&*paths);
    assert_eq!(known[0], begun[0], "{known:?}");
    locations.extend(stored_over(&*paths, 128));
    let full = held(&*paths);
    assert_eq!(full.iter().sum::<u64>(), 456, "{full:?}");
    assert!(full[1] > 100 && full[0] > begun[0] + 100, "{full:?}");
    for (at, page) in load(&*paths, &locations, Priority::Prefetch).into_iter().enumerate() {
        let seed = if at < 128 {
            at
        } else if at < 328 {
            at - 128
        } else {
            at - 328
        };
        assert!(page.expect("stored") == page_of(seed as u64), "{at}");
    }
}

#[test]
fn what_one_path_refuses_goes_to_another_and_the_caller_learns_when_none_has_room() {
    let urls = ["reference:256K", "reference:16M?fault=store:0.3", "reference:16M"];
    let paths = opened(&urls, PlacementName::Spread);
    let locations = stored_over(&*paths, 1024);
    let held: Vec<u64> = rows(&*paths).iter().map(|row| row.pages).collect();
    assert_eq!(held.iter().sum::<u64>(), 1024, "{held:?}");
    // How many of them go where depends on how fast each path was.
    assert!(held[0] <= 64 && held[1] > 0 && held[2] > 0, "{held:?}");
    for (seed, page) in (0..).zip(load(&*paths, &locations, Priority::Prefetch)) {
        assert!(page.expect("stored") == page_of(seed));
    }
    let full = opened(&["reference:64K", "reference:64K"], PlacementName::Spread);
    let pages: Vec<PageBytes> = (0..40).map(page_of).collect();
    let (stored, refused): (Vec<_>, Vec<_>) = store(&*full, &pages).into_iter().partition(Result::is_ok);
    assert_eq!((stored.len(), refused.len()), (32, 8));
    assert!(refused.iter().all(|answer| matches!(answer, Err(StoreError::Full { .. }))));
}

/// Random pages and short ones in turn.
fn mixed(count: u64) -> Vec<PageBytes> {
    let kind = |seed: u64| if seed.is_multiple_of(2) { Kind::Random } else { Kind::Text };
    (0..count).map(|seed| page(kind(seed), seed)).collect()
}

#[test]
fn while_ram_is_scarce_pages_that_hardly_shrink_go_below() {
    let tiers = Paths::new(vec![compressed(1 << 30), file(30)], PlacementName::Tiers).expect("address space");
    let pages = mixed(40);
    let held = || rows(&tiers).iter().map(|row| row.pages).collect::<Vec<u64>>();
    let mut all = store(&tiers, &pages);
    assert_eq!(held(), [40, 0]);
    tiers.set_ram_scarce(true);
    all.extend(store(&tiers, &pages));
    assert_eq!(held(), [60, 20]);
    // Below there is room for ten: the others are kept in RAM all the same.
    all.extend(store(&tiers, &pages));
    assert_eq!(held(), [90, 30]);
    tiers.set_ram_scarce(false);
    all.extend(store(&tiers, &pages));
    assert_eq!(held(), [130, 30]);
    let locations: Vec<Location> = all.into_iter().map(|answer| answer.expect("room")).collect();
    let loaded = load(&tiers, &locations, Priority::Demand);
    assert!(loaded.iter().zip(pages.iter().cycle()).all(|(loaded, page)| loaded.as_ref() == Ok(page)));
    tiers.free(&locations);
    assert_empty(&tiers);
}

/// A modelled link, a delay or faults in front of compressed RAM change nothing of that.
#[test]
fn a_decorated_path_refuses_pages_that_hardly_shrink_too() {
    for decoration in ["delay_us=1", "throttle=1G", "link=1us:1Gb/s", "fault=store@1000"] {
        let urls = [format!("compressed:64M?{decoration}"), "file:/tmp?size=4M".to_owned()];
        let tiers = open_with(&urls, &OpenOptions::default()).expect("paths");
        tiers.set_ram_scarce(true);
        assert!(store(&*tiers, &mixed(40)).iter().all(Result::is_ok));
        assert_eq!(rows(&*tiers).iter().map(|row| row.pages).collect::<Vec<u64>>(), [20, 20], "{decoration}");
    }
}

#[test]
fn where_nothing_is_below_but_ram_all_pages_stay() {
    for placement in [PlacementName::Tiers, PlacementName::Auto, PlacementName::Spread] {
        let tiers = Paths::new(vec![compressed(1 << 30), compressed(1 << 30)], placement).expect("address space");
        tiers.set_ram_scarce(true);
        let locations: Vec<Location> =
            store(&tiers, &mixed(100)).into_iter().map(|answer| answer.expect("room")).collect();
        tiers.free(&locations);
        assert_empty(&tiers);
    }
}

/// First or below: a tier that fails is asked again after a second, and the others take the pages meanwhile.
#[test]
fn a_tier_that_fails_is_not_asked_for_every_batch() {
    for failing_at in [0, 1] {
        let always = ["reference:64M?fault=store:1".to_owned()];
        let failing: Arc<dyn Backend> = open_with(&always, &OpenOptions::default()).expect("a path");
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let failing = telling(failing, move |what| _ = count.fetch_add(u64::from(what == Told::Stores), Relaxed));
        let mut backends = vec![reference(300), reference(10_000)];
        backends.insert(failing_at, failing);
        let paths = Paths::new(backends, PlacementName::Tiers).expect("address space");
        let begun = Instant::now();
        let mut locations: Vec<Location> = Vec::new();
        for batch in 0..100 {
            let pages: Vec<PageBytes> = (0..20).map(|page| page_of(batch * 20 + page)).collect();
            locations.extend(store(&paths, &pages).into_iter().map(|answer| answer.expect("room elsewhere")));
        }
        let most = 1 + begun.elapsed().as_secs();
        assert!((1..=most).contains(&asked.load(Relaxed)), "asked {} times, not {most}", asked.load(Relaxed));
        for (seed, loaded) in load(&paths, &locations, Priority::Demand).into_iter().enumerate() {
            assert!(loaded.expect("stored") == page_of(seed as u64));
        }
        paths.free(&locations);
        assert_empty(&paths);
    }
}
