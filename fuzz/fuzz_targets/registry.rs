//! What a host reads from a peer's table of names.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_segment::fuzzing::registry(data));
