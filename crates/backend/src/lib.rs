//! Where pages live when they are not local.
//!
//! A [`Backend`] stores whole pages and gives each a [`Location`]; the pager keeps the location and a checksum in its page
//! table. Backends know nothing of page states, faults or budgets.

mod contract;

pub use contract::{Backend, BackendUsage, ForkSide, LoadError, LoadItem, Location, Priority, StoreError};
