//! [`Traffic`]: counts of sent and served requests that cost a request nothing, because they are
//! kept by the batch. A batch knows how many requests it has: its client has counted them down, and
//! says so in its signal.

use std::cell::Cell;

/// Requests and bytes between one thread and the others since it began. Calls on a thread's own
/// properties are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests of other threads that were served here.
    pub requests_in: u64,
    /// Requests that were handed over to other threads.
    pub requests_out: u64,
    /// Bytes of requests and replies that have come, in whole words, bulk payloads included.
    pub bytes_in: u64,
    /// Bytes of requests and replies that have gone, in the same way.
    pub bytes_out: u64,
    /// Requests that have come and are not served yet, now. At most one batch of each client is
    /// looked at.
    pub unserved: u64,
    /// Requests of this thread that have no reply yet, now: those that wait to be handed over too.
    pub unanswered: u64,
}

/// Adds `more` to a count.
#[inline(always)]
pub(crate) fn add(count: &Cell<u64>, more: usize) {
    count.set(count.get().wrapping_add(more as u64));
}
