//! One poll of a node: hand over what is queued, serve what has arrived, take replies, and now and
//! then look at the lanes.

use transport_api::{Event, HostId, LossReason, PeerEvent, ThreadId};

use crate::closure::context::Context;
use crate::error::{DelegateError, Panic};
use crate::node::{Incident, LANE_POLL_EVERY, Node};
use crate::wire::arrivals::Visit;
use crate::wire::bulk::{BULK_REPLY, BULK_REQUEST};

impl Node {
    /// One round of all that; true if anything happened.
    pub(super) fn poll_once(&self) -> bool {
        self.turn.polled();
        let sent = self.flush();
        // Where only lanes bring what others write, it is served or taken in the same round: to look
        // again, which is a system call, would come between a reply and what its fiber sends next.
        let moved = !self.all_mapped && self.poll_lanes();
        // A fiber that waits inside a delegated closure holds a reference to its property. It must
        // not, but a bare `park` cannot tell: nothing is served until it has gone on.
        let served = self.context.is_free() && self.serve();
        let reaped = self.reap();
        self.run_deferred();
        let moved = moved || (self.all_mapped && self.poll_lanes_sometimes());
        moved || sent || served || reaped
    }

    /// Polls the lanes in one of many rounds: memory brings what is frequent.
    #[inline(always)]
    fn poll_lanes_sometimes(&self) -> bool {
        let left = self.until_lanes.get();
        self.until_lanes.set(if left == 0 { LANE_POLL_EVERY } else { left - 1 });
        left == 0 && self.poll_lanes()
    }

    fn flush(&self) -> bool {
        let mut sent = false;
        for number in self.busy.borrow().iter() {
            let outbox = self.outbox(*number);
            sent |= outbox.flush(self.lane_to(outbox));
        }
        sent
    }

    #[inline(always)]
    fn serve(&self) -> bool {
        match &self.arrivals {
            None => self.inboxes.iter().flatten().fold(false, |any, inbox| inbox.serve(self) | any),
            Some(arrivals) => arrivals.serve(|client| {
                let Some(Some(inbox)) = self.inboxes.get(client) else { return Visit::default() };
                let served = inbox.serve(self);
                Visit { served, again: inbox.is_ready() || inbox.is_paused() }
            }),
        }
    }

    fn reap(&self) -> bool {
        let mut reaped = false;
        let mut i = 0;
        let _context = self.context.enter(Context::Callback);
        loop {
            // Completions may send, which may lengthen the list: borrow it for one look at a time.
            let Some(number) = self.busy.borrow().get(i).copied() else { break };
            let outbox = self.outbox(number);
            if outbox.reap(&self.context, &mut |panic| self.report_panic(panic)) {
                reaped = true;
                if outbox.is_betrayed() {
                    self.lose_liar(outbox.trustee());
                }
                outbox.refill(self.lane_to(outbox), fiber::unpark);
            }
            if outbox.is_busy() {
                i += 1;
            } else {
                outbox.listed.set(false);
                self.busy.borrow_mut().swap_remove(i);
            }
        }
        reaped
    }

    /// Takes what the lanes have; true if there was anything.
    pub(super) fn poll_lanes(&self) -> bool {
        let mut moved = false;
        for lane in &self.lanes {
            let mut events = Vec::new();
            moved |= lane.borrow_mut().poll(&mut |event| events.push(event));
            for event in events {
                self.handle(event);
            }
        }
        moved
    }

    fn handle(&self, event: Event) {
        match event {
            Event::Bulk { from, tag, payload } => {
                let number = self.number_of(from) as usize;
                let expected = match tag {
                    BULK_REQUEST => {
                        let inbox = self.inboxes.get(number).and_then(Option::as_ref);
                        inbox.is_some_and(|inbox| inbox.bulk_arrived(payload))
                    }
                    BULK_REPLY => {
                        let outbox = self.outboxes.get(number).and_then(Option::as_ref);
                        outbox.is_some_and(|outbox| outbox.bulk_arrived(payload))
                    }
                    // Every other tag of delegation, and of what this node does not run.
                    _ => false,
                };
                if !expected {
                    self.lose_liar(from);
                }
            }
            Event::Peer(event) => {
                // A host that has left answers nothing more, either.
                let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
                self.lose(host, &event.reason());
                self.incidents.borrow_mut().push(Incident::Peer(event));
            }
            notified @ Event::Notified { .. } => {
                self.incidents.borrow_mut().push(Incident::Notified(notified));
            }
            // The node starts no operation that has a completion.
            Event::Completed { .. } | Event::Failed { .. } | Event::Imported { .. } => {}
        }
    }

    /// Gives up the host of a thread that has sent what nobody asked for.
    #[cold]
    fn lose_liar(&self, from: ThreadId) {
        let reason = format!("{from} has sent payloads or replies that belong to no request");
        let lost = PeerEvent::Lost(from.host, LossReason::Protocol(reason));
        self.handle(Event::Peer(lost));
    }

    /// Ends everything that is under way with `host`.
    fn lose(&self, host: HostId, reason: &LossReason) {
        let error = DelegateError::PeerLost { host, reason: reason.clone() };
        let _context = self.context.enter(Context::Callback);
        let caught = &mut |panic: Panic| self.report_panic(panic);
        for outbox in self.outboxes.iter().flatten().filter(|o| o.trustee().host == host) {
            outbox.close(&error, caught, fiber::unpark);
        }
        for inbox in self.inboxes.iter().flatten().filter(|i| i.client().host == host) {
            inbox.close();
        }
        self.system.lose(host, reason, caught);
    }
}
