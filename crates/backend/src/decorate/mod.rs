//! Decorators: backends that behave as another does, with one property added. For tests and experiments.

use crate::{Location, Patch, StoreError};
use hinterland_units::PAGE_BYTES;

mod clock;
mod delay;
mod faulty;
mod over_link;
mod throttle;

pub use delay::Delay;
pub use faulty::{FaultKind, FaultRule, FaultWhen, Faulty};
pub(crate) use over_link::OverLink;
pub use throttle::Throttle;

/// Bytes of each of `pages` that are stored.
fn stored_bytes(pages: usize, bytes: Option<&[u16]>) -> impl Iterator<Item = u64> {
    (0..pages).map(move |page| bytes.map_or(PAGE_BYTES as u64, |bytes| bytes[page].into()))
}

/// Pages that a backend has taken.
fn accepted(out: &[Result<Location, StoreError>]) -> usize {
    out.iter().filter(|answer| answer.is_ok()).count()
}

/// Bytes of each of `patches` that travel.
fn patched_bytes<'a>(patches: &'a [Patch<'_>]) -> impl Iterator<Item = u64> + 'a {
    patches.iter().map(|patch| patch.granules.bytes() as u64)
}

/// Implements the methods that a decorator passes on unchanged to its field `inner`. It has `store_while`, `store_if_compressible`,
/// `load_while` and `patch` itself.
macro_rules! pass_on {
    () => {
        fn link_page_ns(&self) -> u64 {
            self.inner.link_page_ns()
        }
        fn usage(&self, rows: &mut Vec<$crate::BackendUsage>) {
            self.inner.usage(rows);
        }
        $crate::decorate::pass_on_but_forks!();
        fn after_fork(&self, side: $crate::ForkSide) -> Result<(), $crate::StoreError> {
            self.inner.after_fork(side)
        }
    };
}

/// As `pass_on`, but for `after_fork`, `link_page_ns` and `usage`.
macro_rules! pass_on_but_forks {
    () => {
        fn patches(&self) -> bool {
            self.inner.patches()
        }
        fn keeps_prefixes(&self) -> bool {
            self.inner.keeps_prefixes()
        }
        fn prefix_bytes(&self, locations: &mut dyn Iterator<Item = $crate::Location>) -> Vec<usize> {
            self.inner.prefix_bytes(locations)
        }
        fn has_losses(&self) -> bool {
            self.inner.has_losses()
        }
        fn has_lost(&self, location: $crate::Location) -> bool {
            self.inner.has_lost(location)
        }
        fn free(&self, locations: &[$crate::Location]) {
            self.inner.free(locations);
        }
        fn demand_width(&self) -> usize {
            self.inner.demand_width()
        }
        fn copies_cost_ram(&self) -> bool {
            self.inner.copies_cost_ram()
        }
        fn ram_bytes(&self) -> u64 {
            self.inner.ram_bytes()
        }
        fn repair(
            &self,
            item: $crate::LoadItem<'_>,
            right: &dyn Fn(&hinterland_units::PageBytes) -> bool,
        ) -> Result<(), $crate::LoadError> {
            self.inner.repair(item, right)
        }
        fn needs_maintenance(&self) -> bool {
            self.inner.needs_maintenance()
        }
        fn maintain(&self) -> Option<std::time::Duration> {
            self.inner.maintain()
        }
        fn shrink_ram(&self, bytes: u64) -> u64 {
            self.inner.shrink_ram(bytes)
        }
        fn before_fork(&self) {
            self.inner.before_fork();
        }
    };
}
use {pass_on, pass_on_but_forks};
