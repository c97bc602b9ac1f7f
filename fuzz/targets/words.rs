//! What libFuzzer runs: see `src/words.rs`.
#![no_main]

#[path = "../src/words.rs"]
mod words;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| words::run(bytes));
