//! [`Neighbours`]: how processes of one machine become (part of) a rack that none of them has
//! started.
//!
//! All know a secret. Half of it is the name of a socket at which the first of them listens: an
//! abstract one, which is in no file system and gone with its process. The other half is the word
//! by which the others are let in. The kernel says who has connected, and who listens; then all goes
//! on as between a leader and the processes that it has started (`join.rs`).
//!
//! ```text
//!   first host                                another
//!   listens                  <---             connects, once somebody listens
//!   same user?               <--->            same user?
//!   the word is right?       <---             Knock: which host, the word
//!   Hello, Seat, Link ...    <--->            as a started process
//! ```
//!
//! Names of sockets can be seen by everybody on the machine once they are bound. So whoever
//! connects may be a stranger, and is sent away without holding anybody up; whoever listens cannot
//! be one, because nobody else can have known the name.

use crate::{
    ShmTransport,
    alarm::Alarm,
    handshake::{End, HANDSHAKE, JoinError, Party, check_size},
    join::{Place, assemble, introduce},
    message::Message,
    socket::{self, NoPacket, Sender},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
        socket_with, sockopt,
    },
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use transport_api::HostId;

/// Connections that may be undecided at a time, beside those of the hosts.
const STRANGERS: usize = 16;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(2);

/// What a process must know to meet those of its rack that run on the same machine; see
/// [`ShmTransport::meet`].
pub struct Neighbours {
    /// Which host this process is.
    pub host: HostId,
    /// The hosts on this machine, this one among them.
    pub members: Vec<HostId>,
    /// Hosts of the whole rack.
    pub hosts: u32,
    /// Runtime threads of every host.
    pub threads: u32,
    /// What these processes know and nobody else; never the same for two racks.
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
    /// let meet = |host| {
    ///     let (secret, members) = ([7; 32], vec![HostId(0), HostId(2)]);
    ///     let host = HostId(host);
    ///     ShmTransport::meet(&Neighbours { host, members, hosts: 3, threads: 1, secret, build: [0; 32] })
    /// };
    /// let other = thread::spawn(move || meet(2).map(|_| ()));
    /// let (transport, alarms) = meet(0)?;
    /// assert!(transport.maps(HostId(2)) && !transport.maps(HostId(1)));
    /// assert_eq!(alarms.len(), 1);
    /// # other.join().unwrap()?;
    /// # Ok::<(), gossamer_transport_shm::JoinError>(())
    /// ```
    ///
    /// # Errors
    /// [`JoinError::Absent`] and any other [`JoinError`].
    pub fn meet(neighbours: &Neighbours) -> Result<(Arc<ShmTransport>, Vec<Alarm>), JoinError> {
        let Neighbours { host, hosts, threads, ref build, .. } = *neighbours;
        check_size(hosts, threads)?;
        let members = members(neighbours)?;
        let has_alarms = members.len() < hosts as usize;
        let ends = if members[0] == host {
            let ends = receive_guests(neighbours, &members[1..])?;
            introduce(&ends, hosts, threads, build)
                .map_err(|error| crate::handshake::cause(error, &ends))?;
            ends
        } else {
            let leader = knock(neighbours, members[0])?;
            leader.hello(build)?;
            leader.expect_hello(build)?;
            let seat = leader.expect_seat()?;
            if seat != (host, hosts, threads) {
                return Err(leader.nonsense(format!("{seat:?} as the seat of {host}")));
            }
            leader.expect_links(members.len() - 2)?
        };
        let transport = assemble(Place { host, hosts, threads, has_alarms }, ends)?;
        let alarms = if has_alarms { transport.alarms() } else { Vec::new() };
        Ok((transport, alarms))
    }
}

/// The hosts on this machine in their order, if they make sense.
fn members(neighbours: &Neighbours) -> Result<Vec<HostId>, JoinError> {
    let Neighbours { host, hosts, .. } = *neighbours;
    let mut members = neighbours.members.clone();
    members.sort();
    members.dedup();
    let all_exist = members.iter().all(|member| member.0 < hosts);
    let fine = all_exist && members.contains(&host);
    if fine { Ok(members) } else { Err(JoinError::Members(host, hosts)) }
}

/// Where the processes meet.
fn address(neighbours: &Neighbours) -> io::Result<SocketAddrUnix> {
    let hex: String = name_and_word(neighbours).0.iter().map(|b| format!("{b:02x}")).collect();
    Ok(SocketAddrUnix::new_abstract_name(format!("gossamer-{hex}").as_bytes())?)
}

/// The two halves of the secret.
fn name_and_word(neighbours: &Neighbours) -> (&[u8; 16], [u8; 16]) {
    let (name, word) = neighbours.secret.split_first_chunk().expect("32 bytes");
    let word = word.first_chunk().expect("16 bytes more");
    (name, *word)
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    sockopt::set_socket_passcred(&socket, true)?;
    Ok(socket)
}

/// Waits for all `guests` at the place where the processes meet.
fn receive_guests(neighbours: &Neighbours, guests: &[HostId]) -> Result<Vec<End>, JoinError> {
    let deadline = Instant::now() + HANDSHAKE;
    let door = open()?;
    let most = STRANGERS + guests.len();
    bind(&door, &address(neighbours)?)?;
    listen(&door, most as i32)?;
    // Until they have knocked.
    let mut undecided: Vec<OwnedFd> = Vec::new();
    let mut ends: Vec<End> = Vec::new();
    while ends.len() < guests.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let is_missing = |guest: &&HostId| ends.iter().all(|end| end.host != **guest);
            return Err(JoinError::Absent(guests.iter().filter(is_missing).copied().collect()));
        }
        let sockets = undecided.iter().chain([&door]);
        let mut polled: Vec<_> = sockets.map(|file| PollFd::new(file, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&socket::timespec(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for socket in std::mem::take(&mut undecided) {
            match socket::receive(&socket) {
                Ok(knock) => {
                    let taken = |host| ends.iter().any(|end| end.host == host);
                    let host = admit(neighbours, &knock).filter(|host| guests.contains(host));
                    // Whoever is not let in sees that its connection is closed.
                    let Some(host) = host.filter(|host| !taken(*host)) else { continue };
                    let pid = knock.from.pid;
                    ends.push(End::new(Party::Host(host, pid), host, pid, socket)?);
                }
                Err(NoPacket::NotYet) => undecided.push(socket),
                Err(_) => {}
            }
        }
        while let Ok(socket) = accept_with(&door, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
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

/// The host that knocks, if it knows the word.
fn admit(neighbours: &Neighbours, knock: &socket::Received) -> Option<HostId> {
    let (_, ours) = name_and_word(neighbours);
    let is_ours = knock.from.uid == Sender::this().uid;
    match knock.message {
        Message::Knock { host, word } if is_ours && word == ours => Some(host),
        _ => None,
    }
}

/// Connects with the first of the hosts on this machine, once it listens.
fn knock(neighbours: &Neighbours, first: HostId) -> Result<End, JoinError> {
    let deadline = Instant::now() + HANDSHAKE;
    let address = address(neighbours)?;
    let (_, word) = name_and_word(neighbours);
    loop {
        let socket = open()?;
        match connect(&socket, &address) {
            Ok(()) => {
                let peer = socket::other_end(&socket)?;
                let leader = End::new(Party::Leader(peer.pid), first, peer.pid, socket)?;
                leader.check(peer)?;
                leader.send(Message::Knock { host: neighbours.host, word }, &[])?;
                return Ok(leader);
            }
            // Nobody listens yet, or too many knock at once.
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
    use super::*;
    use std::os::fd::AsFd;
    use transport_api::Transport;

    fn neighbours(host: u32, members: &[u32], secret: u8) -> Neighbours {
        let members = members.iter().copied().map(HostId).collect();
        let (host, secret) = (HostId(host), [secret; 32]);
        Neighbours { host, members, hosts: 5, threads: 1, secret, build: [0; 32] }
    }

    #[test]
    fn who_does_not_know_the_word_is_sent_away_and_holds_nobody_up() {
        let (first, second) = (neighbours(1, &[3, 1], 11), neighbours(3, &[1, 3], 11));
        let leading = thread::spawn(move || ShmTransport::meet(&first).map(|(host, _)| host));
        let silent = open().expect("a socket");
        while connect(&silent, &address(&second).expect("an address")).is_err() {
            thread::sleep(PAUSE);
        }
        let mut liar = neighbours(3, &[1, 3], 11);
        liar.secret[31] ^= 1;
        let refused = ShmTransport::meet(&liar).map(drop).expect_err("a wrong word");
        assert!(matches!(refused, JoinError::HungUp(Party::Leader(_))), "{refused}");
        let (joined, alarms) = ShmTransport::meet(&second).expect("a place");
        let leader = leading.join().expect("no panic").expect("a place");
        assert_eq!((joined.local(), leader.local(), alarms.len()), (HostId(3), HostId(1), 1));
    }

    #[test]
    fn every_thread_has_an_alarm_of_its_own_that_neighbours_ring() {
        // So many that they do not come in one packet.
        let many = |host| Neighbours { threads: 130, ..neighbours(host, &[0, 4], 13) };
        let waking = thread::spawn(move || ShmTransport::meet(&many(0)).expect("a place").0);
        let (_sleeping, alarms) = ShmTransport::meet(&many(4)).expect("a place");
        let mut lane = waking.join().expect("no panic").lane(0, HostId(4)).expect("a lane");
        let has_rung = |thread: usize| {
            let rung = socket::readable([Some(alarms[thread].as_fd())], Instant::now());
            rung.expect("alarms")[0]
        };
        assert_eq!(alarms.len(), 130);
        for thread in [0, 64, 129] {
            lane.wake(thread as u32);
            assert!(!has_rung(thread), "nobody sleeps");
            alarms[thread].announce();
            lane.wake(thread as u32);
            assert!(has_rung(thread), "{thread}");
        }
        assert!(![1, 63, 65, 128].into_iter().any(has_rung));
    }

    #[test]
    fn a_place_that_is_none_is_refused() {
        for (host, members) in [(0, &[1, 2][..]), (1, &[1, 5]), (0, &[])] {
            let refused = ShmTransport::meet(&neighbours(host, members, 12)).map(drop);
            assert!(matches!(refused, Err(JoinError::Members(..))));
        }
    }
}
