//! Packages, signed or not: files with jams, and the proofs that travel with single jams of them,
//! which a member of a rack sends to others.

#![no_main]

use gossamer_jam_format::fuzzing::{jam_package, jam_proof};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    jam_package(data);
    jam_proof(data);
});
