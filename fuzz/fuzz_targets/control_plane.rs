//! Messages of the control plane of a transport, from any peer at any time.

#![no_main]

use std::time::Instant;

use gossamer_transport_control::fuzzing::control_plane;

libfuzzer_sys::fuzz_target!(|data: &[u8]| control_plane(Instant::now(), data));
