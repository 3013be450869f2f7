//! This host's side of the control plane: [`transport_control`] decides membership, exports, imports,
//! revocation, liveness and goodbye; this folder carries its messages and acts on its outputs.
//!
//! ```text
//!   threads of the program                      service thread
//!     plane.rs: export, revoke, import, leave     service.rs: reads connections, polls, sends
//!                    \                             /
//!                     Plane: the state machine, under one lock
//!                                   |
//!                     outputs.rs: acts on lanes and memory
//! ```
//!
//! 1. [`exported`]: a region of this host.
//! 2. [`waker`]: how the service thread is woken and stopped.
//! 3. [`host`]: what all threads of a process share.
//! 4. [`plane`]: calls of the program's threads.
//! 5. [`outputs`]: how this host acts on the outputs.
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
