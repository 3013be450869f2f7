//! The transport between machines: TCP, and on it TLS.
//!
//! Memory is not shared here, so the owner of a region carries out what others ask of it, as the
//! co-processor of Thekkath, Levy and Lazowska did in software: every operation is a frame, checked
//! and carried out against the exported regions in the order of its lane, by any thread of the host
//! that reads it. Threads of one number on two hosts share one connection.
//!
//! ```text
//!   host 0                                        host 1
//!   thread 0: lane ===== connection ===== lane :thread 0
//!   thread 1: lane ===== connection ===== lane :thread 1
//!   service thread ------ control ------ service thread
//! ```
//!
//! Reading order:
//! 1. [`JobId`], [`certificate_name`], [`TcpConfig`], [`Credentials`], [`JoinError`]: what a
//!    process must know to join.
//! 2. `wire`: the socket, with or without TLS, and `frame`: what travels, as bytes.
//! 3. `machine`: a data connection without its socket, `bulk` included; `conn`: one with it.
//! 4. `host`: what all threads share, and which thread reads which connection when; `readiness`: which
//!    of its connections a poll reads.
//! 5. `lane`: what runtime threads hold, `local` and `parker` included.
//! 6. `plane`: the control plane ([`transport_control`]) under its lock; `export`: a region of this
//!    host; `control`: what threads ask of the control plane and do for it, and the connections that
//!    carry its messages.
//! 7. `service`: the thread that polls the control plane and looks after what no other thread does;
//!    `service_queue`: how others wake it.
//! 8. `join`: how processes become a rack, and strangers do not.
//! 9. [`TcpTransport`]: puts them together.
//! 10. `fuzzing`: what must hold for any bytes, for `cargo xtask fuzz`.

#![forbid(unsafe_code)]

mod config;
mod conn;
mod control;
mod error;
mod export;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod host;
mod join;
mod lane;
mod machine;
mod plane;
mod readiness;
mod service;
mod service_queue;
mod tcp;
mod wire;

pub use config::{Build, Credentials, TcpConfig};
pub use error::JoinError;
pub use gossamer_job::{JobId, certificate_name};
pub use tcp::TcpTransport;
