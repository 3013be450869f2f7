//! Nothing but a build script, which says in words what this machine lacks that is to build
//! Gossamer for RDMA, and what the packages are called that have it.
//!
//! The bindings to libibverbs (`ibverbs-sys`) have a build script too, which needs all of that and
//! says little when it is missing. It is no use to look for it in the crate that uses the bindings:
//! its turn comes after theirs. This crate does not use them, and is done with long before the
//! compiler has worked its way up to them.

#![forbid(unsafe_code)]
