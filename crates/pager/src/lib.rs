//! Page states, swap cache, reclaim and budgets.

use hinterland_units::PageNo;
use std::io;

/// First address of the far range: fixed, so that a filter, a tape or a debugger recognises a far pointer.
pub const FAR_BASE: usize = 0x2000_0000_0000;
/// Pages in the far range: 4 TiB of address space.
pub const FAR_PAGES: u32 = 1 << 30;

/// Placeholder of the pager's face to the interposition layer: everything stays local.
pub struct Pager {
    _private: (),
}

impl Pager {
    /// Drops the content of `count` pages from `first`: they read as zero afterwards, their frames and far space are given
    /// back. The meaning of `MADV_DONTNEED`. Protection stays.
    pub fn discard(&self, first: PageNo, count: u32) {
        let _ = (first, count);
    }

    /// Drops the far copies of pages that are not local: those pages read as zero afterwards; local pages keep their
    /// content. For memory that was freed: nobody will read it, and it must not take far space.
    pub fn drop_remote(&self, first: PageNo, count: u32) {
        let _ = (first, count);
    }

    /// Makes `count` pages from `first` read as zero in the cheapest way: overwrites those that are mapped, drops the rest.
    /// The pages must be readable and writable, and the caller their only user.
    pub fn zero(&self, first: PageNo, count: u32) {
        let _ = (first, count);
    }

    /// Moves the content of `count` pages from `from` to `to` (both read-write, not overlapping); what `to` held is dropped,
    /// `from` reads as zero afterwards. No page is fetched for it.
    pub fn relocate(&self, from: PageNo, to: PageNo, count: u32) {
        let _ = (from, to, count);
    }

    /// `mprotect` on far pages. `protection` is a set of `PROT_*` bits. Content stays, also of evicted pages.
    pub fn protect(&self, first: PageNo, count: u32, protection: i32) -> io::Result<()> {
        let _ = (first, count, protection);
        Ok(())
    }

    /// Brings `count` pages in and keeps them (`mlock`), until `unlock`. With `on_fault`, keeps only those that come by
    /// themselves (`MLOCK_ONFAULT`).
    pub fn lock(&self, first: PageNo, count: u32, on_fault: bool) -> io::Result<()> {
        let _ = (first, count, on_fault);
        Ok(())
    }

    /// Ends `lock`.
    pub fn unlock(&self, first: PageNo, count: u32) -> io::Result<()> {
        let _ = (first, count);
        Ok(())
    }

    /// Whether each page has content (the meaning of `mincore`: local means 1).
    pub fn is_local(&self, page: PageNo) -> bool {
        let _ = page;
        true
    }

    /// Hands a run of pages over to a mapping that is not ours (a file mapped with `MAP_FIXED` inside the far range): content
    /// dropped; the pager will not touch these pages until `take_back`.
    pub fn give_up(&self, first: PageNo, count: u32) {
        let _ = (first, count);
    }

    /// Maps inaccessible anonymous memory over a run that was given up and manages it again.
    pub fn take_back(&self, first: PageNo, count: u32) -> io::Result<()> {
        let _ = (first, count);
        Ok(())
    }
}
