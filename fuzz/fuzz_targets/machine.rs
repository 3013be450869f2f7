//! A connection of a rack without its socket, at whose other end anything may be.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_transport_tcp::fuzzing::machine(data));
