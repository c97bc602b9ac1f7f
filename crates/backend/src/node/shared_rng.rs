//! Random numbers that several threads draw.

use crate::samples::Rng;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
pub(super) struct SharedRng(AtomicU64);

impl SharedRng {
    /// Others than in another process, as far as that matters: which nodes it begins with.
    pub(super) fn of_this_process() -> SharedRng {
        SharedRng(AtomicU64::new(u64::from(std::process::id())))
    }

    /// A random number.
    pub(super) fn draw(&self) -> u64 {
        Rng(self.0.fetch_add(0x9e37_79b9, Relaxed)).next_u64()
    }
}
