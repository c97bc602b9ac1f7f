//! Many threads read the same pages while they come and go: faults on one page arrive at several monitors, late and more than
//! once, and none of them may map zeros over content that has left meanwhile.

use super::arena::Arena;
use hinterland_backend::{Backend, CodecName, Compressed, Delay, Reference};
use hinterland_sys::FeatureSet;
use hinterland_testkit::Rng;
use hinterland_units::PageNo;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const PAGES: u32 = 3 * 4096;
const THREADS: u64 = 24;
const READS: u32 = 6000;

fn run(base: usize, set: FeatureSet, backend: Arc<dyn Backend>, monitors: usize) {
    let Some(arena) = Arena::start(base, PAGES, set, backend, monitors) else { return };
    let seed = |page: u32| u64::from(page) * 2 + 1;
    (0..PAGES).for_each(|page| arena.write(PageNo(page), seed(page)));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                // Pairs of threads walk the same pages at the same time.
                let mut random = Rng(thread / 4);
                for _ in 0..READS {
                    let page = random.below_u32(PAGES);
                    arena.check(PageNo(page), seed(page));
                }
            });
        }
    });
    let row = arena.pager.row();
    assert!(row.major_faults.load(Relaxed) > 1000, "paging happened: {}", row.major_faults.load(Relaxed));
}

fn compressed() -> Arc<dyn Backend> {
    Arc::new(Compressed::new("compressed:1G".into(), CodecName::Lz4, 1 << 30).unwrap())
}

#[test]
fn one_monitor() {
    run(0x3200_0000_0000, FeatureSet::All, compressed(), 1);
}

#[test]
fn several_monitors_on_a_slow_backend() {
    let slow = Delay::new(Arc::new(Reference::new("reference:1G".into(), 1 << 30).unwrap()), 0, 30, 7);
    run(0x3210_0000_0000, FeatureSet::All, Arc::new(slow), 4);
}

#[test]
fn several_monitors_on_older_kernels() {
    run(0x3220_0000_0000, FeatureSet::V6_1, compressed(), 4);
}

#[test]
fn inline() {
    run(0x3230_0000_0000, FeatureSet::All, compressed(), 0);
}

#[test]
fn inline_on_a_slow_backend_and_an_older_kernel() {
    let slow = Delay::new(Arc::new(Reference::new("reference:1G".into(), 1 << 30).unwrap()), 0, 30, 7);
    run(0x3240_0000_0000, FeatureSet::V6_1, Arc::new(slow), 0);
}
