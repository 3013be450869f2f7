//! [`Conn`]: a data connection, that is a [`Machine`] with its [`Wire`].
//!
//! Its socket is watched in two places: where its thread sleeps, always, and by the service thread
//! while that has adopted it. Closing the socket ends both.
//!
//! A thread that pushes holds the connection's lock, for which others may wait, the service thread
//! among them. So one push writes a bounded number of bytes, also into a socket that is emptied as
//! fast as it is filled; the rest counts as waiting for room, which is reported at once.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use transport_api::HostId;

use crate::machine::{Machine, Port};
use crate::wire::{Wire, WireError};

/// Bytes that one push writes, at most.
const PUSH_BYTES: usize = 1 << 20;

/// A data connection.
pub(crate) struct Conn {
    pub(crate) machine: Machine,
    /// `None` once it is closed.
    wire: Option<Wire>,
    /// Whether something waits for room in the socket, or for its turn.
    is_blocked: bool,
    /// Whether the service thread waits for what arrives.
    armed: bool,
    /// What is watched for now, as [`is_blocked`](Self::is_blocked), `armed`.
    watched: (bool, bool),
}

/// What the epoll of the service thread calls a connection.
pub(crate) fn token(peer: HostId, thread: u32) -> u64 {
    u64::from(peer.0) << 32 | u64::from(thread)
}

impl Conn {
    pub(crate) fn new(wire: Wire, machine: Machine) -> Self {
        let wire = Some(wire);
        Self { machine, wire, is_blocked: false, armed: true, watched: (false, true) }
    }

    /// Begins to watch it, in the epoll of its own thread and in that of the service thread.
    pub(crate) fn register(
        &self,
        own: &OwnedFd,
        service: &OwnedFd,
        peer: HostId,
        thread: u32,
    ) -> io::Result<()> {
        if let Some(wire) = &self.wire {
            epoll::add(own, wire, EventData::new_u64(peer.0.into()), EventFlags::IN)?;
            epoll::add(service, wire, EventData::new_u64(token(peer, thread)), EventFlags::IN)?;
        }
        Ok(())
    }

    /// Brings what is watched for up to date.
    pub(crate) fn watch(
        &mut self,
        own: &OwnedFd,
        service: &OwnedFd,
        peer: HostId,
        thread: u32,
    ) -> io::Result<()> {
        let now = (self.is_blocked, self.armed);
        let Some(wire) = self.wire.as_ref().filter(|_| now != self.watched) else { return Ok(()) };
        let room = if self.is_blocked { EventFlags::OUT } else { EventFlags::empty() };
        let all = EventFlags::IN | room;
        if now.0 != self.watched.0 {
            epoll::modify(own, wire, EventData::new_u64(peer.0.into()), all)?;
        }
        let adopted = if self.armed { all } else { EventFlags::empty() };
        epoll::modify(service, wire, EventData::new_u64(token(peer, thread)), adopted)?;
        self.watched = now;
        Ok(())
    }

    /// Whether the service thread is to wait for what arrives; takes effect with
    /// [`watch`](Self::watch).
    pub(crate) fn arm(&mut self, armed: bool) {
        self.armed = armed;
    }

    /// Reads once what there is; true if any byte came.
    pub(crate) fn receive(&mut self, port: &mut impl Port) -> Result<bool, WireError> {
        let Self { wire, machine, .. } = self;
        match wire {
            Some(wire) => wire.receive(|bytes| machine.feed(bytes, port)),
            None => Ok(false),
        }
    }

    /// Writes what waits, as far as there is room, and not too much of it at a time.
    pub(crate) fn push(&mut self) -> Result<(), WireError> {
        self.is_blocked = false;
        let Some(wire) = &mut self.wire else { return Ok(()) };
        let mut left = PUSH_BYTES;
        loop {
            if !wire.flush()? {
                break;
            }
            let outgoing = self.machine.outgoing();
            if outgoing.is_empty() {
                return Ok(());
            }
            if left == 0 {
                break;
            }
            let count = wire.send(&outgoing[..left.min(outgoing.len())])?;
            self.machine.sent(count);
            left -= count;
            if count == 0 {
                break;
            }
        }
        self.is_blocked = true;
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        self.wire = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};

    use transport_api::ThreadId;

    use super::*;

    #[test]
    fn a_push_is_short_however_much_there_is_room_for() {
        const PAYLOAD: usize = 32 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let socket = TcpStream::connect(address).expect("a connection");
        let mut reader = listener.accept().expect("a connection").0;
        for end in [&socket, &reader] {
            end.set_nonblocking(true).expect("a socket");
        }
        let machine = Machine::new(ThreadId { host: HostId(1), thread: 0 }, 1);
        let mut conn = Conn::new(Wire::new(socket, None), machine);
        conn.machine.bulk(0, 7, vec![1; PAYLOAD]);
        let (mut buffer, mut come, mut pushes) = (vec![0; 1 << 16], 0, 0);
        while come < PAYLOAD || conn.is_blocked {
            conn.push().expect("a push");
            pushes += 1;
            loop {
                match reader.read(&mut buffer) {
                    Ok(count) => come += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(come <= pushes * PUSH_BYTES, "{come} bytes by {pushes} pushes");
        }
    }
}
