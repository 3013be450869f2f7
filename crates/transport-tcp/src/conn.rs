//! [`Conn`]: a data connection, that is a [`Machine`] with its [`Wire`].
//!
//! Its socket is watched in two places: where its thread sleeps, always, and at the service thread
//! while that has adopted it. Closing the socket ends both.

use crate::{
    machine::{Machine, Port},
    wire::{Broken, Wire},
};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::{io, os::fd::OwnedFd};
use transport_api::HostId;

/// A data connection.
pub(crate) struct Conn {
    pub(crate) machine: Machine,
    /// `None` once it is closed.
    wire: Option<Wire>,
    /// Whether something waits for room in the socket.
    is_blocked: bool,
    /// Whether the service thread is to hear of what arrives.
    armed: bool,
    /// What the watchers were last told, as [`is_blocked`](Self::is_blocked), `armed`.
    told: (bool, bool),
}

/// What the service thread knows a connection by.
pub(crate) fn token(peer: HostId, thread: u32) -> u64 {
    u64::from(peer.0) << 32 | u64::from(thread)
}

impl Conn {
    pub(crate) fn new(wire: Wire, machine: Machine) -> Self {
        let wire = Some(wire);
        Self { machine, wire, is_blocked: false, armed: true, told: (false, true) }
    }

    /// Begins to watch it, at its thread's `seat` and at the service thread's `desk`.
    pub(crate) fn register(
        &self,
        seat: &OwnedFd,
        desk: &OwnedFd,
        peer: HostId,
        thread: u32,
    ) -> io::Result<()> {
        if let Some(wire) = &self.wire {
            epoll::add(seat, wire, EventData::new_u64(peer.0.into()), EventFlags::IN)?;
            epoll::add(desk, wire, EventData::new_u64(token(peer, thread)), EventFlags::IN)?;
        }
        Ok(())
    }

    /// Brings what is watched for up to date.
    pub(crate) fn watch(
        &mut self,
        seat: &OwnedFd,
        desk: &OwnedFd,
        peer: HostId,
        thread: u32,
    ) -> io::Result<()> {
        let now = (self.is_blocked, self.armed);
        let Some(wire) = self.wire.as_ref().filter(|_| now != self.told) else { return Ok(()) };
        let room = if self.is_blocked { EventFlags::OUT } else { EventFlags::empty() };
        let all = EventFlags::IN | room;
        if now.0 != self.told.0 {
            epoll::modify(seat, wire, EventData::new_u64(peer.0.into()), all)?;
        }
        let adopted = if self.armed { all } else { EventFlags::empty() };
        epoll::modify(desk, wire, EventData::new_u64(token(peer, thread)), adopted)?;
        self.told = now;
        Ok(())
    }

    /// Has the service thread hear of what arrives, or not; for [`watch`](Self::watch).
    pub(crate) fn arm(&mut self, armed: bool) {
        self.armed = armed;
    }

    /// Reads once what there is; true if any byte came.
    pub(crate) fn receive(&mut self, port: &mut impl Port) -> Result<bool, Broken> {
        let Self { wire, machine, .. } = self;
        match wire {
            Some(wire) => wire.receive(|bytes| machine.feed(bytes, port)),
            None => Ok(false),
        }
    }

    /// Writes what waits, as far as there is room.
    pub(crate) fn push(&mut self) -> Result<(), Broken> {
        self.is_blocked = false;
        let Some(wire) = &mut self.wire else { return Ok(()) };
        loop {
            if !wire.flush()? {
                break;
            }
            let outgoing = self.machine.outgoing();
            if outgoing.is_empty() {
                return Ok(());
            }
            let count = wire.send(outgoing)?;
            self.machine.sent(count);
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
