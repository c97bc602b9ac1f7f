//! Quantities as types, so that an index, a count and a number of bytes are never mixed.
//!
//! This crate has no dependencies and no `unsafe`.
#![forbid(unsafe_code)]

mod budget;
mod page;
mod size;

pub use budget::{Budget, BudgetError};
pub use page::{PAGE_BYTES, PageBytes, PageCount, PageNo};
pub use size::{ByteCount, SizeError};
