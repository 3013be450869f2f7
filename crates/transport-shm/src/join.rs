//! How processes become a rack: [`Rendezvous`] in the leader, [`ShmTransport::join`] in the others.
//!
//! ```text
//!   leader                                     child (one socket each, made before it is started)
//!   Hello: protocol, build            <--->    Hello: protocol, build
//!   Seat: which host you are           --->
//!   Link: a socket, for every other    --->
//!   Greeting: control memory          <--->    Greeting: control memory
//!                                              and the same on every link between two children
//! ```
//!
//! The kernel says who sent each packet. Both sides refuse a process of another user, a process
//! other than the one that was started (or that started this one), and another build: closures are
//! named by their place in the executable, so only processes of one build understand each other.

use crate::{
    control::{Control, Layout},
    host::Host,
    mapping,
    message::{Message, VERSION},
    service::{Desk, Link, Service, how_it_ended},
    shm::ShmTransport,
    socket::{self, NoPacket, Sender, readable},
};
use primitive::limits::{HOSTS, THREADS_PER_HOST};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use thiserror::Error;
use transport_api::HostId;

/// How long a process may take from one packet of the handshake to the next, its start included.
pub const HANDSHAKE: Duration = Duration::from_secs(20);

/// A process on the other side of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The process that started this one.
    Leader(u32),
    /// A host, by its number and process id.
    Host(HostId, u32),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Leader(pid) => write!(f, "the leader (pid {pid})"),
            Party::Host(host, pid) => write!(f, "{host} (pid {pid})"),
        }
    }
}

/// Why processes did not become a rack.
#[derive(Debug, Error)]
pub enum JoinError {
    /// More or fewer hosts or threads than a rack can have.
    #[error("a rack has 1 to {HOSTS} hosts of 1 to {THREADS_PER_HOST} threads, not {0} of {1}")]
    Size(u32, u32),
    /// More or fewer processes were started than the rack has hosts.
    #[error("the rack has {hosts} hosts, and {started} were started besides the leader")]
    Started {
        /// Hosts of the rack, the leader included.
        hosts: u32,
        /// Processes that were started.
        started: u32,
    },
    /// The other side is another build.
    #[error(
        "{party} is build {theirs} with protocol {their_version}, and this process is build {ours} \
         with protocol {VERSION}: start all hosts of a rack from one executable"
    )]
    Build {
        /// The other side.
        party: Party,
        /// Its build identity, in hexadecimal.
        theirs: String,
        /// Its protocol version.
        their_version: u32,
        /// The build identity of this process, in hexadecimal.
        ours: String,
    },
    /// Somebody else holds the other end of the socket.
    #[error(
        "process {pid} of user {uid} speaks where {party} of user {expected_uid} should: \
         the socket has come into foreign hands"
    )]
    Stranger {
        /// Who should have been there.
        party: Party,
        /// The user that both sides should run as.
        expected_uid: u32,
        /// The process that was there.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// The other side ended.
    #[error("{party} ended before the rack was complete: {how}")]
    Ended {
        /// The other side.
        party: Party,
        /// Exit status or signal, in words, as far as known.
        how: String,
    },
    /// The other side closed its socket.
    #[error("{0} has closed the connection; it says itself why")]
    HungUp(Party),
    /// The other side says nothing.
    #[error("{0} has said nothing for {HANDSHAKE:?}")]
    Silent(Party),
    /// The other side broke the protocol.
    #[error("{0} sent something that no peer of this build sends: {1}")]
    Protocol(Party, String),
    /// The standard input of this process is no rendezvous.
    #[error("the standard input of this process is not the socket of a rendezvous: {0}")]
    NoRendezvous(io::Error),
    /// The system refused something.
    #[error("cannot join the rack: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for JoinError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}

/// One end of a socket during the handshake.
struct End {
    party: Party,
    host: HostId,
    peer: Sender,
    socket: OwnedFd,
    pidfd: OwnedFd,
}

impl End {
    /// The end whose other end must be held by process `pid` of this process's user.
    fn new(party: Party, host: HostId, pid: u32, socket: OwnedFd) -> Result<Self, JoinError> {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| {
            JoinError::Protocol(party, format!("{pid} as the number of a process"))
        })?;
        let peer = Sender { pid, uid: Sender::this().uid };
        let pidfd = pidfd_open(process, PidfdFlags::empty())?;
        Ok(Self { party, host, peer, socket, pidfd })
    }

    fn send(&self, message: Message, file: Option<&OwnedFd>) -> Result<(), JoinError> {
        match socket::send(&self.socket, &message, file.map(OwnedFd::as_fd)) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(self.closed()),
            result => Ok(result?),
        }
    }

    /// The other side is gone: says how, if it does end.
    fn closed(&self) -> JoinError {
        let soon = Instant::now() + Duration::from_millis(50);
        match readable([Some(self.pidfd.as_fd())], soon) {
            Ok([true]) => JoinError::Ended { party: self.party, how: how_it_ended(&self.pidfd) },
            _ => JoinError::HungUp(self.party),
        }
    }

    fn receive(&self) -> Result<(Message, Option<OwnedFd>), JoinError> {
        let deadline = Instant::now() + HANDSHAKE;
        let mut ended = false;
        loop {
            match socket::receive(&self.socket) {
                Ok(received) => {
                    self.check(received.from)?;
                    return Ok((received.message, received.file));
                }
                Err(NoPacket::NotYet) if ended => return Err(self.closed()),
                Err(NoPacket::NotYet) => {}
                Err(NoPacket::Closed) => return Err(self.closed()),
                Err(NoPacket::Nonsense(what)) => return Err(self.nonsense(what)),
                Err(NoPacket::System(error)) => return Err(error.into()),
            }
            let files = [Some(self.socket.as_fd()), Some(self.pidfd.as_fd())];
            let [spoke, died] = readable(files, deadline)?;
            if !spoke && !died {
                return Err(JoinError::Silent(self.party));
            }
            ended = died;
        }
    }

    fn nonsense(&self, what: impl Into<String>) -> JoinError {
        JoinError::Protocol(self.party, what.into())
    }

    /// Refuses whoever is not who should be there.
    fn check(&self, from: Sender) -> Result<(), JoinError> {
        if from == self.peer {
            return Ok(());
        }
        let (party, expected_uid) = (self.party, self.peer.uid);
        Err(JoinError::Stranger { party, expected_uid, pid: from.pid, uid: from.uid })
    }

    fn hello(&self, identity: &[u8; 32]) -> Result<(), JoinError> {
        self.send(Message::Hello { version: VERSION, identity: *identity }, None)
    }

    /// Refuses another build.
    fn expect_hello(&self, ours: &[u8; 32]) -> Result<(), JoinError> {
        match self.receive()?.0 {
            Message::Hello { version, identity } if (version, &identity) == (VERSION, ours) => {
                Ok(())
            }
            Message::Hello { version, identity } => Err(JoinError::Build {
                party: self.party,
                theirs: hex(&identity),
                their_version: version,
                ours: hex(ours),
            }),
            other => Err(self.nonsense(format!("{other:?} for a hello"))),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_size(hosts: u32, threads: u32) -> Result<(), JoinError> {
    let fits = |n: u32, most: usize| (1..=most).contains(&(n as usize));
    let fine = fits(hosts, HOSTS) && fits(threads, THREADS_PER_HOST);
    if fine { Ok(()) } else { Err(JoinError::Size(hosts, threads)) }
}

/// The leader's side of making a rack of processes: it starts the other hosts and leads them.
///
/// ```no_run
/// use gossamer_transport_shm::{Rendezvous, ShmTransport};
/// use std::{env, process::Command};
/// let identity = [0; 32]; // of the executable, the same in all its processes
/// let transport = if env::var_os("MY_RACK").is_some() {
///     ShmTransport::join_leader(&identity)?
/// } else {
///     let mut rendezvous = Rendezvous::new(2)?;
///     rendezvous.spawn(Command::new(env::current_exe()?).env("MY_RACK", "1"))?;
///     rendezvous.lead(4, &identity)?
/// };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rendezvous {
    hosts: u32,
    children: Vec<End>,
}

impl Rendezvous {
    /// Begins a rack of `hosts` hosts, of which this process will be host 0.
    ///
    /// # Errors
    /// [`JoinError::Size`].
    pub fn new(hosts: u32) -> Result<Self, JoinError> {
        check_size(hosts, 1)?;
        Ok(Self { hosts, children: Vec::new() })
    }

    /// Starts `command` as the next host: it calls [`ShmTransport::join_leader`]. Its end of the
    /// socket is its standard input, which no other process can inherit by accident.
    ///
    /// The caller keeps the [`Child`] and waits for it in the end, as for any other.
    ///
    /// # Errors
    /// [`JoinError::Started`] when all hosts have been started; [`JoinError::System`].
    pub fn spawn(&mut self, command: &mut Command) -> Result<Child, JoinError> {
        let number = self.children.len() as u32 + 1;
        if number >= self.hosts {
            return Err(JoinError::Started { hosts: self.hosts, started: number });
        }
        let (ours, theirs) = socket::pair()?;
        let child = command.stdin(theirs).spawn();
        // The command would otherwise keep the child's end open, and hide that the child closed it.
        command.stdin(std::process::Stdio::null());
        let child = child?;
        let (host, pid) = (HostId(number), child.id());
        self.children.push(End::new(Party::Host(host, pid), host, pid, ours)?);
        Ok(child)
    }

    /// Completes the rack, as host 0, once all hosts are started. Every host gets `threads` runtime
    /// threads. `identity` tells this build from every other.
    ///
    /// # Errors
    /// Any [`JoinError`]. The hosts that were started then see a closed connection and give up, too.
    pub fn lead(self, threads: u32, identity: &[u8; 32]) -> Result<Arc<ShmTransport>, JoinError> {
        let Self { hosts, children } = self;
        check_size(hosts, threads)?;
        if children.len() as u32 + 1 != hosts {
            return Err(JoinError::Started { hosts, started: children.len() as u32 });
        }
        for child in &children {
            child.hello(identity)?;
        }
        for child in &children {
            child.expect_hello(identity)?;
        }
        for child in &children {
            child.send(Message::Seat { host: child.host, hosts, threads }, None)?;
        }
        for (index, one) in children.iter().enumerate() {
            for other in &children[..index] {
                let (of_one, of_other) = socket::pair()?;
                let (host, pid) = (other.host, other.peer.pid);
                one.send(Message::Link { host, pid }, Some(&of_one))?;
                let (host, pid) = (one.host, one.peer.pid);
                other.send(Message::Link { host, pid }, Some(&of_other))?;
            }
        }
        assemble(HostId(0), threads, children)
    }
}

impl ShmTransport {
    /// Joins the rack of the process that started this one with [`Rendezvous::spawn`], and leaves
    /// this process with an empty standard input. `identity` as for [`Rendezvous::lead`].
    ///
    /// # Errors
    /// [`JoinError::NoRendezvous`] if the standard input is no such socket; any other [`JoinError`].
    pub fn join_leader(identity: &[u8; 32]) -> Result<Arc<ShmTransport>, JoinError> {
        let stdin = io::stdin();
        rustix::net::sockopt::socket_type(&stdin)
            .map_err(|error| JoinError::NoRendezvous(error.into()))?;
        let socket = stdin.as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Self::join(socket, identity)
    }

    /// Joins the rack whose leader, the parent of this process, holds the other end of `socket`.
    ///
    /// # Errors
    /// Any [`JoinError`].
    pub fn join(socket: OwnedFd, identity: &[u8; 32]) -> Result<Arc<ShmTransport>, JoinError> {
        let pid = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        let leader = End::new(Party::Leader(pid), HostId(0), pid, socket)?;
        leader.hello(identity)?;
        leader.expect_hello(identity)?;
        let (local, hosts, threads) = match leader.receive()?.0 {
            Message::Seat { host, hosts, threads } => (host, hosts, threads),
            other => return Err(leader.nonsense(format!("{other:?} for a seat"))),
        };
        check_size(hosts, threads)?;
        if !(1..hosts).contains(&local.0) {
            return Err(leader.nonsense(format!("the seat of {local} among {hosts}")));
        }
        let mut ends = Vec::new();
        while ends.len() + 2 < hosts as usize {
            match leader.receive()? {
                (Message::Link { host, pid }, Some(socket)) => {
                    ends.push(End::new(Party::Host(host, pid), host, pid, socket)?);
                }
                (other, _) => return Err(leader.nonsense(format!("{other:?} for a link"))),
            }
        }
        ends.push(leader);
        assemble(local, threads, ends)
    }

    /// A rack of `hosts` hosts that all live in this process, for tests and measurements: their
    /// memory, sockets and service threads are those of separate processes.
    ///
    /// # Errors
    /// [`JoinError::Size`], [`JoinError::System`].
    pub fn in_process(hosts: u32, threads: u32) -> Result<Vec<Arc<ShmTransport>>, JoinError> {
        check_size(hosts, threads)?;
        let pid = std::process::id();
        let mut ends: Vec<Vec<End>> = (0..hosts).map(|_| Vec::new()).collect();
        for (one, other) in (0..hosts).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let (of_one, of_other) = socket::pair()?;
            for (at, to, socket) in [(one, other, of_one), (other, one, of_other)] {
                let host = HostId(to);
                ends[at as usize].push(End::new(Party::Host(host, pid), host, pid, socket)?);
            }
        }
        thread::scope(|scope| {
            let hosts = (0..).zip(ends);
            let joins: Vec<_> = hosts
                .map(|(host, ends)| scope.spawn(move || assemble(HostId(host), threads, ends)))
                .collect();
            let panicked = |_| Err(io::Error::other("a joining thread panicked").into());
            joins.into_iter().map(|join| join.join().unwrap_or_else(panicked)).collect()
        })
    }
}

/// Exchanges control memories over `ends`, one to every other host, and opens for business.
fn assemble(local: HostId, threads: u32, ends: Vec<End>) -> Result<Arc<ShmTransport>, JoinError> {
    let hosts = ends.len() + 1;
    let bytes = Layout::new(hosts as u32, threads).bytes();
    let (memory, file) = mapping::shared(bytes, true)?;
    for end in &ends {
        end.send(Message::Greeting { host: local }, Some(&file))?;
    }
    let mut controls: Vec<Option<Control>> = (0..hosts).map(|_| None).collect();
    controls[local.0 as usize] = Some(Control::new(memory, true));
    for end in &ends {
        let file = match end.receive()? {
            (Message::Greeting { host }, Some(file)) if host == end.host => file,
            (other, _) => return Err(end.nonsense(format!("{other:?} for a greeting"))),
        };
        let memory = mapping::of_peer(&file, bytes, true)?;
        match controls.get_mut(end.host.0 as usize) {
            Some(seat @ None) => *seat = Some(Control::new(memory, true)),
            _ => return Err(end.nonsense(format!("a seat for {} among {hosts}", end.host))),
        }
    }
    // One seat for each end and for this host, none taken twice: so none is empty.
    let controls = controls.into_iter().flatten().collect();
    let desk = Arc::new(Desk::new()?);
    let host = Arc::new(Host::new(local, threads, controls, Some(desk.clone())));
    let links = ends.into_iter().map(|end| Link::new(end.host, end.peer, end.socket, end.pidfd));
    let service = Service::new(host.clone(), desk, links.collect());
    let thread = thread::Builder::new().name("gossamer-shm".into()).spawn(|| service.run())?;
    Ok(Arc::new(ShmTransport::new(host, Some(thread))))
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

    #[test]
    fn sizes_beyond_the_limits_are_refused() {
        for (hosts, threads) in [(0, 1), (1, 0), (HOSTS as u32 + 1, 1), (1, u32::MAX)] {
            assert!(matches!(
                ShmTransport::in_process(hosts, threads),
                Err(JoinError::Size(h, t)) if (h, t) == (hosts, threads)
            ));
        }
    }
}
