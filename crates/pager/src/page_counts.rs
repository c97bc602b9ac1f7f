//! Counts by page of what keeps pages local for longer than a call: long-term pins, and what the program says it will use for long
//! (`hinterland_keep`).
//!
//! Long-term pins are for memory that the kernel reads when a thread ends, and waits for no fault then. A robust mutex is linked into a list that the kernel walks in a thread that ends or is killed. There it meets missing and
//! protected pages with an error on both fault paths (`handle_userfault` in Linux's fs/userfaultfd.c does not wait in a task
//! that ends), stops, and a thread that waits for one of the mutexes waits for ever.
//!
//! Two mutexes may lie in one page. A child of a fork has the same pages and the same counts.

use crate::sys::mem;
use crate::sys::sync::Words;
use crate::sys::sync::atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use hinterland_sys::parts::{PART_PAGES, Parts};
use hinterland_units::PageNo;
use std::sync::OnceLock;

/// See the module.
pub(crate) struct PageCounts {
    /// By page; mapped with the first one. A page with as many as fit stays for good.
    counts: OnceLock<Words<AtomicU16>>,
    /// What is writable of them: those of other pages are 0.
    parts: Parts,
    /// Pages with a count, and those that are about to have one.
    pages: AtomicUsize,
}

impl Default for PageCounts {
    fn default() -> PageCounts {
        let parts = Parts::new(PART_PAGES as usize * size_of::<u16>());
        PageCounts { counts: OnceLock::new(), parts, pages: AtomicUsize::new(0) }
    }
}

impl PageCounts {
    /// Pages with a count.
    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Relaxed)
    }

    /// Whether a page of a range has a count. The caller has published what it is about to do with the range before, and a fence.
    pub(crate) fn touch(&self, first: PageNo, end: PageNo) -> bool {
        if self.pages.load(SeqCst) == 0 {
            return false;
        }
        let part = self.counts.get().and_then(|all| all.all().get(first.0 as usize..end.0 as usize));
        part.is_some_and(|part| part.iter().any(|count| count.load(SeqCst) != 0))
    }

    /// Counts a page out of `all` once more. False: there is no memory for the counts.
    pub(crate) fn add(&self, page: PageNo, all: u32) -> bool {
        let Some(counts) = self.counts.get().or_else(|| self.begin(all)) else { return false };
        if self.parts.make_writable(page.0, 1, |pages| counts.allow_writes(pages)).is_err() {
            return false;
        }
        // First: there are never fewer than have a count.
        self.pages.fetch_add(1, SeqCst);
        if counts.at(page.index()).fetch_update(SeqCst, Relaxed, |count| count.checked_add(1)) != Ok(0) {
            self.pages.fetch_sub(1, Relaxed);
        }
        true
    }

    /// Counts those pages of a range once more that have a count; returns how many.
    pub(crate) fn add_again(&self, first: PageNo, count: u32) -> u64 {
        let mut again = 0;
        self.for_each_counted(first, count, |page| {
            let Some(own) = self.counts.get().map(|all| all.at(page.index())) else { return };
            let more = |count: u16| if count == 0 { None } else { count.checked_add(1) };
            again += u64::from(own.fetch_update(SeqCst, Relaxed, more).is_ok());
        });
        again
    }

    #[cold]
    fn begin(&self, all: u32) -> Option<&Words<AtomicU16>> {
        // Two threads that begin at once leave an untouched mapping behind.
        let counts = Words::read_only(all as usize).ok()?;
        Some(self.counts.get_or_init(|| counts))
    }

    /// Counts a page once less.
    fn remove(&self, page: PageNo) {
        let Some(count) = self.counts.get().map(|all| all.at(page.index())) else { return };
        let less = |count: u16| if count == u16::MAX { None } else { count.checked_sub(1) };
        if let Ok(1) = count.fetch_update(SeqCst, Relaxed, less) {
            self.pages.fetch_sub(1, Relaxed);
        }
    }

    /// Counts the pages of a range once less, those that are not accessible among them.
    pub(crate) fn remove_all(&self, first: PageNo, count: u32) {
        self.for_each_counted(first, count, |page| self.remove(page));
    }

    /// Calls a function with the pages of a range that may have a count, as long as one has.
    fn for_each_counted(&self, first: PageNo, count: u32, mut each: impl FnMut(PageNo)) {
        let end = first.0.saturating_add(count);
        let mut page = first.0;
        while page < end && self.pages() > 0 {
            let part_end = end.min((page - page % PART_PAGES).saturating_add(PART_PAGES));
            if self.parts.contain(page) {
                (page..part_end).map(PageNo).for_each(&mut each);
            }
            page = part_end;
        }
    }

    /// The page's content is gone, and with it its count.
    pub(crate) fn forget(&self, page: PageNo) {
        if self.pages.load(Relaxed) == 0 {
            return;
        }
        let Some(count) = self.counts.get().map(|all| all.at(page.index())) else { return };
        if self.parts.contain(page.0) && count.swap(0, Relaxed) != 0 {
            self.pages.fetch_sub(1, Relaxed);
        }
    }

    /// The same for the pages of a range.
    pub(crate) fn forget_all(&self, first: PageNo, count: u32) {
        self.for_each_counted(first, count, |page| self.forget(page));
    }

    /// No page has a count.
    ///
    /// # Panics
    /// When the kernel cannot drop private memory.
    pub(crate) fn clear(&self) {
        let Some(counts) = self.counts.get().filter(|_| self.pages.swap(0, Relaxed) != 0) else { return };
        // SAFETY: counts, which are zero afterwards.
        unsafe { mem::drop_pages(counts.all().as_ptr().addr(), size_of_val(counts.all())) }
            .expect("private memory can be dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hinterland_units::PAGE_BYTES;

    const ALL: u32 = 4096;

    #[test]
    fn a_page_has_a_count_as_long_as_one_of_many_small_objects_in_it_is_kept() {
        let (counts, page) = (PageCounts::default(), PageNo(ALL - 1));
        let has_count = || counts.touch(page, PageNo(ALL));
        for _ in 0..PAGE_BYTES {
            assert!(counts.add(page, ALL) && has_count());
        }
        for _ in 0..PAGE_BYTES {
            assert!(has_count() && counts.pages() == 1);
            counts.remove_all(page, 1);
        }
        assert!(!has_count() && counts.pages() == 0);
        assert!(counts.add(page, ALL) && has_count());
        counts.clear();
        assert!(counts.add(PageNo(0), ALL) && !has_count() && counts.pages() == 1);
    }
}
