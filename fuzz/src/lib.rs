//! What is done with each input: a module for each target. `tests/tests/fuzz.rs` runs the same without libFuzzer.

pub mod node;
pub mod tape;
pub mod trace;
pub mod wire;
pub mod words;
