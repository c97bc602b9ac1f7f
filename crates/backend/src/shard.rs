//! A shard: what stripes ask of each of the places over which they are spread (`coded`).

use crate::contract::Backend;

/// One of the places over which stripes are spread: what is lost, is lost together.
pub trait Shard: Backend {
    /// Whether it can be used now.
    fn is_there(&self) -> bool;

    /// Whether it can be used now, and has refused nothing for want of room a short while ago.
    fn may_have_room(&self) -> bool {
        self.is_there()
    }

    /// How often it was lost.
    fn losses(&self) -> u64;

    /// Counts pages that were stored there in place of lost ones.
    fn count_rebuilt(&self, pages: u64);
}
