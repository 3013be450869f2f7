//! [`Waiting`]: what a lane holds back because a thread of the peer does not take it.

use crate::{Namespace, Tag};

/// Bytes counted for each bulk payload on top of its length, so that empty payloads count.
pub const WAITING_OVERHEAD: usize = 64;

/// For backends: counts what a lane holds back for one thread of the peer, for
/// [`Lane::waiting_notifications`](crate::Lane::waiting_notifications) and
/// [`Lane::waiting_bulk`](crate::Lane::waiting_bulk).
///
/// ```
/// use gossamer_transport_api::{Namespace, Tag, Waiting};
///
/// let mut waiting = Waiting::default();
/// let tag = Tag::new(Namespace::SEGMENTS, 1);
/// waiting.add_bulk(tag, 100);
/// waiting.add_notification();
/// assert_eq!(waiting.bulk_bytes(Namespace::SEGMENTS), 164);
/// assert_eq!(waiting.bulk_bytes(Namespace::BARE), 0);
/// assert_eq!(waiting.notifications(), 1);
/// waiting.remove_bulk(tag, 100);
/// assert_eq!(waiting.bulk_bytes(Namespace::SEGMENTS), 0);
/// ```
#[derive(Debug, Default)]
pub struct Waiting {
    notifications: usize,
    /// Bytes by name space, of which there are few.
    bulk: Vec<(Namespace, usize)>,
}

impl Waiting {
    /// A notification waits.
    pub fn add_notification(&mut self) {
        self.notifications += 1;
    }

    /// A notification waits no longer.
    pub fn remove_notification(&mut self) {
        self.notifications -= 1;
    }

    /// A payload of `len` bytes waits.
    pub fn add_bulk(&mut self, tag: Tag, len: usize) {
        *self.of(tag) += len + WAITING_OVERHEAD;
    }

    /// A payload of `len` bytes waits no longer.
    pub fn remove_bulk(&mut self, tag: Tag, len: usize) {
        *self.of(tag) -= len + WAITING_OVERHEAD;
    }

    fn of(&mut self, tag: Tag) -> &mut usize {
        let namespace = tag.namespace();
        let known = self.bulk.iter().position(|(other, _)| *other == namespace);
        let index = known.unwrap_or_else(|| {
            self.bulk.push((namespace, 0));
            self.bulk.len() - 1
        });
        &mut self.bulk[index].1
    }

    /// Notifications that wait.
    pub fn notifications(&self) -> usize {
        self.notifications
    }

    /// Bytes of payloads in a name space that wait, with [`WAITING_OVERHEAD`] for each payload.
    pub fn bulk_bytes(&self, namespace: Namespace) -> usize {
        let found = self.bulk.iter().find(|(other, _)| *other == namespace);
        found.map_or(0, |(_, bytes)| *bytes)
    }
}
