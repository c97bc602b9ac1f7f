//! Large objects: their pages are zeroed, moved and forgotten as pages, without fetching what is not local.
//!
//! An object of at least `WHOLE_PAGES_BYTES` starts on a page and fills whole pages, and no other object shares them: jemalloc's
//! large classes with `cache_oblivious:false`, and below 64 KiB those of its small classes that are whole pages.

use crate::errno::Preserved;
use crate::on_near_stack;
use crate::{jemalloc, region_map};
use hinterland_units::{PAGE_BYTES, PageNo};
use libc::c_void;

/// From this size on `calloc` zeroes pages instead of overwriting bytes.
pub const ZERO_BYTES: usize = jemalloc::WHOLE_PAGES_BYTES;
/// From this size on a freed object's evicted content is dropped at once. Larger than what a thread cache holds (32 KiB).
const FORGET_BYTES: usize = 64 << 10;
/// From this size on `realloc` moves pages instead of copying bytes.
const MOVE_BYTES: usize = 256 << 10;
/// Below this size an object cannot grow where it is: jemalloc's smallest large class.
const GROWS_IN_PLACE_BYTES: usize = 64 << 10;
/// Objects are no smaller than this (`jemalloc::allocate`).
const SMALLEST: usize = 16;

/// The whole pages of a large object.
fn pages(pointer: *mut c_void, bytes: usize) -> (PageNo, u32) {
    let address = pointer as usize;
    assert!(address.is_multiple_of(PAGE_BYTES), "a large object starts at {address:#x}, inside a page");
    debug_assert!(bytes >= jemalloc::WHOLE_PAGES_BYTES, "an object of {bytes} bytes shares its pages");
    let count = u32::try_from(bytes / PAGE_BYTES).expect("an object is no larger than the far range");
    (PageNo(region_map::page_of(address)), count)
}

/// Allocates at least `ZERO_BYTES` of zeros: mapped pages are overwritten, the others dropped.
pub fn allocate_zeroed(bytes: usize) -> *mut c_void {
    let pointer = jemalloc::allocate(bytes);
    let Some(pager) = crate::pager() else { return pointer };
    if region_map::contains(pointer as usize) {
        // SAFETY: just allocated, far.
        let (first, count) = pages(pointer, unsafe { jemalloc::usable_size(pointer) });
        on_near_stack(|| pager.zero(first, count));
    } else if !pointer.is_null() {
        // SAFETY: just allocated with this size, by glibc.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
    }
    pointer
}

/// Whether an object may be large: only small ones start inside a page.
#[inline]
pub fn may_be_large(pointer: *mut c_void) -> bool {
    (pointer as usize).is_multiple_of(PAGE_BYTES)
}

/// Drops the evicted content of an object that is about to be freed, so that it takes no far space and is not fetched when
/// the memory is used again.
///
/// # Safety
/// `pointer` is a far object whose content is not needed.
#[cold]
pub unsafe fn forget_content(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    let bytes = unsafe { jemalloc::usable_size(pointer) };
    if bytes < FORGET_BYTES {
        return;
    }
    let _errno = Preserved::new();
    if let Some(pager) = crate::pager() {
        let (first, count) = pages(pointer, bytes);
        on_near_stack(|| pager.drop_remote(first, count));
    }
}

/// What an object of `held` bytes that is to have `bytes` asks for: one that grows by little and cannot do so in place would be
/// copied at each step from one class to the next, so it gets room for an eighth more.
fn grown(held: usize, bytes: usize) -> usize {
    if bytes > held && held < GROWS_IN_PLACE_BYTES { bytes.max(held + held / 8) } else { bytes }
}

/// realloc(3) of a far object: in place if that wastes less than half of it; else large objects move page by page, and
/// small ones byte by byte.
///
/// # Safety
/// `pointer` is a far object, not used afterwards if the result is not null; `bytes` is not 0.
pub unsafe fn reallocate(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let (held, now) = unsafe { (jemalloc::usable_size(pointer), jemalloc::resize_in_place(pointer, bytes)) };
    if now >= bytes && bytes.max(SMALLEST) > now / 2 {
        return pointer;
    }
    let new = jemalloc::allocate(grown(held, bytes));
    if new.is_null() {
        return new;
    }
    let kept = held.min(bytes);
    match crate::pager() {
        Some(pager) if kept >= MOVE_BYTES && region_map::contains(new as usize) => {
            // SAFETY: a far object of our own, just allocated.
            let kept = held.min(unsafe { jemalloc::usable_size(new) });
            let ((from, count), (to, _)) = (pages(pointer, kept), pages(new, kept));
            let _errno = Preserved::new();
            on_near_stack(|| pager.relocate(from, to, count));
        }
        // SAFETY: both objects have at least `kept` bytes and are distinct.
        _ => unsafe { new.cast::<u8>().copy_from_nonoverlapping(pointer.cast(), kept) },
    }
    // SAFETY: the content has moved; the caller gave the object up.
    unsafe {
        if may_be_large(pointer) {
            forget_content(pointer);
        }
        jemalloc::free(pointer);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_grows_by_little_is_copied_seldom_and_one_that_grows_by_much_gets_what_it_asks_for() {
        let (mut held, mut moves) = (1024, 0);
        for bytes in (1024..GROWS_IN_PLACE_BYTES).step_by(16) {
            if bytes > held {
                (held, moves) = (grown(held, bytes), moves + 1);
            }
        }
        assert!(moves <= 36, "{moves} moves from 1 to 64 KiB, in steps of an eighth");
        assert_eq!((grown(1000, 2000), grown(1000, 900)), (2000, 900));
        assert_eq!(grown(GROWS_IN_PLACE_BYTES, GROWS_IN_PLACE_BYTES + 1), GROWS_IN_PLACE_BYTES + 1);
    }
}
