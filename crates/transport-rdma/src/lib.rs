//! The transport between machines with RDMA devices, over libibverbs.
//!
//! A thread's lane to a remote host is a reliable connected queue pair, whose other end is the
//! thread of the same number there: a host of T threads among H hosts has T x (H - 1) of them. The
//! target's device carries out what a lane starts, without the target's processor; only
//! notifications and wakes lead to completions there.
//!
//! ```text
//!   host 0                                        host 1
//!   thread 0: lane ==== queue pair ====== lane :thread 0
//!   thread 1: lane ==== queue pair ====== lane :thread 1
//!   service thread ------ carrier ------ service thread       keys, losses
//! ```
//!
//! The handshake and the control plane use a carrier, another transport that has joined the hosts
//! already; it also carries bulk payloads if the settings say so. Its connections are authenticated
//! and may be encrypted; data on queue pairs is **not encrypted**.
//!
//! Everything here is behind the feature `verbs`, which needs libclang, cmake and libibverbs to
//! build: on Debian the packages `cmake`, `libclang-dev` and `libibverbs-dev`, on Fedora `cmake`,
//! `clang-devel` and `rdma-core-devel`. `gossamer-rdma-needs` looks for them first.
//!
//! Reading order; a folder uses only those above it:
//! 1. `RdmaConfig`, `RdmaError`: what a process may set, and why it may fail.
//! 2. `verbs/`: the objects of libibverbs, made safe.
//! 3. `memory/`: where registered memory comes from.
//! 4. `qp/`: queue pairs, without and with the device.
//! 5. `control/`: device selection, regions, what all threads of a process share, and the service
//!    thread.
//! 6. `lane/`: what runtime threads hold.
//! 7. `RdmaTransport`: puts them together.

#![cfg(feature = "verbs")]
#![deny(unsafe_code)]

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
mod config;
mod control;
mod error;
#[cfg(test)]
mod faults;
mod lane;
mod memory;
mod qp;
mod transport;
#[allow(unsafe_code, reason = "the only module that calls libibverbs; see the ledger")]
mod verbs;

pub use config::RdmaConfig;
pub use error::RdmaError;
pub use transport::RdmaTransport;
pub use verbs::Posted;

// For the tests within, which share what those in `tests/` use.
#[cfg(test)]
extern crate self as gossamer_transport_rdma;
