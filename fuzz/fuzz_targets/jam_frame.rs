//! What a sender writes into the banks of a mailbox.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mailbox::fuzzing::jam_frame(data));
