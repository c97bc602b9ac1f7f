//! The heap: what `malloc` and its family do, as safe Rust.
//!
//! An allocation is far when it is large enough for the heap mode and its caller is neither libc nor ld.so nor this
//! library. The address tells whose a pointer is: in the far range jemalloc's, else glibc's; so objects allocated
//! before the library was ready are freed and resized correctly later.

use crate::fork::turns::TURNS;
use crate::{caller, errno, interpose, jemalloc, large, libc_heap, profile, region_map, thread_vectors};
use hinterland_abi::HeapMode;
use libc::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The smallest allocation that is far; `usize::MAX` until the library is ready.
static FAR_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The smallest far allocation of the heap mode `large`.
const LARGE_MODE_BYTES: usize = 64 << 10;

/// No object is larger: C cannot subtract its ends.
const OBJECT_BYTES_MAX: usize = isize::MAX as usize;

/// From now on the program's allocations are far, as `mode` says, unless the program brings an allocator of its own. `repeats`: in another
/// run that allocates the same they are the same pages, however long it takes.
///
/// After `caller::init` and `region_map::init`, when `crate::pager()` is ready.
///
/// # Errors
/// When jemalloc cannot make its arenas.
pub fn init(mode: HeapMode, repeats: bool) -> Result<(), jemalloc::ArenaError> {
    libc_heap::init();
    if !interpose::reaches_the_program() {
        return Ok(());
    }
    jemalloc::init(repeats)?;
    #[cfg(feature = "heap-account")]
    crate::heap_account::init();
    let from = match mode {
        HeapMode::All => 0,
        HeapMode::Large => LARGE_MODE_BYTES,
    };
    FAR_FROM.store(from, Relaxed);
    if !libc_heap::is_replaced() {
        thread_vectors::begin();
    }
    Ok(())
}

/// Whether `init` has run.
pub fn is_managed() -> bool {
    FAR_FROM.load(Relaxed) != usize::MAX
}

#[inline]
fn is_far(pointer: *mut c_void) -> bool {
    region_map::contains(pointer as usize)
}

/// Whether an allocation of `bytes` for `caller` is far.
#[inline]
fn goes_far(bytes: usize, caller: usize) -> bool {
    bytes >= FAR_FROM.load(Relaxed) && !caller::is_internal(caller)
}

/// Sets `errno` when an allocation failed.
#[inline]
fn checked(pointer: *mut c_void) -> *mut c_void {
    if pointer.is_null() {
        errno::set(libc::ENOMEM);
    }
    pointer
}

/// An allocation of so many bytes that is far, as the program gets it.
#[inline]
fn far(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    profile::allocated(pointer, bytes);
    #[cfg(feature = "heap-account")]
    crate::heap_account::allocated(pointer, bytes);
    checked(pointer)
}

/// malloc(3).
#[inline]
pub fn allocate(bytes: usize, caller: usize) -> *mut c_void {
    if goes_far(bytes, caller) { far(jemalloc::allocate(bytes), bytes) } else { libc_heap::malloc(bytes, caller) }
}

/// calloc(3).
#[inline]
pub fn allocate_zeroed(count: usize, bytes: usize, caller: usize) -> *mut c_void {
    let Some(total) = count.checked_mul(bytes) else { return checked(std::ptr::null_mut()) };
    if !goes_far(total, caller) {
        return thread_vectors::take(total).unwrap_or_else(|| libc_heap::calloc(1, total));
    }
    far(
        if total >= large::ZERO_BYTES { large::allocate_zeroed(total) } else { jemalloc::allocate_zeroed(total) },
        total,
    )
}

/// free(3).
///
/// # Safety
/// `pointer` is null or an object of this family, not used afterwards.
#[inline]
pub unsafe fn release(pointer: *mut c_void) {
    if !is_far(pointer) {
        // SAFETY: the caller's promise; what is not far is glibc's, but for what it got from us.
        return unsafe {
            if !thread_vectors::give_back(pointer) {
                libc_heap::free(pointer);
            }
        };
    }
    profile::released(pointer);
    // SAFETY: the caller's promise; what is far is jemalloc's.
    unsafe {
        if large::may_be_large(pointer) {
            large::forget_content(pointer);
        }
        jemalloc::free(pointer);
    }
}

/// realloc(3).
///
/// # Safety
/// As for `release`, if the result is not null.
pub unsafe fn reallocate(pointer: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    if pointer.is_null() {
        return allocate(bytes, caller);
    }
    if !is_far(pointer) {
        // SAFETY: the caller's promise.
        return unsafe { reallocate_near(pointer, bytes, caller) };
    }
    if bytes == 0 {
        // SAFETY: the caller's promise. glibc frees, too.
        unsafe { release(pointer) };
        return std::ptr::null_mut();
    }
    if bytes > OBJECT_BYTES_MAX {
        return checked(std::ptr::null_mut());
    }
    profile::released(pointer);
    // SAFETY: the caller's promise.
    far(unsafe { large::reallocate(pointer, bytes) }, bytes)
}

/// Resizes an object of glibc's; one that has become far by its size or owner moves.
unsafe fn reallocate_near(pointer: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    if let Some(vector) = thread_vectors::bytes_of(pointer) {
        // SAFETY: the caller's promise, and only libc has such objects.
        return unsafe { reallocate_vector(pointer, vector, bytes) };
    }
    if let Some(vector) = thread_vectors::take(bytes) {
        // SAFETY: as below. The old one, of a stack that libc had kept, is not freed: glibc's allocator must not be called now.
        unsafe {
            vector.cast::<u8>().copy_from_nonoverlapping(pointer.cast(), libc_heap::usable_size(pointer).min(bytes))
        };
        return vector;
    }
    if bytes == 0 || bytes > OBJECT_BYTES_MAX || !goes_far(bytes, caller) {
        // SAFETY: the caller's promise.
        return unsafe { libc_heap::realloc(pointer, bytes) };
    }
    let far = far(jemalloc::allocate(bytes), bytes);
    if !far.is_null() {
        // SAFETY: the near object holds `usable_size` bytes, the far one `bytes`; they are distinct.
        unsafe {
            let held = libc_heap::usable_size(pointer);
            far.cast::<u8>().copy_from_nonoverlapping(pointer.cast(), held.min(bytes));
            libc_heap::free(pointer);
        }
    }
    far
}

/// Resizes an object of `thread_vectors`; a larger one becomes glibc's.
unsafe fn reallocate_vector(pointer: *mut c_void, held: usize, bytes: usize) -> *mut c_void {
    if bytes <= held {
        return pointer;
    }
    let larger = libc_heap::malloc(bytes, 0);
    if !larger.is_null() {
        // SAFETY: the caller's promise; the new object is distinct, and larger than `held`.
        unsafe {
            larger.cast::<u8>().copy_from_nonoverlapping(pointer.cast(), held);
            thread_vectors::give_back(pointer);
        }
    }
    larger
}

/// memalign(3) and aligned_alloc(3) of glibc: an alignment that is no power of two is rounded up to one.
pub fn allocate_aligned(alignment: usize, bytes: usize, caller: usize) -> *mut c_void {
    if !goes_far(bytes, caller) || alignment > OBJECT_BYTES_MAX / 2 + 1 {
        return libc_heap::memalign(alignment, bytes);
    }
    let alignment = alignment.max(16).next_power_of_two();
    if bytes > OBJECT_BYTES_MAX - alignment {
        return checked(std::ptr::null_mut());
    }
    far(jemalloc::allocate_aligned(alignment, bytes), bytes)
}

/// malloc_usable_size(3).
///
/// # Safety
/// `pointer` is null or an object of this family.
pub unsafe fn usable_size(pointer: *mut c_void) -> usize {
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise; the address tells the owner.
    unsafe { if is_far(pointer) { jemalloc::usable_size(pointer) } else { libc_heap::usable_size(pointer) } }
}

/// malloc_trim(3): gives back what is free, far and near. 1 if memory was given back, as far as is known.
pub fn trim(pad: usize) -> i32 {
    if is_managed() {
        jemalloc::purge();
    }
    libc_heap::trim(pad) | i32::from(is_managed())
}

/// Gives back freed pages whose time has come, also when the program allocates nothing for a while. For the library's own
/// housekeeping thread, about once a second; never for the monitor thread (it takes the heap's locks).
pub fn give_back_freed() {
    // In a confined process a thread of ours must not wait for a lock of jemalloc's: it would do so by a call of libc's.
    if is_managed() {
        TURNS.work(|| _ = hinterland_sys::confinement::with_files(jemalloc::decay));
    }
}
