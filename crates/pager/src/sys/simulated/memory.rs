//! The memory of a simulated machine: which pages of its regions have a frame, and what the kernel knows of each.
//!
//! The content of a page is real memory, at the page's real address: the pager reads slots in place. Pages without a
//! frame hold junk, so that a read of a missing page is detected.

use hinterland_sys::Mapping;
use hinterland_units::PAGE_BYTES;

/// Where the number of a region begins in that of a place.
pub(crate) const PLACE_SHIFT: u32 = 24;

/// What is in memory that has no frame.
const JUNK: u8 = 0xee;

/// What the kernel knows of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Page {
    /// It has a frame.
    pub(crate) present: bool,
    /// Writes to it are faults.
    pub(crate) protected: bool,
    /// The kernel has swapped it out: there, and not in memory.
    pub(crate) swapped: bool,
    /// Its frame is lent to so many devices.
    pub(crate) devices: u8,
    /// It is locked in memory.
    pub(crate) locked: bool,
    /// What the program may do with it.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// userfaultfd serves its faults.
    pub(crate) registered: bool,
}

/// Pages at neighbouring addresses.
struct Region {
    start: usize,
    pages: Vec<Page>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Memory {
    regions: Vec<Region>,
    mappings: Vec<Mapping>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        for mapping in self.mappings.drain(..) {
            // SAFETY: the simulation is over, and with it all that used the mapping.
            unsafe { mapping.end() };
        }
    }
}

/// Why an access to a page is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoAccess {
    Missing,
    Protected,
    Forbidden,
}

impl Memory {
    /// Has a mapping end with the simulation.
    pub(crate) fn keep(&mut self, mapping: Mapping) {
        self.mappings.push(mapping);
    }

    /// Makes memory a range without frames, which the program may not touch.
    pub(crate) fn reserve(&mut self, start: usize, len: usize) {
        self.add(start, len / PAGE_BYTES, Page::default());
    }

    fn add(&mut self, start: usize, pages: usize, each: Page) {
        self.regions.push(Region { start, pages: vec![each; pages] });
    }

    /// The pages of a range that are known; memory of which nothing is known is ordinary memory.
    pub(crate) fn pages(&mut self, start: usize, len: usize) -> Option<&mut [Page]> {
        let region = self.regions.iter_mut().find(|region| {
            let bytes = region.pages.len() * PAGE_BYTES;
            start >= region.start && start + len <= region.start + bytes
        })?;
        let first = (start - region.start) / PAGE_BYTES;
        region.pages.get_mut(first..first + len.div_ceil(PAGE_BYTES))
    }

    /// A number by which a place is known in every run of a seed: region and page, for an address.
    pub(crate) fn place(&self, on: usize) -> usize {
        let at = |(number, region): (usize, &Region)| {
            let page = on.checked_sub(region.start)? / PAGE_BYTES;
            (page < region.pages.len()).then_some((number + 1) << PLACE_SHIFT | page)
        };
        // Others are numbers, or memory that the kernel has given the pager somewhere.
        let elsewhere = if on < 1 << 32 { on } else { usize::MAX >> 8 };
        self.regions.iter().enumerate().find_map(at).unwrap_or(elsewhere)
    }

    /// The page at an address.
    pub(crate) fn page(&mut self, address: usize) -> Option<&mut Page> {
        self.pages(address & !(PAGE_BYTES - 1), PAGE_BYTES).map(|pages| &mut pages[0])
    }

    /// Has userfaultfd serve the faults of a range. What was ordinary memory is readable and writable, and has no frames.
    pub(crate) fn register(&mut self, start: usize, len: usize) {
        if self.pages(start, len).is_none() {
            self.add(start, len / PAGE_BYTES, Page { readable: true, writable: true, ..Page::default() });
        }
        self.pages(start, len).into_iter().flatten().for_each(|page| page.registered = true);
    }

    /// Whether a page can be read or written.
    pub(crate) fn access(&mut self, address: usize, write: bool) -> Result<(), NoAccess> {
        let Some(page) = self.page(address) else { return Ok(()) };
        if !page.readable || write && !page.writable {
            return Err(NoAccess::Forbidden);
        }
        if !page.present {
            return Err(NoAccess::Missing);
        }
        if write && page.protected {
            return Err(NoAccess::Protected);
        }
        page.swapped = false;
        Ok(())
    }

    /// Fills a page that has no frame.
    ///
    /// # Safety
    /// `from` is a readable page.
    pub(crate) unsafe fn fill(&mut self, address: usize, from: usize) {
        let page = self.page(address).expect("a page that is known");
        assert!(!page.present);
        (page.present, page.protected, page.swapped) = (true, false, false);
        // SAFETY: the page is memory of the simulation, and no other thread of it runs now.
        unsafe { std::ptr::copy(from as *const u8, address as *mut u8, PAGE_BYTES) };
    }

    /// Takes a page's frame away.
    pub(crate) fn empty(&mut self, address: usize) {
        let Some(page) = self.page(address) else {
            // SAFETY: ordinary memory of the pager's: dropped, it reads as zero.
            return unsafe { std::ptr::write_bytes(address as *mut u8, 0, PAGE_BYTES) };
        };
        (page.present, page.protected, page.swapped, page.devices) = (false, false, false, 0);
        // SAFETY: memory of the simulation.
        unsafe { std::ptr::write_bytes(address as *mut u8, JUNK, PAGE_BYTES) };
    }

    /// Moves a frame to a page that has none.
    pub(crate) fn transfer(&mut self, from: usize, to: usize) {
        let devices = self.page(from).expect("a page that is known").devices;
        // SAFETY: both are pages of the simulation.
        unsafe { self.fill(to, from) };
        self.empty(from);
        self.page(to).expect("a page that is known").devices = devices;
    }
}
