//! What libFuzzer runs: see `src/wire.rs`.
#![no_main]

#[path = "../src/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::run(bytes));
