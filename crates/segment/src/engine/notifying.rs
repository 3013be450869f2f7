//! Flow control of notifications: how many of them a lane may hold back before writers wait.
//!
//! An owner that does not poll takes no notifications, and its transport takes a bounded number in
//! advance. The lane keeps all others, in the memory of the writer, and no fence covers them. So a
//! write that notifies waits while the lane holds back [`HIGH_WATER`] or more, until the owner has
//! taken enough of them. The wait ends early if the owner is lost or revokes the region.

use std::time::{Duration, Instant};

use transport_api::{HostId, OpError, RemoteRegion};

use crate::engine::engine::Engine;
use crate::engine::windows::OVERHEAD;

/// A writer waits while a lane holds back this many notifications, or more.
const HIGH_WATER: usize = 1024;

/// A waiting writer continues at this many, so that it does not wait for each.
const LOW_WATER: usize = HIGH_WATER / 2;

/// How long a waiting writer sleeps between two looks: the first and the longest time. Its thread
/// polls meanwhile, or runs other fibers.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// How often a waiting writer asks whether the region is still there.
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Engine {
    /// Notifications to threads of `host` that the lane of this thread holds back.
    fn held_back(&self, host: HostId) -> usize {
        self.progress.lane(host).borrow().waiting_notifications()
    }

    /// Whether a notification of `host` need not wait.
    fn may_notify(&self, host: HostId) -> bool {
        self.held_back(host) < HIGH_WATER
    }

    /// Whether a write of `bytes` to a segment of `host` need not wait; `notifies`: nor its
    /// notification.
    pub(crate) fn has_room(&self, host: HostId, bytes: usize, notifies: bool) -> bool {
        if !notifies {
            return self.windows.has_room(host, bytes);
        }
        // The notification may be an operation of its own.
        self.windows.has_room(host, bytes.saturating_add(OVERHEAD)) && self.may_notify(host)
    }

    /// Counts a write of at most [`PIECE`](crate::engine::PIECE) bytes to `to`, which the caller then
    /// begins, and waits until there is room for it and, if it `notifies`, for a notification.
    #[track_caller]
    pub(super) fn reserve(
        &self,
        to: &RemoteRegion,
        bytes: usize,
        notifies: bool,
    ) -> Result<(), OpError> {
        let host = to.owner();
        loop {
            if notifies && !self.may_notify(host) {
                self.wait_to_notify(to)?;
            }
            let begin = || self.begin_fence(host);
            self.windows.reserve(host, bytes, begin, |fence| self.wait(fence))?;
            // While this fiber waited for the window, others may have notified.
            if !notifies || self.may_notify(host) {
                return Ok(());
            }
            self.windows.take_back(host, bytes);
        }
    }

    /// Waits until the owner of `to` has taken enough notifications.
    #[track_caller]
    fn wait_to_notify(&self, to: &RemoteRegion) -> Result<(), OpError> {
        let host = to.owner();
        let (mut pause, mut asked) = (PAUSE.0, Instant::now());
        while self.held_back(host) > LOW_WATER {
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
        for _ in 0..2 {
            let nothing = self.staging(0);
            self.progress.start(host, |lane| lane.write(to, 0, &nothing))?;
            let begin = || self.begin_fence(host);
            refused = self.windows.peek_refusal(host, begin, |fence| self.wait(fence))?;
            if !matches!(&refused, Some(OpError::Revoked(key)) if *key == to.key()) {
                return Ok(());
            }
        }
        refused.map_or(Ok(()), Err)
    }
}
