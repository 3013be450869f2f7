//! Control, apart from data: what the owner of a segment learns of a write that asked for it, and
//! where it waits for that (section 3.1.1 of the paper).
//!
//! Reading order: `callback.rs` (calling the program's code inside a poll), `queue.rs` (from the
//! thread that a notification arrives at to the one that takes it), `wait.rs` ([`Notifications`]),
//! `next.rs` ([`Next`], for async code).

pub(crate) mod callback;
mod next;
pub(crate) mod queue;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;

use transport_api::HostId;

pub use self::next::Next;
pub use self::wait::Notifications;

/// A peer has changed a segment and notified its owner, behind the data. If an earlier segment of the
/// same name was revoked before its last notifications were taken, this may be one of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The host that did it.
    pub from: HostId,
    /// The first byte that it changed.
    pub offset: usize,
    /// How many bytes it changed.
    pub len: usize,
    /// How many notifications right before this one were dropped, because more than 1024 waited:
    /// look at the whole segment if this is not zero.
    pub missed: u64,
}
