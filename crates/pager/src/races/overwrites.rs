//! Pages that are marked to be overwritten, against every other use of them.
//!
//! A part of a page that is not written shows what was made of the page: zeros, where the mark was used up, or its content.

use super::{For, Stage, on_both_kernel_paths, on_both_paths, word};
use crate::points::Point;
use crate::{FaultPath, PinAccess, State};
use hinterland_units::{PAGE_BYTES, PageNo};
use std::sync::atomic::Ordering::Relaxed;

const PAGE: PageNo = PageNo(31);
const SEED: u64 = 9;
/// What a thread writes to the first word.
const MARK: u64 = 0x5757;

impl Stage {
    /// The calling thread says that it overwrites a page, which is far.
    fn mark(&self, page: PageNo) {
        self.send_far(page, SEED);
        self.promise(page);
        assert_eq!((self.state(page), self.loaded_pages()), (State::Remote, 0));
    }

    fn promise(&self, page: PageNo) {
        let (hints, at) = (self.pager.hints(), self.pager.address(page));
        assert!(hints.may_overwrite(at, PAGE_BYTES) && !hints.may_overwrite(at + 1, PAGE_BYTES));
        hints.overwrite(at, PAGE_BYTES);
    }

    /// Writes the first word alone.
    fn begin_to_write(&self, page: PageNo) {
        self.reach(page, 0, true);
        // SAFETY: a writable page of the range.
        unsafe { self.words(page).write_volatile(MARK) };
        self.wait_until_stable(page);
    }

    /// The last word, which no test writes alone.
    fn last_word(&self, page: PageNo) -> u64 {
        let last = super::WORDS - 1;
        self.reach(page, last, false);
        // SAFETY: a readable page of the range.
        let value = unsafe { self.words(page).add(last).read_volatile() };
        self.wait_until_stable(page);
        value
    }

    fn overwritten_pages(&self) -> u64 {
        self.pager.row().hint_overwritten_pages.load(Relaxed)
    }

    /// After a write to the first word: the page was loaded before, and the mark was of no use.
    fn must_be_whole(&self, page: PageNo) {
        assert_eq!((self.last_word(page), self.overwritten_pages()), (word(SEED, super::WORDS - 1), 0));
        self.reach(page, 0, false);
        // SAFETY: as above.
        assert_eq!(unsafe { self.words(page).read_volatile() }, MARK);
    }
}

#[test]
fn a_marked_page_is_written_without_a_load_and_its_copy_is_freed() {
    on_both_paths(|stage| {
        stage.mark(PAGE);
        stage.write(PAGE, 10);
        stage.check(PAGE, 10);
        assert_eq!((stage.loaded_pages(), stage.stored_pages(), stage.overwritten_pages()), (0, 0, 1));
        // The mark is used up: the next time the page comes whole.
        stage.send_far(PAGE, SEED);
        stage.begin_to_write(PAGE);
        assert_eq!((stage.last_word(PAGE), stage.loaded_pages()), (word(SEED, super::WORDS - 1), 1));
    });
}

#[test]
fn a_page_that_leaves_half_written_comes_back_half_written() {
    on_both_paths(|stage| {
        stage.mark(PAGE);
        stage.begin_to_write(PAGE);
        while stage.state(PAGE) != State::Remote {
            stage.evict(PAGE);
            stage.reclaim(&[]);
        }
        assert_eq!(stage.last_word(PAGE), 0, "zeros stand for what is not yet written");
        stage.write(PAGE, 11);
        stage.check(PAGE, 11);
    });
}

#[test]
fn a_read_takes_the_mark_back() {
    on_both_paths(|stage| {
        stage.mark(PAGE);
        stage.check(PAGE, SEED);
        assert_eq!(stage.loaded_pages(), 1);
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
        stage.mark(PAGE);
        stage.beside(|s| s.check(PAGE, SEED)).must_end();
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
    });
}

#[test]
fn a_write_of_another_thread_takes_the_mark_back() {
    on_both_paths(|stage| {
        stage.mark(PAGE);
        stage.beside(|s| s.begin_to_write(PAGE)).must_end();
        stage.must_be_whole(PAGE);
    });
}

#[test]
fn a_fetch_that_has_begun_goes_on_beside_a_mark() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, SEED);
        let loaded = stage.hold(Point::Loaded, PAGE);
        let reader = stage.beside(|s| s.check(PAGE, SEED));
        let loaded = loaded.reached();
        let (hints, at) = (stage.pager.hints(), stage.pager.address(PAGE));
        assert!(!hints.may_overwrite(at, PAGE_BYTES), "it is on its way");
        hints.overwrite(at, PAGE_BYTES);
        loaded.release();
        reader.must_end();
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
    });
}

#[test]
fn a_read_waits_for_the_write_that_uses_the_mark_up() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, SEED);
        let writing = stage.hold(Point::Overwriting, PAGE);
        let writer = stage.beside(|s| {
            s.promise(PAGE);
            s.write(PAGE, 12);
        });
        let writing = writing.reached();
        let reader = stage.beside(|s| s.touch(PAGE));
        stage.must_wait(&reader, For::Page(PAGE));
        writing.release();
        writer.must_end();
        reader.must_end();
        stage.check(PAGE, 12);
        assert_eq!((stage.loaded_pages(), stage.overwritten_pages()), (0, 1));
    });
}

#[test]
fn a_discard_waits_for_the_write_that_uses_the_mark_up() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, SEED);
        let writing = stage.hold(Point::Overwriting, PAGE);
        let writer = stage.beside(|s| {
            s.promise(PAGE);
            s.begin_to_write(PAGE);
        });
        let writing = writing.reached();
        let dropper = stage.beside(|s| s.pager.discard(PAGE, 1));
        stage.must_wait(&dropper, For::Owner(PAGE));
        writing.release();
        writer.must_end();
        dropper.must_end();
        assert_eq!((stage.last_word(PAGE), stage.stored_pages()), (0, 0));
    });
}

#[test]
fn marks_end_with_their_thread_and_are_not_the_next_ones() {
    on_both_paths(|stage| {
        stage.mark(PAGE);
        // The kernel gives a number again, here to the same thread.
        stage.pager.hints().thread_leaves();
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
        // It may mark pages again.
        stage.mark(PAGE);
        stage.write(PAGE, 13);
        assert_eq!((stage.loaded_pages(), stage.overwritten_pages()), (0, 1));
    });
}

#[test]
fn what_a_call_writes_to_for_the_program_has_no_mark() {
    on_both_paths(|stage| {
        stage.mark(PAGE);
        stage.pager.hints().take_back(stage.pager.address(PAGE) + 8, 1);
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
    });
}

#[test]
fn a_fork_takes_marks_back_on_both_sides() {
    on_both_kernel_paths(|stage| {
        stage.mark(PAGE);
        let child = stage.fork(|s| {
            s.begin_to_write(PAGE);
            s.must_be_whole(PAGE);
        });
        child.must_be_well();
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
    });
}

/// A fork waits for a write that uses a mark up, and the child finds the page as that write left it.
#[test]
fn a_fork_waits_for_the_write_that_uses_the_mark_up() {
    on_both_paths(|stage| {
        stage.send_far(PAGE, SEED);
        let writing = stage.hold(Point::Overwriting, PAGE);
        let writer = stage.beside(|s| {
            s.promise(PAGE);
            s.write(PAGE, 14);
        });
        let writing = writing.reached();
        let forking = stage.beside(|s| {
            s.pager.freeze(&[]);
            assert_eq!(s.state(PAGE), State::Resident);
            s.pager.thaw();
        });
        stage.must_wait(&forking, For::Gate);
        writing.release();
        writer.must_end();
        forking.must_end();
        stage.check(PAGE, 14);
    });
}

#[test]
fn a_page_that_is_moved_is_not_marked() {
    on_both_paths(|stage| {
        let to = PageNo(PAGE.0 + 100);
        stage.mark(PAGE);
        stage.pager.relocate(PAGE, to, 1);
        stage.begin_to_write(to);
        stage.must_be_whole(to);
    });
}

#[test]
fn calls_that_write_to_pages_take_marks_back() {
    on_both_paths(|stage| {
        let at = stage.pager.address(PAGE);
        stage.mark(PAGE);
        assert!(stage.pager.pin_long_term(at, PAGE_BYTES));
        stage.pager.unpin_long_term(at, PAGE_BYTES);
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
        stage.mark(PAGE);
        stage.pager.lock(PAGE, 1, false).unwrap();
        stage.pager.unlock(PAGE, 1).unwrap();
        stage.begin_to_write(PAGE);
        stage.must_be_whole(PAGE);
        if stage.pager.path() == FaultPath::Inline {
            stage.mark(PAGE);
            drop(stage.pager.pin(at, 8, PinAccess::Write));
            stage.begin_to_write(PAGE);
            stage.must_be_whole(PAGE);
        }
    });
}

#[test]
fn only_whole_pages_are_marked_and_none_is_read_ahead() {
    on_both_paths(|stage| {
        let (before, next) = (PageNo(PAGE.0 - 1), PageNo(PAGE.0 + 1));
        for page in [before, PAGE, next] {
            stage.send_far(page, SEED);
        }
        let at = stage.pager.address(before) + 1;
        stage.pager.hints().overwrite(at, 3 * PAGE_BYTES - 2);
        stage.pager.start_all().unwrap();
        let site = crate::HintSite { key: 3, name: &|| String::new() };
        stage.pager.hints().fetch(site, at, 2 * PAGE_BYTES);
        while [before, next].iter().any(|page| stage.state(*page) != State::Resident) {
            crate::sys::thread::yield_now();
        }
        assert_eq!((stage.state(PAGE), stage.loaded_pages()), (State::Remote, 2));
        stage.write(PAGE, 15);
        assert_eq!((stage.loaded_pages(), stage.overwritten_pages()), (2, 1));
        stage.check(before, SEED);
        stage.check(PAGE, 15);
    });
}
