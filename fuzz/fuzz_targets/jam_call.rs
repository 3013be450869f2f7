//! Calls of jams in a mailbox, the code that they carry, and what is in the segment of their sender.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| jam::mailbox::fuzzing::jam_call(data));
