//! What libFuzzer runs: see `src/trace.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hinterland_fuzz::trace::run(bytes));
