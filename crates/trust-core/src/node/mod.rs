//! [`Node`]: the delegation state of one runtime thread.
//!
//! A node is a pure machine: it is handed memory, lanes and calls to [`poll`](Node::poll), and has
//! no socket, clock or thread of its own. The worker that owns it polls like this:
//!
//! ```text
//!   loop { run ready fibers; node.poll(); if nothing happened, back off }
//! ```
//!
//! One poll hands over what fibers have queued (so a batch is what they queued since the last
//! poll, or a full buffer before that), serves what has arrived, and takes replies, which makes
//! fibers ready again.
//!
//! | Module | What it is |
//! |---|---|
//! | `wiring.rs` | set-up, from a transport to nodes |
//! | `racks.rs` | the racks of this process, for threads that belong to none |
//! | `poll.rs` | one round of a node |
//! | `system.rs`, `later.rs`, `chain.rs` | requests of the runtime itself, drops and later replies; which launches wait for which |
//! | `request.rs`, `send.rs` | from a closure to a request, and into a batch |
//! | `inline.rs`, `deferred.rs` | calls on the thread's own properties, and deferred work |
//! | `awaits.rs` | what its fibers wait for, in words |
//! | `collected.rs` | updates that are collected before they are sent |
//! | `entered.rs` | how code of a thread finds its node |
//! | `state.rs` | [`Node`] itself |
//! | `outboxes.rs`, `awaited.rs`, `callers.rs`, `turn.rs`, `idle.rs` | parts of its state; how an idle thread waits |

pub(crate) mod awaited;
pub(crate) mod awaits;
pub(crate) mod callers;
pub(crate) mod chain;
pub(crate) mod collected;
mod deferred;
#[allow(unsafe_code)] // A reference to the node that is always taken away before the node goes.
mod entered;
pub mod idle;
mod inline;
pub(crate) mod kind;
mod later;
#[allow(unsafe_code)] // A pointer to one of its own boxes.
pub(crate) mod outboxes;
mod poll;
pub(crate) mod racks;
pub(crate) mod request;
mod send;
mod state;
pub(crate) mod system;
mod turn;
pub(crate) mod wiring;

pub(crate) use crate::node::awaited::CallSite;
pub use crate::node::entered::EnteredNode;
pub(crate) use crate::node::entered::{current, on_node, recent, with_node};
pub(crate) use crate::node::state::NodeId;
pub use crate::node::state::{Incident, Node};
