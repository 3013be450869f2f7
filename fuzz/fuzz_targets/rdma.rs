//! Messages of a host over RDMA, and what its queue pairs say beside data.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gossamer_rdma_protocol::fuzzing::rdma(data));
