//! Pages whose stored copies are patched, against everything that touches or moves them meanwhile: at no moment is a copy loaded that is
//! half changed, and no write is lost.

use super::{For, Stage, on_both_kernel_paths_over, on_both_paths_over};
use crate::State;
use crate::points::Point;
use hinterland_backend::{Backend, Reference};
use hinterland_units::PageNo;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const PAGE: PageNo = PageNo(41);
const TARGET: PageNo = PageNo(341);
/// A word of the page's third granule, and one of its last.
const WORD: usize = 70;
const LAST: usize = super::WORDS - 1;

/// Far memory that can be patched.
fn patched() -> Arc<dyn Backend> {
    Arc::new(Reference::new("reference:64M".into(), 64 << 20).unwrap().patched())
}

impl Stage {
    /// Writes one word of a page.
    fn poke(&self, page: PageNo, index: usize, value: u64) {
        self.reach(page, index, true);
        // SAFETY: a read-write page of the range that the race lets this thread write.
        unsafe { self.words(page).add(index).write_volatile(value) };
        self.wait_until_stable(page);
    }

    fn peek(&self, page: PageNo, index: usize) -> u64 {
        self.reach(page, index, false);
        // SAFETY: a readable page of the range.
        let value = unsafe { self.words(page).add(index).read_volatile() };
        self.wait_until_stable(page);
        value
    }

    /// A page that was far, came back, has one other word since, and waits in the swap cache.
    fn change_one_word(&self, page: PageNo) {
        self.send_far(page, 8);
        while self.state(page) != State::SwapCached {
            self.poke(page, WORD, 1000);
            self.evict(page);
        }
    }

    /// Whether a page holds what `change_one_word` left, with this last word.
    fn check_changed(&self, page: PageNo, last: u64) {
        for index in (0..super::WORDS).filter(|index| ![WORD, LAST].contains(index)) {
            assert_eq!(self.peek(page, index), super::word(8, index), "{page}, word {index}");
        }
        assert_eq!((self.peek(page, WORD), self.peek(page, LAST)), (1000, last));
    }

    fn patched_pages(&self) -> u64 {
        self.pager.row().patched_pages.load(Relaxed)
    }
}

#[test]
fn one_granule_of_a_page_is_written_over_its_copy() {
    on_both_paths_over(patched, |stage| {
        stage.change_one_word(PAGE);
        while stage.state(PAGE) != State::Remote {
            stage.reclaim(&[PAGE]);
        }
        let bytes = stage.pager.row().patched_bytes.load(Relaxed);
        assert_eq!((stage.patched_pages(), bytes, stage.stored_pages()), (1, 256, 1));
        stage.check_changed(PAGE, super::word(8, LAST));
    });
}

#[test]
fn a_write_while_a_page_is_patched_is_not_lost() {
    for point in [Point::Patch, Point::Patched] {
        on_both_paths_over(patched, move |stage| {
            stage.change_one_word(PAGE);
            let patching = stage.hold(point, PAGE);
            let drain = stage.beside(|s| s.reclaim(&[]));
            let patching = patching.reached();
            let writer = stage.beside(|s| s.poke(PAGE, LAST, 5));
            stage.must_wait(&writer, For::Page(PAGE));
            patching.release();
            drain.must_end();
            writer.must_end();
            stage.check_changed(PAGE, 5);
            while stage.state(PAGE) != State::Remote {
                stage.evict(PAGE);
                stage.reclaim(&[]);
            }
            stage.check_changed(PAGE, 5);
            assert_eq!((stage.patched_pages(), stage.stored_pages()), (2, 1));
        });
    }
}

#[test]
fn a_move_waits_until_a_page_is_patched_and_takes_the_copy_with_it() {
    on_both_paths_over(patched, |stage| {
        stage.change_one_word(PAGE);
        let patching = stage.hold(Point::Patched, PAGE);
        let drain = stage.beside(|s| s.reclaim(&[]));
        let patching = patching.reached();
        let mover = stage.beside(|s| s.pager.relocate(PAGE, TARGET, 1));
        stage.must_wait(&mover, For::Owner(PAGE));
        patching.release();
        drain.must_end();
        mover.must_end();
        stage.check_changed(TARGET, super::word(8, LAST));
        stage.poke(TARGET, LAST, 6);
        while stage.state(TARGET) != State::Remote {
            stage.evict(TARGET);
            stage.reclaim(&[]);
        }
        stage.check_changed(TARGET, 6);
        stage.check(PAGE, 0);
    });
}

#[test]
fn a_fork_waits_until_a_page_is_patched_and_each_side_patches_its_own() {
    on_both_kernel_paths_over(patched, |stage| {
        stage.change_one_word(PAGE);
        let patching = stage.hold(Point::Patched, PAGE);
        let drain = stage.beside(|s| s.reclaim(&[]));
        let patching = patching.reached();
        let forker = stage.beside(|s| {
            let live = |s: &Stage, last: u64| {
                for last in [last, last + 1] {
                    s.poke(PAGE, LAST, last);
                    while s.state(PAGE) != State::Remote {
                        s.evict(PAGE);
                        s.reclaim(&[]);
                    }
                    s.check_changed(PAGE, last);
                }
            };
            let child = s.fork(|s| live(s, 100));
            live(s, 200);
            child.must_be_well();
        });
        stage.must_wait(&forker, For::Gate);
        patching.release();
        drain.must_end();
        forker.must_end();
        stage.check_changed(PAGE, 201);
        assert!(stage.patched_pages() >= 2);
    });
}
