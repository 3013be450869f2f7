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

/// What [`Engine::look_for`] has found.
pub(crate) enum Look {
    /// The next notification.
    Taken(Notification),
    /// Nothing: a poll would find nothing.
    Nothing,
    /// Another notification, for [`Engine::look_further`].
    Beside(Arrived),
    /// [`Engine::look_further`] is needed.
    MustPoll,
    /// This thread does not bring the notifications of the queue by looking.
    Elsewhere,
}

/// The most notifications that [`Engine::look_for`] takes one by one before it polls.
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

    /// For a look at `queue`, which is empty, at `thread`: whether a notification is there, without a
    /// poll, and if it is the first to arrive: without entering the queue. All notifications of a queue
    /// arrive at one thread, so none that comes later can be first. Outside of callbacks; runs no
    /// code of the program.
    #[inline(always)]
    pub(crate) fn look_for(&self, queue: &Arc<Queue>, thread: u32) -> Look {
        if self.thread != thread || !self.has_no_fibers() {
            return Look::Elsewhere;
        }
        let left = self.until_poll.get();
        if left == 0 || self.shared.has_turns() {
            return Look::MustPoll;
        }
        match self.progress.take_notified(Namespace::SEGMENTS) {
            TakenNotification::Nothing => Look::Nothing,
            TakenNotification::Taken(arrived) => {
                self.until_poll.set(left - 1);
                match self.next_of(queue, &arrived) {
                    Some(notification) => Look::Taken(notification),
                    None => Look::Beside(arrived),
                }
            }
            TakenNotification::Beside(arrived) => {
                self.until_poll.set(0);
                Look::Beside(arrived)
            }
            TakenNotification::MustPoll => Look::MustPoll,
        }
    }

    /// Goes on where [`look_for`](Self::look_for) could not: puts the notification that it has taken
    /// into its queue, or polls.
    #[cold]
    pub(crate) fn look_further(&self, beside: Option<Arrived>) {
        match beside {
            Some(arrived) if arrived.key.namespace() != Namespace::SEGMENTS => {
                self.progress.hand_on(arrived);
            }
            Some(arrived) => {
                let host = arrived.from.host;
                if !self.progress.is_lost(host)
                    && let Err(violation) = self.notified(arrived)
                {
                    self.progress.give_up(host, violation);
                }
            }
            None => {
                self.until_poll.set(TAKEN_IN_A_ROW);
                self.poll();
            }
        }
    }

    /// The notification, if it is the next of `queue`, and of the segment that was notified last.
    #[inline(always)]
    fn next_of(&self, queue: &Arc<Queue>, arrived: &Arrived) -> Option<Notification> {
        let known = self.known.borrow();
        let known =
            known.as_ref().filter(|known| known.is_of(arrived.key, self.shared.changes()))?;
        let (exported, notification) = known.check(arrived)?;
        (Arc::ptr_eq(queue, &exported.queue) && !queue.had_callback()).then_some(notification)
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
