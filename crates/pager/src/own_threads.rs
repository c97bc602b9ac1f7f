//! The pager's own threads: monitors, evictor, read-ahead, maintenance.

use crate::sys::{last_thread, thread};
use hinterland_sys::SysError;
use hinterland_sys::confinement;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Monitors, evictor, read-ahead, maintenance.
const OWN_THREADS_MAX: usize = 16;

/// See the module.
pub(crate) struct OwnThreads {
    /// Their kernel ids; 0: free.
    ids: [AtomicU32; OWN_THREADS_MAX],
}

impl OwnThreads {
    /// None.
    pub(crate) const fn new() -> OwnThreads {
        OwnThreads { ids: [const { AtomicU32::new(0) }; OWN_THREADS_MAX] }
    }

    /// Notes the calling thread as one of them.
    pub(crate) fn register(&self) {
        let id = thread::id();
        let free = self.ids.iter().find(|cell| cell.compare_exchange(0, id, Relaxed, Relaxed).is_ok());
        assert!(free.is_some(), "more than {OWN_THREADS_MAX} threads serve one pager");
    }

    /// Forgets all of them, in the child of a fork.
    pub(crate) fn forget(&self) {
        for cell in &self.ids {
            cell.store(0, Relaxed);
        }
    }

    /// Whether a thread, by its kernel id, is one of them. 0 is none.
    pub(crate) fn contain(&self, id: u32) -> bool {
        id != 0 && self.any(|own| own == id)
    }

    /// Whether `is_meant` holds for the kernel id of one of them.
    pub(crate) fn any(&self, is_meant: impl Fn(u32) -> bool) -> bool {
        self.ids.iter().any(|cell| is_meant(cell.load(Relaxed)))
    }
}

/// Starts the thread that ends the process when no thread of the program is left: with the first of the pager's others.
pub(crate) fn watch_for_the_end() -> Result<(), SysError> {
    if !last_thread::can_watch() {
        return Ok(());
    }
    match thread::spawn(c"far-exit", || last_thread::watch()) {
        // A confined process: it ends with the last of all threads.
        Err(SysError { errno: libc::EAGAIN, .. }) if confinement::is_confined() => Ok(()),
        outcome => outcome,
    }
}
