//! Notifications that a thread sends and takes without a call of its lanes.

use transport_api::{Event, HostId, Namespace, NoticeOutbox, Notification};

use crate::progress::Progress;
use crate::watched::Seen;

/// What [`Progress::take_notified`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenNotification {
    /// A notification, which the owner handles as [`Owner::notified`](crate::Owner::notified) does.
    Taken(Notification),
    /// A notification of another owner, or of a host that is lost: call [`Progress::hand_on`] next.
    Beside(Notification),
    /// Nothing at all: a poll would find nothing.
    Nothing,
    /// Only a poll can tell.
    MustPoll,
}

impl Progress {
    /// Where notifications of `thread` of `host` go if nothing is in the way: a write with notification
    /// that this refuses is for the [lane](Self::lane). `None` if no memory of the host is mapped, or
    /// if there is no such thread.
    #[inline(always)]
    pub fn outbox(&self, host: HostId, thread: u32) -> Option<&NoticeOutbox> {
        self.outboxes.get(host.0 as usize)?.get(thread as usize).map(|outbox| &**outbox)
    }

    /// For an owner that waits for notifications of its name space: takes the next one, if it is where
    /// a lane [watches](transport_api::Lane::watch). A caller that repeats this [polls](Self::poll) now
    /// and then as well, and when this says so. Inside a poll, other notifications may come first, so
    /// this takes none. It calls no owner.
    #[inline(always)]
    pub fn take_notified(&self, namespace: Namespace) -> TakenNotification {
        let mut seen = self.watched.look();
        if matches!(seen, Seen::Unknown) {
            self.note_watched();
            seen = self.watched.look();
        }
        match seen {
            Seen::Nothing => TakenNotification::Nothing,
            Seen::Unknown => TakenNotification::MustPoll,
            Seen::Notified(notification)
                if notification.key.namespace() == namespace
                    && !self.is_lost(notification.from.host) =>
            {
                TakenNotification::Taken(notification)
            }
            Seen::Notified(notification) => TakenNotification::Beside(notification),
        }
    }

    /// Notes where to look, unless a poll is due.
    #[inline(never)]
    fn note_watched(&self) {
        if self.is_urgent() || self.is_dispatching.get() {
            return;
        }
        self.watched.note(|each| self.lanes.iter().all(|lane| lane.borrow().watch(each)));
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
