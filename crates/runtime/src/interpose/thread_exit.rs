//! Hears of the end of threads that have marked pages to be overwritten: what they left marked is fetched like any other page then.
//!
//! By a thread-specific value, whose destructor runs when a thread returns, leaves by `pthread_exit`, or is cancelled. A thread that the
//! program has made by clone(2) alone must not leave pages marked.

use libc::{c_void, pthread_key_t};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// libc's number of the value plus one; 0: there is none.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Values below this number are part of the thread's descriptor: setting one allocates nothing (glibc's nptl/descr.h).
const SMALL_KEYS: pthread_key_t = 32;

/// Prepares for threads that mark pages. Where it cannot, none is marked.
pub fn begin() {
    let mut key: pthread_key_t = 0;
    // SAFETY: the destructor is a function of this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(leaves)) } == 0 && key < SMALL_KEYS {
        KEY.store(key + 1, Relaxed);
    }
}

/// Has the end of the calling thread heard of; in a signal handler, too. False: it cannot be.
pub fn hear() -> bool {
    let Some(key) = KEY.load(Relaxed).checked_sub(1) else { return false };
    // SAFETY: the key was created and is never deleted. Any value that is not null has the destructor called.
    unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) == 0 }
}

/// The calling thread ends. Destructors that run after this one may mark pages: then it is called once more.
extern "C" fn leaves(_: *mut c_void) {
    if let Some(pager) = crate::pager() {
        pager.hints().thread_leaves();
    }
}
