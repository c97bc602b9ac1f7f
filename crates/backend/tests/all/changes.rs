//! Paths that open and close under way: nothing is lost, whatever happens to a path in the middle of it.

use hinterland_abi::{PathChange, PlacementName};
use hinterland_backend::{Backend, Location, OpenOptions, Paths, Priority, open_with};
use hinterland_testkit::contract::{fuzz_threads, load, page_of, rows, store};
use hinterland_units::PageBytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn opened(urls: &[&str], placement: PlacementName) -> Arc<Paths> {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    let options = OpenOptions { placement, ..OpenOptions::default() };
    open_with(&urls, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn add(url: &str) -> PathChange {
    PathChange::Add(url.into())
}

fn drop_path(url: &str) -> PathChange {
    PathChange::Drop(url.into())
}

/// Takes steps until the changes of this version are made, or until something is in the way: that.
fn maintained(paths: &Paths, version: u64) -> String {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        assert!(paths.needs_maintenance());
        let pause = paths.maintain();
        if paths.changed_version() == version {
            // What is left are pages to promote, if threads have loaded some meanwhile.
            assert_eq!(paths.obstacle(), "");
            return String::new();
        }
        let obstacle = paths.obstacle();
        if !obstacle.is_empty() {
            return obstacle;
        }
        std::thread::sleep(pause.expect("it is not done").min(Duration::from_millis(1)));
    }
    panic!("after a minute: {:?}", rows(paths));
}

fn stored(paths: &dyn Backend, seeds: std::ops::Range<u64>) -> Vec<Location> {
    let pages: Vec<PageBytes> = seeds.map(page_of).collect();
    pages.chunks(64).flat_map(|pages| store(paths, pages)).map(|answer| answer.expect("room")).collect()
}

fn assert_right(paths: &dyn Backend, locations: &[Location], first: u64) {
    for (seed, page) in (first..).zip(load(paths, locations, Priority::Prefetch)) {
        assert!(page.unwrap_or_else(|error| panic!("{seed}: {error}")) == page_of(seed), "{seed}");
    }
}

fn pages_at(paths: &dyn Backend, url: &str) -> u64 {
    rows(paths).iter().filter(|row| row.url.starts_with(url)).map(|row| row.pages).sum()
}

#[test]
fn paths_come_and_go_while_threads_use_them() {
    for placement in PlacementName::ALL {
        let paths = opened(&["compressed:2M", "reference:64M"], *placement);
        let kept = stored(&*paths, 0..700);
        std::thread::scope(|scope| {
            let users = scope.spawn(|| fuzz_threads(&*paths, 3, 4, 500, 300));
            let mut changes = vec![add("file:/tmp?size=64M"), drop_path("reference:64M")];
            paths.change(1, changes.clone());
            assert_eq!(maintained(&paths, 1), "");
            assert_eq!(pages_at(&*paths, "reference"), 0, "{placement}");
            // And back, over another one.
            changes.extend([add("reference:64M"), drop_path("file:/tmp?size=64M")]);
            paths.change(2, changes);
            assert_eq!(maintained(&paths, 2), "");
            assert_eq!(pages_at(&*paths, "file"), 0, "{placement}");
            users.join().expect("no wrong byte");
        });
        assert_right(&*paths, &kept, 0);
        paths.free(&kept);
        assert!(rows(&*paths).iter().all(|row| row.pages == 0), "{:?}", rows(&*paths));
    }
}

#[test]
fn what_finds_no_room_stays_until_there_is_some() {
    let paths = opened(&["reference:1M", "file:/tmp?size=4M"], PlacementName::Spread);
    let locations = stored(&*paths, 0..500);
    let before = pages_at(&*paths, "file");
    paths.change(1, vec![drop_path("file:/tmp?size=4M")]);
    let obstacle = maintained(&paths, 1);
    assert!(obstacle.contains("pages on file:/tmp?size=4M have no other place: reference:1M is full"), "{obstacle}");
    assert!(pages_at(&*paths, "file") > before / 2);
    assert_right(&*paths, &locations, 0);
    // What is evicted meanwhile has no other place either.
    let locations = [locations, stored(&*paths, 500..600)].concat();
    paths.change(2, vec![drop_path("file:/tmp?size=4M"), add("compressed:16M")]);
    assert_eq!(maintained(&paths, 2), "");
    assert_eq!(pages_at(&*paths, "file"), 0);
    assert_right(&*paths, &locations, 0);
}

#[test]
fn a_path_that_gives_nothing_back_keeps_its_pages_and_the_others_theirs() {
    let dying = "reference:16M?fault=load:1";
    let paths = opened(&["compressed:16M", dying], PlacementName::Spread);
    let locations = stored(&*paths, 0..200);
    let lost = pages_at(&*paths, "reference");
    paths.change(1, vec![drop_path(dying)]);
    let obstacle = maintained(&paths, 1);
    assert!(obstacle.contains(&format!("{lost} pages cannot be moved from {dying}")), "{obstacle}");
    assert_eq!(pages_at(&*paths, "reference"), lost);
    // Nothing more goes there, and what does not come back is freed all the same.
    let more = stored(&*paths, 1000..1200);
    assert_eq!(pages_at(&*paths, "reference"), lost);
    assert_right(&*paths, &more, 1000);
    paths.free(&locations);
    assert_eq!(maintained(&paths, 1), "");
}

/// Half of all loads fail, and half of all stores: in the end every page is elsewhere.
#[test]
fn a_path_that_fails_now_and_then_is_left_all_the_same() {
    let failing = "reference:16M?fault=load:0.5,store:0.5&seed=3";
    let paths = opened(&[failing, "compressed:16M"], PlacementName::Spread);
    let pages: Vec<PageBytes> = (0..600).map(page_of).collect();
    let locations: Vec<Location> =
        pages.chunks(20).flat_map(|pages| store(&*paths, pages)).map(|answer| answer.expect("room")).collect();
    paths.change(1, vec![drop_path(failing), add("file:/tmp?size=16M&fault=store:0.3")]);
    let begun = Instant::now();
    while paths.changed_version() != 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", paths.obstacle());
        paths.maintain();
    }
    assert_right(&*paths, &locations, 0);
}

#[test]
fn a_path_that_cannot_be_opened_keeps_those_that_were_to_go() {
    let paths = opened(&["compressed:16M", "reference:16M"], PlacementName::Spread);
    let locations = stored(&*paths, 0..100);
    paths.change(1, vec![add("file:/nowhere/at/all"), drop_path("reference:16M")]);
    let obstacle = maintained(&paths, 1);
    assert!(obstacle.contains("/nowhere/at/all cannot be used"), "{obstacle}");
    let before = pages_at(&*paths, "reference");
    let more = stored(&*paths, 100..200);
    assert!(pages_at(&*paths, "reference") > before, "it still takes pages");
    paths.change(2, vec![drop_path("compressed:16M"), drop_path("reference:16M")]);
    assert!(maintained(&paths, 2).contains("the last path to far memory cannot be dropped"));
    paths.change(3, vec![drop_path("reference:16M")]);
    assert_eq!(maintained(&paths, 3), "");
    assert_right(&*paths, &locations, 0);
    assert_right(&*paths, &more, 100);
}

#[test]
fn who_starts_later_opens_what_is_there_now() {
    let changes = (7, vec![add("reference:16M"), drop_path("compressed:16M")]);
    let options = OpenOptions { changes, ..OpenOptions::default() };
    let paths = open_with(&["compressed:16M".into()], &options).expect("they open");
    assert_eq!(rows(&*paths).iter().map(|row| row.url.as_str()).collect::<Vec<_>>(), ["reference:16M"]);
    assert_eq!((maintained(&paths, 7), paths.changed_version()), (String::new(), 7));
}
