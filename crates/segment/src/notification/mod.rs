//! Control transfer, separate from data: notifications of writes that requested one, and where the
//! owner of the segment waits for them (section 3.1.1 of the paper).
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

/// A peer has changed a segment and then notified its owner. If an earlier segment of the
/// same name was revoked before its last notifications were taken, this may be one of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// The model of the queue makes some.
#[cfg_attr(not(loom), non_exhaustive)]
pub struct Notification {
    /// The host that changed the segment.
    pub from: HostId,
    /// The first byte that it changed.
    pub offset: usize,
    /// How many bytes it changed.
    pub len: usize,
    /// The number of notifications dropped right before this one, because more than 1024 were queued.
    /// If it is not zero, check the whole segment.
    pub missed: u64,
}
