//! Quantities as types, so that an index, a count and a number of bytes are never mixed; and text from elsewhere, which is never
//! written as it is; and the one random generator.
//!
//! This crate has no dependencies and no `unsafe`.
#![forbid(unsafe_code)]

mod budget;
mod copy_bound;
mod foreign;
mod link_estimate;
mod number;
mod page;
mod random;
mod size;
mod slowdown;

pub use budget::{Budget, BudgetError};
pub use copy_bound::{CopyBound, CopyBoundError};
pub use foreign::{Foreign, ForeignJson, cut, is_hidden};
pub use link_estimate::{BATCH_BYTES_MIN, LinkEstimate};
pub use number::whole_number;
pub use page::{PAGE_BYTES, PageBytes, PageCount, PageNo};
pub use random::Rng;
pub use size::{ByteCount, SizeError};
pub use slowdown::{Slowdown, SlowdownError};
