//! Delegation: values entrusted to threads, and closures sent to them, over any transport.
//!
//! A pure machine: it is handed memory, lanes and polls, and has no socket, clock or thread of its
//! own. What users call is re-exported by the `gossamer` crate.
//!
//! The folders follow the way of a request; each uses only what stands below it here (and the
//! thread's lanes through `progress`):
//!
//! | Folder | What it is |
//! |---|---|
//! | `api/` | what users call: [`Trust`], `apply` and its relatives (`apply_ref` and `lend` among them), [`delegate!`], [`Latch`] and `launch`, [`Trustee`], calls of plain bytes ([`PlainCall`]), futures of calls |
//! | `node/` | all of delegation that one thread has: [`Node`], its polls, requests and later replies, set-up ([`Wiring`]), idling ([`idle`]) |
//! | `client/`, `trustee/` | the two ends of a pair of threads: outbox, completions and waiters; inbox, properties and the counting of trusts |
//! | `closure/` | what may be delegated, how closures are named (registry, build identity), how one is run, and whether the running code may wait |
//! | `wire/` | the words of a slot, handing buffers back and forth ([`slot`]), seeing that they are complete, finding out who sent something ([`expected`], [`arrivals`]), giving a buffer away on a lane ([`link`]), bulk payloads |
//! | `codec/` | how arguments and results are encoded, trusts among them |
//! | `error.rs` | what can go wrong, and the reports that travel back |

// Under loom only the protocol that moves words is compiled; most of what it offers is used by the rest.
#![cfg_attr(loom, allow(dead_code))]
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]
#![cfg_attr(feature = "nightly", feature(auto_traits, negative_impls))]

#[cfg(not(loom))]
mod api;
#[cfg(not(loom))]
mod node;

#[cfg(not(loom))]
mod client;
#[cfg(not(loom))]
mod trustee;

#[cfg(not(loom))]
mod closure;
mod wire;

#[cfg(not(loom))]
mod codec;
#[cfg(not(loom))]
mod error;

#[cfg(all(feature = "async", not(loom)))]
pub use crate::api::future::DelegateFuture;
#[cfg(feature = "nightly")]
pub use crate::closure::noref::NoRef;
pub use crate::wire::{arrivals, expected, link, slot};
#[cfg(not(loom))]
pub use crate::{
    api::condvar::Condvar,
    api::deferred::{Deferred, DeferredId},
    api::delegate::{IsOwned, Listed, SentByReference, delegated},
    api::flush::{flush, register_collector, requests_made, send_collected},
    api::latch::{Latch, LatchGuard, LatchReadGuard},
    api::lend::Lending,
    api::may_wait::{check_may_wait, in_delegated_context, may_wait, write_running},
    api::plain_call::served,
    api::prefetch::Prefetching,
    api::reply::Reply,
    api::trust::{PropertyId, Trust},
    api::trustee::{LocalTrustee, Trustee, local_trustee},
    api::updates::Updates,
    client::plain_completion::PlainEnd,
    closure::identity::build_identity,
    closure::invoke::{Delegable, Step},
    closure::plain_bytes::PlainBytes,
    closure::plain_call::PlainCall,
    closure::plain_run::{InPlace, PlainCalls},
    closure::registry::is_one_image,
    codec::trusts::trust_bytes,
    codec::{AsView, Lend, Portable},
    error::{Chain, CodecError, CodecStep, DelegateError, PanicReport, outside},
    node::collected::Collects,
    node::idle,
    node::racks::{Job, Post, Registered, run_job},
    node::wiring::{Wiring, WiringError},
    node::{EnteredNode, Incident, Node},
    wire::traffic::Traffic,
};
