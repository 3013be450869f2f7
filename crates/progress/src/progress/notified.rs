//! Notifications that a thread takes from its lanes without a poll, for a thread that waits for one.

use transport_api::{Event, HostId, Namespace, Notification, Ready};

use crate::progress::Progress;
use crate::watched::Seen;

/// What [`Progress::take_notified`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenNotification {
    /// A notification, which the owner handles as [`Owner::notified`](crate::Owner::notified) does.
    Taken,
    /// A notification of another owner, or of a host that is lost: call [`Progress::hand_on`] next.
    Beside,
    /// Nothing at all: a poll would find nothing.
    Nothing,
    /// Only a poll can tell.
    MustPoll,
}

impl Progress {
    /// For an owner that waits for notifications of its name space: takes the next one, if a lane has
    /// it at hand ([`Lane::take_notified`](transport_api::Lane::take_notified)). A caller that repeats
    /// this [polls](Self::poll) now and then as well, and when this says so. Inside a poll, other
    /// notifications may come first, so this takes none. It calls no owner. A notification is written
    /// to `arrived`.
    #[inline(always)]
    pub fn take_notified(
        &self,
        namespace: Namespace,
        arrived: &mut Notification,
    ) -> TakenNotification {
        match self.watched.look() {
            Seen::Same => return TakenNotification::Nothing,
            Seen::Changed(host) => {
                self.watched.forget();
                let ready = self.lanes[host.0 as usize].borrow_mut().take_notified(arrived);
                if ready == Ready::Notified {
                    return self.taken(namespace, ready, arrived);
                }
            }
            Seen::Unknown => {}
        }
        let ready = self.look_for_notified(arrived);
        self.taken(namespace, ready, arrived)
    }

    /// As [`take_notified`](Self::take_notified), lane by lane.
    #[inline(never)]
    fn look_for_notified(&self, arrived: &mut Notification) -> Ready {
        if self.is_urgent() || self.is_dispatching.get() {
            return Ready::MustPoll;
        }
        let ready = self.take_from_any(arrived);
        if ready != Ready::Nothing || !self.note_watched() {
            return ready;
        }
        // Finds what came before the words were noted.
        let ready = self.take_from_any(arrived);
        if ready == Ready::Nothing {
            self.watched.begin();
        }
        ready
    }

    fn note_watched(&self) -> bool {
        self.watched.note(|each| {
            (0..)
                .map(HostId)
                .zip(&self.lanes)
                .all(|(host, lane)| lane.borrow().watch(&mut |memory, at| each(host, memory, at)))
        })
    }

    /// What the first lane has that has anything.
    fn take_from_any(&self, arrived: &mut Notification) -> Ready {
        for lane in &self.lanes {
            let ready = lane.borrow_mut().take_notified(arrived);
            if ready != Ready::Nothing {
                return ready;
            }
        }
        Ready::Nothing
    }

    #[inline(always)]
    fn taken(
        &self,
        namespace: Namespace,
        ready: Ready,
        arrived: &Notification,
    ) -> TakenNotification {
        match ready {
            Ready::Notified
                if arrived.key.namespace() == namespace && !self.is_lost(arrived.from.host) =>
            {
                TakenNotification::Taken
            }
            Ready::Notified => TakenNotification::Beside,
            Ready::Nothing => TakenNotification::Nothing,
            Ready::MustPoll => TakenNotification::MustPoll,
        }
    }

    /// Hands a notification that [`take_notified`](Self::take_notified) has taken beside those of its
    /// caller to its owner, if its host is not lost. A [poll](Self::poll) is due then.
    #[cold]
    pub fn hand_on(&self, notification: Notification) {
        let Notification { from, key, at, len, value } = notification;
        let mut events = vec![Event::Notified { from, key, at, len, value }];
        self.dispatch_all(from.host, &mut events);
    }
}
