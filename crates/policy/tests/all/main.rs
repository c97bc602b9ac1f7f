//! The policies: each against a naive model of its sets, and what they promise on a model of the pager.

mod fuzz;
mod harness;
mod promises;
