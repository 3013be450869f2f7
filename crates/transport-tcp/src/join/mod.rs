//! [`Joining`]: how a process becomes a host of its rack.
//!
//! One loop dials, accepts and checks, because hosts must not wait for each other in a ring. What
//! a stranger can occupy is bounded: the number of undecided connections and the time for each are
//! limited, and the oldest makes room for the next. An honest peer needs milliseconds, and dials
//! again if it was pushed out.

mod handshake;
pub(crate) mod hello;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gossamer_job::Tls;
use primitive::limits::{HOSTS, THREADS_PER_HOST};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, connect, listen, shutdown, socket_with,
};
use transport_api::HostId;

use crate::join::handshake::{Failure, Pending, Role};
use crate::join::hello::{ConnectionKind, Hello, VERSION};
use crate::wire::{Wire, WireError};
use crate::{Credentials, JoinError, TcpConfig};

/// Connections that a host dials to one other at a time.
const AT_ONCE: usize = 2;

/// Undecided connections that strangers may have, beside those that the hosts need.
const STRANGERS: usize = 64;

/// How long a host waits before it dials again.
const AGAIN: Duration = Duration::from_millis(20);

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A process that is joining its rack.
pub(crate) struct Joining {
    config: TcpConfig,
    tls: Option<Tls>,
    /// The hello of this host.
    ours: Hello,
    /// What there is to dial, for each host below this one, and when next.
    to_dial: Vec<(HostId, VecDeque<ConnectionKind>, Instant)>,
    pending: Vec<Pending>,
    /// Connections that a verdict has assigned, and those that are complete.
    assigned: HashSet<(HostId, ConnectionKind)>,
    complete: HashMap<(HostId, ConnectionKind), Wire>,
    /// The last failure, in words.
    last: Option<String>,
}

/// The connections of a complete rack.
pub(crate) struct Wires(HashMap<(HostId, ConnectionKind), Wire>);

impl Wires {
    /// Takes the control connection to `peer`.
    pub(crate) fn control(&mut self, peer: HostId) -> io::Result<Wire> {
        self.0
            .remove(&(peer, ConnectionKind::Control))
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Takes the connection of `thread` to `peer`.
    pub(crate) fn thread(&mut self, peer: HostId, thread: u32) -> io::Result<Wire> {
        let kind = ConnectionKind::Thread(thread);
        self.0.remove(&(peer, kind)).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl ConnectionKind {
    fn all(threads: u32) -> impl Iterator<Item = ConnectionKind> {
        (0..threads).map(ConnectionKind::Thread).chain([ConnectionKind::Control])
    }
}

impl Joining {
    /// Checks the settings.
    pub(crate) fn new(config: TcpConfig) -> Result<Self, JoinError> {
        let (hosts, threads) = (config.addresses.len(), config.threads);
        if !(1..=HOSTS).contains(&hosts) || !(1..=THREADS_PER_HOST as u32).contains(&threads) {
            return Err(JoinError::Size(hosts, threads));
        }
        if config.host.0 as usize >= hosts {
            return Err(JoinError::NoPlace(config.host, hosts));
        }
        if config.loss_bound < Duration::from_millis(10) {
            return Err(JoinError::LossBound(config.loss_bound));
        }
        if let Credentials::InsecureLoopback = config.credentials {
            let all = config.addresses.iter().copied().chain([config.listener.local_addr()?]);
            if let Some(open) = all.into_iter().find(|address| !address.ip().is_loopback()) {
                return Err(JoinError::NotLoopback(open));
            }
        }
        let tls = match &config.credentials {
            Credentials::Tls { certificate, key, ca } => {
                Some(Tls::new(config.job, certificate, key, ca)?)
            }
            Credentials::InsecureLoopback => None,
        };
        config.listener.set_nonblocking(true)?;
        listen(&config.listener, BACKLOG).map_err(io::Error::from)?;
        let (from, to, now) = (config.host, config.host, Instant::now());
        let (job, build, cpu, kind) =
            (config.job, config.build, config.cpu, ConnectionKind::Control);
        let hosts = hosts as u32;
        let ours = Hello { version: VERSION, from, to, kind, hosts, threads, job, build, cpu };
        let below = (0..config.host.0).map(HostId).filter(|host| !config.is_neighbour(*host));
        let to_dial =
            below.map(|host| (host, ConnectionKind::all(threads).collect(), now)).collect();
        let (pending, assigned, complete) = (Vec::new(), HashSet::new(), HashMap::new());
        Ok(Self { config, tls, ours, to_dial, pending, assigned, complete, last: None })
    }

    /// Connects with all hosts.
    pub(crate) fn run(mut self) -> Result<Wires, JoinError> {
        let (start, timeout) = (Instant::now(), self.config.join_timeout);
        loop {
            self.dial()?;
            let missing = self.missing();
            if missing.is_empty() {
                // The caller may have other descriptors of the listener.
                shutdown(&self.config.listener, Shutdown::Both).map_err(io::Error::from)?;
                return Ok(Wires(self.complete));
            }
            if start.elapsed() >= timeout {
                return Err(JoinError::Missing { missing, waited: timeout, last: self.last });
            }
            let ready = self.wait()?;
            if ready[0] {
                self.accept();
            }
            // New ones stand behind those that were asked about.
            let mut ready = ready[1..].iter().copied().chain(std::iter::repeat(true));
            for pending in std::mem::take(&mut self.pending) {
                let is_ready = ready.next().unwrap_or_default();
                self.go_on(pending, is_ready)?;
            }
        }
    }

    fn missing(&self) -> Vec<HostId> {
        let others = (0..self.ours.hosts)
            .map(HostId)
            .filter(|host| *host != self.ours.from && !self.config.is_neighbour(*host));
        let complete = |host: &HostId| {
            ConnectionKind::all(self.ours.threads)
                .all(|kind| self.complete.contains_key(&(*host, kind)))
        };
        others.filter(|host| !complete(host)).collect()
    }

    /// Waits a little; whether the listener and each pending connection is ready.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let mut polled = vec![PollFd::new(&self.config.listener, PollFlags::IN)];
        polled.extend(self.pending.iter().map(|pending| PollFd::new(pending, pending.waits_for())));
        match poll(&mut polled, Some(&crate::service_queue::timespec(AGAIN))) {
            Ok(_) => Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect()),
            Err(Errno::INTR) => Ok(vec![false; polled.len()]),
            Err(error) => Err(error.into()),
        }
    }

    /// Dials what is to be dialled, a few at a time.
    fn dial(&mut self) -> Result<(), JoinError> {
        let now = Instant::now();
        for (host, kinds, next) in &mut self.to_dial {
            let is_this = |p: &&Pending| matches!(p.role, Role::Dialled(peer, _) if peer == *host);
            let mut under_way = self.pending.iter().filter(is_this).count();
            while under_way < AT_ONCE
                && *next <= now
                && let Some(kind) = kinds.pop_front()
            {
                let address = self.config.addresses[host.0 as usize];
                let tls = self.tls.as_ref().map(|tls| tls.dial(*host)).transpose()?;
                match begin(address) {
                    Ok(socket) => {
                        let hello = Hello { to: *host, kind, ..self.ours.clone() };
                        let wire = Wire::new(socket, tls);
                        self.pending.push(Pending::dialled(wire, *host, &hello, now));
                        under_way += 1;
                    }
                    Err(error) => {
                        self.last = Some(format!("{host} at {address}: {error}"));
                        kinds.push_back(kind);
                        *next = now + AGAIN;
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        let most = STRANGERS + AT_ONCE * self.config.addresses.len();
        let is_accepted = |pending: &Pending| matches!(pending.role, Role::Accepted(_));
        loop {
            let (socket, address) = match self.config.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    // The process may be short of descriptors because strangers hold them.
                    let (strangers, dialled): (Vec<_>, _) =
                        std::mem::take(&mut self.pending).into_iter().partition(is_accepted);
                    self.pending = dialled;
                    strangers.iter().for_each(|stranger| self.give_back(stranger));
                    return;
                }
            };
            if self.pending.iter().filter(|pending| is_accepted(pending)).count() >= most
                && let Some(oldest) = self.pending.iter().position(is_accepted)
            {
                let oldest = self.pending.remove(oldest);
                self.give_back(&oldest);
                self.note(&oldest, "it did not identify itself in time, and others need the room");
            }
            let ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            let tls = self.tls.as_ref().map(Tls::listen).transpose();
            match (ready, tls) {
                (Ok(()), Ok(tls)) => {
                    let wire = Wire::new(socket, tls);
                    self.pending.push(Pending::accepted(wire, address, Instant::now()));
                }
                (ready, tls) => {
                    let (ready, tls) = (ready.err(), tls.err());
                    tracing::warn!(%address, ?ready, ?tls, "cannot use a connection");
                }
            }
        }
    }

    /// Gets on with one connection.
    fn go_on(&mut self, mut pending: Pending, is_ready: bool) -> Result<(), JoinError> {
        let Self { assigned, ours, tls, config, .. } = self;
        let mut judge = |hello: &Hello| {
            let taken = || {
                (!assigned.insert((hello.from, hello.kind))).then(|| {
                    format!(
                        "{} is connected already: check that no two processes have its number",
                        hello.from
                    )
                })
            };
            let neighbour = || {
                let text =
                    || format!("{} and {} are joined by another transport", hello.from, ours.from);
                config.is_neighbour(hello.from).then(text)
            };
            hello.objection(ours).or_else(neighbour).or_else(taken)
        };
        let advanced = if is_ready { pending.advance(tls.as_ref(), &mut judge) } else { Ok(None) };
        let is_late = || pending.since.elapsed() >= config.handshake_timeout;
        match advanced {
            Ok(None) if is_late() && !pending.has_identified_itself() => {
                let late = WireError::Failed("it did not identify itself in time".into());
                return self.failed(pending, Failure::Broken(late));
            }
            Ok(None) => self.pending.push(pending),
            Ok(Some(kind)) => drop(self.complete.insert(kind, pending.into_wire())),
            Err(failure) => return self.failed(pending, failure),
        }
        Ok(())
    }

    /// A connection has failed: a stranger is forgotten, a host is dialled again, unless that cannot
    /// help.
    fn failed(&mut self, pending: Pending, failure: Failure) -> Result<(), JoinError> {
        let Role::Dialled(host, kind) = pending.role else {
            self.give_back(&pending);
            match failure {
                Failure::Refused(why) => self.note(&pending, &why),
                Failure::Broken(broken) => self.note(&pending, &broken.to_string()),
            }
            return Ok(());
        };
        let address = self.config.addresses[host.0 as usize];
        match failure {
            Failure::Refused(reason) => Err(JoinError::Refused { host, address, reason }),
            Failure::Broken(WireError::Tls(reason)) => {
                Err(JoinError::Untrusted { host, address, reason })
            }
            Failure::Broken(broken) => {
                self.last = Some(format!("{host} at {address}: {broken}"));
                if let Some((.., kinds, next)) = self.to_dial.iter_mut().find(|d| d.0 == host) {
                    kinds.push_back(kind);
                    *next = Instant::now() + AGAIN;
                }
                Ok(())
            }
        }
    }

    /// A connection that was welcomed has failed: its place is free again.
    fn give_back(&mut self, pending: &Pending) {
        if let Some(place) = pending.welcomed() {
            self.assigned.remove(&place);
        }
    }

    /// Notes that a stranger was sent away.
    fn note(&mut self, stranger: &Pending, why: &str) {
        if let Role::Accepted(address) = stranger.role {
            let (job, local) = (self.config.job, self.config.host);
            tracing::warn!(%job, %local, %address, why, "refused a connection");
            self.last = Some(format!("from {address}: {why}"));
        }
    }
}

/// Begins to connect.
fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    socket.set_nodelay(true)?;
    Ok(socket)
}
