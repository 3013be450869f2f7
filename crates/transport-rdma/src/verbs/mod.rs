//! The objects of libibverbs that this transport uses, each in a file of its own and safe to use:
//! [`Device`], [`Pd`], [`Mr`], [`Cq`], [`Qp`]. The crate's `unsafe` is in these files alone.
//!
//! ```text
//!   Device <-- Pd <-- Mr          an arrow leads to what is kept alive
//!     ^               ^
//!     +-- Cq <-- Qp --+
//! ```
//!
//! What makes them safe: an object keeps alive what it was made from; registered memory belongs to
//! its [`Mr`], which outlives the registration and gives out no reference; and a work request names
//! its local bytes as a part of an `Mr`, checked against its length, which belongs to the queue
//! pair and goes after it.
//!
//! `fork()`: from then on, parent and child share every page until one of them writes, who then
//! gets a new page. Were that the parent, its device would go on with the old page, which is the
//! child's. Since Linux 5.13 the child gets copies of registered pages at once, and the parent's stay
//! where they are, so `ibv_fork_init` is not called; before that, whoever must fork sets
//! `RDMAV_FORK_SAFE`. The child must not use, nor drop, anything of this module: its device file and
//! its doorbells are the parent's. To start another program is fine: that closes them.

mod cq;
mod device;
mod mr;
mod pd;
mod qp;

pub(crate) use cq::{AT_ONCE, Completion, Cq, Done, Failure, Found};
pub(crate) use device::{Capabilities, Device, Gid};
pub(crate) use mr::Mr;
pub(crate) use pd::Pd;
pub(crate) use qp::{ConnectionParams, Endpoint, Limits, Local, Pair, Qp, Receive, Verb, Work};
