//! What arrives at an attached thread for segments: notifications, lookups and their answers, refusals,
//! and the loss of hosts.

use std::sync::Arc;

use progress::{Notification as Arrived, Owner, Violation};
use transport_api::{HostId, OpError, PeerEvent, Rights, Tag, ThreadId};

use crate::engine::engine::Engine;
use crate::notification::Notification;
use crate::notification::queue::Turn;
use crate::shared::Exported;
use crate::table::Notify;

impl Owner for Engine {
    fn bulk(&self, from: ThreadId, tag: Tag, payload: Vec<u8>) -> Result<(), Violation> {
        self.requests.arrived(&self.shared.clerk, &self.progress, from, tag, &payload)
    }

    fn notified(&self, arrived: Arrived) -> Result<(), Violation> {
        let Arrived { from, key, at, len, value } = arrived;
        let Some((exported, longest)) = self.shared.exports.lock().find(key) else {
            return Err(Violation(format!(
                "a notification of segment {key:?}, which was never exported"
            )));
        };
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
        if let Some(exported) = exported.filter(is_wanted) {
            let (offset, len) = (at as usize, len as usize);
            let notification = Notification { from: from.host, offset, len, missed: 0 };
            if exported.queue.push(notification) == Turn::Next {
                self.shared.arrange_turn(exported.queue.clone(), self.thread);
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
