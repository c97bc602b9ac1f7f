//! What libFuzzer runs: see `src/wire.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hinterland_fuzz::wire::run(bytes));
