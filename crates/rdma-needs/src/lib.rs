//! A build script alone: it reports what this machine lacks to build Gossamer for RDMA, with the names
//! of the packages to install.
//!
//! The build script of the bindings to libibverbs (`ibverbs-sys`) needs all of that and says little
//! when something is missing. The build script of the crate that uses the bindings would run after
//! theirs; this crate does not use them, so its build script runs long before.

#![forbid(unsafe_code)]
