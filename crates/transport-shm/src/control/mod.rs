//! What this host has of the control plane: membership, exports, imports, revocation, liveness and
//! goodbye are decided by [`transport_control`]; this folder carries its messages and does what it
//! wants.
//!
//! ```text
//!   threads of the program                      service thread
//!     plane.rs: export, revoke, import, leave     service.rs: reads connections, polls, sends
//!                    \                             /
//!                     Plane: the state machine, under one lock
//!                                   |
//!                     outputs.rs: what its outputs mean for lanes and memory
//! ```
//!
//! 1. [`exported`]: a region of this host.
//! 2. [`waker`]: how the service thread is woken and stopped.
//! 3. [`host`]: what all threads of a process share.
//! 4. [`plane`]: calls of the program's threads.
//! 5. [`outputs`]: what is done about what the control plane decides.
//! 6. [`timer`]: timeouts of a rack that has no service thread.
//! 7. [`connection`], [`service`]: the service thread of a rack of processes.

pub(crate) mod connection;
pub(crate) mod exported;
pub(crate) mod host;
mod outputs;
pub(crate) mod plane;
pub(crate) mod service;
pub(crate) mod timer;
pub(crate) mod waker;
