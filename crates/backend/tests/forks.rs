//! Forks: parent and child go on with what both had, and neither disturbs the other.
//!
//! A program of their own, because a child holds every descriptor that other tests of the same program have open.

use hinterland_abi::PathChange;
use hinterland_backend::{Backend, CodecName, Compressed, ForkSide, Location, Paths, Priority, Recompression, open};
use hinterland_testkit::contract::{fork_round, load, page_of, rows, store, usage, with_fork};
use hinterland_testkit::maintain_until;
use std::sync::Arc;
use std::time::Duration;

fn opened(urls: &[&str]) -> Arc<dyn Backend> {
    let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
    open(&urls).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn processes_share_a_file_for_reading() {
    for parameters in ["", "&direct=off", "&io=plain", "&io=plain&direct=off"] {
        fork_round(&*opened(&[&format!("file:/tmp?size=8M{parameters}")]), 1, 2);
    }
}

#[test]
fn memory_is_duplicated() {
    fork_round(&*opened(&["compressed:64M"]), 2, 2);
    fork_round(&*opened(&["compressed:64M?codec=zstd"]), 3, 2);
    fork_round(&*opened(&["reference:64M"]), 4, 2);
}

/// What was compressed again before a fork, and what is afterwards, in each process by itself.
#[test]
fn recompressed_pages_are_duplicated() {
    let backend = Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("address space");
    let backend = backend.recompressing(Recompression { longest_wait: Duration::ZERO, late: Duration::MAX });
    let pages: Vec<_> = (0..1500).map(page_of).collect();
    let keep = |pages: &[_]| -> Vec<Location> {
        store(&backend, pages).into_iter().map(|answer| answer.expect("room")).collect()
    };
    let mut locations = keep(&pages[..1000]);
    let recompressed = || usage(&backend).recompressed_pages;
    maintain_until(&backend, "pages that stay are compressed again", || recompressed() > 100);
    locations.extend(keep(&pages[1000..]));
    let both = |before: u64| {
        maintain_until(&backend, "the rest is compressed again after the fork", || recompressed() > before + 50);
        for (page, loaded) in pages.iter().zip(load(&backend, &locations, Priority::Demand)) {
            assert!(loaded.expect("stored") == *page);
        }
        backend.free(&locations);
        assert_eq!(usage(&backend).stored_bytes, 0);
    };
    let before = recompressed();
    with_fork(&backend, || both(0), || both(before));
}

/// However much its parent has stored.
#[test]
fn a_child_compresses_again_when_it_has_stored_as_much_as_it_holds() {
    let backend = Compressed::new("compressed".into(), CodecName::Lz4, 64 << 20).expect("address space");
    let an_hour = Duration::from_secs(3600);
    let backend = backend.recompressing(Recompression { longest_wait: an_hour, late: Duration::MAX });
    let keep = |seeds: std::ops::Range<u64>| -> Vec<Location> {
        let pages: Vec<_> = seeds.map(page_of).collect();
        store(&backend, &pages).into_iter().map(|answer| answer.expect("room")).collect()
    };
    let turn_over = |pages: u64| (0..pages / 100).for_each(|_| backend.free(&keep(0..100)));
    // Until no pass is due.
    let maintain = || {
        while let Some(pause) = backend.maintain() {
            std::thread::sleep(pause);
            if pause >= Duration::from_millis(20) {
                break;
            }
        }
    };
    keep(0..1000);
    turn_over(40_000);
    maintain();
    let child = || {
        // A pass finds what has stayed since the one before.
        for _ in 0..4 {
            turn_over(2000);
            maintain();
        }
        assert!(usage(&backend).recompressed_pages > 100, "{:?}", usage(&backend));
    };
    with_fork(&backend, child, || ());
}

#[test]
fn tiers_go_on_in_both() {
    fork_round(&*opened(&["compressed:256K", "file:/tmp?size=16M"]), 5, 2);
}

/// In the middle of a change: each process ends it by itself, and each has every page.
#[test]
fn paths_are_dropped_in_both() {
    let urls = ["compressed:64M".to_owned(), "file:/tmp?size=16M".to_owned()];
    let paths: Arc<Paths> = open(&urls).unwrap_or_else(|error| panic!("{error}"));
    paths.change(1, vec![PathChange::Drop(urls[0].clone())]);
    let finish = |version: u64| {
        while paths.changed_version() != version {
            assert_eq!(paths.obstacle(), "");
            paths.maintain();
        }
    };
    let before: Vec<Location> = store(&*paths, &[page_of(1)]).into_iter().map(|answer| answer.expect("room")).collect();
    paths.free(&before);
    finish(1);
    let closed = || rows(&*paths).iter().find(|row| row.url.starts_with("compressed")).map(|row| row.bytes_in);
    // What the path was given before it was closed the parent has stored, and no child.
    with_fork(&*paths, || assert_eq!(closed(), None), || assert_eq!(closed(), Some(4096)));
    let pages: Vec<_> = (0..1500).map(page_of).collect();
    let locations: Vec<Location> = store(&*paths, &pages).into_iter().map(|answer| answer.expect("room")).collect();
    paths.change(2, vec![PathChange::Drop(urls[1].clone())]);
    for _ in 0..4 {
        paths.maintain();
    }
    // A batch was read, and is not stored yet.
    let left = rows(&*paths).iter().filter(|row| row.url.starts_with("file")).map(|row| row.pages).sum::<u64>();
    assert!((1..1500).contains(&left), "{left}");
    let both = || {
        finish(2);
        for (page, loaded) in pages.iter().zip(load(&*paths, &locations, Priority::Demand)) {
            assert!(loaded.expect("stored") == *page);
        }
    };
    with_fork(&*paths, both, both);
}

#[test]
fn a_fork_before_the_first_store_is_harmless() {
    let backend = opened(&["file:/tmp?size=8M"]);
    with_fork(&*backend, || fork_round(&*backend, 6, 1), || fork_round(&*backend, 7, 1));
}

/// A relative path is of the directory in which it was opened.
#[test]
fn a_child_that_goes_elsewhere_has_its_file_where_its_parents_is() {
    let backend = opened(&["file:.?size=8M"]);
    let child = fork_with(&*backend, || {
        // Where no file can be made.
        std::env::set_current_dir("/proc").expect("a directory");
        store(&*backend, &[page_of(1)]).remove(0).expect("room");
    });
    assert_eq!(wait(child), 0);
}

/// Slots that a child may read are not written to while it, or a child of its own, lives; afterwards they are used again,
/// however it ended.
#[test]
fn slots_come_back_when_the_last_relative_is_gone() {
    const ROOM: u64 = 2048;
    let seeds = |first: u64, count: u64| (first..first + count).map(page_of).collect::<Vec<_>>();
    for (killed, nested) in [(false, false), (true, false), (false, true)] {
        let backend = opened(&["file:/tmp?size=8M"]);
        let all = |pages: &[_]| store(&*backend, pages).into_iter().collect::<Result<Vec<_>, _>>();
        let shared = all(&seeds(1, 1500)).expect("room");
        let (started, go) = (pipe(), pipe());
        let child = fork_with(&*backend, || {
            if nested {
                // The child ends at once, its own child goes on.
                fork_with(&*backend, || reads_on(&*backend, &shared, started, go));
                return;
            }
            reads_on(&*backend, &shared, started, go);
        });
        hear(started.0);
        if nested {
            assert_eq!(wait(child), 0);
        }
        backend.free(&shared);
        let rest = all(&seeds(5000, ROOM - 1500)).expect("the slots that nobody used at the fork");
        assert!(all(&seeds(9000, 1)).is_err(), "a slot was used again under its reader");
        if killed {
            // SAFETY: our own child, not waited for yet.
            assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
        } else {
            say(go.1);
            hear(started.0);
        }
        if !nested {
            assert_eq!(wait(child), if killed { libc::SIGKILL } else { 0 });
        }
        // The end of a grandchild is seen by nobody but the kernel.
        let again = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(4));
            all(&seeds(10_000, 1500)).ok()
        });
        let again = again.expect("the slots came back");
        for (index, page) in load(&*backend, &again, Priority::Demand).into_iter().enumerate() {
            assert!(page.expect("stored") == page_of(10_000 + index as u64));
        }
        backend.free(&again);
        backend.free(&rest);
    }
}

/// In a child: waits, then finds all pages as they were.
fn reads_on(backend: &dyn Backend, shared: &[Location], started: (i32, i32), go: (i32, i32)) {
    say(started.1);
    hear(go.0);
    for (index, page) in load(backend, shared, Priority::Demand).into_iter().enumerate() {
        assert!(page.expect("shared") == page_of(1 + index as u64), "shared page {index}");
    }
    say(started.1);
}

fn fork_with(backend: &dyn Backend, child: impl FnOnce()) -> i32 {
    backend.before_fork();
    // SAFETY: the child only uses the backend and the allocator, which survives fork, and leaves with _exit.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        backend.after_fork(ForkSide::Parent).expect("the parent goes on");
        return pid;
    }
    let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        backend.after_fork(ForkSide::Child).expect("the child goes on");
        child();
    }));
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(i32::from(well.is_err())) }
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our own child and a valid pointer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn pipe() -> (i32, i32) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    (ends[0], ends[1])
}

fn say(end: i32) {
    // SAFETY: one byte of a constant.
    assert_eq!(unsafe { libc::write(end, b".".as_ptr().cast(), 1) }, 1);
}

fn hear(end: i32) {
    let mut byte = 0u8;
    // SAFETY: room for one byte.
    assert_eq!(unsafe { libc::read(end, (&raw mut byte).cast(), 1) }, 1);
}
