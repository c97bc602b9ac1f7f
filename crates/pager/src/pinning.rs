//! Pinning: brings pages in and keeps them local while the kernel works on them (`pin`), or for longer (`long_term_pin`).

use crate::backoff::Backoff;
use crate::fault_path::FaultPath;
use crate::inline_fault::InlineFaults;
use crate::local_memory::LocalMemory;
use crate::pages::Pages;
use crate::pin::{Pin, PinAccess, Pins};
use crate::points::Point;
use crate::state::State;
use crate::sys::mem;
use crate::wp_range::WpRanges;
use hinterland_units::{PAGE_BYTES, PageNo};
use std::ops::Range;

/// Bytes that one call pins at most, in a large budget.
const PIECE_BYTES: u64 = 4 << 20;

/// See the module.
pub(crate) struct Pinning {
    pages: &'static Pages,
    local: &'static LocalMemory,
    pins: &'static Pins,
    wp_ranges: &'static WpRanges,
    inline_faults: &'static InlineFaults,
}

impl Pinning {
    pub(crate) fn new(
        pages: &'static Pages,
        local: &'static LocalMemory,
        pins: &'static Pins,
        wp_ranges: &'static WpRanges,
        inline_faults: &'static InlineFaults,
    ) -> Pinning {
        Pinning { pages, local, pins, wp_ranges, inline_faults }
    }

    /// See `Pager::pin`.
    pub(crate) fn pin(&self, address: usize, len: usize, access: PinAccess) -> Pin<'_> {
        let frame = 0u8;
        self.pin_for(address, len, access, (&raw const frame).addr())
    }

    /// See `Pager::pin_for`.
    pub(crate) fn pin_for(&self, address: usize, len: usize, access: PinAccess, frame: usize) -> Pin<'_> {
        let none = Pin::none(self.pins);
        if self.pages.path == FaultPath::Monitor {
            // The kernel waits for missing pages as the program does.
            return none;
        }
        let Some((first, end)) = self.pages.far_part(address, len) else { return none };
        let pin = Pin::of(self.pins, first, end, frame);
        self.pages.at(Point::Pinned, PageNo(first));
        self.wp_ranges.wait_outside(first, end);
        for page in (first..end).map(PageNo) {
            self.bring_for_kernel(page, access);
        }
        pin
    }

    /// A pin that does not belong to a call, on both paths: `Pins::sweep` leaves it alone. For pages that the program may write.
    pub(crate) fn pin_for_good(&self, address: usize, len: usize) -> Pin<'_> {
        match (self.pages.path, self.pages.far_part(address, len)) {
            (FaultPath::Inline, _) => self.pin_for(address, len, PinAccess::Write, usize::MAX),
            (FaultPath::Monitor, None) => Pin::none(self.pins),
            (FaultPath::Monitor, Some((first, end))) => {
                let pin = Pin::of(self.pins, first, end, usize::MAX);
                self.bring_by_touch(first, end);
                pin
            }
        }
    }

    /// See `Pager::pin_local`.
    #[inline]
    pub(crate) fn pin_local(&self, address: usize, len: usize) -> Option<Pin<'_>> {
        let none = Pin::none(self.pins);
        if self.pages.path == FaultPath::Monitor {
            return Some(none);
        }
        let Some((first, end)) = self.pages.far_part(address, len) else { return Some(none) };
        let pin = Pin::of(self.pins, first, end, (&raw const first).addr());
        let is_local = |page| self.pages.table.load(page).state() == State::Resident && self.pages.table.is_open(page);
        (!self.wp_ranges.touch(first, end) && (first..end).map(PageNo).all(is_local)).then_some(pin)
    }

    /// Pins the stack of the calling thread, on both paths, without bringing anything in; `None` if a page of it is not local.
    pub(crate) fn pin_stack(&self, stack: Range<usize>) -> Option<Pin<'_>> {
        let Some((first, end)) = self.pages.far_part(stack.start, stack.len()) else {
            return Some(Pin::none(self.pins));
        };
        let pin = Pin::of(self.pins, first, end, usize::MAX);
        self.wp_ranges.wait_outside(first, end);
        (first..end).map(PageNo).all(|page| self.pages.table.load(page).state() == State::Resident).then_some(pin)
    }

    /// See `Pager::pin_piece`.
    pub(crate) fn piece_bytes(&self) -> usize {
        const SHARE: u64 = 16;
        usize::try_from((self.local.account.budget().bytes() / SHARE).min(PIECE_BYTES)).unwrap_or(PAGE_BYTES)
            & !(PAGE_BYTES - 1)
    }

    /// See `Pager::pin_long_term`.
    pub(crate) fn pin_long_term(&self, address: usize, len: usize) -> bool {
        const SHARE: u64 = 4;
        let Some((first, end)) = self.pages.far_part(address, len) else { return true };
        let pins = &self.pins.long_term;
        // Several mutexes may lie in one page.
        let more = (first..end).filter(|page| !pins.touch(PageNo(*page), PageNo(page + 1))).count();
        if more > 0 && (pins.pages() + more) as u64 * SHARE > self.local.shared_budget.budget().0 {
            return false;
        }
        if !(first..end).map(PageNo).all(|page| pins.add(page, self.pages.count)) {
            return false;
        }
        self.bring_by_touch(first, end);
        true
    }

    /// See `Pager::unpin_long_term`.
    pub(crate) fn unpin_long_term(&self, address: usize, len: usize) {
        if let Some((first, end)) = self.pages.far_part(address, len) {
            self.pins.long_term.remove_all(PageNo(first), end - first);
        }
    }

    /// Makes pinned pages `Resident` as the program does: by touching them. Waits for a thread that is taking one out.
    pub(crate) fn bring_by_touch(&self, first: u32, end: u32) {
        self.pages.forget_marks((first..end).map(PageNo));
        self.wp_ranges.wait_outside(first, end);
        for page in (first..end).map(PageNo) {
            let mut backoff = Backoff::new();
            while !matches!(self.pages.table.load(page).state(), State::Resident | State::Foreign | State::Sectioned)
                && self.pages.table.is_open(page)
            {
                // SAFETY: the caller's promise: the program may write here.
                unsafe { mem::touch(self.pages.address(page)) };
                self.pages.at(Point::WaitsForOwner, page);
                backoff.pause();
            }
        }
    }

    /// Makes a page that is pinned `Resident` and writable for the kernel, if the program may touch it.
    fn bring_for_kernel(&self, page: PageNo, access: PinAccess) {
        loop {
            let entry = self.pages.table.load(page);
            match entry.state() {
                State::Resident | State::Foreign | State::Sectioned => return,
                _ if !self.pages.table.is_open(page) => return,
                // The kernel may write less than the whole page.
                State::Remote if entry.mark() != 0 => self.pages.table.mark(page, entry, 0),
                _ => self.inline_faults.bring(self.pages.address(page), access == PinAccess::Write),
            };
        }
    }
}
