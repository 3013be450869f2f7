//! How processes become a rack: [`Rendezvous`] in the leader, [`ShmTransport::join_leader`] in the
//! others. Those that nobody of them has started come by `meeting.rs`, and go on here.
//!
//! ```text
//!   leader                                     child (one socket each, made before it is started)
//!   Hello: protocol, build            <--->    Hello: protocol, build
//!   Seat: which host you are           --->
//!   Link: a socket, for every other    --->
//!   Greeting: control memory          <--->    Greeting: control memory
//!   Alarms                            <--->    Alarms: in a rack with hosts elsewhere
//!                                              and the same on every link between two children
//! ```

use crate::{
    alarm::Alarms,
    control::{Control, Layout, Waking},
    handshake::{End, JoinError, Party, cause, check_size},
    host::Host,
    mapping,
    message::{MOST_FILES, Message},
    service::{Desk, Link, Service},
    shm::ShmTransport,
    socket,
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command},
    sync::Arc,
    thread,
};
use transport_api::HostId;

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
    /// Any [`JoinError`]. The hosts that were started then see a closed connection and give up,
    /// too.
    pub fn lead(self, threads: u32, identity: &[u8; 32]) -> Result<Arc<ShmTransport>, JoinError> {
        let Self { hosts, children } = self;
        check_size(hosts, threads)?;
        if children.len() as u32 + 1 != hosts {
            return Err(JoinError::Started { hosts, started: children.len() as u32 });
        }
        introduce(&children, hosts, threads, identity).map_err(|error| cause(error, &children))?;
        assemble(Place { host: HostId(0), hosts, threads, has_alarms: false }, children)
    }
}

impl ShmTransport {
    /// Joins the rack of the process that started this one with [`Rendezvous::spawn`], and leaves
    /// this process with an empty standard input. `identity` as for [`Rendezvous::lead`].
    ///
    /// # Errors
    /// [`JoinError::NoRendezvous`] if the standard input is no such socket; any other
    /// [`JoinError`].
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
        let leader = End::of_leader(socket)?;
        leader.hello(identity)?;
        leader.expect_hello(identity)?;
        let (host, hosts, threads) = leader.expect_seat()?;
        check_size(hosts, threads)?;
        if !(1..hosts).contains(&host.0) {
            return Err(leader.nonsense(format!("the seat of {host} among {hosts}")));
        }
        let ends = leader.expect_links(hosts as usize - 2)?;
        assemble(Place { host, hosts, threads, has_alarms: false }, ends)
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
            let joins: Vec<_> = (0..)
                .zip(ends)
                .map(|(host, ends)| {
                    let place = Place { host: HostId(host), hosts, threads, has_alarms: false };
                    scope.spawn(move || assemble(place, ends))
                })
                .collect();
            let panicked = |_| Err(io::Error::other("a joining thread panicked").into());
            joins.into_iter().map(|join| join.join().unwrap_or_else(panicked)).collect()
        })
    }
}

impl End {
    /// The seat that the leader gives: which host, of how many, with how many threads.
    pub(crate) fn expect_seat(&self) -> Result<(HostId, u32, u32), JoinError> {
        match self.receive()?.0 {
            Message::Seat { host, hosts, threads } => Ok((host, hosts, threads)),
            other => Err(self.nonsense(format!("{other:?} for a seat"))),
        }
    }

    /// The links to `others` that the leader gives, and this one, to the leader itself.
    pub(crate) fn expect_links(self, others: usize) -> Result<Vec<End>, JoinError> {
        let mut ends = Vec::new();
        while ends.len() < others {
            match self.receive()? {
                (Message::Link { host, pid }, mut files) => {
                    // The message comes with exactly one.
                    let Some(socket) = files.pop() else { continue };
                    ends.push(End::new(Party::Host(host, pid), host, pid, socket)?);
                }
                (other, _) => return Err(self.nonsense(format!("{other:?} for a link"))),
            }
        }
        ends.push(self);
        Ok(ends)
    }
}

/// Makes sure that `children` are of this build, seats them, and links each with every other.
pub(crate) fn introduce(
    children: &[End],
    hosts: u32,
    threads: u32,
    identity: &[u8; 32],
) -> Result<(), JoinError> {
    for child in children {
        child.hello(identity)?;
    }
    for child in children {
        child.expect_hello(identity)?;
    }
    for child in children {
        child.send(Message::Seat { host: child.host, hosts, threads }, &[])?;
    }
    for (index, one) in children.iter().enumerate() {
        for other in &children[..index] {
            let (of_one, of_other) = socket::pair()?;
            let (host, pid) = (other.host, other.peer.pid);
            one.send(Message::Link { host, pid }, &[of_one])?;
            let (host, pid) = (one.host, one.peer.pid);
            other.send(Message::Link { host, pid }, &[of_other])?;
        }
    }
    Ok(())
}

/// A process's place in its rack.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) host: HostId,
    /// Of the whole rack.
    pub(crate) hosts: u32,
    pub(crate) threads: u32,
    /// Whether threads are woken by alarms, because they wait for others than these hosts, too.
    pub(crate) has_alarms: bool,
}

/// Exchanges control memories over `ends`, one to every other host that is reached by memory, and
/// opens for business.
pub(crate) fn assemble(place: Place, ends: Vec<End>) -> Result<Arc<ShmTransport>, JoinError> {
    let controls = exchange(place, &ends).map_err(|error| cause(error, &ends))?;
    let desk = Arc::new(Desk::new()?);
    let host = Arc::new(Host::new(place.host, place.threads, controls, Some(desk.clone())));
    let links = ends.into_iter().map(|end| Link::new(end.host, end.peer, end.socket, end.pidfd));
    let service = Service::new(host.clone(), desk, links.collect());
    let thread = thread::Builder::new().name("gossamer-shm".into()).spawn(|| service.run())?;
    Ok(Arc::new(ShmTransport::new(host, Some(thread))))
}

/// Sends the control memory of this host over `ends`; the control memories of all hosts at the
/// other ends and of this one.
fn exchange(place: Place, ends: &[End]) -> Result<Vec<Option<Control>>, JoinError> {
    let Place { host: local, hosts, threads, has_alarms } = place;
    let bytes = Layout::new(hosts, threads).bytes();
    let (memory, file) = mapping::shared(bytes, true)?;
    let Alarms { waiting, ringing } = Alarms::new(if has_alarms { threads } else { 0 })?;
    for end in ends {
        end.send(Message::Greeting { host: local }, std::slice::from_ref(&file))?;
        for some in ringing.chunks(MOST_FILES) {
            end.send(Message::Alarms { count: some.len() as u32 }, some)?;
        }
    }
    let waking = |ringing: Vec<OwnedFd>, waiting: Vec<OwnedFd>| match has_alarms {
        true => Waking::Alarms { ringing: ringing.into(), waiting: waiting.into() },
        false => Waking::SHARED,
    };
    let mut controls: Vec<Option<Control>> = (0..hosts).map(|_| None).collect();
    controls[local.0 as usize] = Some(Control::new(memory, waking(ringing, waiting)));
    for end in ends {
        let file = match end.receive()? {
            (Message::Greeting { host }, mut files) if host == end.host => files.pop(),
            (other, _) => return Err(end.nonsense(format!("{other:?} for a greeting"))),
        };
        let file = file.ok_or_else(|| end.nonsense("a greeting without memory"))?;
        let memory = mapping::of_peer(&file, bytes, true)?;
        let mut alarms = Vec::new();
        while has_alarms && alarms.len() < threads as usize {
            match end.receive()? {
                (Message::Alarms { count }, more) if count > 0 => alarms.extend(more),
                (other, _) => return Err(end.nonsense(format!("{other:?} for alarms"))),
            }
        }
        match controls.get_mut(end.host.0 as usize) {
            Some(seat @ None) => *seat = Some(Control::new(memory, waking(alarms, Vec::new()))),
            _ => return Err(end.nonsense(format!("a seat for {} among {hosts}", end.host))),
        }
    }
    Ok(controls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use primitive::limits::HOSTS;

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
