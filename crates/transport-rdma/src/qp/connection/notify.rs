//! What the peer's threads are told: wakes, and notifications, which are sent if, and only if, their data
//! is.

use std::sync::Arc;

use primitive::SharedBytes;
use rdma_protocol::immediate::{Record, Refusal};
use transport_api::RegionKey;

use crate::memory::remote::RemoteMemory;
use crate::qp::connection::Connection;
use crate::verbs::Pair;

impl<P: Pair> Connection<P> {
    /// Writes as [`write`](Self::write), and then notifies `thread` of the peer.
    pub(crate) fn write_notify(
        &mut self,
        to: &Arc<RemoteMemory>,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) {
        self.write(to, at, from);
        // No bytes are no request, so that the last one is another's.
        let data = if from.is_empty() { None } else { self.queue.refusal() };
        self.notify_of((to.region, to.generation), (at, from.len()), (thread, value), data);
    }

    /// Notifies `thread` of the peer of the `len` bytes that were changed at byte `at`, also if the region
    /// is revoked.
    pub(crate) fn notify(
        &mut self,
        region: (RegionKey, u32),
        (at, len): (usize, usize),
        thread: u32,
        value: u32,
    ) {
        self.notify_of(region, (at, len), (thread, value), None);
    }

    /// Notifies, unless `data` is refused before.
    fn notify_of(
        &mut self,
        (key, generation): (RegionKey, u32),
        (at, len): (usize, usize),
        (thread, value): (u32, u32),
        data: Option<Refusal>,
    ) {
        if !self.has_failed {
            let (at, len) = (at as u64, len as u64);
            let record = Record { key, at, len, value, thread, generation };
            self.notifications.notify(record, data);
            self.notify_more();
        }
    }

    /// Notifications for `thread` of the peer that wait because it has not taken earlier ones.
    pub(crate) fn waiting_notifications(&self, thread: u32) -> usize {
        self.notifications.waiting(thread)
    }

    pub(super) fn notify_more(&mut self) {
        while let Some((record, data)) = self.notifications.pop() {
            if !self.has_failed {
                self.queue.notify(&record.encode(), data, &self.staging);
            }
        }
    }

    /// Wakes `thread` of the peer behind what was started. Returns whether that goes with requests that
    /// wait for a flush.
    pub(crate) fn wake(&mut self, thread: u32) -> bool {
        let travels = !self.queue.chain().is_empty();
        self.send_immediate(thread);
        travels
    }

    /// A thread of this host has taken `count` of the peer's notifications: returns credits.
    pub(crate) fn notifications_taken(&mut self, count: u32) {
        if let Some(word) = self.notifications.taken(count) {
            self.send_immediate(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use rdma_protocol::immediate::{NOTIFICATION_CREDITS, WINDOW};
    use transport_api::Event;

    use super::*;
    use crate::qp::connection::Incident;
    use crate::qp::connection::tests::{Fake, KEY, completed, connection, receive_immediate};
    use crate::verbs::{Done, Verb, Work};

    const NONE: [u32; 0] = [];

    /// A connection whose staging memory is full of requests that are posted.
    fn full_connection() -> Connection<Fake> {
        let mut connection = connection();
        connection.write(&region(), 0, &SharedBytes::heap(connection.staging.len()));
        connection.post(&mut |incident| panic!("{incident:?}"));
        connection
    }

    fn region() -> Arc<RemoteMemory> {
        Arc::new(RemoteMemory::new((KEY, 3), 0, 0))
    }

    /// Completes requests until none is in flight; the records that were posted meanwhile, by their value.
    fn complete_all(connection: &mut Connection<Fake>) -> Vec<u32> {
        let mut values = Vec::new();
        connection.settle(&mut |incident| panic!("{incident:?}"));
        while let Some(Work { id, verb, local, is_signalled, .. }) =
            connection.qp.posted.pop_front()
        {
            if verb == Verb::Send {
                let mut value = [0; 4];
                connection.staging.read_into(local.at + 24, &mut value);
                values.push(u32::from_le_bytes(value));
            }
            if is_signalled {
                assert!(completed(connection, id, Ok(Done::Sent)).is_empty());
                connection.advance(&mut |incident| {
                    let is_refusal = matches!(incident, Incident::Event(Event::Failed { .. }));
                    assert!(is_refusal, "{incident:?}");
                });
                connection.settle(&mut |incident| panic!("{incident:?}"));
            }
        }
        assert!(connection.queue.is_quiet());
        values
    }

    #[test]
    fn a_refused_write_does_not_notify_and_costs_no_credit() {
        let (mut connection, remote) = (full_connection(), region());
        connection.write_notify(&remote, 0, &SharedBytes::heap(64), 0, 1);
        // More than there is room for once the first requests complete.
        connection.write_notify(&remote, 0, &SharedBytes::heap(4096), 0, 2);
        connection.notify((KEY, 3), (0, 64), 0, 3);
        remote.revoke();
        assert_eq!(complete_all(&mut connection), [3], "only the one that claims no data");
        (4..3 + WINDOW).for_each(|value| connection.notify((KEY, 3), (0, 64), 0, value));
        assert_eq!(complete_all(&mut connection), (4..3 + WINDOW).collect::<Vec<_>>());
        connection.notify((KEY, 3), (0, 64), 0, 99);
        assert_eq!(complete_all(&mut connection), NONE, "the window is full");
    }

    #[test]
    fn a_write_that_is_refused_in_part_does_not_notify() {
        let (mut connection, remote) = (connection(), region());
        // The last parts find no room.
        connection.write_notify(&remote, 0, &SharedBytes::heap(8192), 0, 1);
        remote.revoke();
        assert_eq!(complete_all(&mut connection), NONE);
    }

    #[test]
    fn a_notification_without_a_credit_is_dropped_with_its_data() {
        let (mut connection, remote) = (connection(), region());
        (0..WINDOW).for_each(|value| connection.notify((KEY, 3), (0, 64), 1, value));
        assert_eq!(complete_all(&mut connection).len(), WINDOW as usize);
        connection.write(&region(), 0, &SharedBytes::heap(4096));
        connection.write_notify(&remote, 0, &SharedBytes::heap(64), 0, 100);
        connection.write_notify(&region(), 0, &SharedBytes::heap(64), 0, 101);
        assert_eq!(connection.waiting_notifications(0), 2);
        remote.revoke();
        assert_eq!(complete_all(&mut connection), NONE);
        assert_eq!(connection.waiting_notifications(0), 1);
        assert!(receive_immediate(&mut connection, NOTIFICATION_CREDITS | 1).is_empty());
        assert_eq!(complete_all(&mut connection), [101]);
    }
}
