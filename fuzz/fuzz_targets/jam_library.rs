//! Shared libraries that a peer sends as rieds, before the system's loader sees them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_jam_format::fuzzing::jam_library(data));
