//! The pager's own threads: monitors, evictor, read-ahead, maintenance, and the one that waits for the end of the program's.

use crate::own_processors::{Limited, OwnProcessors};
use crate::sys::{last_thread, thread};
use crate::thread_state::ThreadState;
use hinterland_sys::SysError;
use hinterland_sys::confinement;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// More than there are.
const OWN_THREADS_MAX: usize = 16;

/// See the module.
pub(crate) struct OwnThreads {
    /// Their kernel ids; 0: free.
    ids: [AtomicU32; OWN_THREADS_MAX],
    /// The thread that ends the process when no thread of the program is left.
    watch: ThreadState,
    /// How many processors they may take.
    processors: OwnProcessors,
}

/// The calling thread is one of the pager's until this is dropped.
pub(crate) struct Registered<'a> {
    id: &'a AtomicU32,
    processors: &'a OwnProcessors,
    limited: Limited,
}

impl Registered<'_> {
    /// Keeps the thread to the processors that it may take now; true: they are others than before. Called before each piece of work.
    pub(crate) fn keep_to_processors(&self) -> bool {
        self.processors.keep(&self.limited)
    }

    /// Whether it may take a number of processors only.
    pub(crate) fn is_bounded(&self) -> bool {
        self.limited.is_bounded()
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.id.store(0, Relaxed);
    }
}

impl OwnThreads {
    /// None.
    pub(crate) fn new(processors: OwnProcessors) -> OwnThreads {
        OwnThreads { ids: [const { AtomicU32::new(0) }; OWN_THREADS_MAX], watch: ThreadState::new(), processors }
    }

    /// Notes the calling thread as one of them.
    pub(crate) fn register(&self) -> Registered<'_> {
        let id = thread::id();
        let free = self.ids.iter().find(|cell| cell.compare_exchange(0, id, Relaxed, Relaxed).is_ok());
        let id = free.unwrap_or_else(|| panic!("more than {OWN_THREADS_MAX} threads serve one pager"));
        let registered = Registered { id, processors: &self.processors, limited: Limited::default() };
        registered.keep_to_processors();
        registered
    }

    /// Forgets all of them, in the child of a fork.
    pub(crate) fn forget(&self) {
        for cell in &self.ids {
            cell.store(0, Relaxed);
        }
        self.watch.forget();
    }

    /// Whether a thread, by its kernel id, is one of them. 0 is none.
    pub(crate) fn contain(&self, id: u32) -> bool {
        id != 0 && self.any(|own| own == id)
    }

    /// Whether `is_meant` holds for the kernel id of one of them; 0 is none's.
    pub(crate) fn any(&self, mut is_meant: impl FnMut(u32) -> bool) -> bool {
        self.ids.iter().any(|cell| is_meant(cell.load(Relaxed)))
    }

    /// Starts the thread that ends the process when no thread of the program is left: with the first of the others.
    pub(crate) fn watch_for_the_end(&'static self) -> Result<(), SysError> {
        if last_thread::can_watch() && self.watch.begin() { self.start_watch() } else { Ok(()) }
    }

    fn start_watch(&'static self) -> Result<(), SysError> {
        let outcome = thread::spawn(c"far-exit", || {
            let registered = self.register();
            last_thread::watch(|| self.watch.should_stop());
            drop(registered);
            self.watch.left();
        });
        if outcome.is_err() {
            self.watch.forget();
        }
        match outcome {
            // A confined process: it ends with the last of all threads.
            Err(SysError { errno: libc::EAGAIN, .. }) if confinement::is_confined() => Ok(()),
            outcome => outcome,
        }
    }

    /// Stops that thread.
    pub(crate) fn stop_watch(&self) {
        self.watch.stop(last_thread::wake_watch);
    }

    /// Starts it again, if it was stopped.
    pub(crate) fn resume_watch(&'static self) -> Result<(), SysError> {
        if self.watch.resume() { self.start_watch() } else { Ok(()) }
    }
}
