//! [`Connection`]: the socket to one peer, and the handle of its process.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use transport_api::{HostId, LossReason};
use transport_control::{Message, Violation};

use crate::control::exported::Exported;
use crate::wire::packet::Packet;
use crate::wire::process::{has_ended, how_it_ended};
use crate::wire::socket::{self, NoPacket, Sender};

/// Packets of one peer that are read before the others have their turn.
const PACKETS_PER_TURN: usize = 256;

/// How long a packet waits that the system had no memory for, or no more descriptors in flight.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

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
    /// When to send again what the system had no means for.
    pub(crate) retry_at: Option<Instant>,
    /// Whether the peer has closed its end.
    pub(crate) is_closed: bool,
}

impl Connection {
    pub(crate) fn new(peer: HostId, process: Sender, socket: OwnedFd, pidfd: OwnedFd) -> Self {
        let unsent = VecDeque::new();
        Self { peer, process, socket, pidfd, unsent, retry_at: None, is_closed: false }
    }

    /// Whether the process of the peer has ended, and how.
    pub(crate) fn process_end(&self) -> Option<LossReason> {
        has_ended(&self.pidfd).then(|| {
            let (pid, how) = (self.process.pid, how_it_ended(&self.pidfd));
            LossReason::ProcessEnded { pid, how }
        })
    }

    /// Sends a message, or keeps it until there is room.
    pub(crate) fn post(&mut self, now: Instant, message: Message, export: Option<Arc<Exported>>) {
        self.unsent.push_back((Packet::Control(message), export));
        self.flush(now);
    }

    /// Whether there is room for another message.
    pub(crate) fn has_room(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends what has room. A closed socket is noticed by reading.
    pub(crate) fn flush(&mut self, now: Instant) {
        self.flush_by(now, |socket, packet, file| socket::send(socket, packet, file.as_slice()));
    }

    /// As [`flush`](Self::flush), by `send`.
    fn flush_by(
        &mut self,
        now: Instant,
        mut send: impl FnMut(&OwnedFd, &Packet, Option<BorrowedFd<'_>>) -> io::Result<()>,
    ) {
        self.retry_at = None;
        while let Some((packet, export)) = self.unsent.front() {
            let file = export.as_ref().and_then(|export| export.file_for(self.peer));
            let sent = send(&self.socket, packet, file.map(|file| file.as_fd()));
            match sent.err().as_ref().and_then(Errno::from_io_error) {
                Some(Errno::AGAIN) => return,
                Some(Errno::INTR) => {}
                // The socket may be writable all the same, so only time tells.
                Some(Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => {
                    self.retry_at = Some(now + RETRY_INTERVAL);
                    return;
                }
                _ => drop(self.unsent.pop_front()),
            }
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

#[cfg(test)]
mod tests {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    /// A packet that cannot be sent now is kept, and later sent once, before those behind it.
    #[test]
    fn what_the_system_has_no_means_for_is_sent_later() {
        let (ours, theirs) = socket::pair().expect("a pair of sockets");
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
        let mut connection = Connection::new(HostId(1), Sender::this(), ours, pidfd);
        let start = Instant::now();
        for refusal in [Errno::NOBUFS, Errno::TOOMANYREFS, Errno::NOMEM, Errno::AGAIN] {
            connection.unsent.push_back((Packet::Control(Message::Leave), None));
            connection.unsent.push_back((Packet::Control(Message::LeaveSeen), None));
            let mut tries = 0;
            connection.flush_by(start, |_, _, _| {
                tries += 1;
                Err(if tries == 1 { Errno::INTR } else { refusal }.into())
            });
            assert_eq!((tries, connection.has_room()), (2, false), "{refusal:?}");
            // Room is awaited; means are not.
            let is_timed = refusal != Errno::AGAIN;
            let retry_at = is_timed.then_some(start + RETRY_INTERVAL);
            assert_eq!(connection.retry_at, retry_at, "{refusal:?}");
            connection.flush(start);
            assert!(connection.has_room() && connection.retry_at.is_none(), "{refusal:?}");
            let received = [(); 2].map(|()| socket::receive(&theirs).expect("a packet").packet);
            assert_eq!(received, [Message::Leave, Message::LeaveSeen].map(Packet::Control));
            assert!(matches!(socket::receive(&theirs), Err(NoPacket::NotYet)), "{refusal:?}");
        }
    }
}
