//! [`Neighbours`]: how processes of one machine become (part of) a rack that none of them has
//! started.
//!
//! All know a secret. Half of it is the name of the rendezvous, a socket at which the first of them
//! listens: an abstract one, which is in no file system and gone with its process. The other half is
//! a token by which the others are admitted. The kernel says which process has connected, and which
//! listens; then all goes on as between a leader and the processes that it has started (`leader.rs`).
//!
//! ```text
//!   first host                                another
//!   listens                  <---             connects, once the first listens
//!   same user?               <--->            same user?
//!   is the token right?      <---             Join: which host, the token
//!   Hello, Rank, Peer ...    <--->            as a started process
//! ```
//!
//! Every process of the machine can see the names of bound sockets. So a process that connects may be
//! a stranger: it is refused, and delays no host. A process that listens is a host, because no stranger
//! could have known the name before.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};
use transport_api::HostId;

use crate::data::alarm::Alarm;
use crate::handshake::assemble::{Rank, assemble};
use crate::handshake::end::{End, cause};
use crate::handshake::error::{HANDSHAKE, JoinError, Party, check_size};
use crate::handshake::leader::introduce;
use crate::transport::ShmTransport;
use crate::wire::packet::Packet;
use crate::wire::socket::{self, NoPacket, Sender};

/// Connections that may be undecided at a time, beside those of the hosts.
const STRANGERS: usize = 16;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(2);

/// What a process must know to join those of its rack that run on the same machine; see
/// [`ShmTransport::join_neighbours`].
pub struct Neighbours {
    /// Which host this process is.
    pub host: HostId,
    /// The hosts on this machine, this one among them.
    pub members: Vec<HostId>,
    /// Hosts of the whole rack.
    pub hosts: u32,
    /// Runtime threads of every host.
    pub threads: u32,
    /// What only these processes know; never the same for two racks.
    pub secret: [u8; 32],
    /// What tells this build from every other.
    pub build: [u8; 32],
}

impl ShmTransport {
    /// Takes this process's place among those of one machine, and returns when all of them have.
    ///
    /// If the rack has hosts elsewhere, this transport knows only those on this machine: the others
    /// are no hosts to it, and threads, which wait for both, sleep by the [`Alarm`]s that are
    /// returned, one for each, instead of by [parkers](transport_api::Transport::parker). Otherwise no
    /// alarms are returned.
    ///
    /// ```
    /// use gossamer_transport_shm::{Neighbours, ShmTransport};
    /// use std::thread;
    /// use transport_api::{HostId, Transport};
    ///
    /// // Hosts 0 and 2 of three share a machine (here, for once, a process).
    /// let join = |host| {
    ///     let (secret, members) = ([7; 32], vec![HostId(0), HostId(2)]);
    ///     let host = HostId(host);
    ///     ShmTransport::join_neighbours(&Neighbours { host, members, hosts: 3, threads: 1, secret, build: [0; 32] })
    /// };
    /// let other = thread::spawn(move || join(2).map(|_| ()));
    /// let (transport, alarms) = join(0)?;
    /// assert!(transport.maps(HostId(2)) && !transport.maps(HostId(1)));
    /// assert_eq!(alarms.len(), 1);
    /// # other.join().unwrap()?;
    /// # Ok::<(), gossamer_transport_shm::JoinError>(())
    /// ```
    ///
    /// # Errors
    /// [`JoinError::Absent`] and any other [`JoinError`].
    pub fn join_neighbours(
        neighbours: &Neighbours,
    ) -> Result<(Arc<ShmTransport>, Vec<Alarm>), JoinError> {
        let Neighbours { host, hosts, threads, ref build, .. } = *neighbours;
        check_size(hosts, threads)?;
        let members = members(neighbours)?;
        let has_alarms = members.len() < hosts as usize;
        let ends = if members[0] == host {
            let ends = accept_joining(neighbours, &members[1..])?;
            introduce(&ends, hosts, threads, build).map_err(|error| cause(error, &ends))?;
            ends
        } else {
            let leader = connect_to_first(neighbours, members[0])?;
            leader.hello(build)?;
            leader.expect_hello(build)?;
            let rank = leader.expect_rank()?;
            if rank != (host, hosts, threads) {
                return Err(leader.violation(format!("{rank:?} as the rank of {host}")));
            }
            leader.expect_peers(members.len() - 2)?
        };
        let transport = assemble(Rank { host, hosts, threads, has_alarms }, ends)?;
        let alarms = if has_alarms { transport.alarms() } else { Vec::new() };
        Ok((transport, alarms))
    }
}

/// The hosts on this machine in their order, if they are valid.
fn members(neighbours: &Neighbours) -> Result<Vec<HostId>, JoinError> {
    let Neighbours { host, hosts, .. } = *neighbours;
    let mut members = neighbours.members.clone();
    members.sort();
    members.dedup();
    let all_exist = members.iter().all(|member| member.0 < hosts);
    let is_valid = all_exist && members.contains(&host);
    if is_valid { Ok(members) } else { Err(JoinError::Members(host, hosts)) }
}

/// The rendezvous.
fn address(neighbours: &Neighbours) -> io::Result<SocketAddrUnix> {
    let hex: String = name_and_token(neighbours).0.iter().map(|b| format!("{b:02x}")).collect();
    Ok(SocketAddrUnix::new_abstract_name(format!("gossamer-{hex}").as_bytes())?)
}

/// The two halves of the secret.
fn name_and_token(neighbours: &Neighbours) -> (&[u8; 16], [u8; 16]) {
    let (name, token) = neighbours.secret.split_first_chunk().expect("32 bytes");
    let token = token.first_chunk().expect("16 bytes more");
    (name, *token)
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    sockopt::set_socket_passcred(&socket, true)?;
    Ok(socket)
}

/// Accepts all of `joining` at the rendezvous.
fn accept_joining(neighbours: &Neighbours, joining: &[HostId]) -> Result<Vec<End>, JoinError> {
    let deadline = Instant::now() + HANDSHAKE;
    let listener = open()?;
    let most = STRANGERS + joining.len();
    bind(&listener, &address(neighbours)?)?;
    listen(&listener, most as i32)?;
    // Until they have sent their first packet.
    let mut undecided: Vec<OwnedFd> = Vec::new();
    let mut ends: Vec<End> = Vec::new();
    while ends.len() < joining.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let is_missing = |host: &&HostId| ends.iter().all(|end| end.host != **host);
            return Err(JoinError::Absent(joining.iter().filter(is_missing).copied().collect()));
        }
        let sockets = undecided.iter().chain([&listener]);
        let mut polled: Vec<_> = sockets.map(|file| PollFd::new(file, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&socket::timespec(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for socket in std::mem::take(&mut undecided) {
            match socket::receive(&socket) {
                Ok(received) => {
                    let taken = |host| ends.iter().any(|end| end.host == host);
                    let host = admit(neighbours, &received).filter(|host| joining.contains(host));
                    // A stranger sees that its connection is closed.
                    let Some(host) = host.filter(|host| !taken(*host)) else { continue };
                    let pid = received.from.pid;
                    ends.push(End::new(Party::Host(host, pid), host, pid, socket)?);
                }
                Err(NoPacket::NotYet) => undecided.push(socket),
                Err(_) => {}
            }
        }
        while let Ok(socket) = accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            let is_ours =
                socket::other_end(&socket).is_ok_and(|peer| peer.uid == Sender::this().uid);
            if is_ours && sockopt::set_socket_passcred(&socket, true).is_ok() {
                if undecided.len() == most {
                    undecided.remove(0);
                }
                undecided.push(socket);
            }
        }
    }
    Ok(ends)
}

/// The host that joins, if it knows the secret.
fn admit(neighbours: &Neighbours, received: &socket::Received) -> Option<HostId> {
    let (_, ours) = name_and_token(neighbours);
    let is_ours = received.from.uid == Sender::this().uid;
    match received.packet {
        Packet::Join { host, token } if is_ours && token == ours => Some(host),
        _ => None,
    }
}

/// Connects with the first of the hosts on this machine, once it listens.
fn connect_to_first(neighbours: &Neighbours, first: HostId) -> Result<End, JoinError> {
    let deadline = Instant::now() + HANDSHAKE;
    let address = address(neighbours)?;
    let (_, token) = name_and_token(neighbours);
    loop {
        let socket = open()?;
        match connect(&socket, &address) {
            Ok(()) => {
                let peer = socket::other_end(&socket)?;
                let leader = End::new(Party::Leader(peer.pid), first, peer.pid, socket)?;
                leader.check(peer)?;
                leader.send(&Packet::Join { host: neighbours.host, token }, &[])?;
                return Ok(leader);
            }
            // The first host does not listen yet, or too many connect at once.
            Err(Errno::CONNREFUSED | Errno::AGAIN) => thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
        if Instant::now() >= deadline {
            return Err(JoinError::Absent(vec![first]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use transport_api::Transport;

    use super::*;

    fn neighbours(host: u32, members: &[u32], secret: u8) -> Neighbours {
        let members = members.iter().copied().map(HostId).collect();
        let (host, secret) = (HostId(host), [secret; 32]);
        Neighbours { host, members, hosts: 5, threads: 1, secret, build: [0; 32] }
    }

    #[test]
    fn a_stranger_without_the_secret_is_refused_and_delays_no_host() {
        let (first, second) = (neighbours(1, &[3, 1], 11), neighbours(3, &[1, 3], 11));
        let leading =
            thread::spawn(move || ShmTransport::join_neighbours(&first).map(|(host, _)| host));
        let silent = open().expect("a socket");
        while connect(&silent, &address(&second).expect("an address")).is_err() {
            thread::sleep(PAUSE);
        }
        let mut liar = neighbours(3, &[1, 3], 11);
        liar.secret[31] ^= 1;
        let refused = ShmTransport::join_neighbours(&liar).map(drop).expect_err("a wrong token");
        assert!(matches!(refused, JoinError::HungUp(Party::Leader(_))), "{refused}");
        let (joined, alarms) = ShmTransport::join_neighbours(&second).expect("to join");
        let leader = leading.join().expect("no panic").expect("to join");
        assert_eq!((joined.local(), leader.local(), alarms.len()), (HostId(3), HostId(1), 1));
    }

    #[test]
    fn every_thread_has_an_alarm_of_its_own_that_neighbours_ring() {
        // Too many for one packet.
        let many = |host| Neighbours { threads: 130, ..neighbours(host, &[0, 4], 13) };
        let waking =
            thread::spawn(move || ShmTransport::join_neighbours(&many(0)).expect("to join").0);
        let (_sleeping, alarms) = ShmTransport::join_neighbours(&many(4)).expect("to join");
        let mut lane = waking.join().expect("no panic").lane(0, HostId(4)).expect("a lane");
        let has_rung = |thread: usize| {
            let rung = socket::readable([Some(alarms[thread].as_fd())], Instant::now());
            rung.expect("alarms")[0]
        };
        assert_eq!(alarms.len(), 130);
        for thread in [0, 64, 129] {
            lane.wake(thread as u32);
            assert!(!has_rung(thread), "no thread sleeps");
            alarms[thread].announce();
            lane.wake(thread as u32);
            assert!(has_rung(thread), "{thread}");
        }
        assert!(![1, 63, 65, 128].into_iter().any(has_rung));
    }

    #[test]
    fn invalid_hosts_of_a_machine_are_refused() {
        for (host, members) in [(0, &[1, 2][..]), (1, &[1, 5]), (0, &[])] {
            let refused = ShmTransport::join_neighbours(&neighbours(host, members, 12)).map(drop);
            assert!(matches!(refused, Err(JoinError::Members(..))));
        }
    }
}
