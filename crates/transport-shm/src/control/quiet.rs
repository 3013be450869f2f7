//! When a revoked region is quiet: no thread of any host is in the middle of an operation on it.
//!
//! An operation checks that its region is exported, then copies; one that has passed its check goes
//! on after a revocation. But it ends before its thread polls a lane again. So every thread has a
//! count of *quiet points*, polls at which it was asked to look, and a revocation waits until each
//! thread that may use the region has passed one since:
//!
//! ```text
//!   owner                                 thread with a lane to the owner
//!   live = 0                              is exported?  copy          (an operation)
//!   fence(SeqCst)                         ...
//!   count = its quiet points              asked to look:
//!   ask it to look                          quiet points + 1          (release)
//!   wait until they are not `count`         fence(SeqCst)
//!                                         is exported?  no            (the next operation)
//! ```
//!
//! A quiet point that the owner did not count has its fence behind the owner's, so later operations
//! of that thread see the revocation; and who sees the quiet point sees that earlier ones are done.
//! A thread without a lane starts nothing, and one that opens a lane meanwhile sees the revocation.
//! A thread that nobody asks pays nothing: the count is on the slow path of a poll.

use crate::host::Host;
use primitive::sync::{Ordering, fence};
use transport_api::{Event, HostId};

/// A revocation that waits until the region is quiet.
pub(crate) struct Quieting {
    /// Whose lane to this host reports it, and as what.
    thread: u32,
    token: u64,
    /// Threads that may still use the region, and their quiet points when this was asked.
    users: Vec<(HostId, u32, u64)>,
}

impl Host {
    /// Reports [`Event::Completed`] with `token` on the lane of `thread` to this host once every
    /// operation has ended that was started on regions which are revoked by now.
    pub(crate) fn report_quiet(&self, thread: u32, token: u64) {
        self.quieting.fetch_add(1, Ordering::Relaxed);
        self.own().revoking().fetch_add(1, Ordering::Relaxed);
        // Behind the revocation and the announcement, in front of the counts.
        fence(Ordering::SeqCst);
        let threads = || (0..self.hosts()).filter(|host| self.reaches(HostId(*host)));
        let all = threads().flat_map(|host| (0..self.threads).map(move |t| (HostId(host), t)));
        let users = all.map(|(host, t)| (host, t, self.control(host).quiet_points(t)));
        let quieting = Quieting { thread, token, users: users.collect() };
        let asked: Vec<_> = quieting.users.iter().map(|(host, t, _)| (*host, *t)).collect();
        self.quietings.lock().push(quieting);
        for (host, t) in asked {
            self.ask_to_look(host, t);
        }
        self.check_quiet();
    }

    /// Whether `thread` of `host` may use regions of this host: of those of its own, over any lane.
    fn may_use(&self, host: HostId, thread: u32) -> bool {
        let control = self.control(host);
        match host == self.local {
            true => (0..self.hosts()).any(|peer| control.has_lane(thread, HostId(peer))),
            false => control.has_lane(thread, self.local) && self.end_of(host).is_none(),
        }
    }

    fn ask_to_look(&self, host: HostId, thread: u32) {
        let control = self.control(host);
        let lanes = match host == self.local {
            true => 0..self.hosts(),
            false => self.local.0..self.local.0 + 1,
        };
        let mut asked = false;
        for peer in lanes.map(HostId).filter(|peer| control.has_lane(thread, *peer)) {
            control.ask(thread, peer);
            asked = true;
        }
        if asked {
            control.wake(thread);
        }
    }

    /// `thread`, which calls this from a poll, has no operation under way.
    pub(crate) fn pass_quiet_point(&self, thread: u32, peer: HostId) {
        self.own().pass_quiet_point(thread);
        // Somebody may have waited for that: the owner's threads look whether it was the last.
        for owner in [self.local, peer] {
            let control = self.control(owner);
            if owner == self.local {
                self.check_quiet();
                continue;
            }
            let waits = control.revoking().load(Ordering::Relaxed) != 0;
            for thread in (0..self.threads).filter(|_| waits) {
                control.ask(thread, owner);
                control.wake(thread);
            }
        }
    }

    /// Reports the revocations that every user has left behind.
    pub(crate) fn check_quiet(&self) {
        if self.quieting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut quietings = self.quietings.lock();
        quietings.retain_mut(|Quieting { thread, token, users }| {
            users.retain(|(host, t, count)| {
                self.may_use(*host, *t) && self.control(*host).quiet_points(*t) == *count
            });
            if users.is_empty() {
                self.own().revoking().fetch_sub(1, Ordering::Relaxed);
                self.quieting.fetch_sub(1, Ordering::Relaxed);
                self.deliver(*thread, self.local, Event::Completed { token: *token, value: 0 });
            }
            !users.is_empty()
        });
    }
}
