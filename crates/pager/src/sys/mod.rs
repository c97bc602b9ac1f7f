//! The pager's interface to the system: calls on memory and threads, locks, the clock. It is one module, because this
//! crate's own unit tests replace it: there, a thread of a *simulation* (`simulated`) gets the answers of a simulated
//! machine, and any other thread the kernel's. With the feature `loom`, locks and words of the tests are Loom's.
//!
//! In every other build these names are those of `hinterland_sys` and `std`, and nothing else.

#[cfg(test)]
pub(crate) mod simulated;
#[cfg(test)]
pub(crate) mod watched;
mod words;

// Nothing of a simulated machine: its threads are never kept to a number of processors.
pub(crate) use hinterland_sys::processors;
#[cfg(not(test))]
pub(crate) use hinterland_sys::{Mapping, Uffd, gate, last_thread, mem, thread, uffd};
#[cfg(test)]
pub(crate) use simulated::calls::{Mapping, Uffd, gate, last_thread, mem, thread, uffd};

#[cfg(test)]
pub(crate) use simulated::clock::Instant;
#[cfg(not(test))]
pub(crate) use std::time::Instant;
pub(crate) use words::Zeros;

/// Locks and words that threads share.
pub(crate) mod sync {
    pub(crate) use super::words::Words;
    pub(crate) use std::sync::TryLockError;

    #[cfg(not(test))]
    pub(crate) use hinterland_sys::gate::{futex_wait, futex_wake};
    #[cfg(not(test))]
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

    #[cfg(test)]
    pub(crate) use super::watched::{Mutex, MutexGuard, atomic, futex_wait, futex_wake};

    /// All orders of steps are tried: tables are as small as can be.
    pub(crate) const IS_MODELLED: bool = cfg!(all(test, feature = "loom"));
}

/// Keeps what lives as long as the process; in a simulation, as long as that.
pub(crate) fn keep<T: 'static>(what: T) -> &'static T {
    let kept = Box::leak(Box::new(what));
    #[cfg(test)]
    let kept = simulated::end_with_simulation(kept);
    kept
}
