//! [`End`]: one side of a handshake between two processes of a rack.
//!
//! The kernel says who sent each packet. Both sides refuse a process of another user, a process
//! other than the one that was started (or that started this one), and another build: closures are
//! named by their place in the executable, so only processes of one build understand each other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use transport_api::HostId;

use crate::handshake::error::{HANDSHAKE, JoinError, Party};
use crate::wire::packet::{Packet, VERSION};
use crate::wire::process::{STATUS_UNKNOWN, how_it_ended, is_running_child, was_killed};
use crate::wire::socket::{self, NoPacket, Sender, readable, timespec};

/// How long a process may take to end after its sockets have closed, and how long a process may
/// take to be reported as killed after another has failed because of it. The kernel closes the
/// sockets of a process before it reports the exit status; on a busy machine the process can lose
/// its processor in between.
const ENDING: Duration = Duration::from_millis(200);

/// One end of a socket during the handshake.
pub(crate) struct End {
    pub(crate) party: Party,
    pub(crate) host: HostId,
    pub(crate) peer: Sender,
    pub(crate) socket: OwnedFd,
    pub(crate) pidfd: OwnedFd,
}

impl End {
    /// The end whose other end must be held by process `pid` of this process's user.
    pub(crate) fn new(
        party: Party,
        host: HostId,
        pid: u32,
        socket: OwnedFd,
    ) -> Result<Self, JoinError> {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| {
            JoinError::Protocol(party, format!("{pid} as the number of a process"))
        })?;
        let peer = Sender { pid, uid: Sender::this().uid };
        let pidfd = pidfd_open(process, PidfdFlags::empty()).map_err(|error| match error {
            // It ended before this process heard of it, and its parent has reaped it.
            Errno::SRCH => ended(party),
            error => error.into(),
        })?;
        Ok(Self { party, host, peer, socket, pidfd })
    }

    /// The end whose other end is held by the leader that made `socket` and started this process.
    ///
    /// # Errors
    /// [`JoinError::Ended`] if the leader is no longer the parent of this process; any other
    /// [`JoinError`].
    pub(crate) fn of_leader(socket: OwnedFd) -> Result<Self, JoinError> {
        // Not from `getppid`: a process whose leader has died has another parent.
        let pid = socket::other_end(&socket)?.pid;
        let party = Party::Leader(pid);
        let leader = Self::new(party, HostId(0), pid, socket)?;
        // The number may have been reused by the time the pidfd was opened, but not if the leader
        // is the parent even now.
        let is_parent = getppid().is_some_and(|parent| parent.as_raw_pid().unsigned_abs() == pid);
        if is_parent { Ok(leader) } else { Err(ended(party)) }
    }

    pub(crate) fn send(&self, packet: &Packet, files: &[OwnedFd]) -> Result<(), JoinError> {
        let files: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
        match socket::send(&self.socket, packet, &files) {
            // The latter if the other side closed before it had read everything.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                ) =>
            {
                Err(self.closed())
            }
            result => Ok(result?),
        }
    }

    /// The other side is gone: says how, if it does end.
    fn closed(&self) -> JoinError {
        let soon = Instant::now() + ENDING;
        match readable([Some(self.pidfd.as_fd())], soon) {
            Ok([true]) => JoinError::Ended { party: self.party, how: how_it_ended(&self.pidfd) },
            _ => JoinError::HungUp(self.party),
        }
    }

    pub(crate) fn receive(&self) -> Result<(Packet, Vec<OwnedFd>), JoinError> {
        let deadline = Instant::now() + HANDSHAKE;
        let mut ended = false;
        loop {
            match socket::receive(&self.socket) {
                Ok(received) => {
                    self.check(received.from)?;
                    return Ok((received.packet, received.files));
                }
                Err(NoPacket::NotYet) if ended => return Err(self.closed()),
                Err(NoPacket::NotYet) => {}
                Err(NoPacket::Closed) => return Err(self.closed()),
                Err(NoPacket::Violation(violation)) => {
                    return Err(self.violation(violation.to_string()));
                }
                Err(NoPacket::System(error)) => return Err(error.into()),
            }
            let files = [Some(self.socket.as_fd()), Some(self.pidfd.as_fd())];
            let [is_readable, has_ended] = readable(files, deadline)?;
            if !is_readable && !has_ended {
                return Err(JoinError::Silent(self.party));
            }
            ended = has_ended;
        }
    }

    pub(crate) fn violation(&self, what: impl Into<String>) -> JoinError {
        JoinError::Protocol(self.party, what.into())
    }

    /// Refuses a packet of any other process than the peer.
    pub(crate) fn check(&self, from: Sender) -> Result<(), JoinError> {
        if from == self.peer {
            return Ok(());
        }
        let (party, expected_uid) = (self.party, self.peer.uid);
        Err(JoinError::Stranger { party, expected_uid, pid: from.pid, uid: from.uid })
    }

    pub(crate) fn hello(&self, identity: &[u8; 32]) -> Result<(), JoinError> {
        self.send(&Packet::Hello { version: VERSION, identity: *identity }, &[])
    }

    /// Refuses another build.
    pub(crate) fn expect_hello(&self, ours: &[u8; 32]) -> Result<(), JoinError> {
        match self.receive()?.0 {
            Packet::Hello { version, identity } if (version, &identity) == (VERSION, ours) => {
                Ok(())
            }
            Packet::Hello { version, identity } => Err(JoinError::Build {
                party: self.party,
                theirs: hex(&identity),
                their_version: version,
                ours: hex(ours),
            }),
            other => Err(self.violation(format!("{other:?} instead of a hello"))),
        }
    }
}

/// `party` ended before this process could watch it.
fn ended(party: Party) -> JoinError {
    JoinError::Ended { party, how: STATUS_UNKNOWN.into() }
}

/// The error to report when `error` has ended a handshake over `ends`. One process that is killed
/// takes the others along, which may be noticed earlier: the one that was killed is the cause.
///
/// Only the parent of the processes can tell them apart, so only the parent waits, up to
/// [`ENDING`], until one turns out to have been killed or none is left that could.
pub(crate) fn cause(error: JoinError, ends: &[End]) -> JoinError {
    if !matches!(error, JoinError::Ended { .. } | JoinError::HungUp(_)) {
        return error;
    }
    let deadline = Instant::now() + ENDING;
    loop {
        // Checked after this for those that were killed, so that none ends unseen in between.
        let running: Vec<_> = ends.iter().filter(|end| is_running_child(&end.pidfd)).collect();
        if let Some(killed) = ends.iter().find(|end| was_killed(&end.pidfd)) {
            return JoinError::Ended { party: killed.party, how: how_it_ended(&killed.pidfd) };
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if running.is_empty() || left.is_zero() {
            return error;
        }
        let mut polled: Vec<_> =
            running.iter().map(|end| PollFd::new(&end.pidfd, PollFlags::IN)).collect();
        if poll(&mut polled, Some(&timespec(left))).is_err_and(|error| error != Errno::INTR) {
            return error;
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(peer: Sender) -> End {
        let (socket, _) = socket::pair().expect("a socket");
        let mut end = End::new(Party::Leader(peer.pid), HostId(0), std::process::id(), socket)
            .expect("an end");
        end.peer = peer;
        end
    }

    #[test]
    fn another_user_and_another_process_are_refused() {
        let this = Sender::this();
        assert!(end(this).check(this).is_ok());
        for spoofed in [Sender { uid: this.uid + 1, ..this }, Sender { pid: this.pid + 1, ..this }]
        {
            let refused = end(spoofed).check(this);
            assert!(matches!(refused, Err(JoinError::Stranger { pid, uid, .. })
                if (pid, uid) == (this.pid, this.uid)));
        }
    }

    #[test]
    fn a_closed_connection_is_told_from_silence() {
        assert!(matches!(end(Sender::this()).receive(), Err(JoinError::HungUp(_))));
    }
}
