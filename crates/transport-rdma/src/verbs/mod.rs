//! The objects of libibverbs that this transport uses, each in a file of its own and safe to use:
//! [`Device`], [`Pd`], [`Mr`], [`Cq`], [`Qp`]. The crate's `unsafe` is in these files alone.
//!
//! ```text
//!   Device <-- Pd <-- Mr          an arrow leads to what is kept alive
//!     ^               ^
//!     +-- Cq <-- Qp --+
//! ```
//!
//! They are safe because an object keeps alive what it was made from; registered memory belongs to its
//! [`Mr`], which outlives the registration and gives out no reference; and a work request names its
//! local bytes as a part of an `Mr`, checked against its length, which belongs to the queue pair and
//! is dropped after it.
//!
//! `fork()`: afterwards parent and child share every page until one of them writes, and the writer
//! gets a new page. If that is the parent, its device goes on with the old page, which is then the
//! child's. Since Linux 5.13 the child gets copies of registered pages at once, so `ibv_fork_init` is
//! not called; on older kernels a program that forks must set `RDMAV_FORK_SAFE`. The child must
//! neither use nor drop any object of this module: device file and doorbells are the parent's. To
//! start another program is fine: that closes them.

mod cq;
mod device;
mod mr;
mod pd;
mod posted;
mod qp;
mod work;

pub(crate) use cq::{AT_ONCE, Completion, Completions, Cq, Done, Failure, Found};
pub(crate) use device::{Capabilities, Device, Gid};
pub(crate) use mr::Mr;
pub(crate) use pd::Pd;
pub use posted::Posted;
pub(crate) use qp::{ConnectionParams, Limits, Pair, Qp};
pub(crate) use work::{Local, Receive, Verb, Work};
