//! Frames between hosts of a rack, as bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_transport_tcp::fuzzing::frame(data));
