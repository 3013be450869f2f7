//! [`Conn`]: a data connection, that is a [`Machine`] with its [`Wire`].
//!
//! Its socket is watched where its thread sleeps, and by the service thread while that has adopted it.
//! Each place costs every message that arrives about 0.1 to 0.2 microseconds, at the sender. So a
//! thread that reads its connections at every poll has them watched only while it sleeps. Closing the
//! socket ends it everywhere.
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
    /// Whether its thread waits for what arrives.
    is_awaited: bool,
    /// Whether the service thread does.
    armed: bool,
    /// What is watched for now.
    watched: Watched,
}

/// What a socket is watched for, where its thread sleeps and by the service thread: `None` if it is
/// not, and otherwise whether room in it is reported besides what arrives.
#[derive(Clone, Copy, Default, PartialEq)]
struct Watched {
    own: Option<bool>,
    service: Option<bool>,
}

/// What the epoll of the service thread calls a connection.
pub(crate) fn token(peer: HostId, thread: u32) -> u64 {
    u64::from(peer.0) << 32 | u64::from(thread)
}

impl Conn {
    /// One that the service thread serves, and that nothing watches yet. `is_awaited`: its thread waits
    /// for what arrives.
    pub(crate) fn new(wire: Wire, machine: Machine, is_awaited: bool) -> Self {
        let (wire, watched) = (Some(wire), Watched::default());
        Self { machine, wire, is_blocked: false, is_awaited, armed: true, watched }
    }

    /// Brings what is watched for up to date, in the epoll of its thread and in that of the service
    /// thread.
    pub(crate) fn watch(
        &mut self,
        own: &OwnedFd,
        service: &OwnedFd,
        peer: HostId,
        thread: u32,
    ) -> io::Result<()> {
        let now = Watched {
            own: self.is_awaited.then_some(self.is_blocked),
            service: self.armed.then_some(self.is_blocked),
        };
        let before = self.watched;
        let Some(wire) = self.wire.as_ref().filter(|_| now != before) else { return Ok(()) };
        change(own, wire, u64::from(peer.0), (before.own, now.own))?;
        change(service, wire, token(peer, thread), (before.service, now.service))?;
        self.watched = now;
        Ok(())
    }

    /// Whether its thread is to wait for what arrives; takes effect with [`watch`](Self::watch).
    pub(crate) fn set_awaited(&mut self, is_awaited: bool) {
        self.is_awaited = is_awaited;
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

    /// Whether anything waits to be written.
    #[inline]
    pub(crate) fn has_outgoing(&self) -> bool {
        self.machine.has_outgoing() || self.wire.as_ref().is_some_and(Wire::has_records)
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

/// Changes what an epoll, which calls the socket `data`, watches it for.
fn change(
    epoll: &OwnedFd,
    wire: &Wire,
    data: u64,
    (before, now): (Option<bool>, Option<bool>),
) -> io::Result<()> {
    if now == before {
        return Ok(());
    }
    let Some(is_blocked) = now else { return Ok(epoll::delete(epoll, wire)?) };
    let room = if is_blocked { EventFlags::OUT } else { EventFlags::empty() };
    let (data, flags) = (EventData::new_u64(data), EventFlags::IN | room);
    match before {
        None => epoll::add(epoll, wire, data, flags)?,
        Some(_) => epoll::modify(epoll, wire, data, flags)?,
    }
    Ok(())
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
        let mut conn = Conn::new(Wire::new(socket, None), machine, false);
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
