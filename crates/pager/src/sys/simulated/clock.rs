//! The clock of a simulation: it moves by a little with each step.

use super::current;
use std::time::Duration;

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Instant(std::time::Instant);

impl Instant {
    /// This one.
    pub(crate) fn now() -> Instant {
        Instant(current().map_or_else(std::time::Instant::now, |current| current.now()))
    }

    /// Time since then.
    pub(crate) fn elapsed(self) -> Duration {
        Instant::now().0.saturating_duration_since(self.0)
    }
}
