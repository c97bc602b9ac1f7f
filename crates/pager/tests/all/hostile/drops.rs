//! A program that drops memory with raw system calls: the pager does not see it, and must neither hang on pages that are gone
//! nor lose those that are not.

use super::arena::Arena;
use hinterland_backend::{CodecName, Compressed};
use hinterland_sys::{FeatureSet, mem};
use hinterland_testkit::Rng;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::Arc;

const PAGES: u32 = 2 * 4096;

fn run(base: usize, set: FeatureSet, monitors: usize) {
    let backend = Arc::new(Compressed::new("compressed:1G".into(), CodecName::Lz4, 1 << 30).unwrap());
    let Some(arena) = Arena::start(base, PAGES, set, backend, monitors) else { return };
    let mut seeds = vec![0u64; PAGES as usize];
    let mut random = Rng(5);
    for _ in 0..24 {
        for (page, seed) in (0..PAGES).zip(&mut seeds) {
            if random.below_u32(4) == 0 {
                *seed = random.next_u64() | 1;
                arena.write(PageNo(page), *seed);
            }
        }
        for (page, seed) in (0..PAGES).zip(&mut seeds) {
            // Only what is mapped can be dropped this way: a page that has left comes back.
            if arena.is_resident(PageNo(page)) && random.below_u32(3) == 0 {
                // SAFETY: this test is the only user of the page.
                unsafe { mem::drop_pages(arena.pager.address(PageNo(page)), PAGE_BYTES) }.unwrap();
                if arena.difference(PageNo(page), 0).is_none() {
                    *seed = 0;
                }
                if random.below_u32(2) == 0 {
                    // Gone again, and untouched when its time to leave comes.
                    // SAFETY: as above.
                    unsafe { mem::drop_pages(arena.pager.address(PageNo(page)), PAGE_BYTES) }.unwrap();
                }
            }
        }
        for (page, seed) in (0..PAGES).zip(&seeds) {
            // A dropped page whose content had left just before the call still has it.
            if *seed != 0 && arena.difference(PageNo(page), 0).is_some() {
                arena.check(PageNo(page), *seed);
            }
        }
    }
}

#[test]
fn with_move() {
    run(0x3300_0000_0000, FeatureSet::All, 1);
}

#[test]
fn on_older_kernels() {
    run(0x3310_0000_0000, FeatureSet::V6_1, 1);
}

#[test]
fn inline() {
    run(0x3320_0000_0000, FeatureSet::All, 0);
}
