//! Which pages of the far heap belong to extents that jemalloc keeps for reuse: their content is unused until an extent
//! is reused. Pages that leave meanwhile are neither compressed nor stored ([`hinterland_pager::Pager::freed`]).
//!
//! No hook of jemalloc's is called when an extent is freed, or reused before its time has come, so the linker puts
//! these functions in the place of its own (`--wrap`, `build.rs`). An extent is marked before jemalloc may allocate
//! from it, and unmarked before an object in it is returned.
//!
//! Sources: jemalloc 5.3.1 `src/pac.c` (their callers), `src/extent.c`, `src/eset.c`, `src/base.c`, `include/jemalloc/internal/edata.h`.

use crate::region_map;
use hinterland_units::{PAGE_BYTES, PageNo};
use libc::c_void;

/// What an `edata_t` begins with.
#[repr(C)]
struct Extent {
    bits: u64,
    address: usize,
    /// Above a serial number, which takes the bits of a page.
    bytes: usize,
}

impl Extent {
    /// Its pages, if it is far.
    fn pages(&self) -> Option<(PageNo, u32)> {
        let first = self.address & !(PAGE_BYTES - 1);
        let count = u32::try_from(self.bytes / PAGE_BYTES).ok()?;
        region_map::contains(first).then(|| (PageNo(region_map::page_of(first)), count))
    }

    fn is_reused(&self) {
        if let (Some((first, count)), Some(pager)) = (self.pages(), crate::pager()) {
            pager.reused(first, count);
        }
    }

    fn is_freed(&self) {
        if let (Some((first, count)), Some(pager)) = (self.pages(), crate::pager()) {
            pager.freed(first, count);
        }
    }
}

/// What jemalloc passes on from one function to the next, unseen here.
type Passed = *mut c_void;

unsafe extern "C" {
    fn __real__rjem_je_ecache_alloc(
        thread: Passed,
        pac: Passed,
        hooks: Passed,
        cache: Passed,
        expands: *mut Extent,
        bytes: usize,
        alignment: usize,
        zero: bool,
        guarded: bool,
    ) -> *mut Extent;
    fn __real__rjem_je_ecache_alloc_grow(
        thread: Passed,
        pac: Passed,
        hooks: Passed,
        cache: Passed,
        expands: *mut Extent,
        bytes: usize,
        alignment: usize,
        zero: bool,
        guarded: bool,
    ) -> *mut Extent;
    fn __real__rjem_je_ecache_dalloc(thread: Passed, pac: Passed, hooks: Passed, cache: Passed, extent: *mut Extent);
}

/// An extent is taken out of those that are kept for reuse. What jemalloc itself has written to it by then is zeros.
///
/// # Safety
/// As jemalloc's `ecache_alloc`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "jemalloc's")]
unsafe extern "C" fn __wrap__rjem_je_ecache_alloc(
    thread: Passed,
    pac: Passed,
    hooks: Passed,
    cache: Passed,
    expands: *mut Extent,
    bytes: usize,
    alignment: usize,
    zero: bool,
    guarded: bool,
) -> *mut Extent {
    // SAFETY: the caller's arguments; the extent that comes back is the caller's alone.
    unsafe {
        let extent = __real__rjem_je_ecache_alloc(thread, pac, hooks, cache, expands, bytes, alignment, zero, guarded);
        if let Some(extent) = extent.as_ref() {
            extent.is_reused();
        }
        extent
    }
}

/// The same of address space whose pages were dropped, or new.
///
/// # Safety
/// As jemalloc's `ecache_alloc_grow`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "jemalloc's")]
unsafe extern "C" fn __wrap__rjem_je_ecache_alloc_grow(
    thread: Passed,
    pac: Passed,
    hooks: Passed,
    cache: Passed,
    expands: *mut Extent,
    bytes: usize,
    alignment: usize,
    zero: bool,
    guarded: bool,
) -> *mut Extent {
    // SAFETY: as above.
    unsafe {
        let extent =
            __real__rjem_je_ecache_alloc_grow(thread, pac, hooks, cache, expands, bytes, alignment, zero, guarded);
        if let Some(extent) = extent.as_ref() {
            extent.is_reused();
        }
        extent
    }
}

/// An extent is put among those that are kept for reuse.
///
/// # Safety
/// As jemalloc's `ecache_dalloc`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap__rjem_je_ecache_dalloc(
    thread: Passed,
    pac: Passed,
    hooks: Passed,
    cache: Passed,
    extent: *mut Extent,
) {
    // SAFETY: the caller's arguments; the extent is the caller's until the call.
    unsafe {
        (*extent).is_freed();
        __real__rjem_je_ecache_dalloc(thread, pac, hooks, cache, extent);
    }
}

/// The heaps of an arena's free extents begin as zeros, and so does their memory, which is fresh from the kernel (`base_alloc`). jemalloc
/// writes the zeros all the same, which takes a page fault for each of some fifty pages with the size classes of `jemalloc/internal/sc.h`:
/// in every start, and in every thread that gets an arena. The state, which it sets too, is for its assertions alone.
#[unsafe(no_mangle)]
extern "C" fn __wrap__rjem_je_eset_init(heaps: *const u8, _state: libc::c_uint) {
    /// Less than what jemalloc writes: a heap of 48 bytes for each size class.
    const LOOKED_AT_BYTES: usize = 16 << 10;
    // SAFETY: the caller's memory, which has no other reader or writer yet.
    debug_assert!(unsafe { std::slice::from_raw_parts(heaps, LOOKED_AT_BYTES) }.iter().all(|byte| *byte == 0));
}
