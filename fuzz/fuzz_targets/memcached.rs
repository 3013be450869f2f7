//! The commands of a client of `kv serve`, which is anyone who can connect.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_kv_store::memcached::fuzzing::memcached(data));
