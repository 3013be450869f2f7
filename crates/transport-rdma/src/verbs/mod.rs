//! The objects of libibverbs that this transport uses, each in a file of its own and safe to use:
//! [`Device`], [`Pd`], [`Mr`], [`Cq`], [`Qp`]. The crate's `unsafe` is in these files alone.
//!
//! ```text
//!   Device <-- Pd <-- Mr          an arrow leads to what is kept alive
//!     ^         ^
//!     +-- Cq <-- Qp
//! ```
//!
//! What makes them safe: an object keeps alive what it was made from; registered memory belongs to
//! its [`Mr`], which outlives the registration and gives out no reference; and a work request names
//! its local bytes as a part of an `Mr`, checked against its length.

mod cq;
mod device;
mod mr;
mod pd;
mod qp;

pub(crate) use cq::{AT_ONCE, Completion, Cq, Done, Failure};
pub(crate) use device::{Abilities, Device, Gid};
pub(crate) use mr::Mr;
pub(crate) use pd::Pd;
pub(crate) use qp::{Endpoint, Limits, Local, Qp, Receive, Timing, Verb, Work};
