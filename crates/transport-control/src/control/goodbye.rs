//! Goodbyes: how this host leaves, and how it sees that a peer has left.

use std::time::Instant;

use transport_api::{HostId, PeerEvent, deadline};

use crate::config::{Goodbye, LEAVE_GRACE, Medium};
use crate::control::peer::{Leave, Peer};
use crate::control::{Control, Timer};
use crate::output::Output;
use crate::violation::Violation;

/// For the service thread and for threads of the program: goodbyes.
impl<M: Medium> Control<M> {
    /// `peer` has said goodbye, and everything that it sent before has arrived.
    pub fn left(&mut self, peer: HostId) {
        if self.peer(peer).is_there() {
            self.end(PeerEvent::Left(peer));
            self.peer(peer).leave_seen_due = self.config.goodbye == Goodbye::DataPath;
            self.note_ready(peer);
        }
    }

    /// This host starts nothing more: says goodbye to all peers. [`Output::Departed`] follows when
    /// they have seen it, at the latest after [`LEAVE_GRACE`]. With [`Goodbye::DataPath`], the
    /// transport says it on the data path itself, after it has called this: an answer may come at once.
    pub fn leave(&mut self, now: Instant, requester: M::Requester) {
        if let Some(requesters) = &mut self.leaving {
            requesters.push(requester);
        } else {
            self.leaving = Some(vec![requester]);
            let leave = match self.config.goodbye {
                Goodbye::Message => Leave::Due,
                Goodbye::DataPath => Leave::Sent,
                Goodbye::Carrier => Leave::Seen,
            };
            for peer in &mut self.peers {
                peer.leave = leave;
            }
            (0..self.config.hosts).map(HostId).for_each(|peer| self.note_ready(peer));
            self.timers.insert((deadline(now, LEAVE_GRACE), Timer::Leave));
        }
        self.note_departure();
    }

    /// Whether this host has begun to leave.
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
}

impl<M: Medium> Control<M> {
    pub(super) fn leave_seen(&mut self, from: HostId) -> Result<(), Violation> {
        let (goodbye, peer) = (self.config.goodbye, self.peer(from));
        if goodbye != Goodbye::DataPath || peer.leave != Leave::Sent {
            return Err(Violation::new("LeaveSeen before this host has left"));
        }
        peer.leave = Leave::Seen;
        self.note_departure();
        Ok(())
    }

    /// Ends the wait for this host's goodbye if all peers have seen it or are gone.
    pub(super) fn note_departure(&mut self) {
        let is_done = |peer: &Peer<M>| !peer.is_there() || peer.leave == Leave::Seen;
        if self.leaving.as_ref().is_some_and(|waiting| !waiting.is_empty())
            && self.peers.iter().all(is_done)
        {
            self.depart();
        }
    }

    pub(super) fn depart(&mut self) {
        let requesters = self.leaving.as_mut().map(std::mem::take).unwrap_or_default();
        let departed = requesters.into_iter().map(|requester| Output::Departed { requester });
        self.events.extend(departed);
    }
}
