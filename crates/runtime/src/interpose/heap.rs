//! malloc(3) and its family. C++'s `new` and `delete` come through it.

use super::with_caller;
use crate::{caller, errno, heap, libc_heap};
use hinterland_units::PAGE_BYTES;
use libc::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

with_caller! {
    malloc => malloc_for, "rsi";
    calloc => calloc_for, "rdx";
    realloc => realloc_for, "rdx";
    reallocarray => reallocarray_for, "rcx";
    memalign => memalign_for, "rdx";
    aligned_alloc => memalign_for, "rdx";
    posix_memalign => posix_memalign_for, "rcx";
    valloc => valloc_for, "rsi";
    pvalloc => pvalloc_for, "rsi";
    strdup => strdup_for, "rsi";
    strndup => strndup_for, "rdx";
}

extern "C" fn malloc_for(bytes: usize, caller: usize) -> *mut c_void {
    heap::allocate(bytes, caller)
}

extern "C" fn calloc_for(count: usize, bytes: usize, caller: usize) -> *mut c_void {
    heap::allocate_zeroed(count, bytes, caller)
}

unsafe extern "C" fn realloc_for(pointer: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    // SAFETY: realloc's contract.
    unsafe { heap::reallocate(pointer, bytes, caller) }
}

unsafe extern "C" fn reallocarray_for(pointer: *mut c_void, count: usize, bytes: usize, caller: usize) -> *mut c_void {
    let Some(total) = count.checked_mul(bytes) else {
        errno::set(libc::ENOMEM);
        return std::ptr::null_mut();
    };
    if let Some(function) = foreign_realloc() {
        // SAFETY: the program's realloc; reallocarray's contract is realloc's.
        return unsafe { function(pointer, total) };
    }
    // SAFETY: reallocarray's contract.
    unsafe { heap::reallocate(pointer, total, caller) }
}

extern "C" fn memalign_for(alignment: usize, bytes: usize, caller: usize) -> *mut c_void {
    heap::allocate_aligned(alignment, bytes, caller)
}

unsafe extern "C" fn posix_memalign_for(out: *mut *mut c_void, alignment: usize, bytes: usize, caller: usize) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let pointer = heap::allocate_aligned(alignment, bytes, caller);
    if pointer.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: posix_memalign's contract.
    unsafe { out.write(pointer) };
    0
}

extern "C" fn valloc_for(bytes: usize, caller: usize) -> *mut c_void {
    heap::allocate_aligned(PAGE_BYTES, bytes, caller)
}

extern "C" fn pvalloc_for(bytes: usize, caller: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(PAGE_BYTES) {
        Some(rounded) => heap::allocate_aligned(PAGE_BYTES, rounded, caller),
        None => {
            errno::set(libc::ENOMEM);
            std::ptr::null_mut()
        }
    }
}

unsafe extern "C" fn strdup_for(text: *const c_char, caller: usize) -> *mut c_char {
    if !heap::is_managed() {
        // SAFETY: strdup's contract.
        return unsafe { libc_heap::strdup(text) };
    }
    // SAFETY: strdup's contract.
    unsafe { duplicate(text, libc::strlen(text), caller) }
}

unsafe extern "C" fn strndup_for(text: *const c_char, bytes: usize, caller: usize) -> *mut c_char {
    if !heap::is_managed() {
        // SAFETY: strndup's contract.
        return unsafe { libc_heap::strndup(text, bytes) };
    }
    // SAFETY: strndup's contract.
    unsafe { duplicate(text, libc::strnlen(text, bytes), caller) }
}

/// Copies `len` bytes of text and ends them with a zero.
unsafe fn duplicate(text: *const c_char, len: usize, caller: usize) -> *mut c_char {
    let copy = heap::allocate(len + 1, caller).cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: `text` has `len` bytes, the copy one more, and it is new.
        unsafe {
            copy.copy_from_nonoverlapping(text, len);
            copy.add(len).write(0);
        }
    }
    copy
}

/// The program's own realloc, when the program brings an allocator of its own (`heap` is then left alone).
static FOREIGN_REALLOC: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn foreign_realloc() -> Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void> {
    let function = FOREIGN_REALLOC.load(Relaxed);
    // SAFETY: a null pointer is `None`; else it is the address of a function named realloc.
    unsafe { std::mem::transmute(function) }
}

/// Whether calls to `malloc` arrive here: not if the program (or a library before this one) defines its own. Its memory
/// then comes through `mmap`, which is managed all the same.
///
/// Nor if a library before this one passes them on, as heaptrack's does: it is called for libc's own memory, too, which would become far, and a thread
/// of ours that starts another one would wait for that library's locks, while a thread of the program's that has them waits for a page.
///
/// Tried, not compared: a program that takes `malloc`'s address may give it another one. What a foreign allocator returns is not freed: one
/// that its program has not yet set up (GCL's) may take no block back.
pub fn reaches_the_program() -> bool {
    // SAFETY: the names are C strings, and functions of these names have these types.
    unsafe {
        let find = |name: &std::ffi::CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let (malloc, free, realloc) = (find(c"malloc"), find(c"free"), find(c"realloc"));
        let place = malloc as usize;
        let malloc: unsafe extern "C" fn(usize) -> *mut c_void = std::mem::transmute(malloc);
        let free: unsafe extern "C" fn(*mut c_void) = std::mem::transmute(free);
        let mut block = std::ptr::null_mut();
        let reached = match libc_heap::reached_by(|| block = malloc(1)) {
            // A library whose last act is to pass the call on is not its caller. It is where the name leads to: else that is this library, or a
            // program that takes the function's address, and may give it an entry of its own.
            Some(code) => caller::is_internal(code) && (caller::is_internal(place) || caller::is_in_program(place)),
            None => false,
        };
        if reached {
            free(block);
        } else {
            FOREIGN_REALLOC.store(realloc, Relaxed);
        }
        reached
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    // SAFETY: free's contract.
    unsafe { heap::release(pointer) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(pointer: *mut c_void) {
    // SAFETY: free's contract.
    unsafe { heap::release(pointer) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    // SAFETY: malloc_usable_size's contract.
    unsafe { heap::usable_size(pointer) }
}

#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(pad: usize) -> c_int {
    heap::trim(pad)
}
