//! The allocator under the far heap: jemalloc, with its objects far and everything it knows about them near.
//!
//! ```text
//! arena 0 (automatic, default hooks)   near: thread caches, jemalloc's own data
//! arenas 1 … n (made here, our hooks)  objects far; metadata near (metadata_use_hooks = false)
//! ```
//! A thread is bound to a far arena at its first allocation, so its automatic thread cache serves far objects. Whether it is
//! bound is not asked beforehand: an unbound thread gets an object from arena 0, which the address tells; only then is the
//! thread bound and the object exchanged. Before a large object it is asked.
//!
//! jemalloc never reads or writes memory that is free (arena bitmaps and extent headers lie outside), so a freed page that
//! was evicted is not fetched until it is used again.
//!
//! Size classes are finer than jemalloc's own: 16 from each power of two to the next (`jemalloc/internal/sc.h` beside `src`). What jemalloc keeps
//! about an extent is no larger for it (`bitmap.h` there).
//!
//! Sources: jemalloc 5.3.1 `src/arena.c`, `src/base.c` (`metadata_use_hooks`), `src/tcache.c` (caches come from arena 0).

use crate::errno::Preserved;
use crate::memory_limit::{self, Account};
use crate::on_near_stack;
use crate::region_map::{self, Attributes, Kind};
use libc::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::Relaxed};
use tikv_jemalloc_sys as je;

use hinterland_units::{PAGE_BYTES, PageNo};

/// Read by jemalloc after every other source of options, so that no variable of the environment changes what follows.
///
/// - `narenas:1`: only arena 0 is automatic. `oversize_threshold:0`: no further arena for large objects.
/// - `dirty_decay_ms:1000`: freed pages keep their frames for reuse (a first touch costs a fault) and are dropped smoothly
///   over a second: garbage is neither evicted nor kept for long. `muzzy_decay_ms:0`: they are dropped at once then.
/// - `cache_oblivious:false`: large objects start on a page, so whole pages can be moved and dropped.
/// - `dss:disabled`: never the break, which is the program's.
/// - `slab_sizes`: objects that fit a page exactly share slabs of four pages and two instead of one, for each of which jemalloc keeps a header.
macro_rules! options {
    ($more:literal) => {
        exactly(concat!(
            "narenas:1,percpu_arena:disabled,oversize_threshold:0,background_thread:false,",
            "hpa:false,retain:true,cache_oblivious:false,dss:disabled,dirty_decay_ms:1000,muzzy_decay_ms:0,tcache:true,",
            "lg_tcache_max:15,thp:never,metadata_thp:disabled,abort:false,abort_conf:false,confirm_conf:false,stats_print:false,",
            "junk:false,zero:false,",
            "slab_sizes:16-16:2|32-32:4|64-64:4|128-128:4|256-256:4|512-512:4|1024-1024:4|2048-2048:4|4096-4096:2",
            $more,
            "\0"
        ))
    };
}

/// The bytes of a text that has so many.
const fn exactly<const BYTES: usize>(text: &str) -> [u8; BYTES] {
    assert!(text.len() == BYTES, "the text has another length");
    *text.as_bytes().first_chunk().expect("it has that length")
}

static OPTIONS: [u8; 421] = options!("");

/// Those of a run in which an allocation does not depend on the time.
///
/// - `experimental_tcache_gc:false`: threads' caches give back objects after so many bytes of allocations, as before 5.3.1. Otherwise they do so every 10 ms.
static REPEATING_OPTIONS: [u8; 450] = options!(",experimental_tcache_gc:false");

// The pointer that jemalloc reads. Hidden: no symbol of the program's may take its place.
core::arch::global_asm!(
    ".pushsection .data",
    ".balign 8",
    ".globl _rjem_malloc_conf_2_conf_harder",
    ".hidden _rjem_malloc_conf_2_conf_harder",
    "_rjem_malloc_conf_2_conf_harder:",
    ".quad {text}",
    ".popsection",
    text = sym OPTIONS,
);

unsafe extern "C" {
    /// The pointer above.
    #[link_name = "_rjem_malloc_conf_2_conf_harder"]
    static CHOSEN_OPTIONS: AtomicPtr<u8>;
}

/// The far arenas' indices, handed to threads in turn; each is made when its first thread comes.
struct Arenas {
    indices: [AtomicU32; ARENAS_MAX],
    in_use: AtomicUsize,
    turn: AtomicUsize,
}

static ARENAS: Arenas = Arenas {
    indices: [const { AtomicU32::new(UNMADE) }; ARENAS_MAX],
    in_use: AtomicUsize::new(0),
    turn: AtomicUsize::new(0),
};

const UNMADE: c_uint = c_uint::MAX;
/// Far arenas for each processor; jemalloc's own default. Their number is bounded because each keeps freed pages of its own.
const ARENAS_PER_CPU: usize = 4;
const ARENAS_MAX: usize = 16;

/// `arena_config_t` of jemalloc.
#[repr(C)]
struct ArenaConfig {
    extent_hooks: *const je::extent_hooks_t,
    metadata_use_hooks: bool,
}

struct Hooks(je::extent_hooks_t);
// SAFETY: a table of functions that is never written.
unsafe impl Sync for Hooks {}

static HOOKS: Hooks = Hooks(je::extent_hooks_t {
    alloc: Some(extent_alloc),
    dalloc: Some(extent_keep),
    destroy: None,
    commit: None,
    decommit: None,
    purge_lazy: None,
    purge_forced: Some(extent_purge),
    split: Some(extent_split),
    merge: Some(extent_merge),
});

/// Why the far heap cannot be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("jemalloc refused to make a far arena: error {0}")]
pub struct ArenaError(c_int);

/// Initialises jemalloc (which hands over its fork handlers now) and makes the first far arena. `repeats`: which pages an object gets does
/// not depend on the time, so nothing is dropped because it is free for long.
///
/// # Errors
/// The number that jemalloc's control interface returned.
pub fn init(repeats: bool) -> Result<(), ArenaError> {
    if repeats {
        // SAFETY: a pointer that only jemalloc reads, at its first call, which has not come.
        unsafe { CHOSEN_OPTIONS.store(REPEATING_OPTIONS.as_ptr().cast_mut(), Relaxed) };
        never_decay()?;
    }
    // SAFETY: a set of processors is a plain bit field, and valid for the calls.
    let cpus = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        usize::try_from(libc::CPU_COUNT(&set)).unwrap_or(1).max(1)
    };
    ARENAS.indices[0].store(make_arena()?, Relaxed);
    ARENAS.in_use.store((cpus * ARENAS_PER_CPU).min(ARENAS_MAX), Relaxed);
    Ok(())
}

/// Arenas that are made from now on keep freed pages until they are asked to drop them.
fn never_decay() -> Result<(), ArenaError> {
    let mut never: isize = -1;
    // SAFETY: the new value has the size that this control names.
    let rc = unsafe {
        let name = c"arenas.dirty_decay_ms".as_ptr();
        let never = (&raw mut never).cast();
        je::mallctl(name, std::ptr::null_mut(), std::ptr::null_mut(), never, size_of::<isize>())
    };
    if rc == 0 { Ok(()) } else { Err(ArenaError(rc)) }
}

/// Makes a far arena; returns its index.
fn make_arena() -> Result<c_uint, ArenaError> {
    let config = ArenaConfig { extent_hooks: &raw const HOOKS.0, metadata_use_hooks: false };
    let mut index: c_uint = 0;
    let mut bytes = size_of::<c_uint>();
    // SAFETY: old and new value have the sizes that this control names; the hooks live for ever.
    let rc = unsafe {
        let config = (&raw const config).cast_mut().cast();
        let name = c"experimental.arenas_create_ext".as_ptr();
        je::mallctl(name, (&raw mut index).cast(), &raw mut bytes, config, size_of::<ArenaConfig>())
    };
    if rc == 0 { Ok(index) } else { Err(ArenaError(rc)) }
}

/// The far arena for the next thread; `None` before `init`, or when jemalloc can make no more.
fn next_arena() -> Option<c_uint> {
    let turn = ARENAS.turn.fetch_add(1, Relaxed).checked_rem(ARENAS.in_use.load(Relaxed))?;
    let slot = &ARENAS.indices[turn];
    match slot.load(Relaxed) {
        UNMADE => {
            let made = make_arena().ok()?;
            // Two threads at once make one arena too many, which stays empty.
            Some(slot.compare_exchange(UNMADE, made, Relaxed, Relaxed).map_or_else(|other| other, |_| made))
        }
        index => Some(index),
    }
}

/// Allocates far memory; null when there is none. (Near memory of glibc's for a thread that is ending: see `exchange`.)
#[inline]
pub fn allocate(bytes: usize) -> *mut c_void {
    let bytes = request_bound(bytes);
    // SAFETY: any size may be asked for.
    let pointer = unsafe { je::malloc(bytes) };
    if is_far(pointer) { pointer } else { exchange(pointer, bytes, 16, false) }
}

/// As `allocate`, all zeros; overwrites what it reuses.
#[inline]
pub fn allocate_zeroed(bytes: usize) -> *mut c_void {
    let bytes = request_bound(bytes);
    // SAFETY: any size may be asked for.
    let pointer = unsafe { je::calloc(1, bytes) };
    if is_far(pointer) { pointer } else { exchange(pointer, bytes, 16, true) }
}

/// As `allocate`, the address a multiple of `alignment`, a power of two.
pub fn allocate_aligned(alignment: usize, bytes: usize) -> *mut c_void {
    let bytes = request_bound(bytes);
    // SAFETY: the alignment is a power of two and the size is not 0.
    let pointer = unsafe { je::mallocx(bytes, je::MALLOCX_ALIGN(alignment)) };
    if is_far(pointer) { pointer } else { exchange(pointer, bytes, alignment, false) }
}

/// Changes an object's size without moving it, as far as that goes; returns its usable size afterwards.
///
/// # Safety
/// `pointer` is a far object; `bytes` is not 0.
pub unsafe fn resize_in_place(pointer: *mut c_void, bytes: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { je::xallocx(pointer, bytes, 0, 0) }
}

/// Frees a far object.
///
/// # Safety
/// `pointer` is a far object and is not used afterwards.
#[inline]
pub unsafe fn free(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { je::free(pointer) };
}

/// The bytes that an object may use.
///
/// # Safety
/// `pointer` is a far object.
#[inline]
pub unsafe fn usable_size(pointer: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { je::sallocx(pointer, 0) }
}

/// Drops all free pages of the far heap now.
pub fn purge() {
    control_all_arenas("purge");
}

/// Drops those free pages whose time has come, also of arenas that no thread uses now.
pub fn decay() {
    #[cfg(feature = "heap-account")]
    crate::heap_account::look(&far_arenas().collect::<Vec<_>>());
    control_all_arenas("decay");
}

/// The far arenas that there are.
fn far_arenas() -> impl Iterator<Item = c_uint> {
    ARENAS.indices.iter().map(|slot| slot.load(Relaxed)).filter(|index| *index != UNMADE)
}

fn control_all_arenas(what: &str) {
    for index in far_arenas() {
        let name = format!("arena.{index}.{what}\0");
        // SAFETY: the name is a C string; this control takes no values.
        unsafe {
            je::mallctl(name.as_ptr().cast(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), 0)
        };
    }
}

#[inline]
fn is_far(pointer: *mut c_void) -> bool {
    region_map::contains(pointer as usize)
}

/// From this size on an object has its pages to itself.
pub const WHOLE_PAGES_BYTES: usize = 32 << 10;

/// What is asked of jemalloc for an object of `bytes`: glibc aligns every object to 16 bytes, also the smallest, where jemalloc
/// would align one of 8 bytes to 8. Classes below 64 KiB are finer than a page; those that are whole pages share none.
#[inline]
fn request(bytes: usize) -> usize {
    if bytes < WHOLE_PAGES_BYTES { bytes.max(16) } else { bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes) }
}

/// From this size on an object is not exchanged: arena 0 would keep the near one's pages for another, writable, and beside those of the far one they
/// can be more than the limit on writable memory.
const LARGE_BYTES: usize = 1 << 20;

/// As `request`, by a thread that is bound if the object is large.
#[inline]
fn request_bound(bytes: usize) -> usize {
    let bytes = request(bytes);
    if bytes >= LARGE_BYTES {
        bind_first();
    }
    bytes
}

/// Binds the calling thread, if it is not bound.
#[inline(never)]
fn bind_first() {
    let (mut arena, mut len): (c_uint, usize) = (0, size_of::<c_uint>());
    // SAFETY: the name is a C string, and there is room for the value, which has the size that the name has.
    let asked = unsafe {
        je::mallctl(c"thread.arena".as_ptr(), (&raw mut arena).cast(), &raw mut len, std::ptr::null_mut(), 0)
    };
    if asked == 0 && arena == 0 {
        bind();
    }
}

/// Exchanges an object that arena 0 gave for a far one, and binds the thread, so that this stays the exception.
///
/// A thread whose thread-specific data is gone (it runs late destructors) cannot be bound: jemalloc serves it from arena 0
/// whatever it asks for. What it allocates is glibc's then, which is near but as good for the little time left.
#[cold]
fn exchange(near: *mut c_void, bytes: usize, alignment: usize, zeroed: bool) -> *mut c_void {
    if near.is_null() {
        return near;
    }
    // SAFETY: the object was just allocated by jemalloc.
    unsafe { je::dallocx(near, je::MALLOCX_TCACHE_NONE) };
    bind();
    let flags = if zeroed { je::MALLOCX_ZERO } else { 0 } | je::MALLOCX_ALIGN(alignment);
    // SAFETY: the size is not 0 and the alignment is a power of two.
    let again = unsafe { je::mallocx(bytes, flags) };
    if again.is_null() || is_far(again) {
        return again;
    }
    // SAFETY: as above.
    unsafe { je::dallocx(again, je::MALLOCX_TCACHE_NONE) };
    let late = crate::libc_heap::memalign(alignment, bytes);
    if zeroed && !late.is_null() {
        // SAFETY: just allocated with this size.
        unsafe { late.cast::<u8>().write_bytes(0, bytes) };
    }
    late
}

/// Binds the calling thread to a far arena; near objects leave its cache first. Failure shows in the next object's address.
fn bind() {
    let Some(mut arena) = next_arena() else { return };
    let nothing = std::ptr::null_mut;
    // SAFETY: the names are C strings, the value has the size that `thread.arena` names.
    unsafe {
        je::mallctl(c"thread.tcache.flush".as_ptr(), nothing(), std::ptr::null_mut(), nothing(), 0);
        let new = (&raw mut arena).cast();
        je::mallctl(c"thread.arena".as_ptr(), nothing(), std::ptr::null_mut(), new, size_of::<c_uint>());
    }
}

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
    const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
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
        if memory_limit::check_tables(pager, first, count, bytes).is_err()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What an object of `bytes` takes.
    fn taken(bytes: usize) -> usize {
        // SAFETY: any size but 0 may be asked about.
        unsafe { je::nallocx(request(bytes), 0) }
    }

    /// Fails where the library was built without `.cargo/config.toml`.
    #[test]
    fn objects_take_at_most_a_sixteenth_more_than_they_ask_for() {
        for bytes in 512..WHOLE_PAGES_BYTES {
            let taken = taken(bytes);
            assert!(taken >= bytes && taken <= bytes + bytes / 16 + 16, "{bytes} bytes take {taken}");
        }
        assert_eq!(taken(4344), 4352);
    }

    #[test]
    fn larger_objects_take_whole_pages_and_no_more() {
        for bytes in (WHOLE_PAGES_BYTES..1 << 20).step_by(61) {
            assert_eq!(taken(bytes), bytes.next_multiple_of(PAGE_BYTES), "{bytes} bytes");
        }
        assert_eq!(request(usize::MAX), usize::MAX, "what cannot be had is asked for as it is");
    }
}
