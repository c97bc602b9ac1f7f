//! What libFuzzer runs: see `src/node.rs`.
#![no_main]

#[path = "../src/node.rs"]
mod node;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| node::run(bytes));
