//! [`Connection`]: the socket to one peer, and the handle of its process.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use transport_api::{HostId, LossReason};
use transport_control::{Message, Violation};

use crate::control::exported::Exported;
use crate::wire::packet::Packet;
use crate::wire::process::{has_ended, how_it_ended};
use crate::wire::socket::{self, NoPacket, Sender};

/// Packets of one peer that are read before the others have their turn.
const PACKETS_PER_TURN: usize = 256;

/// Why nothing more is read from a peer.
pub(crate) enum Broken {
    /// It closed its end.
    Closed,
    /// It broke the protocol.
    Violation(Violation),
    /// The system refused.
    System(io::Error),
}

/// The connection to one peer, until it is closed.
pub(crate) struct Connection {
    pub(crate) peer: HostId,
    /// The process that holds the other end.
    process: Sender,
    pub(crate) socket: OwnedFd,
    pub(crate) pidfd: OwnedFd,
    /// Packets that had no room in the socket, and the regions that they describe.
    unsent: VecDeque<(Packet, Option<Arc<Exported>>)>,
    /// Whether the peer has closed its end.
    pub(crate) is_closed: bool,
}

impl Connection {
    pub(crate) fn new(peer: HostId, process: Sender, socket: OwnedFd, pidfd: OwnedFd) -> Self {
        Self { peer, process, socket, pidfd, unsent: VecDeque::new(), is_closed: false }
    }

    /// Whether the process of the peer has ended, and how.
    pub(crate) fn process_end(&self) -> Option<LossReason> {
        has_ended(&self.pidfd).then(|| {
            let (pid, how) = (self.process.pid, how_it_ended(&self.pidfd));
            LossReason::ProcessEnded { pid, how }
        })
    }

    /// Sends a message, or keeps it until there is room.
    pub(crate) fn post(&mut self, message: Message, export: Option<Arc<Exported>>) {
        self.unsent.push_back((Packet::Control(message), export));
        self.flush();
    }

    /// Whether there is room for another message.
    pub(crate) fn has_room(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends what has room. A closed socket is noticed by reading.
    pub(crate) fn flush(&mut self) {
        while let Some((packet, export)) = self.unsent.front() {
            let file = export.as_ref().and_then(|export| export.file_for(self.peer));
            let file = file.map(|file| file.as_fd());
            match socket::send(&self.socket, packet, file.as_slice()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => self.unsent.pop_front(),
            };
        }
    }

    /// Hands messages to `sink`, with the descriptors that came beside them: all that are there if
    /// `is_last`, otherwise as many as one turn allows. What is left keeps the socket readable.
    pub(crate) fn receive(
        &mut self,
        is_last: bool,
        mut sink: impl FnMut(Message, Option<OwnedFd>),
    ) -> Result<(), Broken> {
        // A process that has ended sends no more, so this ends, too.
        for _ in 0..if is_last { usize::MAX } else { PACKETS_PER_TURN } {
            let mut received = match socket::receive(&self.socket) {
                Ok(received) => received,
                Err(NoPacket::NotYet) => return Ok(()),
                Err(NoPacket::Closed) => return Err(Broken::Closed),
                Err(NoPacket::Violation(violation)) => return Err(Broken::Violation(violation)),
                Err(NoPacket::System(error)) => return Err(Broken::System(error)),
            };
            if received.from != self.process {
                let text = format!("{:?} sent as {:?}", received.packet, received.from);
                return Err(Broken::Violation(Violation::new(text)));
            }
            match received.packet {
                Packet::Control(message) => sink(message, received.files.pop()),
                other => {
                    let text = format!("{other:?} after the handshake");
                    return Err(Broken::Violation(Violation::new(text)));
                }
            }
        }
        Ok(())
    }
}
