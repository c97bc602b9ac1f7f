//! What libFuzzer runs: see `src/trace.rs`.
#![no_main]

#[path = "../src/trace.rs"]
mod trace;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trace::run(bytes));
