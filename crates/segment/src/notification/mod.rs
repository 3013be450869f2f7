//! Control, apart from data: what the owner of a segment learns of a write that asked for it, and
//! where it waits for that (section 3.1.1 of the paper).

pub(crate) mod queue;
mod wait;

use transport_api::HostId;

pub use self::wait::Notifications;

/// A peer has changed a segment and notified its owner, behind the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The host that did it.
    pub from: HostId,
    /// The first byte that it changed.
    pub offset: usize,
    /// How many bytes it changed.
    pub len: usize,
    /// How many notifications were dropped right before this one, because nobody took them: look at
    /// the whole segment if this is not zero.
    pub missed: u64,
}
