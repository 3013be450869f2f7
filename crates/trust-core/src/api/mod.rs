//! The API of users: trusts and trustees, `apply` and its relatives, latches and `launch`.
//!
//! Everything here turns a call into a request of the current thread's [`Node`](crate::Node), and
//! the reply into a result.

pub(crate) mod apply;
mod apply_ref;
mod call;
pub(crate) mod callback;
pub(crate) mod condvar;
pub(crate) mod deferred;
pub(crate) mod delegate;
mod entrust;
pub(crate) mod flush;
#[cfg(feature = "async")]
pub(crate) mod future;
mod holders;
#[allow(unsafe_code)] // The value of a latch is behind a cell that its guard opens.
pub(crate) mod latch;
mod latch_report;
mod launch;
mod launch_guard;
mod launch_shared;
#[allow(unsafe_code)] // Takes the latch out of the property that its closure is launched on.
mod launched;
mod launching;
pub(crate) mod lend;
pub(crate) mod may_wait;
#[allow(unsafe_code)] // Runs closures on properties of the thread itself.
pub(crate) mod own;
pub(crate) mod plain_call;
pub(crate) mod prefetch;
mod ref_callback;
pub(crate) mod remote_fiber;
pub(crate) mod reply;
mod spawn;
mod timed;
pub(crate) mod trust;
pub(crate) mod trustee;
pub(crate) mod updates;
mod visit;
