//! Figures of a run: snapshots of ledger rows, and their sum over processes and time.
//!
//! Counters add up. A peak over several processes is the largest sum that was ever sampled over the processes alive at that
//! moment, and at least the largest peak of a single process, which its row keeps exactly.

mod activity;
mod backends;
mod row;
mod totals;

pub use activity::Activity;
pub use backends::BackendTotal;
pub use row::{Counters, Gauges, RowFigures};
pub use totals::{Totals, UnmanagedSource};

/// Defines a struct of `u64` fields that can be read from a ledger row field by field and combined.
macro_rules! quantities {
    ($(#[$doc:meta])* $name:ident { $($field:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name { $(#[allow(missing_docs, reason = "the ledger documents each field")] pub $field: u64,)+ }

        impl $name {
            /// Combines each field with `other`'s: `u64::saturating_add` sums, `u64::max` keeps the larger.
            pub fn combine(&mut self, other: &$name, with: impl Fn(u64, u64) -> u64) {
                $(self.$field = with(self.$field, other.$field);)+
            }
        }
    };
}
pub(crate) use quantities;
