//! [`Peer`]: what a control plane knows of one peer, and what waits to be sent to it.
//!
//! Order of what is sent: answers, then requests, then single messages. An answer that describes a
//! region is thus in front of the revocation of that region, whichever of them waited longer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use primitive::limits::PENDING_REQUESTS;
use transport_api::{PeerEvent, RegionKey};

use crate::config::{CutOff, Medium};
use crate::message::Message;

/// A request of this host that waits to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Import(u64),
    CancelImport(u64),
    Revoke(u64),
}

/// How far this host's goodbye to a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    No,
    /// [`Message::Leave`] is to be sent.
    Due,
    /// It was sent, here or on the data path.
    Sent,
    /// The peer has seen it.
    Seen,
}

/// An answer that waits to be sent, and the region that it describes.
pub(super) type Answer<M> = (Message, Option<<M as Medium>::Export>);

/// The state of the connection to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// There has never been one.
    Absent,
    /// Messages flow, also after the peer has left.
    Open,
    /// No message flows, and the cause is not known yet.
    Closing,
    /// It has ended, or [`Output::Close`](crate::Output::Close) is all that is still to come.
    Closed,
}

pub(super) struct Peer<M: Medium> {
    pub(super) link: Link,
    /// How it ended, once it has.
    pub(super) end: Option<PeerEvent>,
    /// Whether it certainly accesses no region any more.
    pub(super) has_stopped: bool,
    /// Whether the transport has room for a message to it.
    pub(super) is_writable: bool,
    /// When it last sent anything. Before its first message that may lie in the future.
    pub(super) heard: Instant,

    /// Requests of the peer that are not answered, and those whose answer is in `answers`.
    pub(super) unanswered: usize,
    /// Those that wait for an export, by number.
    pub(super) waiting: BTreeMap<u64, (RegionKey, Instant)>,
    pub(super) answers: VecDeque<Answer<M>>,

    /// Requests to the peer that are not sent.
    pub(super) requests: VecDeque<Request>,
    /// Requests to the peer that were sent and are not answered.
    pub(super) in_flight: usize,

    pub(super) heartbeat_due: bool,
    pub(super) leave: Leave,
    pub(super) leave_seen_due: bool,
    /// The reason that the peer gets before the connection is closed.
    pub(super) giving_up: Option<String>,
    /// Whether the connection is to be closed.
    pub(super) close_due: bool,
}

impl<M: Medium> Peer<M> {
    /// A host without a connection.
    pub(super) fn absent(now: Instant) -> Self {
        Self {
            link: Link::Absent,
            end: None,
            has_stopped: false,
            is_writable: true,
            heard: now,
            unanswered: 0,
            waiting: BTreeMap::new(),
            answers: VecDeque::new(),
            requests: VecDeque::new(),
            in_flight: 0,
            heartbeat_due: false,
            leave: Leave::No,
            leave_seen_due: false,
            giving_up: None,
            close_due: false,
        }
    }

    /// Whether messages flow.
    pub(super) fn is_open(&self) -> bool {
        self.link == Link::Open
    }

    /// Whether it is connected and has not ended.
    pub(super) fn is_there(&self) -> bool {
        self.is_open() && self.end.is_none()
    }

    /// Whether it was connected and is not cut off: it may use what it has imported.
    pub(super) fn may_use_regions(&self, cut_off: CutOff) -> bool {
        match cut_off {
            CutOff::AtEnd => matches!(self.link, Link::Open | Link::Closing) && self.end.is_none(),
            CutOff::AtStop => self.link != Link::Absent && !self.has_stopped,
        }
    }

    /// Whether it may use what it has imported, and will not say when it has stopped.
    pub(super) fn is_silent(&self) -> bool {
        self.link == Link::Closed && !self.has_stopped
    }

    /// Whether there is something for [`Control::poll`](crate::Control::poll) to return.
    pub(super) fn has_something(&self) -> bool {
        if self.close_due {
            return true;
        }
        self.is_open()
            && self.is_writable
            && (!self.answers.is_empty()
                || !self.requests.is_empty() && self.has_window()
                || self.heartbeat_due
                || self.leave_seen_due
                || self.leave == Leave::Due)
    }

    /// Whether another request may be sent.
    pub(super) fn has_window(&self) -> bool {
        self.in_flight < PENDING_REQUESTS
    }

    /// The peer has ended: forgets what was to be sent, except that this host has quiesced, which
    /// it may wait for although it has left, and why the connection is closed; `must_quiesce`: also
    /// except revocations, which it answers although it has left.
    pub(super) fn clear(&mut self, must_quiesce: bool) {
        self.answers.retain(|(message, _)| matches!(message, Message::Quiesced { .. }));
        self.unanswered = self.answers.len();
        self.waiting.clear();
        self.requests.retain(|request| must_quiesce && matches!(request, Request::Revoke(_)));
        self.in_flight = 0;
    }
}
