//! What libFuzzer runs: see `src/tape.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hinterland_fuzz::tape::run(bytes));
