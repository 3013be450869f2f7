//! The transport between machines: TCP, and on it TLS.
//!
//! Memory is not shared here, so the owner of a region carries out what others ask of it, as the
//! co-processor of Thekkath, Levy and Lazowska did in software: every operation is a frame, checked
//! and carried out against the exported regions in the order of its lane, whoever of the host's
//! threads happens to read it. Threads of one number on two hosts share one connection.
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
//! 2. `frame`: what travels, as bytes.
//! 3. `export`: a region of this host.
//! 4. `bulk`, `machine`: a connection without its socket.
//! 5. `wire`, `tls`, `conn`: the socket, and TLS on it.
//! 6. `host`: what all threads share, and who reads which connection when.
//! 7. `lane`, `local`, `parker`: what runtime threads hold.
//! 8. `control`, `control_conn`: the control plane ([`transport_control`]) as threads share it, and
//!    the connections that carry its messages; `service_queue`, `service`: the thread that polls it
//!    and looks after what no other thread does.
//! 9. `hello`, `pending`, `join`: how processes become a rack, and strangers do not.
//! 10. [`TcpTransport`]: puts them together. [`Tls`] is also for those who meet before they are a
//!     rack.
//! 11. `fuzzing`: what must hold for any bytes, for `cargo xtask fuzz`.

#![forbid(unsafe_code)]

mod bulk;
mod config;
mod conn;
mod control;
mod control_conn;
mod error;
mod export;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hello;
mod host;
mod job;
mod join;
mod lane;
mod local;
mod machine;
mod parker;
mod pending;
mod service;
mod service_queue;
mod tcp;
mod tls;
mod wire;

pub use config::{Build, Credentials, TcpConfig};
pub use error::JoinError;
pub use job::{JobId, JobIdError, certificate_name};
pub use tcp::TcpTransport;
pub use tls::{Tls, TlsError};
