//! One poll of a node: hand over what is queued, serve what has arrived, take replies, and now and
//! then look at the lanes.

use progress::{Notification, Owner, Violation};
use transport_api::{HostId, LossReason, PeerEvent, Tag, ThreadId};

use crate::client::outbox::Outbox;
use crate::closure::context::Context;
use crate::error::{DelegateError, Panic};
use crate::node::state::{Incident, Node};
use crate::wire::bulk::{BULK_REPLY, BULK_REQUEST};
use crate::wire::slot::AnswerEnd;

impl Node {
    /// One round of all that; true if anything happened. Where nothing is to be done it only looks:
    /// what works is not part of it, so that a round that finds nothing saves few registers for it.
    pub(super) fn poll_once(&self) -> bool {
        self.turn.polled();
        let mut moved = self.attend();
        if self.progress.is_urgent() {
            moved |= self.poll_urgent();
        }
        // A fiber that waits inside a delegated closure holds a reference to its property. It must
        // not, but a bare `park` cannot tell: nothing is served until it has gone on.
        if self.context.is_free() {
            moved |= self.inboxes.serve(self);
        }
        self.run_deferred();
        if self.progress.count_round() {
            moved |= self.poll_and_sweep();
        }
        moved
    }

    /// Hands over the batches that wait, and takes replies. An outbox whose only batch in flight was sent
    /// here is not looked at: no trustee answers so soon.
    #[inline(always)]
    fn attend(&self) -> bool {
        let (mut moved, mut place) = (false, 0);
        // Completions may send, which may lengthen the list.
        while let Some(outbox) = self.outboxes.busy(place) {
            place += 1;
            if outbox.may_flush() && self.flush(outbox) {
                moved = true;
                if !outbox.has_several_in_flight() {
                    continue;
                }
            }
            if let Some(end) = outbox.answered() {
                moved |= self.reap(outbox, end);
            }
        }
        moved
    }

    /// Where only lanes bring what others write: polls them, and serves or takes it in the same round. Another
    /// round would put a system call between a reply and what its fiber sends next.
    #[inline(never)]
    fn poll_urgent(&self) -> bool {
        self.outboxes.sweep_at_times();
        let (mut moved, mut place) = (self.progress.poll(), 0);
        while let Some(outbox) = self.outboxes.busy(place) {
            place += 1;
            if let Some(end) = outbox.answered() {
                moved |= self.reap(outbox, end);
            }
        }
        self.progress.put_off();
        moved
    }

    /// Polls the lanes, and forgets the trustees of a while ago.
    #[inline(never)]
    fn poll_and_sweep(&self) -> bool {
        self.outboxes.sweep();
        self.progress.poll()
    }

    #[inline(never)]
    fn flush(&self, outbox: &Outbox) -> bool {
        !outbox.coalesces() && outbox.flush(|| self.lane_to(outbox))
    }

    /// Takes the replies of an answered batch; true if any request was completed. Of the next one the
    /// next poll: to look at its signal now takes the line from the trustee, which is writing there.
    #[inline(never)]
    fn reap(&self, outbox: &Outbox, end: AnswerEnd) -> bool {
        let _context = self.context.enter(Context::Callback);
        let reaped = outbox.reap(end, &self.context, &mut |panic| self.report_panic(panic));
        if reaped {
            if outbox.protocol_violated() {
                self.give_up(outbox.trustee());
            }
            outbox.refill(|| self.lane_to(outbox), fiber::unpark);
        }
        reaped
    }

    /// Declares the host of a thread lost that has sent what no request asked for.
    #[cold]
    pub(super) fn give_up(&self, from: ThreadId) {
        self.progress.give_up(from.host, unasked(from));
    }

    /// Ends everything that is under way with `host`.
    fn lose(&self, host: HostId, reason: &LossReason) {
        let error = DelegateError::PeerLost { host, reason: reason.clone() };
        let _context = self.context.enter(Context::Callback);
        let caught = &mut |panic: Panic| self.report_panic(panic);
        for outbox in self.outboxes.iter().filter(|o| o.trustee().host == host) {
            outbox.close(&error, caught, fiber::unpark);
        }
        for inbox in self.inboxes.iter().filter(|i| i.client().host == host) {
            inbox.close();
        }
        self.awaited_calls.lose(host, reason, caught);
    }
}

/// `from` has sent what no request asked for.
fn unasked(from: ThreadId) -> Violation {
    Violation(format!("{from} has sent payloads or replies that belong to no request"))
}

impl Owner for Node {
    fn bulk(&self, from: ThreadId, tag: Tag, payload: Vec<u8>) -> Result<(), Violation> {
        let number = self.number_of(from) as usize;
        let expected = match tag {
            BULK_REQUEST => {
                let inbox = self.inboxes.get(number);
                inbox.is_some_and(|inbox| inbox.bulk_arrived(payload))
            }
            BULK_REPLY => {
                let outbox = self.outboxes.get(number as u32);
                outbox.is_some_and(|outbox| outbox.bulk_arrived(payload))
            }
            _ => return Err(Violation(format!("{from} has sent a payload with the tag {tag:?}"))),
        };
        if expected { Ok(()) } else { Err(unasked(from)) }
    }

    fn notified(&self, notification: Notification) -> Result<(), Violation> {
        let Notification { from, key, .. } = notification;
        Err(Violation(format!("{from} has notified this thread of the slots {key:?}")))
    }

    fn peer_gone(&self, event: &PeerEvent) {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        self.lose(*host, &event.reason());
        self.incidents.borrow_mut().push(Incident::Peer(event.clone()));
    }
}
