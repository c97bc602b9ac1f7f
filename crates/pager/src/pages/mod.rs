//! The pages of the far range, and the few operations that all work on them consists of: find a page by its address,
//! look at its entry, complete it, wake the threads that wait for it, ask the kernel.
//!
//! A thread that works on a page owns it (`owned`).
//!
//! Their dependencies are here, too: the fault path, the gate that every unit of work enters, the row of figures, and
//! the end of a program whose pages cannot be served.

#[cfg(all(test, feature = "loom"))]
mod interleavings;
mod overwriters;
mod owned;
mod table;

use crate::decisions::Decisions;
use crate::fault_path::{FATAL_EXIT_CODE, FaultPath};
use crate::kernel::Kernel;
use crate::own_processors::OwnProcessors;
use crate::own_threads::OwnThreads;
use crate::points::{Point, Schedule};
use crate::state::{Entry, State};
use crate::sys::gate::Gate;
use crate::sys::thread;
use crate::waiters::Waiters;
use hinterland_abi::ProcessRow;
use hinterland_sys::SysError;
use hinterland_units::{Foreign, PAGE_BYTES, PageNo};
use overwriters::Overwriters;
#[cfg(test)]
pub(crate) use owned::tests::pages as simulated_pages;
pub(crate) use owned::{Owned, Released};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use table::PageTable;
pub(crate) use table::{CHUNK_PAGES, ContentHash};

/// See the module.
pub(crate) struct Pages {
    pub(crate) path: FaultPath,
    base: usize,
    /// Pages in the far range.
    pub(crate) count: u32,
    pub(crate) kernel: Kernel,
    pub(crate) table: PageTable,
    pub(crate) waiters: Waiters,
    pub(crate) gate: Gate,
    pub(crate) own_threads: OwnThreads,
    pub(crate) overwriters: Overwriters,
    row: AtomicPtr<ProcessRow>,
    schedule: Schedule,
    /// Where decisions are noted.
    pub(crate) decisions: Decisions,
}

/// The outcome of one attempt to serve a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The page is mapped, or the thread will fault again.
    Served,
    /// The page changed meanwhile: load its entry again.
    Again,
    /// Another thread works on the page, which is as in this entry.
    Busy(Entry),
}

impl Pages {
    /// The pages from address `base` on, all untouched.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(
        path: FaultPath,
        (base, count): (usize, u32),
        kernel: Kernel,
        row: &'static ProcessRow,
        decisions: Decisions,
        processors: OwnProcessors,
    ) -> Result<Pages, SysError> {
        Ok(Pages {
            path,
            base,
            count,
            kernel,
            table: PageTable::new(count)?,
            waiters: Waiters::default(),
            gate: Gate::new()?,
            own_threads: OwnThreads::new(processors),
            overwriters: Overwriters::default(),
            row: AtomicPtr::new(std::ptr::from_ref(row).cast_mut()),
            schedule: Schedule::of(base),
            decisions,
        })
    }

    /// The address of a page.
    #[inline]
    pub(crate) fn address(&self, page: PageNo) -> usize {
        self.base + page.index() * PAGE_BYTES
    }

    /// The far page that holds `address`.
    #[inline]
    pub(crate) fn page_of(&self, address: usize) -> Option<PageNo> {
        let index = address.wrapping_sub(self.base) / PAGE_BYTES;
        u32::try_from(index).ok().filter(|index| *index < self.count).map(PageNo)
    }

    /// The pages of a range of bytes that lie in the far range: the first, and the one after the last.
    #[inline]
    pub(crate) fn far_part(&self, address: usize, len: usize) -> Option<(u32, u32)> {
        let far_end = self.base + self.count as usize * PAGE_BYTES;
        let start = address.max(self.base);
        let end = address.saturating_add(len).min(far_end);
        if start >= end {
            return None;
        }
        let last = self.page_of(end - 1)?;
        Some((self.page_of(start)?.0, last.0 + 1))
    }

    /// The figures of this process.
    #[inline]
    pub(crate) fn row(&self) -> &'static ProcessRow {
        // SAFETY: always a `&'static ProcessRow`.
        unsafe { &*self.row.load(Relaxed) }
    }

    /// In the child of a fork, which has a row of its own.
    pub(crate) fn set_row(&self, row: &'static ProcessRow) {
        self.row.store(std::ptr::from_ref(row).cast_mut(), Relaxed);
    }

    /// The state of a page.
    #[inline]
    pub(crate) fn state(&self, page: PageNo) -> State {
        self.table.load(page).state()
    }

    /// Whether a page is to be fetched ahead of the program: it is far, and no thread is about to overwrite it.
    #[inline]
    pub(crate) fn is_to_come(&self, entry: Entry) -> bool {
        entry.state() == State::Remote && self.overwriters.overwriter(entry).is_none()
    }

    /// Takes back what was said of pages that are to be overwritten: they are about to be written to, but not by the program.
    pub(crate) fn forget_marks(&self, pages: impl Iterator<Item = PageNo>) {
        for page in pages {
            let mut entry = self.table.load(page);
            while entry.mark() != 0 && !self.table.mark(page, entry, 0) {
                entry = self.table.load(page);
            }
        }
    }

    /// Ends a page's busy state and wakes the threads that wait for it.
    fn complete(&self, page: PageNo, to: Entry) {
        if self.table.complete(page, to) {
            self.wake(self.address(page), PAGE_BYTES);
        }
    }

    /// Lets the threads that wait for pages in `start .. start + len` look again.
    pub(crate) fn wake(&self, start: usize, len: usize) {
        match self.path {
            FaultPath::Monitor => self.kernel.uffd().wake(start, len),
            FaultPath::Inline => self.waiters.wake(),
        }
    }

    /// The calling thread is at a point, about a page: tests hold it there.
    #[inline]
    pub(crate) fn at(&self, point: Point, page: PageNo) {
        self.schedule.at(point, page);
    }

    /// Ends the program: a page cannot be proven right, or there is no place for one.
    pub(crate) fn fatal(&self, message: &str) -> ! {
        // A node's own words may be in it.
        self.end_with(&Foreign(message).to_string())
    }

    /// The same with words of ours; allocates nothing.
    pub(crate) fn end_with(&self, message: &str) -> ! {
        let row = self.row();
        row.fatal.set(message);
        // A launcher that reads the row says it; without one nobody else would.
        if row.pid.load(Relaxed) == 0 {
            ["hinterland: ", message, "\n"].into_iter().for_each(thread::write_stderr);
        }
        thread::exit_now(FATAL_EXIT_CODE)
    }
}

/// A page and its neighbours above it, `pages` together.
pub(crate) fn neighbours(first: PageNo, pages: usize) -> impl ExactSizeIterator<Item = PageNo> + Clone {
    (0..pages).map(move |offset| PageNo(first.0 + u32::try_from(offset).unwrap_or(0)))
}

/// Pages at the start of `sorted` that are neighbours.
pub(crate) fn run_length<T>(sorted: &[T], page: impl Fn(&T) -> PageNo) -> usize {
    let neighbours = sorted.windows(2).take_while(|pair| page(&pair[1]).0 == page(&pair[0]).0 + 1).count();
    neighbours + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_gaps() {
        let pages: Vec<PageNo> = [3, 4, 5, 9, 10].into_iter().map(PageNo).collect();
        let length = |from: usize| run_length(&pages[from..], |page| *page);
        assert_eq!([length(0), length(3), length(4)], [3, 2, 1]);
        assert_eq!(neighbours(PageNo(3), 3).collect::<Vec<_>>(), pages[..3]);
    }
}
