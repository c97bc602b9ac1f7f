//! A copy of this process that was made without the library (`Pager::is_escaped`): it has one thread, and the locks may belong to others,
//! which are not there. It is ended where it would wait for one.

use libc::{c_int, pthread_mutex_t};

/// Ends such a copy. Called before a wait for a lock.
pub(crate) fn refuse() {
    if let Some(pager) = crate::pager() {
        pager.refuse_escaped();
    }
}

unsafe extern "C" {
    /// libc's, by the linker's `--wrap` (`build.rs`).
    fn __real_pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int;
}

/// What the C code in this library waits by: jemalloc tries first, and calls this where a lock is taken.
///
/// # Safety
/// As pthread_mutex_lock(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    refuse();
    // SAFETY: the caller's mutex.
    unsafe { __real_pthread_mutex_lock(mutex) }
}
