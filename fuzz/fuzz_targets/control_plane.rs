//! Messages of the control plane of a transport, from any peer at any time.

#![no_main]

use gossamer_transport_control::fuzzing::control_plane;
use std::time::Instant;

libfuzzer_sys::fuzz_target!(|data: &[u8]| control_plane(Instant::now(), data));
