//! A model of the pager, driven by traces of page touches: for the policies' tests and examples.
#![allow(dead_code, unused_imports, reason = "each test and example uses its own part")]

pub mod model;
pub mod optimum;

pub use model::Faults;
pub use optimum::optimum;
