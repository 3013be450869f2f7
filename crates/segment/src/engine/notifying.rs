//! Flow control of notifications: how many of them a lane may hold back before writers wait.
//!
//! A thread of the owner that does not poll takes no notifications, and its transport takes a bounded
//! number in advance. The lane keeps all others, in the memory of the writer, and no fence covers
//! them. So a write that notifies waits while the lane holds back [`HIGH_WATER`] or more for the same
//! thread of the owner, until that thread has taken enough of them. The wait ends early if the owner
//! is lost or revokes the region.

use std::time::{Duration, Instant};

use transport_api::{HostId, OpError, RemoteRegion};

use crate::engine::engine::Engine;
use crate::engine::flow_control::OVERHEAD;

/// The most notifications that a lane holds back for one thread of the owner.
const HIGH_WATER: usize = 1024;

/// A waiting writer continues at this many, so that it does not wait for each.
const LOW_WATER: usize = HIGH_WATER / 2;

/// How long a waiting writer sleeps between two looks: the first and the longest time. Its thread
/// polls meanwhile, or runs other fibers.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// How often a waiting writer asks whether the region is still there.
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Engine {
    /// Notifications to `thread` of `host` that the lane of this thread holds back. Those to other
    /// threads of the host delay no writer: they may never be taken.
    fn held_back(&self, host: HostId, thread: u32) -> usize {
        self.progress.lane(host).borrow().waiting_notifications(thread)
    }

    /// Whether a notification of `thread` of `host` need not wait.
    fn may_notify(&self, host: HostId, thread: u32) -> bool {
        self.held_back(host, thread) < HIGH_WATER
    }

    /// Whether a write of `bytes` to a segment of `host` need not wait, nor its notification of the
    /// thread `notify`.
    pub(crate) fn has_room(&self, host: HostId, bytes: usize, notify: Option<u32>) -> bool {
        let Some(thread) = notify else { return self.flow.has_room(host, bytes) };
        // The notification may be an operation of its own.
        let has_room = self.flow.has_room(host, bytes.saturating_add(OVERHEAD));
        has_room && self.may_notify(host, thread)
    }

    /// Counts a write of at most [`PIECE`](crate::engine::PIECE) bytes to `to`, which the caller then
    /// begins, and waits until there is room for it and for a notification of the thread `notify`.
    #[track_caller]
    pub(super) fn reserve(
        &self,
        to: &RemoteRegion,
        bytes: usize,
        notify: Option<u32>,
    ) -> Result<(), OpError> {
        let host = to.owner();
        let may_notify = || notify.is_none_or(|thread| self.may_notify(host, thread));
        loop {
            if let Some(thread) = notify.filter(|_| !may_notify()) {
                self.wait_to_notify(to, thread)?;
            }
            let begin = || self.begin_fence(host);
            self.flow.reserve(host, bytes, begin, |fence| self.wait(fence))?;
            // While this fiber waited for the window, others may have notified.
            if may_notify() {
                return Ok(());
            }
            self.flow.take_back(host, bytes);
        }
    }

    /// Waits until `thread` of the owner of `to` has taken enough notifications.
    #[track_caller]
    fn wait_to_notify(&self, to: &RemoteRegion, thread: u32) -> Result<(), OpError> {
        let host = to.owner();
        let (mut pause, mut asked) = (PAUSE.0, Instant::now());
        while self.held_back(host, thread) > LOW_WATER {
            if let Some(reason) = self.progress.loss(host) {
                return Err(OpError::PeerLost(host, reason));
            }
            if asked.elapsed() >= ASK_EVERY {
                self.check_exported(to)?;
                asked = Instant::now();
            }
            self.sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
        Ok(())
    }

    /// Whether the owner of `to` still exports it: writes nothing, which only an export accepts.
    ///
    /// # Errors
    /// [`OpError::Revoked`], if it does not; [`OpError::PeerLost`].
    #[track_caller]
    fn check_exported(&self, to: &RemoteRegion) -> Result<(), OpError> {
        let host = to.owner();
        let mut refused = None;
        // The first fence may report an earlier operation on an earlier export under the key.
        let is_revoked =
            |error: &OpError| matches!(error, OpError::Revoked { key, .. } if *key == to.key());
        let begin = || self.begin_fence(host);
        if !self.flow.is_clean(host) {
            // A refusal of the program's own writes is for its next fence.
            self.flow.peek_refusal(host, |_| false, begin, |fence| self.wait(fence))?;
        }
        for _ in 0..2 {
            // Then only the write below can be refused, which is not reported to the program.
            let is_clean = self.flow.is_clean(host);
            self.progress.start(host, |lane| lane.write(to, 0, &self.nothing))?;
            let is_own = |error: &OpError| is_clean && is_revoked(error);
            refused = self.flow.peek_refusal(host, is_own, begin, |fence| self.wait(fence))?;
            if !refused.as_ref().is_some_and(is_revoked) {
                return Ok(());
            }
        }
        refused.map_or(Ok(()), Err)
    }
}
