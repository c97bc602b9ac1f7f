//! Paths that open and close under way: nothing is lost, whatever happens to a path in the middle of it.

use crate::telling::{Told, telling};
use hinterland_abi::{PathChange, PlacementName};
use hinterland_backend::{
    Backend, CodecName, Compressed, FileBackend, FileOptions, FileWidth, IoMethod, Location, OpenOptions, Paths,
    Priority, Reference, open_with,
};
use hinterland_testkit::contract::{fuzz_threads, load, page_of, rows, store};
use hinterland_testkit::maintain_until;
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
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
    maintain_until(&*paths, "nothing is left there", || paths.changed_version() == 1);
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

/// All 16 places are taken, so one of the paths that are to go makes place for each that comes.
#[test]
fn where_no_place_is_left_paths_go_before_others_come() {
    let url = |megabytes: u64| format!("reference:{megabytes}M");
    for placement in PlacementName::ALL {
        let given: Vec<String> = (1..=16).map(url).collect();
        let paths = opened(&given.iter().map(String::as_str).collect::<Vec<_>>(), *placement);
        let locations = stored(&*paths, 0..2000);
        let more: Vec<PathChange> = vec![add(&url(17))];
        paths.change(1, more.clone());
        assert!(maintained(&paths, 1).contains("16 paths are open; drop one first"));
        // One for another.
        let mut changes = [more, vec![drop_path(&url(1))]].concat();
        paths.change(2, changes.clone());
        assert_eq!(maintained(&paths, 2), "");
        assert!(rows(&*paths).iter().any(|row| row.url == url(17)) && pages_at(&*paths, "reference:1M") == 0);
        // One that is being emptied when the other one comes.
        changes.push(drop_path(&url(2)));
        paths.change(3, changes.clone());
        paths.maintain();
        changes.push(add(&url(18)));
        paths.change(4, changes.clone());
        assert_eq!(maintained(&paths, 4), "");
        // All for others.
        changes.extend((3..=18).map(|number| drop_path(&url(number))));
        changes.extend((19..=34).map(|number| add(&url(number))));
        paths.change(5, changes);
        assert_eq!(maintained(&paths, 5), "");
        let held: Vec<String> = rows(&*paths).iter().filter(|row| row.pages > 0).map(|row| row.url.clone()).collect();
        assert!(!held.is_empty() && held.iter().all(|held| (19..=34).any(|number| url(number) == *held)), "{held:?}");
        assert_right(&*paths, &locations, 0);
        paths.free(&locations);
        assert!(rows(&*paths).iter().all(|row| row.pages == 0), "{:?}", rows(&*paths));
    }
}

#[test]
fn who_starts_later_opens_what_is_there_now() {
    let changes = (7, vec![add("reference:16M"), drop_path("compressed:16M")]);
    let options = OpenOptions { changes, ..OpenOptions::default() };
    let paths = open_with(&["compressed:16M".into()], &options).expect("they open");
    assert_eq!(rows(&*paths).iter().map(|row| row.url.as_str()).collect::<Vec<_>>(), ["reference:16M"]);
    assert_eq!((maintained(&paths, 7), paths.changed_version()), (String::new(), 7));
}

/// Pages of a batch away from a path.
const BATCH: u64 = 256;

fn plain_memory(pages: u64) -> Arc<dyn Backend> {
    Arc::new(Reference::new("reference".into(), pages * PAGE_BYTES as u64).expect("address space"))
}

/// Waits for what it is asked, as memory does not.
fn file() -> Arc<dyn Backend> {
    let options = FileOptions {
        path: std::env::temp_dir(),
        capacity_bytes: 16 << 20,
        io: IoMethod::Auto,
        direct: true,
        width: FileWidth::default(),
    };
    Arc::new(FileBackend::new("file".into(), options).expect("the file can be made"))
}

fn compressed() -> Arc<dyn Backend> {
    Arc::new(Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("address space"))
}

/// What paths 0 and 1 are asked for, in its order, while three batches of pages move from 0 to 1.
fn order_of_a_switch(backends: [Arc<dyn Backend>; 2]) -> Vec<(usize, Told)> {
    let told: Arc<Mutex<Vec<(usize, Told)>>> = Arc::default();
    let numbered = backends.into_iter().enumerate().map(|(number, inner)| {
        let told = told.clone();
        telling(inner, move |what| told.lock().expect("no panic").push((number, what)))
    });
    let paths = Paths::new(numbered.collect(), PlacementName::Tiers).expect("address space");
    let locations = stored(&paths, 0..3 * BATCH);
    told.lock().expect("no panic").clear();
    paths.change(1, vec![drop_path("0")]);
    assert_eq!(maintained(&paths, 1), "");
    let order = std::mem::take(&mut *told.lock().expect("no panic"));
    assert_eq!(rows(&paths).iter().map(|row| row.pages).collect::<Vec<_>>(), [0, 3 * BATCH]);
    assert_right(&paths, &locations, 0);
    order
}

/// Where both sides wait, and where only one does: then that one is asked, and the other works.
#[test]
fn a_batch_is_read_while_the_one_before_it_is_stored() {
    let load = |inner: &[(usize, Told)]| [&[(0, Told::Loads)], inner, &[(0, Told::Loaded)]].concat();
    let store = |inner: &[(usize, Told)]| [&[(1, Told::Stores)], inner, &[(1, Told::Stored)]].concat();
    let of_batches = |both: Vec<(usize, Told)>| [load(&[]), both.clone(), both, store(&[])].concat();
    assert_eq!(order_of_a_switch([file(), file()]), of_batches(load(&store(&[]))));
    assert_eq!(order_of_a_switch([file(), compressed()]), of_batches(load(&store(&[]))));
    assert_eq!(order_of_a_switch([compressed(), file()]), of_batches(store(&load(&[]))));
}

/// While one batch is stored and the next one read, pages of both are loaded, freed and stored anew.
#[test]
fn pages_on_their_way_are_used_and_freed_as_if_they_stayed() {
    let paths: Arc<OnceLock<Arc<Paths>>> = Arc::default();
    let locations: Arc<OnceLock<Vec<Location>>> = Arc::default();
    let (stores, anew): (_, Arc<Mutex<Vec<Location>>>) = (AtomicUsize::new(0), Arc::default());
    let disturbing = {
        let (paths, locations, anew) = (paths.clone(), locations.clone(), anew.clone());
        move |what| {
            // In the middle of the first step that does both.
            if what != Told::Stores || stores.fetch_add(1, Relaxed) != 0 {
                return;
            }
            let (paths, locations) = (paths.get().expect("they are open"), locations.get().expect("they are stored"));
            for first in [0, BATCH] {
                let at = usize::try_from(first).expect("small");
                assert_right(&**paths, &locations[at..at + 4], first);
                paths.free(&locations[at + 4..at + 8]);
                anew.lock().expect("no panic").extend(stored(&**paths, 5000..5004));
            }
        }
    };
    let backends = vec![plain_memory(1000), telling(plain_memory(1000), disturbing)];
    paths.set(Arc::new(Paths::new(backends, PlacementName::Tiers).expect("address space"))).ok().expect("once");
    let paths = paths.get().expect("set above");
    locations.set(stored(&**paths, 0..3 * BATCH)).expect("once");
    let locations = locations.get().expect("set above");
    paths.change(1, vec![drop_path("0")]);
    assert_eq!(maintained(paths, 1), "");
    let anew = std::mem::take(&mut *anew.lock().expect("no panic"));
    assert_eq!(anew.len(), 8);
    assert_eq!(rows(&**paths).iter().map(|row| row.pages).collect::<Vec<_>>(), [0, 3 * BATCH]);
    let mut left = anew.clone();
    for (at, location) in locations.iter().enumerate() {
        if !(4..8).contains(&(at % 256)) || at >= 512 {
            assert_right(&**paths, &[*location], at as u64);
            left.push(*location);
        }
    }
    anew.chunks(4).for_each(|anew| assert_right(&**paths, anew, 5000));
    paths.free(&left);
    assert!(rows(&**paths).iter().all(|row| row.pages == 0), "{:?}", rows(&**paths));
}

/// A page that is loaded while its move ends stays where it is, and goes with a later batch.
#[test]
fn a_page_that_is_being_loaded_leaves_later() {
    let paths: Arc<OnceLock<Arc<Paths>>> = Arc::default();
    let armed = Arc::new(AtomicUsize::new(0));
    let stepping = {
        let (paths, armed) = (paths.clone(), armed.clone());
        move |what| {
            if what == Told::Loads && armed.swap(0, Relaxed) == 1 {
                let paths = paths.get().expect("they are open");
                paths.maintain();
                assert_eq!(rows(&**paths)[1].pages, 2 * BATCH - 1, "all of two batches but the page that is loaded");
            }
        }
    };
    let backends = vec![telling(plain_memory(1000), stepping), plain_memory(1000)];
    paths.set(Arc::new(Paths::new(backends, PlacementName::Tiers).expect("address space"))).ok().expect("once");
    let paths = paths.get().expect("set above");
    let locations = stored(&**paths, 0..3 * BATCH);
    paths.change(1, vec![drop_path("0")]);
    // The second batch is read now.
    paths.maintain();
    assert_eq!(rows(&**paths)[1].pages, BATCH);
    armed.store(1, Relaxed);
    assert_right(&**paths, &locations[265..266], 265);
    assert_eq!(armed.load(Relaxed), 0);
    assert_eq!(maintained(paths, 1), "");
    assert_eq!(rows(&**paths).iter().map(|row| row.pages).collect::<Vec<_>>(), [0, 3 * BATCH]);
    assert_right(&**paths, &locations, 0);
}

/// Room for a batch and a half: the rest stays, is counted and can be used, and leaves when there is room, oldest first.
#[test]
fn what_was_read_stays_where_the_other_side_is_full() {
    let paths = opened(&["reference:16M", "reference:1536K"], PlacementName::Tiers);
    let locations = stored(&*paths, 0..900);
    paths.change(1, vec![drop_path("reference:16M")]);
    let obstacle = maintained(&paths, 1);
    assert!(obstacle.contains("516 pages on reference:16M have no other place: reference:1536K is full"), "{obstacle}");
    assert_eq!(pages_at(&*paths, "reference:1536K"), 384);
    assert_right(&*paths, &locations, 0);
    // Nothing is on its way, so whatever is freed is gone.
    paths.free(&locations[300..]);
    assert_eq!((pages_at(&*paths, "reference:16M"), pages_at(&*paths, "reference:1536K")), (0, 300));
    maintain_until(&*paths, "the path is closed", || paths.changed_version() == 1);
    assert_right(&*paths, &locations[..300], 0);
}

/// What the room for two batches takes counts while paths change, and no longer.
#[test]
fn room_for_a_switch_counts_as_ram() {
    let paths = opened(&["reference:16M", "reference:17M"], PlacementName::Tiers);
    let _locations = stored(&*paths, 0..700);
    let (before, room) = (paths.ram_bytes(), 2 * BATCH * PAGE_BYTES as u64);
    paths.change(1, vec![drop_path("reference:16M")]);
    paths.maintain();
    assert!(paths.ram_bytes() >= before + room, "{} after {before}", paths.ram_bytes());
    assert_eq!(maintained(&paths, 1), "");
    assert!(paths.ram_bytes() < before + room / 2, "{} after {before}", paths.ram_bytes());
}

/// Another path is to go, too, while a batch of the first is read.
#[test]
fn two_paths_are_left_at_once() {
    let paths = opened(&["reference:3M", "reference:4M", "reference:17M"], PlacementName::Tiers);
    let locations = stored(&*paths, 0..1500);
    let mut changes = vec![drop_path("reference:4M")];
    paths.change(1, changes.clone());
    paths.maintain();
    changes.push(drop_path("reference:3M"));
    paths.change(2, changes);
    assert_eq!(maintained(&paths, 2), "");
    assert_eq!((pages_at(&*paths, "reference:17M"), pages_at(&*paths, "")), (1500, 1500));
    assert_right(&*paths, &locations, 0);
}

/// Where the user has named no path, each process of a run has filled in other sizes.
#[test]
fn a_default_path_is_dropped_by_the_name_that_another_process_has_for_it() {
    let changes = vec![add("reference:16M"), drop_path("compressed:1M?codec=zstd")];
    let is_compressed =
        |row: &hinterland_backend::BackendUsage| row.url.starts_with("compressed") && row.capacity_bytes > 0;
    let paths = opened(&[], PlacementName::Tiers);
    let locations = stored(&*paths, 0..64);
    assert!(rows(&*paths).iter().any(is_compressed));
    paths.change(1, changes.clone());
    assert_eq!(maintained(&paths, 1), "");
    assert!(!rows(&*paths).iter().any(is_compressed), "{:?}", rows(&*paths));
    assert_right(&*paths, &locations, 0);
    // A process that starts later never opens it.
    let options = OpenOptions { changes: (1, changes.clone()), ..OpenOptions::default() };
    let later = open_with(&[], &options).unwrap_or_else(|error| panic!("{error}"));
    assert!(!rows(&*later).iter().any(is_compressed), "{:?}", rows(&*later));
    // A name that the user gave is taken at its word.
    let named = opened(&["compressed:2M", "reference:16M"], PlacementName::Tiers);
    named.change(1, vec![drop_path("compressed:1M")]);
    assert_eq!(maintained(&named, 1), "");
    assert!(rows(&*named).iter().any(is_compressed));
}
