//! A model of the pager, driven by traces of page touches: what the tests and the table of faults stand on.
#![allow(dead_code, unused_imports, reason = "each test and example uses its own part")]

pub mod model;
pub mod optimum;
pub mod patterns;

pub use model::Faults;
pub use optimum::optimum;
