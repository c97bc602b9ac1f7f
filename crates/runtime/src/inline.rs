//! The inline fault path: the thread that faults serves itself.

pub(crate) mod call;
pub(crate) mod fault;
#[allow(dead_code, reason = "the handlers that catch calls, and the start of the inline path, use all of it")]
pub(crate) mod syscalls;
pub(crate) mod wrapped;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Faults of this process are signals.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Whether faults of this process are signals to the thread that takes them.
#[inline]
pub(crate) fn active() -> bool {
    ACTIVE.load(Relaxed)
}

/// From now on, faults are signals.
pub(crate) fn activate() {
    ACTIVE.store(true, Relaxed);
    fault::install();
}
