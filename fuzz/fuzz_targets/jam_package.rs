//! Packages: files with jams, which a member of a rack sends to others.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_jam_format::fuzzing::jam_package(data));
