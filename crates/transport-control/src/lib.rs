//! The control plane of a transport, without sockets, threads or a clock.
//!
//! Data crosses the rack by one-sided operations on lanes. Everything else that hosts tell each
//! other is here, the same for every transport: which hosts are there, what they export and import,
//! what is revoked, who is alive, and who leaves. A transport keeps its handshake, its data path and
//! its way of waking threads.
//!
//! ```text
//!   threads of the program               service thread of the transport
//!     export  revoke  begin_import         receive  left  lose  disconnected    (from connections)
//!     cancel_import  leave                 stopped  quiesced          (from the runtime threads)
//!            \                                /
//!             v                              v
//!            +--------------------------------+
//!            |            Control             |  exports, imports, revocations, heartbeats, timers
//!            +--------------------------------+
//!                            |
//!                            v  poll(now), next_timeout()
//!      Send  Close                                                 to connections
//!      Imported  ImportFailed  Revoked  Departed                   to the requester (a lane, a channel)
//!      PeerGone  Inhibit                                           to every runtime thread
//! ```
//!
//! # Rules
//! 1. Messages of one pair of hosts arrive in the order in which they were sent, or the connection
//!    has ended.
//! 2. The transport takes the time, reads everything that has arrived, and then polls with that
//!    time; it acts on outputs in their order. So a region is known as imported before it is
//!    inhibited, and the end of a peer before the failures that follow from it.
//! 3. Every requester is handed back exactly once.
//! 4. The end of each peer is reported exactly once. What a lost peer sends is ignored; a peer that
//!    has left may only finish what was under way.
//! 5. Nothing that a peer sends allocates without a limit. A peer that exceeds one, or answers what
//!    was not asked, is lost.
//! 6. The same inputs give the same outputs: no hash map is iterated, nothing is random.
//!
//! # Reading order
//! 1. [`Message`], [`Descriptor`]: what control planes send each other, and its encoding.
//! 2. [`Config`], [`Medium`], [`Export`]: what the transport says of itself, and attaches.
//! 3. [`Output`]: what the transport is to do. [`Requester`], [`Importer`]: what waits for the end of
//!    a request, where a transport has no types of its own for that. [`ExportGuard`]: what a region
//!    keeps.
//! 4. [`Control`]: the state machine. `control/peer.rs` (what is sent in which order), `exports.rs`
//!    (the owner's side of an import), `imports.rs` (the requester's side), `revocations.rs`,
//!    `liveness.rs`.
//! 5. `testing`: a rack in one thread with a seeded network, for tests.
//! 6. `fuzzing`: what must hold for any bytes, for `cargo xtask fuzz`.

#![forbid(unsafe_code)]

mod config;
mod control;
mod export_guard;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzzing;
mod message;
mod output;
mod requester;
#[cfg(any(test, fuzzing, feature = "testing"))]
pub mod testing;
mod violation;

pub use config::{
    ANSWER_GRACE, CLOSING_GRACE, Config, CutOff, Description, Export, Goodbye,
    HEARTBEATS_PER_BOUND, LEAVE_GRACE, Medium, QUIET_TIMEOUT, Reach, STOP_GRACE,
};
pub use control::{Control, ImportId};
pub use export_guard::{ExportGuard, FirstExport, Revoker};
pub use message::{Descriptor, MESSAGE_BYTES, Message, Opaque, Refusal};
pub use output::{ImportError, Output};
pub use requester::{Importer, Requester};
pub use violation::Violation;
