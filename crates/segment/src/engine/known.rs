//! [`Known`]: the segment that a thread was notified of last, and whether it takes a notification. It
//! spares the next notification of the same segment the lock of the exports.

use std::sync::Arc;

use progress::{Notification as Arrived, Violation};
use transport_api::{RegionKey, Rights};

use crate::notification::Notification;
use crate::shared::Exported;
use crate::table::Notify;

/// A segment that was notified, as [`Exports::find`](crate::shared::Exports::find) found it.
pub(super) struct Known {
    pub(super) key: RegionKey,
    /// [`Shared::changes`](crate::shared::Shared::changes) before that.
    pub(super) changes: u64,
    pub(super) exported: Option<Arc<Exported>>,
    /// The bytes of the longest segment that ever had the key.
    pub(super) longest: usize,
}

/// The length of the bytes that a notification reports. One without data reports an earlier operation,
/// whose length is in `value`.
#[inline]
fn reported(arrived: &Arrived) -> u64 {
    if arrived.len == 0 { u64::from(arrived.value) } else { arrived.len }
}

/// Whether a notification is of bytes inside a segment of `total` bytes.
#[inline]
fn is_inside(arrived: &Arrived, total: usize) -> bool {
    let len = reported(arrived);
    len <= total as u64 && arrived.at <= total as u64 - len
}

impl Known {
    /// Whether it is the segment with the key, after `changes` changes.
    #[inline]
    pub(super) fn is_of(&self, key: RegionKey, changes: u64) -> bool {
        self.key == key && self.changes == changes
    }

    /// Whether any segment with the key ever had the bytes that a notification reports.
    pub(super) fn check_inside(&self, arrived: &Arrived) -> Result<(), Violation> {
        let &Arrived { key, at, .. } = arrived;
        let longest = self.longest;
        if is_inside(arrived, longest) {
            return Ok(());
        }
        Err(Violation(format!(
            "a notification of bytes {at}..{} of segment {key:?}, which never had more than {longest}",
            at.saturating_add(reported(arrived))
        )))
    }

    /// The segment, if it takes the notification. That may be of an earlier segment of the same name:
    /// of one that has been revoked meanwhile, was longer, notified, or could be written by that
    /// host. The sender could not know.
    #[inline(always)]
    pub(super) fn check(&self, arrived: &Arrived) -> Option<(&Exported, Notification)> {
        let exported = self.exported.as_deref()?;
        let is_wanted = is_inside(arrived, exported.len)
            && exported.notify != Notify::Never
            && exported.access.of(arrived.from.host).allow(Rights::WRITE);
        let (offset, len) = (arrived.at as usize, reported(arrived) as usize);
        let notification = Notification { from: arrived.from.host, offset, len, missed: 0 };
        is_wanted.then_some((exported, notification))
    }
}
