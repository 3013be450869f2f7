//! [`ControlConn`]: the connection between two service threads, which carries the messages of their
//! control planes, each in one frame.
//!
//! The kernel helps the control plane to notice a peer that cannot be reached: such a peer does not
//! acknowledge heartbeats, which the kernel reports after [half](UNACKNOWLEDGED) the bound, by timers
//! that may be some hundred milliseconds late. A peer whose kernel acknowledges them but whose
//! process sends nothing has the whole bound.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use transport_api::HostId;
use transport_control::{Message, Violation};

use crate::wire::frame::{Frames, Header, Kind, violation};
use crate::wire::{Wire, WireError};

/// Of the heartbeats in the time of the loss bound, how many the peer's kernel may leave
/// unacknowledged.
pub(crate) const UNACKNOWLEDGED: u32 = 4;

/// Bytes of messages that wait for room in the socket, at most; one message more may be added.
const WAITING_BYTES: usize = 64 << 10;

/// The control connection to one peer.
pub(crate) struct ControlConn {
    pub(crate) peer: HostId,
    /// `None` once it is closed.
    wire: Option<Wire>,
    frames: Frames,
    out: Vec<u8>,
    /// Whether the epoll waits for room.
    waits_for_room: bool,
}

impl ControlConn {
    pub(crate) fn new(peer: HostId, wire: Wire) -> Self {
        let (wire, frames) = (Some(wire), Frames::default());
        Self { peer, wire, frames, out: Vec::new(), waits_for_room: false }
    }

    pub(crate) fn register(&self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        let Some(wire) = &self.wire else { return Ok(()) };
        Ok(epoll::add(epoll, wire, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Waits for room at the epoll, if something has none, and only then.
    pub(crate) fn watch(&mut self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        let Some(wire) = &self.wire else { return Ok(()) };
        let waits = !self.out.is_empty();
        if waits != self.waits_for_room {
            let room = if waits { EventFlags::OUT } else { EventFlags::empty() };
            epoll::modify(epoll, wire, EventData::new_u64(token), EventFlags::IN | room)?;
            self.waits_for_room = waits;
        }
        Ok(())
    }

    /// Closes it.
    pub(crate) fn close(&mut self) {
        self.wire = None;
        self.out.clear();
    }

    /// Adds a message to what waits to be sent.
    pub(crate) fn post(&mut self, message: &Message) {
        if self.wire.is_some() {
            let mut body = Vec::new();
            message.encode(&mut body);
            Header::new(Kind::Control).encode_with(&body, &mut self.out);
        }
    }

    /// Whether there is room for another message.
    pub(crate) fn has_room(&self) -> bool {
        self.out.len() < WAITING_BYTES
    }

    /// Reads once, and hands each message that has come to `each`; true if any byte came.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, WireError> {
        let Self { wire, frames, .. } = self;
        let Some(wire) = wire else { return Ok(false) };
        let mut take = |header: Header, body: &[u8]| -> Result<(), Violation> {
            match header {
                Header { kind: Kind::Control, .. } => each(body),
                Header { kind, .. } => return Err(violation!("{kind:?} on a control connection")),
            }
            Ok(())
        };
        wire.receive(|bytes| frames.feed(bytes, &mut take))
    }

    /// Writes what waits, as far as there is room.
    pub(crate) fn push(&mut self) -> Result<(), WireError> {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        while wire.flush()? && !self.out.is_empty() {
            let count = wire.send(&self.out)?;
            if count == 0 {
                break;
            }
            self.out.drain(..count);
        }
        Ok(())
    }
}
