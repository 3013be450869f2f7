//! What arrives at an attached thread for segments: notifications, lookups and their answers, refusals,
//! and the loss of hosts.

use std::cell::Ref;
use std::sync::Arc;

use progress::{Notification as Arrived, Owner, Violation};
use transport_api::{HostId, OpError, PeerEvent, RegionKey, Rights, Tag, ThreadId};

use crate::engine::engine::Engine;
use crate::engine::taker::Known;
use crate::notification::Notification;
use crate::notification::queue::{Queue, Turn};
use crate::shared::Exported;
use crate::table::Notify;

impl Engine {
    /// The segment with this key: the one that was notified last, or one of those exported. The engine
    /// keeps it until another one is notified, even if it is revoked.
    fn find(&self, key: RegionKey) -> Result<Ref<'_, Known>, Violation> {
        let changes = self.shared.changes();
        let is_current = |known: &Known| known.key == key && known.changes == changes;
        if !self.known.borrow().as_ref().is_some_and(is_current) {
            let Some((exported, longest)) = self.shared.exports.lock().find(key) else {
                return Err(Violation(format!(
                    "a notification of segment {key:?}, which was never exported"
                )));
            };
            let known = Known { key, changes, exported, longest };
            let _before = self.known.replace(Some(known));
        }
        Ref::filter_map(self.known.borrow(), Option::as_ref)
            .map_err(|_| Violation("a segment that was lost".into()))
    }

    /// Polls; returns the next notification of `queue`, if the first that arrives for it meanwhile is
    /// that: without entering the queue. For a thread without fibers, outside of callbacks.
    #[inline]
    pub(crate) fn poll_for(&self, queue: &Arc<Queue>) -> Option<Notification> {
        self.taker.take_in(Arc::as_ptr(queue), || self.poll())
    }

    /// Gives a notification to the caller of [`poll_for`](Self::poll_for), if it is the next of the
    /// queue that the caller takes from; false otherwise. All notifications of a queue arrive at one
    /// thread, so none that comes later can be first.
    #[inline]
    fn hand_over(&self, queue: &Arc<Queue>, notification: Notification) -> bool {
        let is_taken = self.taker.waits_for(Arc::as_ptr(queue)) && queue.is_bypassed();
        if is_taken {
            self.taker.hand(notification);
        }
        is_taken
    }
}

impl Owner for Engine {
    fn bulk(&self, from: ThreadId, tag: Tag, payload: Vec<u8>) -> Result<(), Violation> {
        self.requests.arrived(&self.shared.clerk, &self.progress, from, tag, &payload)
    }

    fn notified(&self, arrived: Arrived) -> Result<(), Violation> {
        let Arrived { from, key, at, len, value } = arrived;
        let known = self.find(key)?;
        let Known { exported, longest, .. } = &*known;
        let longest = *longest;
        // A notification without data reports an earlier operation; its length is in `value`.
        let len = if len == 0 { u64::from(value) } else { len };
        let is_inside = |total: usize| len <= total as u64 && at <= total as u64 - len;
        if !is_inside(longest) {
            return Err(Violation(format!(
                "a notification of bytes {at}..{} of segment {key:?}, which never had more than \
                 {longest}",
                at.saturating_add(len)
            )));
        }
        // It may be of an earlier segment of the same name: of one that has been revoked meanwhile,
        // was longer, notified, or could be written by that host. The sender could not know.
        let is_wanted = |exported: &Arc<Exported>| {
            is_inside(exported.len)
                && exported.notify != Notify::Never
                && exported.access.of(from.host).allow(Rights::WRITE)
        };
        if let Some(exported) = exported.as_ref().filter(|exported| is_wanted(exported)) {
            let (offset, len) = (at as usize, len as usize);
            let notification = Notification { from: from.host, offset, len, missed: 0 };
            if self.hand_over(&exported.queue, notification) {
                return Ok(());
            }
            let queue = exported.queue.clone();
            // A callback may poll again.
            drop(known);
            if queue.push(notification) == Turn::Next {
                self.shared.arrange_turn(queue, self.thread);
            }
        }
        Ok(())
    }

    fn refused(&self, host: HostId, error: &OpError) {
        if let OpError::Revoked { key, .. } = error {
            self.shared.count_refusal((host, *key));
        }
    }

    fn peer_gone(&self, event: &PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        self.shared.clerk.forget_host(*host);
        self.requests.peer_gone(*host);
    }
}
