//! The file backend against the model: every way of I/O, limits, a full disk.

use hinterland_backend::{
    Backend, FileBackend, FileOptions, FileWidth, FullCause, IoMethod, Location, Paths, Priority, StoreError, check,
    open, parse,
};
use hinterland_testkit::contract::{fuzz, fuzz_threads, load, page_of, store, usage};
use hinterland_units::{PAGE_BYTES, PageBytes};
use std::path::Path;
use std::process::Command;

fn file(path: &Path, io: IoMethod, direct: bool, pages: u64) -> FileBackend {
    file_of(FileWidth::default(), path, io, direct, pages)
}

fn file_of(width: FileWidth, path: &Path, io: IoMethod, direct: bool, pages: u64) -> FileBackend {
    let options = FileOptions { path: path.into(), capacity_bytes: pages * PAGE_BYTES as u64, io, direct, width };
    FileBackend::new("file".into(), options).expect("the file can be made")
}

const WAYS: [(IoMethod, bool); 4] =
    [(IoMethod::Auto, true), (IoMethod::Auto, false), (IoMethod::Plain, true), (IoMethod::Plain, false)];

#[test]
fn any_mix_of_pages_comes_back() {
    for (seed, (io, direct)) in WAYS.into_iter().enumerate() {
        let backend = file(&std::env::temp_dir(), io, direct, 400);
        assert!(fuzz(&backend, seed as u64, 800, 3000) > 0, "the limit was never reached");
        assert_eq!(usage(&backend).pages, 0);
    }
}

#[test]
fn threads_share_a_file() {
    for (io, direct) in WAYS {
        fuzz_threads(&file(&std::env::temp_dir(), io, direct, 4000), 7, 4, 200, 600);
    }
}

#[test]
fn any_width_gives_the_same_pages() {
    for (depth, threads) in [(1, 1), (2, 64), (FileWidth::MAX, 2)] {
        let width = FileWidth { depth, threads };
        let backend = file_of(width, &std::env::temp_dir(), IoMethod::Auto, true, 4000);
        fuzz_threads(&backend, 9, 4, 200, 600);
        assert_eq!(usage(&backend).pages, 0, "{width:?}");
    }
}

#[test]
fn a_file_in_shared_memory() {
    fuzz_threads(&file(Path::new("/dev/shm"), IoMethod::Auto, true, 4000), 8, 3, 300, 600);
}

#[test]
fn batches_larger_than_the_ring() {
    let backend = file(&std::env::temp_dir(), IoMethod::Auto, true, 4000);
    let pages: Vec<PageBytes> = (0..1000).map(page_of).collect();
    let locations: Vec<Location> = store(&backend, &pages).into_iter().map(|answer| answer.expect("room")).collect();
    // Every third page in reverse: no two neighbours, so each is an operation of its own.
    let scattered: Vec<usize> = (0..1000).rev().step_by(3).collect();
    let at: Vec<Location> = scattered.iter().map(|index| locations[*index]).collect();
    for priority in [Priority::Demand, Priority::Prefetch] {
        for (index, loaded) in scattered.iter().zip(load(&backend, &at, priority)) {
            assert!(loaded.expect("stored") == pages[*index]);
        }
    }
}

#[test]
fn a_demand_load_answers_its_first_item_first() {
    let backend = file(&std::env::temp_dir(), IoMethod::Auto, true, 1000);
    let pages: Vec<PageBytes> = (0..200).map(page_of).collect();
    let locations: Vec<Location> = store(&backend, &pages).into_iter().map(|answer| answer.expect("room")).collect();
    for wanted in [150, 3, 77] {
        let mut order = vec![locations[wanted]];
        order.extend(locations.iter().copied().filter(|location| *location != locations[wanted]));
        let mut buffers = vec![[0u8; PAGE_BYTES]; order.len()];
        let mut items: Vec<_> = order
            .iter()
            .zip(&mut buffers)
            .map(|(location, into)| hinterland_backend::LoadItem { location: *location, into })
            .collect();
        let mut answered = Vec::new();
        backend.load(&mut items, Priority::Demand, &mut |index, result| {
            assert!(result.is_ok());
            answered.push(index);
        });
        assert_eq!(answered[0], 0);
        assert_eq!(answered.len(), 200);
    }
}

#[test]
fn the_capacity_holds() {
    let backend = file(&std::env::temp_dir(), IoMethod::Auto, true, 100);
    let pages: Vec<PageBytes> = (0..130).map(page_of).collect();
    let answers = store(&backend, &pages);
    assert!(answers[..100].iter().all(Result::is_ok));
    for answer in &answers[100..] {
        let full = StoreError::Full {
            url: "file".into(),
            cause: FullCause::Capacity,
            used_bytes: 409_600,
            capacity_bytes: 409_600,
        };
        assert_eq!(answer, &Err(full));
    }
    let locations: Vec<Location> = answers.into_iter().filter_map(Result::ok).collect();
    backend.free(&locations[..10]);
    assert!(store(&backend, &pages[..10]).iter().all(Result::is_ok));
}

/// Runs `test` in a tmpfs of this size, if one can be mounted.
fn on_a_small_disk(name: &str, size: &str, test: impl FnOnce(&Path)) {
    let directory = std::env::temp_dir().join(format!("hinterland-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a fresh directory");
    let size = format!("size={size}");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&directory).output();
    if mounted.is_ok_and(|output| output.status.success()) {
        test(&directory);
        // By now no process uses the disk: tests that fork live in a program of their own.
        let unmounted = Command::new("umount").arg(&directory).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "umount {}", directory.display());
    } else {
        println!("skipped: mounting a small tmpfs needs root");
    }
    std::fs::remove_dir(&directory).expect("empty");
}

#[test]
fn a_full_disk_is_a_clear_error() {
    on_a_small_disk("full-disk", "1M", |directory| {
        for (io, direct) in WAYS {
            let backend = file(directory, io, direct, 10_000);
            let pages: Vec<PageBytes> = (0..600).map(page_of).collect();
            let answers = store(&backend, &pages);
            let refused = answers.iter().filter(|answer| answer.is_err()).count();
            assert!((300..600).contains(&refused), "{refused} of 600 pages refused by a disk of 256 pages");
            for (page, answer) in pages.iter().zip(answers) {
                match answer {
                    Ok(location) => {
                        let loaded = load(&backend, &[location], Priority::Demand).remove(0);
                        assert!(loaded.expect("stored") == *page);
                    }
                    Err(error) => assert_eq!(error, StoreError::Device { url: "file".into(), errno: libc::ENOSPC }),
                }
            }
        }
    });
}

/// Another program fills the disk: pages that go leave room in the file for others.
#[test]
fn on_a_full_disk_freed_slots_are_used_again() {
    on_a_small_disk("filled-disk", "4M", |directory| {
        for (io, direct) in WAYS {
            let backend = file(directory, io, direct, 16_384);
            let stored = |seeds: std::ops::Range<u64>| -> Vec<(u64, Location)> {
                let pages: Vec<PageBytes> = seeds.clone().map(page_of).collect();
                let answers = pages.chunks(64).flat_map(|pages| store(&backend, pages));
                seeds.zip(answers.map(|answer| answer.expect("room"))).collect()
            };
            // No segment of 512 slots is mostly free.
            let (mut held, gone): (Vec<_>, Vec<_>) = stored(0..900).into_iter().partition(|(seed, _)| seed % 2 == 0);
            backend.free(&gone.into_iter().map(|(_, location)| location).collect::<Vec<_>>());
            let filler = directory.join("filler");
            assert!(std::fs::write(&filler, vec![1; 4 << 20]).is_err(), "it is as large as the disk");
            held.extend(stored(1000..1300));
            for (seed, location) in &held {
                let loaded = load(&backend, &[*location], Priority::Demand).remove(0);
                assert!(loaded.expect("stored") == page_of(*seed), "page {seed}");
            }
            let pages: Vec<PageBytes> = (2000..2200).map(page_of).collect();
            assert!(store(&backend, &pages).iter().any(Result::is_err), "450 slots were free");
            std::fs::remove_file(filler).expect("it is there");
        }
    });
}

/// What is checked for a run is opened by each of its processes, also beside what others have stored by then.
#[test]
fn what_is_stored_already_keeps_no_process_of_the_run_away() {
    on_a_small_disk("shared-disk", "4M", |directory| {
        let url = format!("file:{}?size=3M", directory.display());
        check(&parse(&url).expect("a URL")).expect("room");
        let opened = || open(std::slice::from_ref(&url)).unwrap_or_else(|error| panic!("{error}"));
        let stored = |backend: &Paths, pages: u64| {
            let pages: Vec<PageBytes> = (0..pages).map(page_of).collect();
            assert!(store(backend, &pages).iter().all(Result::is_ok));
        };
        let first = opened();
        stored(&first, 500);
        stored(&opened(), 300);
        let refused = check(&parse(&url).expect("a URL")).expect_err("half of it is in use").to_string();
        assert!(refused.contains("free; choose a smaller size"), "{refused}");
    });
}
