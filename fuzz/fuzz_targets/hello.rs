//! The first words on a connection between hosts of a rack.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_transport_tcp::fuzzing::hello(data));
