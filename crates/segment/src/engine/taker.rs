//! What an attached thread keeps so that a notification reaches the code that polls for it without a
//! lock: the segment that was notified last ([`Known`]), and the caller that waits ([`Taker`]).

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use transport_api::RegionKey;

use crate::notification::Notification;
use crate::notification::queue::Queue;
use crate::shared::Exported;

/// A segment that was notified, as [`Exports::find`](crate::shared::Exports::find) found it.
pub(super) struct Known {
    pub(super) key: RegionKey,
    /// [`Shared::changes`](crate::shared::Shared::changes) before that.
    pub(super) changes: u64,
    pub(super) exported: Option<Arc<Exported>>,
    /// The bytes of the longest segment that ever had the key.
    pub(super) longest: usize,
}

/// The queue whose next notification is taken by the caller of a poll, and that notification.
pub(super) struct Taker {
    /// Null once the notification is there. Compared, never dereferenced.
    queue: Cell<*const Queue>,
    taken: Cell<Option<Notification>>,
    is_polling: Cell<bool>,
}

impl Default for Taker {
    fn default() -> Self {
        let (queue, taken) = (Cell::new(ptr::null()), Cell::new(None));
        Self { queue, taken, is_polling: Cell::new(false) }
    }
}

impl Taker {
    /// Polls, and returns what was handed over for `queue` meanwhile. A poll inside another one, as of a
    /// waker that looks at notifications, takes nothing.
    #[inline]
    pub(super) fn take_in(
        &self,
        queue: *const Queue,
        poll: impl FnOnce() -> bool,
    ) -> Option<Notification> {
        /// Ends the taking, also if a poll panics.
        struct Taking<'a>(&'a Taker);
        impl Drop for Taking<'_> {
            fn drop(&mut self) {
                self.0.queue.set(ptr::null());
                self.0.is_polling.set(false);
            }
        }
        if self.is_polling.replace(true) {
            poll();
            return None;
        }
        let taking = Taking(self);
        self.queue.set(queue);
        poll();
        if taking.0.queue.get().is_null() { self.taken.take() } else { None }
    }

    /// Whether the caller of a poll takes the next notification of `queue`.
    #[inline]
    pub(super) fn waits_for(&self, queue: *const Queue) -> bool {
        ptr::eq(self.queue.get(), queue)
    }

    /// Hands over the notification that the caller waits for.
    #[inline]
    pub(super) fn hand(&self, notification: Notification) {
        self.queue.set(ptr::null());
        self.taken.set(Some(notification));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use transport_api::HostId;

    use super::*;

    fn note(offset: usize) -> Notification {
        Notification { from: HostId(0), offset, len: 8, missed: 0 }
    }

    #[test]
    fn a_poll_inside_another_takes_nothing_of_it() {
        let (taker, first, second) = (Taker::default(), Queue::new(), Queue::new());
        let taken = taker.take_in(&first, || {
            assert!(taker.waits_for(&first) && !taker.waits_for(&second));
            taker.hand(note(1));
            assert!(!taker.waits_for(&first), "one at a time");
            assert_eq!(taker.take_in(&second, || true), None);
            true
        });
        assert_eq!(taken, Some(note(1)));
        assert_eq!(taker.take_in(&first, || false), None);
        assert!(!taker.waits_for(&first));
    }
}
