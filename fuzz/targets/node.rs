//! What libFuzzer runs: see `src/node.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hinterland_fuzz::node::run(bytes));
