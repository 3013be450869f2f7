//! A packet of another process of the rack on this machine.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_transport_shm::fuzzing::packet(data));
