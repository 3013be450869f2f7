//! Blobs: code that a peer sends, before anything but its form is checked.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_jam_format::fuzzing::jam_blob(data));
