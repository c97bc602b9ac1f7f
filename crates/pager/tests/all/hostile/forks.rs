//! Forks at any moment, while several threads page against slow tiers: the child finds every page as it was.

use super::arena::{Arena, row, uffd};
use hinterland_abi::PlacementName;
use hinterland_backend::{Backend, CodecName, Compressed, Delay, FileBackend, FileOptions, FileWidth, IoMethod, Paths};
use hinterland_sys::mem::OwnMemory;
use hinterland_sys::{FeatureSet, thread};
use hinterland_testkit::Rng;
use hinterland_units::PageNo;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GROUP_PAGES: u32 = 32;
const GROUPS: u32 = 384;
const PAGES: u32 = GROUP_PAGES * GROUPS;
const THREADS: u64 = 4;

type Groups = [Mutex<Vec<u64>>];

/// A few MiB of compressed RAM that spill into a file, both slow at random.
fn tiers(seed: u64) -> Arc<dyn Backend> {
    let compressed = Compressed::new("compressed:4M".into(), CodecName::Lz4, 4 << 20).unwrap();
    let options = FileOptions {
        path: std::env::temp_dir(),
        capacity_bytes: 4 << 30,
        io: IoMethod::Auto,
        direct: true,
        width: FileWidth::default(),
    };
    let file = FileBackend::new("file".into(), options).unwrap();
    let slow: Vec<Arc<dyn Backend>> = vec![
        Arc::new(Delay::new(Arc::new(compressed), 0, 20, seed)),
        Arc::new(Delay::new(Arc::new(file), 0, 300, seed)),
    ];
    Arc::new(Paths::new(slow, PlacementName::Tiers).unwrap())
}

fn page(group: u32, index: u32) -> PageNo {
    PageNo(group * GROUP_PAGES + index)
}

fn operate(arena: &Arena, groups: &Groups, random: &mut Rng, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let group = random.below_u32(GROUPS);
        let Ok(mut seeds) = groups[group as usize].try_lock() else { continue };
        let first = random.below_u32(GROUP_PAGES);
        let count = 1 + random.below_u32(GROUP_PAGES - first);
        let range = first..first + count;
        match random.below_u32(8) {
            0..3 => range.for_each(|i| {
                seeds[i as usize] = random.next_u64() | 1;
                arena.write(page(group, i), seeds[i as usize]);
            }),
            3..6 => range.for_each(|i| arena.check(page(group, i), seeds[i as usize])),
            6 => {
                arena.pager.discard(page(group, first), count);
                seeds[first as usize..(first + count) as usize].fill(0);
            }
            _ => {
                let other = random.below_u32(GROUPS);
                let Ok(mut target) = groups[other as usize].try_lock() else { continue };
                arena.pager.relocate(page(group, first), page(other, first), count);
                for i in range {
                    target[i as usize] = std::mem::take(&mut seeds[i as usize]);
                }
            }
        }
    }
}

/// Forks; the child checks all groups that nobody worked on at that moment, changes some, and checks those again.
fn fork_and_check(arena: &Arena, groups: &Groups, random: &mut Rng) {
    arena.pager.freeze(&[]);
    // SAFETY: the child uses locks only by trying, allocates through libc (which is made for it), and leaves by exit_now.
    let child = unsafe { libc::fork() };
    if child != 0 {
        arena.pager.thaw();
        let mut status = 0;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a forked child found a wrong page (its message is above)");
        return;
    }
    let features = *arena.pager.kernel().features();
    let (uffd, memory) = (uffd(features, arena.pager.path()), OwnMemory::open().unwrap());
    arena.pager.begin_child(uffd, memory, row(), &[], &[]).unwrap();
    arena.pager.start().unwrap();
    let mut checked = 0;
    for (group, seeds) in (0..GROUPS).zip(groups) {
        let Ok(mut seeds) = seeds.try_lock() else { continue };
        for (index, seed) in (0..GROUP_PAGES).zip(seeds.iter_mut()) {
            arena.check(page(group, index), *seed);
            if random.below_u32(8) == 0 {
                *seed = random.next_u64() | 1;
                arena.write(page(group, index), *seed);
            }
        }
        checked += 1;
    }
    for (group, seeds) in (0..GROUPS).zip(groups) {
        let Ok(seeds) = seeds.try_lock() else { continue };
        (0..GROUP_PAGES).zip(seeds.iter()).for_each(|(index, seed)| arena.check(page(group, index), *seed));
    }
    thread::exit_now(i32::from(checked < GROUPS / 2));
}

/// Waits until the pager has fetched so many pages more.
fn wait_for_paging(arena: &Arena, pages: u64) {
    let fetched = || arena.pager.row().major_faults.load(Relaxed);
    let enough = fetched() + pages;
    while fetched() < enough {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn run(base: usize, set: FeatureSet, monitors: usize, seed: u64) {
    let forks = std::env::var("HINTERLAND_TEST_HOSTILE_FORKS").map_or(8, |n| n.parse().unwrap());
    let Some(arena) = Arena::start(base, PAGES, set, tiers(seed), monitors) else { return };
    let groups: Vec<Mutex<Vec<u64>>> = (0..GROUPS).map(|_| Mutex::new(vec![0; GROUP_PAGES as usize])).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (groups, stop) = (&groups, &stop);
            scope.spawn(move || operate(&arena, groups, &mut Rng(seed + number), stop));
        }
        let mut random = Rng(!seed);
        for _ in 0..forks {
            wait_for_paging(&arena, 100 + random.below(400));
            fork_and_check(&arena, &groups, &mut random);
        }
        stop.store(true, Relaxed);
    });
    for (group, seeds) in (0..GROUPS).zip(&groups) {
        let seeds = seeds.lock().unwrap();
        (0..GROUP_PAGES).zip(seeds.iter()).for_each(|(index, seed)| arena.check(page(group, index), *seed));
    }
    let row = arena.pager.row();
    assert!(row.major_faults.load(Relaxed) > 100, "paging happened: {}", row.major_faults.load(Relaxed));
    arena.pager.discard(PageNo(0), PAGES);
    assert_eq!(row.managed_bytes.load(Relaxed), 0, "all far space is given back");
}

#[test]
fn children_find_every_page_with_move() {
    run(0x3100_0000_0000, FeatureSet::All, 4, 1);
}

#[test]
fn children_find_every_page_on_older_kernels() {
    run(0x3110_0000_0000, FeatureSet::V6_1, 2, 1000);
}

#[test]
fn inline_children_find_every_page_with_move() {
    run(0x3120_0000_0000, FeatureSet::All, 0, 2000);
}

#[test]
fn inline_children_find_every_page_on_older_kernels() {
    run(0x3130_0000_0000, FeatureSet::V6_1, 0, 3000);
}
