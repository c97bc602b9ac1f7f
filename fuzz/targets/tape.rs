//! What libFuzzer runs: see `src/tape.rs`.
#![no_main]

#[path = "../src/tape.rs"]
mod tape;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tape::run(bytes));
