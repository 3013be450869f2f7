//! The conformance suite, over the RDMA devices of this machine.

#![cfg(feature = "verbs")]

mod common;

transport_api::conformance!(
    #[ignore = "needs an RDMA device: cargo xtask rdma-test"]
    common::rack
);
