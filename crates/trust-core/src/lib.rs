//! Delegation: values entrusted to threads, and closures sent to them, over any transport.
//!
//! A pure machine: it is handed memory, lanes and polls, and has no socket, clock or thread of its
//! own. What users call is re-exported by the `gossamer` crate.
//!
//! Reading order:
//! 1. What users see: [`Trust`] (`trust.rs`), `apply` and its relatives (`apply.rs`),
//!    [`delegate!`] (`delegate.rs`), [`Latch`] and `launch` (`latch.rs`), [`Trustee`]
//!    (`trustee.rs`), what may be delegated (`invoke.rs`, `noref.rs`), futures of calls
//!    (`future.rs`), errors (`error.rs`).
//! 2. The protocol: words (`wire.rs`), handing buffers back and forth ([`slot`]) and seeing
//!    that they are whole (`whole.rs`), finding out who
//!    sent something ([`arrivals`]), giving a buffer away on a lane ([`link`]).
//! 3. From a call to a request (`request.rs`) and the two ends of a pair: `outbox.rs` with
//!    `completion.rs`, `inbox.rs` with `call.rs`; payloads too large for a slot (`bulk.rs`); what a
//!    reply completes: a fiber that waits (`waiter.rs`), a callback (`tell.rs`), the start of a fiber
//!    (`launch.rs`), and who waits for that (`chain.rs`).
//! 4. What closures and properties are called: `registry.rs`, `identity.rs`, `property.rs`,
//!    `count.rs`; how values are encoded, and trusts among them: `codec.rs`.
//! 5. A thread's whole: `node.rs` (`node/poll.rs`, `node/entered.rs`, `node/turn.rs`), with
//!    `context.rs` (may this code wait?), `system.rs` (what threads ask of each other), `traffic.rs`
//!    (what the thread has sent and served), `racks.rs` (threads that belong to no rack).
//! 6. Set-up and idling: `wiring.rs`, [`idle`].

// Under loom only the protocol that moves words is compiled; most of what it offers is used by the rest.
#![cfg_attr(loom, allow(dead_code))]
#![deny(unsafe_code)]
#![cfg_attr(feature = "nightly", feature(auto_traits, negative_impls))]

pub mod arrivals;
pub mod link;
pub mod slot;
mod whole;
mod wire;

#[cfg(not(loom))]
#[allow(unsafe_code)]
mod apply;
#[cfg(not(loom))]
mod bulk;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod call;
#[cfg(not(loom))]
mod chain;
#[cfg(not(loom))]
mod codec;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod completion;
#[cfg(not(loom))]
mod context;
#[cfg(not(loom))]
mod count;
#[cfg(not(loom))]
mod delegate;
#[cfg(not(loom))]
mod error;
#[cfg(all(feature = "async", not(loom)))]
mod future;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod identity;
#[cfg(not(loom))]
pub mod idle;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod inbox;
#[cfg(not(loom))]
mod invoke;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod latch;
#[cfg(not(loom))]
mod launch;
#[cfg(not(loom))]
mod node;
#[cfg(feature = "nightly")]
mod noref;
#[cfg(not(loom))]
mod outbox;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod property;
#[cfg(not(loom))]
mod racks;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod registry;
#[cfg(not(loom))]
mod request;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod tell;
#[cfg(not(loom))]
mod traffic;
#[cfg(not(loom))]
mod trust;
#[cfg(not(loom))]
mod trustee;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod waiter;
#[cfg(not(loom))]
mod wiring;

#[cfg(feature = "nightly")]
pub use noref::NoRef;

#[cfg(all(feature = "async", not(loom)))]
pub use future::Applied;

#[cfg(not(loom))]
pub use self::{
    apply::Portable,
    context::check_may_wait,
    delegate::{IsOwned, Listed, SentByReference, uncaptured},
    error::{CodecError, DelegateError, PanicReport},
    identity::build_identity,
    invoke::Delegable,
    latch::{Latch, LatchGuard},
    node::{EnteredNode, Incident, Node},
    racks::{Job, Post, Registered, run_job},
    registry::is_one_image,
    traffic::Traffic,
    trust::Trust,
    trustee::{LocalTrustee, Trustee, local_trustee},
    wiring::{Wiring, WiringError},
};
