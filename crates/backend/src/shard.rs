//! A shard: what stripes ask of each of the places over which they are spread (`coded`).

use crate::contract::{Backend, Location, Priority, StoreError};
use hinterland_units::PageBytes;

/// One of the places over which stripes are spread: what is lost, is lost together.
pub trait Shard: Backend {
    /// [`Backend::store`], which calls `meanwhile`, perhaps more than once, when pages are on their way and their answers are
    /// still to be waited for; or never.
    fn store_while(
        &self,
        pages: &[&PageBytes],
        priority: Priority,
        out: &mut [Result<Location, StoreError>],
        meanwhile: &mut dyn FnMut(),
    );

    /// Whether it can be used now.
    fn is_there(&self) -> bool;

    /// Whether it can be used now, and has refused nothing for want of room a short while ago.
    fn may_have_room(&self) -> bool {
        self.is_there()
    }

    /// Whether what was stored at `location` is lost.
    fn has_lost(&self, location: Location) -> bool;

    /// How often it was lost.
    fn losses(&self) -> u64;

    /// Counts pages that were stored there in place of lost ones.
    fn count_rebuilt(&self, pages: u64);
}
