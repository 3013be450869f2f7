//! Claims: what a jam that is not trusted leaves in the memory of its call.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| jam_executor::fuzzing::jam_claims(data));
