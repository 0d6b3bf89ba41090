//! Fuzzes one reader; see `tests/hostile_files/readers.rs`.

#![no_main]

#[path = "../fuzz_one.rs"]
mod fuzz_one;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz_one::read("run_files", bytes));
