//! One poll of a node: hand over what is queued, serve what has arrived, take replies, and now and
//! then look at the lanes.

use progress::{Notification, Owner, Violation};
use transport_api::{HostId, LossReason, PeerEvent, Tag, ThreadId};

use crate::client::outbox::Outbox;
use crate::closure::context::Context;
use crate::error::{DelegateError, Panic};
use crate::node::state::{Incident, Node};
use crate::wire::arrivals::{Arrivals, Visit};
use crate::wire::bulk::{BULK_REPLY, BULK_REQUEST};
use crate::wire::slot::Answer;

impl Node {
    /// One round of all that; true if anything happened. Where nothing is to be done it only looks:
    /// what works is not part of it, so that a round that finds nothing saves no registers for it.
    pub(super) fn poll_once(&self) -> bool {
        self.turn.polled();
        let (mut moved, mut awaits) = self.flush();
        // Where only lanes bring what others write, it is served or taken in the same round: to
        // look again, which is a system call, would come between a reply and what its fiber sends
        // next.
        let is_urgent = self.progress.is_urgent();
        if is_urgent {
            moved |= self.progress.poll();
            awaits = true;
        }
        // A fiber that waits inside a delegated closure holds a reference to its property. It must
        // not, but a bare `park` cannot tell: nothing is served until it has gone on.
        if self.context.is_free() && self.serve() {
            // That took a while, in which an answer may have come.
            (moved, awaits) = (true, true);
        }
        if awaits {
            moved |= self.reap();
        }
        self.run_deferred();
        if !is_urgent {
            moved |= self.progress.poll_if_due();
        }
        moved
    }

    /// Hands over the batches that wait; says whether there were any, and whether to look for replies. An
    /// outbox whose only batch in flight was sent here is no reason to: no trustee answers so soon. An idle
    /// one is, since [`reap`](Self::reap) takes it off the list.
    #[inline(always)]
    fn flush(&self) -> (bool, bool) {
        let (mut sent, mut awaits) = (false, false);
        for outbox in self.outboxes.all_busy() {
            let flushed = outbox.must_flush() && outbox.flush(self.lane_to(outbox));
            sent |= flushed;
            awaits |= !flushed || outbox.has_several_in_flight();
        }
        (sent, awaits)
    }

    #[inline(always)]
    fn serve(&self) -> bool {
        match &self.arrivals {
            None => self.inboxes.iter().flatten().fold(false, |any, inbox| inbox.serve(self) | any),
            Some(arrivals) => self.serve_arrivals(arrivals),
        }
    }

    #[inline(never)]
    fn serve_arrivals(&self, arrivals: &Arrivals) -> bool {
        arrivals.serve(|client| {
            let Some(Some(inbox)) = self.inboxes.get(client) else { return Visit::default() };
            let served = inbox.serve(self);
            Visit { served, again: inbox.is_ready() || inbox.is_paused() }
        })
    }

    #[inline(always)]
    fn reap(&self) -> bool {
        let mut reaped = false;
        let mut i = 0;
        // Completions may send, which may lengthen the list.
        while let Some(outbox) = self.outboxes.busy(i) {
            if let Some(answer) = outbox.answered() {
                reaped |= self.reap_from(outbox, answer);
            }
            if outbox.stays_listed() {
                i += 1;
            } else {
                self.outboxes.unlist(i);
            }
        }
        reaped
    }

    /// Takes the replies of an answered batch; true if any request was completed. Of the next one the
    /// next poll: to look at its signal now takes the line from the trustee, which is writing there.
    #[inline(never)]
    fn reap_from(&self, outbox: &Outbox, answer: Answer) -> bool {
        let _context = self.context.enter(Context::Callback);
        let reaped = outbox.reap(answer, &self.context, &mut |panic| self.report_panic(panic));
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
        for inbox in self.inboxes.iter().flatten().filter(|i| i.client().host == host) {
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
                let inbox = self.inboxes.get(number).and_then(Option::as_ref);
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
