//! Which message is sent next, to which peer: every peer has its turn.

use std::time::Instant;

use transport_api::HostId;

use crate::config::Medium;
use crate::control::Control;
use crate::control::peer::{Leave, Request};
use crate::message::Message;
use crate::output::Output;

impl<M: Medium> Control<M> {
    /// Notes that there may be something to send to `peer`.
    pub(super) fn note_ready(&mut self, peer: HostId) {
        if self.peers[peer.0 as usize].has_something() {
            self.ready.insert(peer);
        }
    }

    pub(super) fn next_ready(&self) -> Option<HostId> {
        let after = HostId(self.last.0 + 1);
        self.ready.range(after..).next().or_else(|| self.ready.first()).copied()
    }

    /// The next thing to send to `peer`, or that its connection is to be closed.
    pub(super) fn next_for(&mut self, now: Instant, peer: HostId) -> Option<Output<M>> {
        let state = self.peer(peer);
        if state.close_due {
            if let Some(reason) = state.giving_up.take().filter(|_| state.is_writable) {
                return Some(send(peer, Message::GivenUp(reason)));
            }
            state.close_due = false;
            return Some(Output::Close(peer));
        }
        if !state.is_open() || !state.is_writable {
            return None;
        }
        if let Some((message, export)) = state.answers.pop_front() {
            state.unanswered = state.unanswered.saturating_sub(1);
            state.heartbeat_due = false;
            return Some(Output::Send { to: peer, message, export });
        }
        while self.peer(peer).has_window() {
            let Some(request) = self.peer(peer).requests.pop_front() else { break };
            if let Some(message) = self.request(now, peer, request) {
                self.peer(peer).heartbeat_due = false;
                return Some(send(peer, message));
            }
        }
        let state = self.peer(peer);
        if std::mem::take(&mut state.leave_seen_due) {
            return Some(send(peer, Message::LeaveSeen));
        }
        if state.leave == Leave::Due {
            state.leave = Leave::Seen;
            self.note_departure();
            return Some(send(peer, Message::Leave));
        }
        std::mem::take(&mut state.heartbeat_due).then(|| send(peer, Message::Heartbeat))
    }

    /// The message of a request that is to be sent now, if it is still of interest.
    pub(super) fn request(
        &mut self,
        now: Instant,
        peer: HostId,
        request: Request,
    ) -> Option<Message> {
        let message = match request {
            Request::Import(number) => self.import_message(now, number)?,
            Request::CancelImport(number) => return Some(Message::CancelImport { number }),
            Request::Revoke(number) => self.revoke_message(number)?,
        };
        self.peer(peer).in_flight += 1;
        Some(message)
    }

    /// A request to `peer` was answered.
    pub(super) fn note_answer(&mut self, peer: HostId) {
        let state = self.peer(peer);
        state.in_flight = state.in_flight.saturating_sub(1);
        self.note_ready(peer);
    }
}

fn send<M: Medium>(to: HostId, message: Message) -> Output<M> {
    Output::Send { to, message, export: None }
}
