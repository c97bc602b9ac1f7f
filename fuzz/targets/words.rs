//! What libFuzzer runs: see `src/words.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hinterland_fuzz::words::run(bytes));
