//! What arrives at an attached thread for segments: notifications, lookups and their answers, refusals,
//! and the loss of hosts.

use std::cell::Ref;
use std::sync::Arc;

use progress::{Notification as Arrived, Owner, TakenNotification, Violation};
use transport_api::{HostId, Namespace, OpError, PeerEvent, RegionKey, Tag, ThreadId};

use crate::engine::engine::Engine;
use crate::engine::known::Known;
use crate::notification::Notification;
use crate::notification::queue::{Queue, Turn};

/// The most notifications that [`Engine::poll_for`] takes one by one before it polls.
const TAKEN_IN_A_ROW: u32 = 64;

impl Engine {
    /// The segment with this key: the one that was notified last, or one of those exported. The engine
    /// keeps it until another one is notified, even if it is revoked.
    fn find(&self, key: RegionKey) -> Result<Ref<'_, Known>, Violation> {
        let changes = self.shared.changes();
        let is_current = |known: &&Known| known.is_of(key, changes);
        match Ref::filter_map(self.known.borrow(), |known| known.as_ref().filter(is_current)) {
            Ok(known) => return Ok(known),
            Err(other) => drop(other),
        }
        self.find_exported(key, changes)
    }

    #[cold]
    fn find_exported(&self, key: RegionKey, changes: u64) -> Result<Ref<'_, Known>, Violation> {
        let Some((exported, longest)) = self.shared.exports.lock().find(key) else {
            return Err(Violation(format!(
                "a notification of segment {key:?}, which was never exported"
            )));
        };
        let known = Known { key, changes, exported, longest };
        let _before = self.known.replace(Some(known));
        Ref::filter_map(self.known.borrow(), Option::as_ref)
            .map_err(|_| Violation("a segment that was lost".into()))
    }

    /// Polls; returns the next notification of `queue` if it is the first to arrive: without entering
    /// the queue. All notifications of a queue arrive at one thread, so none that comes later can be
    /// first. For that thread, if it has no fibers, outside of callbacks.
    #[inline]
    pub(crate) fn poll_for(&self, queue: &Arc<Queue>) -> Option<Notification> {
        let left = self.until_poll.get();
        if left > 0 && !self.shared.has_turns() {
            match self.progress.take_notified(Namespace::SEGMENTS) {
                TakenNotification::Taken(arrived) => {
                    self.until_poll.set(left - 1);
                    let next = self.next_of(queue, arrived);
                    if next.is_none() {
                        self.arrived_beside(arrived);
                    }
                    return next;
                }
                TakenNotification::Nothing => return None,
                TakenNotification::MustPoll => {}
            }
        }
        self.until_poll.set(TAKEN_IN_A_ROW);
        self.poll();
        None
    }

    /// The notification, if it is the next of `queue`, and of the segment that was notified last.
    #[inline]
    fn next_of(&self, queue: &Arc<Queue>, arrived: Arrived) -> Option<Notification> {
        let known = self.known.borrow();
        let known =
            known.as_ref().filter(|known| known.is_of(arrived.key, self.shared.changes()))?;
        let (exported, notification) = known.check(&arrived)?;
        (Arc::ptr_eq(queue, &exported.queue) && queue.is_bypassed()).then_some(notification)
    }

    /// A notification has arrived that is not the next of the queue that the caller takes from.
    #[cold]
    fn arrived_beside(&self, arrived: Arrived) {
        if let Err(violation) = self.notified(arrived) {
            self.progress.give_up(arrived.from.host, violation);
        }
    }
}

impl Owner for Engine {
    fn bulk(&self, from: ThreadId, tag: Tag, payload: Vec<u8>) -> Result<(), Violation> {
        self.requests.arrived(&self.shared.clerk, &self.progress, from, tag, &payload)
    }

    fn notified(&self, arrived: Arrived) -> Result<(), Violation> {
        let known = self.find(arrived.key)?;
        known.check_inside(&arrived)?;
        let Some((exported, notification)) = known.check(&arrived) else { return Ok(()) };
        let queue = exported.queue.clone();
        // A callback may poll again.
        drop(known);
        if queue.push(notification) == Turn::Next {
            self.shared.arrange_turn(queue, self.thread);
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
