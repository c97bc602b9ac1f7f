//! What jemalloc asks of the far range: runs of pages, and what becomes of those that it keeps for reuse.
//!
//! Sources: jemalloc 5.3.1 `src/extent.c` (who calls them: `extent_dalloc_wrapper`, `extent_commit_zero`), jemalloc(3), `arena.<i>.extent_hooks`.

use crate::Pager;
use crate::errno::Preserved;
use crate::memory_limit::{self, Account};
use crate::on_near_stack;
use crate::region_map::{self, Attributes, Kind, RegionMap};
use hinterland_units::{PAGE_BYTES, PageNo};
use libc::{c_uint, c_void};
use tikv_jemalloc_sys as je;

pub(super) struct Hooks(je::extent_hooks_t);
// SAFETY: a table of functions that is never written.
unsafe impl Sync for Hooks {}

pub(super) static HOOKS: Hooks = Hooks(je::extent_hooks_t {
    alloc: Some(extent_alloc),
    dalloc: Some(extent_keep),
    destroy: None,
    commit: Some(extent_open),
    decommit: Some(extent_close),
    purge_lazy: None,
    purge_forced: Some(extent_purge),
    split: Some(extent_split),
    merge: Some(extent_merge),
});

impl Hooks {
    pub(super) fn table(&'static self) -> *const je::extent_hooks_t {
        &raw const self.0
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The pages of an extent: jemalloc's sizes and addresses are multiples of the page.
fn pages(address: *mut c_void, bytes: usize) -> (u32, u32) {
    let count = u32::try_from(bytes / PAGE_BYTES).expect("an extent is no larger than the far range");
    (region_map::page_of(address as usize), count)
}

/// Gives jemalloc a run of pages: at `wanted` or nowhere, if that is not null.
unsafe extern "C" fn extent_alloc(
    _: *mut je::extent_hooks_t,
    wanted: *mut c_void,
    bytes: usize,
    alignment: usize,
    zero: *mut bool,
    commit: *mut bool,
    _: c_uint,
) -> *mut c_void {
    let _errno = Preserved::new();
    let (Some(pager), Ok(count)) = (crate::pager(), u32::try_from(bytes / PAGE_BYTES)) else {
        return std::ptr::null_mut();
    };
    if pager.is_escaped() {
        return std::ptr::null_mut();
    }
    let Ok(alignment) = u32::try_from(alignment.max(PAGE_BYTES) / PAGE_BYTES) else { return std::ptr::null_mut() };
    let attributes = Attributes::plain(Kind::Heap, READ_WRITE);
    let open = || {
        let mut region_map = region_map::lock();
        memory_limit::check_in(&region_map, |_| Account::of_mapping(bytes, true)).ok()?;
        let first = if wanted.is_null() {
            region_map.place(count, alignment, attributes)
        } else {
            let first = region_map::contains(wanted as usize).then(|| region_map::page_of(wanted as usize));
            first.filter(|first| region_map.place_at(*first, count, attributes))
        }?;
        let tables = pager.missing_table_bytes(PageNo(first), count);
        if memory_limit::check_tables(tables, bytes).is_err()
            || pager.protect(PageNo(first), count, READ_WRITE).is_err()
        {
            region_map.remove(first, count);
            return None;
        }
        Some(first)
    };
    let Some(first) = on_near_stack(open) else { return std::ptr::null_mut() };
    // SAFETY: jemalloc passes valid flags. Pages that are free in the region map have no content: they read as zero.
    unsafe {
        *zero = true;
        *commit = true;
    }
    region_map::address_of(first) as *mut c_void
}

/// Refuses to take an extent back: jemalloc keeps the address space, whose pages it has dropped, for reuse.
unsafe extern "C" fn extent_keep(_: *mut je::extent_hooks_t, _: *mut c_void, _: usize, _: bool, _: c_uint) -> bool {
    true
}

/// From this size on free memory is made inaccessible where writable memory is limited: it no longer counts. Each such hole is a mapping of the kernel's
/// more, of which a process has 65,530; and glibc keeps smaller objects for reuse, too.
pub const CLOSED_BYTES: usize = 1 << 20;

/// Gives an extent's pages a protection, in the region map as well; false: the kernel refuses.
fn protect(pager: &'static Pager, region_map: &mut RegionMap, (first, count): (u32, u32), protection: i32) -> bool {
    let done = pager.protect(PageNo(first), count, protection).is_ok();
    if done {
        region_map.update(first, count, |attributes| attributes.protection = protection);
    }
    done
}

/// Makes an extent that is kept for reuse inaccessible, so that it does not count against a limit. Without one, or where that would not save much, refuses:
/// then jemalloc has its pages dropped.
unsafe extern "C" fn extent_close(
    _: *mut je::extent_hooks_t,
    address: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> bool {
    let _errno = Preserved::new();
    let is_worth_it = bytes >= CLOSED_BYTES && memory_limit::bounds_data();
    let Some(pager) = crate::pager().filter(|pager| is_worth_it && !pager.is_escaped()) else { return true };
    let (first, count) = pages(address.wrapping_byte_add(offset), bytes);
    on_near_stack(|| {
        let closed = protect(pager, &mut region_map::lock(), (first, count), libc::PROT_NONE);
        if closed {
            pager.unmap(PageNo(first), count);
        }
        !closed
    })
}

/// Makes an extent accessible again that is to be reused; it reads as zeros. Refuses where a limit is reached.
unsafe extern "C" fn extent_open(
    _: *mut je::extent_hooks_t,
    address: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> bool {
    let _errno = Preserved::new();
    let Some(pager) = crate::pager().filter(|pager| !pager.is_escaped()) else { return true };
    let extent = pages(address.wrapping_byte_add(offset), bytes);
    on_near_stack(|| {
        let mut region_map = region_map::lock();
        let fits = memory_limit::check_in(&region_map, |_| Account { address_space: 0, data: bytes }).is_ok();
        !(fits && protect(pager, &mut region_map, extent, READ_WRITE))
    })
}

/// Drops the content of free pages; they read as zero afterwards.
unsafe extern "C" fn extent_purge(
    _: *mut je::extent_hooks_t,
    address: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> bool {
    let _errno = Preserved::new();
    let Some(pager) = crate::pager() else { return true };
    let (first, count) = pages(address.wrapping_byte_add(offset), bytes);
    on_near_stack(|| pager.discard(PageNo(first), count));
    false
}

/// Extents may be split anywhere.
unsafe extern "C" fn extent_split(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}

/// Extents that touch may be joined.
unsafe extern "C" fn extent_merge(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}
