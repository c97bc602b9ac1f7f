//! Pages of lower tiers that are wanted again go up.

use hinterland_abi::PlacementName;
use hinterland_backend::samples::{Kind, page};
use hinterland_backend::{Backend, Location, Paths, Priority, Reference, open_with};
use hinterland_testkit::contract::{load, page_of, rows, store};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn tiers(pages: &[u64]) -> Paths {
    let tier = |pages: &u64| -> Arc<dyn Backend> {
        Arc::new(Reference::new("reference".into(), pages * PAGE_BYTES as u64).expect("address space"))
    };
    Paths::new(pages.iter().map(tier).collect(), PlacementName::Tiers).expect("address space")
}

/// Stores pages with these seeds.
fn stored(paths: &Paths, seeds: std::ops::Range<u64>) -> Vec<(u64, Location)> {
    let seeds: Vec<u64> = seeds.collect();
    let pages = |seeds: &[u64]| seeds.iter().map(|seed| page_of(*seed)).collect::<Vec<PageBytes>>();
    let answers = seeds.chunks(64).flat_map(|seeds| store(paths, &pages(seeds))).map(|answer| answer.expect("room"));
    seeds.iter().copied().zip(answers.collect::<Vec<_>>()).collect()
}

/// Loads pages one by one, as a program that waits for them, and lets them leave unchanged.
fn visit(paths: &Paths, pages: &[(u64, Location)]) {
    for chunk in pages.chunks(16) {
        let bytes: Vec<PageBytes> = chunk
            .iter()
            .map(|(seed, location)| {
                let page = load(paths, &[*location], Priority::Demand).remove(0).expect("stored");
                assert!(page == page_of(*seed), "page {seed}");
                page
            })
            .collect();
        let leaving = chunk.iter().zip(&bytes).map(|((_, location), bytes)| (*location, bytes));
        paths.left_clean(&leaving.collect::<Vec<_>>());
    }
}

fn pages(paths: &Paths) -> Vec<u64> {
    rows(paths).iter().map(|row| row.pages).collect()
}

fn promoted(paths: &Paths) -> u64 {
    rows(paths)[0].promoted_pages
}

#[test]
fn a_page_that_leaves_unchanged_goes_to_the_first_tier_with_room() {
    let paths = tiers(&[300, 300, 900]);
    let mut held = stored(&paths, 0..1000);
    assert_eq!(pages(&paths).iter().sum::<u64>(), 1000);
    let young = held.split_off(900);
    let above = |paths: &Paths| rows(paths)[0].demoted_pages;
    paths.free(&young.iter().map(|(_, location)| *location).collect::<Vec<_>>());
    let (before, demoted) = (pages(&paths), above(&paths));
    assert!(demoted > 0, "the first tier was full");
    visit(&paths, &held[..50]);
    assert_eq!(promoted(&paths), 50);
    assert_eq!((pages(&paths)[0], pages(&paths)[2], above(&paths)), (before[0] + 50, before[2] - 50, demoted));
    // What is there stays there.
    visit(&paths, &held[..50]);
    assert_eq!(promoted(&paths), 50);
    // A load that goes on keeps its page where it is; the next time it goes up.
    visit(&paths, &held[50..60]);
    assert_eq!(promoted(&paths), 60);
    paths.free(&held.iter().map(|(_, location)| *location).collect::<Vec<_>>());
    assert_eq!(pages(&paths), [0, 0, 0]);
}

#[test]
fn pages_that_the_first_tier_does_not_take_are_no_older_for_it() {
    let urls = ["compressed:64M", "file:/tmp?size=1200K", "file:/tmp?size=4M"].map(str::to_owned);
    let paths = open_with(&urls, &hinterland_backend::OpenOptions::default()).expect("files");
    paths.set_ram_scarce(true);
    let random = |seeds: std::ops::Range<u64>| seeds.map(|seed| page(Kind::Random, seed)).collect::<Vec<PageBytes>>();
    let bytes = random(0..300);
    let locations: Vec<Location> = store(&*paths, &bytes).into_iter().map(|answer| answer.expect("room")).collect();
    assert_eq!(pages(&paths), [0, 300, 0], "they hardly shrink");
    // The oldest are in use.
    for (location, bytes) in locations.iter().zip(&bytes).take(50) {
        load(&*paths, &[*location], Priority::Demand).remove(0).expect("stored");
        paths.left_clean(&[(*location, bytes)]);
    }
    assert_eq!(pages(&paths), [0, 300, 0]);
    store(&*paths, &random(1000..1100)).into_iter().for_each(|answer| _ = answer.expect("room in RAM"));
    paths.demote(100);
    assert_eq!(pages(&paths), [0, 300, 100]);
    load(&*paths, &locations[..50], Priority::Prefetch);
    assert_eq!(rows(&*paths)[2].bytes_out, 0, "pages that are in use went to the last tier");
}

#[test]
fn pages_that_no_tier_above_takes_do_not_keep_others_below() {
    let urls = ["compressed:64M", "file:/tmp?size=4M"].map(str::to_owned);
    let paths = open_with(&urls, &hinterland_backend::OpenOptions::default()).expect("a file");
    let kind = |seed: u64| if seed.is_multiple_of(4) { Kind::Text } else { Kind::Random };
    let bytes: Vec<PageBytes> = (0..400).map(|seed| page(kind(seed), seed)).collect();
    let locations: Vec<Location> = store(&*paths, &bytes).into_iter().map(|answer| answer.expect("room")).collect();
    paths.demote(400);
    assert_eq!(pages(&paths), [0, 400]);
    paths.set_ram_scarce(true);
    let visit_all = || {
        for (location, bytes) in locations.iter().zip(&bytes) {
            assert!(load(&*paths, &[*location], Priority::Demand).remove(0).expect("stored") == *bytes);
            paths.left_clean(&[(*location, bytes)]);
        }
    };
    for round in 0..4 {
        visit_all();
        assert_eq!(pages(&paths), [100, 300], "round {round}: those that shrink are above");
        visit_all();
        paths.demote(100);
        assert_eq!(pages(&paths), [0, 400]);
    }
}

#[test]
fn for_pages_that_are_used_again_room_is_made_and_for_others_hardly() {
    let paths = tiers(&[512, 4096]);
    let held = stored(&paths, 0..4096);
    // The oldest, which lie below, are used over and over.
    for _ in 0..12 {
        visit(&paths, &held[..256]);
    }
    let (hot, below) = (promoted(&paths), rows(&paths)[1].bytes_out);
    assert!((256..600).contains(&hot), "{hot} promoted");
    visit(&paths, &held[..256]);
    assert_eq!(rows(&paths)[1].bytes_out, below, "all of them are above");
    // Each of many is used once: what is promoted goes down again unused.
    for _ in 0..4 {
        visit(&paths, &held[256..4096]);
    }
    let (scanned, again) = (promoted(&paths), 3840);
    visit(&paths, &held[256..4096]);
    let more = promoted(&paths) - scanned;
    // As many as stay until they are used, an eighth of these, are no loss.
    assert!(more < again / 3, "{more} of {again} pages were promoted");
}

#[test]
fn copies_in_the_first_tier_are_given_up_while_lower_ones_are_loaded_from() {
    let options = hinterland_backend::OpenOptions::default();
    let urls = ["file:/tmp?size=2M".to_owned(), "file:/tmp?size=16M".to_owned()];
    let paths = open_with(&urls, &options).expect("files");
    let held = stored(&paths, 0..2048);
    let (old, young) = (held[0].1, held[2047].1);
    assert!(paths.copies_take_room() && !paths.copy_takes_room(young), "nothing was loaded");
    visit(&paths, &held[2000..]);
    assert!(!paths.copy_takes_room(young));
    held[..40].iter().for_each(|(_, location)| drop(load(&*paths, &[*location], Priority::Demand)));
    assert!(paths.copy_takes_room(young) && !paths.copy_takes_room(old));
    let alone = open_with(&urls[1..], &options).expect("a file");
    assert!(!alone.copies_take_room());
}

#[test]
fn while_nothing_is_loaded_the_youngest_pages_below_are_promoted_into_room_that_there_is() {
    let paths = tiers(&[1024, 4096]);
    let mut held = stored(&paths, 0..3000);
    let young = held.split_off(2400);
    let locations = |held: &[(u64, Location)]| held.iter().map(|(_, location)| *location).collect::<Vec<_>>();
    assert!(!paths.needs_maintenance());
    // Pages were loaded from below, and the first tier is full.
    held[..600].iter().for_each(|(_, location)| drop(load(&paths, &[*location], Priority::Demand)));
    assert!(paths.needs_maintenance());
    while let Some(pause) = paths.maintain() {
        std::thread::sleep(pause);
    }
    assert_eq!(promoted(&paths), 0);
    paths.free(&locations(&young));
    held[..600].iter().for_each(|(_, location)| drop(load(&paths, &[*location], Priority::Demand)));
    // Loads come in between.
    for (_, location) in &held[..20] {
        assert!(paths.maintain().is_some());
        drop(load(&paths, &[*location], Priority::Demand));
    }
    assert_eq!(promoted(&paths), 0, "the program waits for pages");
    let mut steps = 0;
    while let Some(pause) = paths.maintain() {
        std::thread::sleep(pause);
        steps += 1;
        assert!(steps < 1000, "{:?}", pages(&paths));
    }
    let (held_above, promoted) = (pages(&paths)[0], promoted(&paths));
    assert!(promoted >= 256 && held_above <= 1024 / 8 * 7 + 32, "{promoted} promoted, {held_above} above");
    assert!(!paths.needs_maintenance());
    // Those that were demoted last.
    let below = rows(&paths)[1].bytes_out;
    let last = &held[held.len() - 40..];
    last.iter().for_each(|(_, location)| drop(load(&paths, &[*location], Priority::Demand)));
    assert_eq!(rows(&paths)[1].bytes_out, below);
    for ((seed, _), page) in held.iter().zip(load(&paths, &locations(&held), Priority::Prefetch)) {
        assert!(page.expect("stored") == page_of(*seed), "page {seed}");
    }
    paths.free(&locations(&held));
    assert_eq!(pages(&paths), [0, 0]);
}

#[test]
fn promotion_beside_demotion_loads_and_frees_loses_nothing() {
    const THREADS: u64 = 3;
    let (paths, over) = (tiers(&[300, 500, 4000]), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let demoter = scope.spawn(|| {
            while !over.load(Relaxed) {
                paths.demote(16);
                paths.maintain();
                std::thread::yield_now();
            }
        });
        let owner = |thread: u64| {
            let paths = &paths;
            move || {
                let mut held = stored(paths, thread * 100_000..thread * 100_000 + 900);
                for round in 0..30 {
                    let at = (round * 37) % 600;
                    visit(paths, &held[at..at + 200]);
                    let gone: Vec<Location> = held.drain(at..at + 50).map(|(_, location)| location).collect();
                    paths.free(&gone);
                    let seed = thread * 100_000 + 1000 * (round as u64 + 1);
                    held.extend(stored(paths, seed..seed + 50));
                }
                visit(paths, &held);
                paths.free(&held.iter().map(|(_, location)| *location).collect::<Vec<_>>());
            }
        };
        let owners: Vec<_> = (0..THREADS).map(|thread| scope.spawn(owner(thread))).collect();
        owners.into_iter().for_each(|owner| owner.join().expect("no panic"));
        over.store(true, Relaxed);
        demoter.join().expect("no panic");
    });
    assert_eq!(pages(&paths), [0, 0, 0]);
    assert!(promoted(&paths) > 0);
}
