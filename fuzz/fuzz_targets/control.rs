//! Messages of the control plane, of whoever may connect to a daemon.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_daemon_protocol::fuzzing::control(data));
