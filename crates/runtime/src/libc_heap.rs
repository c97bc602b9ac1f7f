//! Near memory: what libc and ld.so allocate, and the program where it must not be far: glibc's own allocator, past the
//! interposed names.

use libc::{c_char, c_void, size_t};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed};

unsafe extern "C" {
    fn __libc_malloc(bytes: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, bytes: size_t) -> *mut c_void;
    fn __libc_realloc(pointer: *mut c_void, bytes: size_t) -> *mut c_void;
    fn __libc_free(pointer: *mut c_void);
    fn __libc_memalign(alignment: size_t, bytes: size_t) -> *mut c_void;
    fn __strdup(text: *const c_char) -> *mut c_char;
    fn __strndup(text: *const c_char, bytes: size_t) -> *mut c_char;
}

/// Whether the next call of `malloc` is awaited, and the code that made it.
static AWAITED: AtomicBool = AtomicBool::new(false);
static CALLER: AtomicUsize = AtomicUsize::new(0);

/// The code from which `action` calls `malloc` of this module; `None`: it does not. For the start, when there is one thread.
pub fn reached_by(action: impl FnOnce()) -> Option<usize> {
    AWAITED.store(true, Relaxed);
    action();
    AWAITED.store(false, Relaxed);
    Some(CALLER.load(Relaxed)).filter(|caller| *caller != 0)
}

/// malloc(3) of glibc, for the code at `caller`.
pub fn malloc(bytes: usize, caller: usize) -> *mut c_void {
    if AWAITED.swap(false, Relaxed) {
        CALLER.store(caller, Relaxed);
    }
    // SAFETY: any size may be asked for.
    unsafe { __libc_malloc(bytes) }
}

/// calloc(3) of glibc.
pub fn calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { __libc_calloc(count, bytes) }
}

/// memalign(3) of glibc.
pub fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: glibc checks both arguments.
    unsafe { __libc_memalign(alignment, bytes) }
}

/// realloc(3) of glibc.
///
/// # Safety
/// `pointer` is null or came from glibc's allocator and is not used afterwards.
pub unsafe fn realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { __libc_realloc(pointer, bytes) }
}

/// free(3) of glibc.
///
/// # Safety
/// As for `realloc`.
pub unsafe fn free(pointer: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { __libc_free(pointer) };
}

/// strdup(3) of glibc, whose memory comes from whatever `malloc` the program uses.
///
/// # Safety
/// `text` is a C string.
pub unsafe fn strdup(text: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { __strdup(text) }
}

/// strndup(3) of glibc, as `strdup`.
///
/// # Safety
/// `text` is readable up to its end or `bytes` bytes.
pub unsafe fn strndup(text: *const c_char, bytes: usize) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { __strndup(text, bytes) }
}

/// Whether another allocator has taken the place of glibc's, under glibc's own names (mimalloc does): then what libc and ld.so allocate is
/// that allocator's.
pub fn is_replaced() -> bool {
    static LIBC_CALLOC: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let bound: unsafe extern "C" fn(size_t, size_t) -> *mut c_void = __libc_calloc;
    of_libc(&LIBC_CALLOC, c"__libc_calloc").addr() != (bound as *const c_void).addr()
}

static LIBC_USABLE_SIZE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static LIBC_TRIM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// libc's own definition of `name`, whatever other library defines it too (a program's jemalloc, say); looked up once.
fn of_libc(cache: &AtomicPtr<c_void>, name: &std::ffi::CStr) -> *mut c_void {
    let mut found = cache.load(Relaxed);
    if found.is_null() {
        // SAFETY: both names are C strings. libc is always loaded; the reference that this takes is never given back.
        found = unsafe {
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if libc.is_null() { std::ptr::null_mut() } else { libc::dlsym(libc, name.as_ptr()) }
        };
        cache.store(found, Relaxed);
    }
    found
}

/// malloc_usable_size(3) of glibc.
///
/// # Safety
/// `pointer` came from glibc's allocator.
pub unsafe fn usable_size(pointer: *mut c_void) -> usize {
    let function = of_libc(&LIBC_USABLE_SIZE, c"malloc_usable_size");
    assert!(!function.is_null(), "libc has no malloc_usable_size");
    // SAFETY: glibc's function of that name has this type.
    let function: unsafe extern "C" fn(*mut c_void) -> size_t = unsafe { std::mem::transmute(function) };
    // SAFETY: the caller's promise.
    unsafe { function(pointer) }
}

/// malloc_trim(3) of glibc.
pub fn trim(pad: usize) -> i32 {
    let function = of_libc(&LIBC_TRIM, c"malloc_trim");
    if function.is_null() {
        return 0;
    }
    // SAFETY: glibc's function of that name has this type.
    let function: unsafe extern "C" fn(size_t) -> i32 = unsafe { std::mem::transmute(function) };
    // SAFETY: any pad may be asked for.
    unsafe { function(pad) }
}

/// Looks up now what a call from a signal handler or under a lock could not.
pub fn init() {
    of_libc(&LIBC_USABLE_SIZE, c"malloc_usable_size");
    of_libc(&LIBC_TRIM, c"malloc_trim");
}
