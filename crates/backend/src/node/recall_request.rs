//! The slabs that a node recalls.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What a node wants back of a session: a number of slabs, or all.
#[derive(Default)]
pub(super) struct RecallRequest(AtomicU32);

impl RecallRequest {
    pub(super) fn set(&self, slabs: u32) {
        self.0.store(slabs, Relaxed);
    }

    /// Whether something is wanted.
    pub(super) fn is_some(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    /// Whether everything is, also what would be stored from now on.
    pub(super) fn is_total(&self) -> bool {
        self.0.load(Relaxed) == u32::MAX
    }

    /// A slab goes.
    pub(super) fn less(&self) {
        let less = |slabs: u32| (slabs > 0 && slabs < u32::MAX).then(|| slabs - 1);
        let _ = self.0.fetch_update(Relaxed, Relaxed, less);
    }
}
