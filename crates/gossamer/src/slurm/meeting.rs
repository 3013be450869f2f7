//! How the tasks of a step find each other: all come to task 0, say where they listen, and are told
//! where everybody does. Each proves by its certificate which task it is before anything that it
//! says is looked at, and so does task 0. What a stranger can occupy is bounded: so many connections
//! may be undecided at a time, each for so long, and the oldest makes room for the next.

pub(super) mod channel;

use crate::job::JobHost;
use channel::{Channel, receive, send};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    io,
    net::{
        IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use thiserror::Error;
use transport_api::HostId;
use transport_tcp::Tls;

/// How long the tasks of a step may take to be started and to find each other.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one connection may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two looks at what has come, and two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// Undecided connections that strangers may have, beside those of the tasks.
const STRANGERS: usize = 64;
/// Bytes of the longest name of a node.
const LONGEST_NAME: usize = 255;

/// Why the tasks of a step did not meet.
#[derive(Debug, Error)]
pub enum MeetingError {
    /// Task 0 cannot listen.
    #[error(
        "task 0 cannot listen at any of the ports {ports:?} ({error}); say another place with \
         `export {}=HOST:PORT` before `srun`",
        super::RENDEZVOUS
    )]
    Listen {
        /// The ports.
        ports: Vec<u16>,
        /// What the system says of the last.
        error: io::Error,
    },
    /// Task 0 was not found.
    #[error(
        "after {PATIENCE:?} task {rank} has not found task 0 at {}, ports {ports:?}{}; if it is \
         elsewhere, say where with `export {}=HOST:PORT` before `srun`",
        hosts.join(" or "), because(last), super::RENDEZVOUS
    )]
    NotFound {
        /// Who was looking.
        rank: u32,
        /// Where it may be.
        hosts: Vec<String>,
        /// At which ports.
        ports: Vec<u16>,
        /// What came of the last attempt.
        last: Option<String>,
    },
    /// Some tasks did not come.
    #[error("after {PATIENCE:?} these tasks have not come to task 0: {missing:?}{}", because(last))]
    Missing {
        /// The tasks.
        missing: Vec<u32>,
        /// Why the last that was turned away was.
        last: Option<String>,
    },
    /// Task 0 does not take this task.
    #[error("task 0 refuses task {rank}: {reason}")]
    Refused {
        /// The task.
        rank: u32,
        /// The reason.
        reason: String,
    },
    /// The system refused something.
    #[error("the system refused what meeting needs: {0}")]
    System(#[from] io::Error),
}

fn because(last: &Option<String>) -> String {
    last.as_ref().map_or(String::new(), |last| format!("; the last that failed: {last}"))
}

/// Where to meet: at the first of these that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) hosts: Vec<String>,
    pub(crate) ports: Vec<u16>,
}

/// What a task says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) rank: u32,
    /// How many tasks there are, as it was told.
    pub(crate) tasks: u32,
    /// The name of its node.
    pub(crate) node: String,
    /// How many threads it would like to have.
    pub(crate) threads: u32,
    /// Where it listens.
    pub(crate) port: u16,
}

/// What task 0 says to the others.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Hosts(Vec<JobHost>),
    Refused(String),
}

/// Listens at every address of this machine.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    // Without IPv6 there are only the others.
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// Meets the other tasks; returns where all of them listen, and with how many threads.
pub(crate) fn meet(
    tls: &Tls,
    place: &Place,
    me: &Introduction,
) -> Result<Vec<JobHost>, MeetingError> {
    if me.rank == 0 { lead(tls, place, me) } else { follow(tls, place, me) }
}

/// A task that has come to task 0.
struct Guest {
    introduction: Introduction,
    channel: Channel,
}

fn lead(tls: &Tls, place: &Place, me: &Introduction) -> Result<Vec<JobHost>, MeetingError> {
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    let bound = place.ports.iter().find_map(|port| listen(*port).map_err(|e| last = e).ok());
    let failed = || MeetingError::Listen { ports: place.ports.clone(), error: last };
    let listener = bound.ok_or_else(failed)?;
    listener.set_nonblocking(true)?;
    let mut guests = gather(tls, &listener, me)?;
    let hosts = seat(me, &guests)?;
    for guest in &mut guests {
        guest.channel.until = Instant::now() + HANDSHAKE;
        // One that is gone meanwhile will be missed when the hosts connect.
        let _ = send(&mut guest.channel, &Answer::Hosts(hosts.clone()));
    }
    Ok(hosts)
}

/// Whether somebody who has connected was heard out or cut off: whichever comes first. A task that
/// was heard out waits for its answer, on the same connection.
#[derive(Clone, Default)]
struct Fate(Arc<AtomicBool>);

impl Fate {
    /// Decides it; false if it was decided before.
    fn decide(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// A connection that nobody has decided on, and the thread that listens to it.
struct Undecided {
    socket: TcpStream,
    fate: Fate,
    greeting: thread::JoinHandle<()>,
}

impl Undecided {
    /// Hears who has connected, on a thread of its own.
    fn listen_to(
        socket: TcpStream,
        tls: &Tls,
        me: &Introduction,
        decided: &mpsc::Sender<Result<Guest, String>>,
    ) -> io::Result<Undecided> {
        let (tls, decided, other) = (tls.clone(), decided.clone(), socket.try_clone()?);
        let (rank, tasks, fate) = (me.rank, me.tasks, Fate::default());
        let theirs = fate.clone();
        let greet = move || {
            let decision = greet(&tls, socket, rank, tasks);
            if theirs.decide() {
                let _ = decided.send(decision);
            }
        };
        let greeting = thread::Builder::new().spawn(greet)?;
        Ok(Undecided { socket: other, fate, greeting })
    }

    /// Cuts it off, unless it was heard out meanwhile. Its thread ends with it.
    fn cut(&self) {
        if self.fate.decide() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Waits for all other tasks; they are in the order of their numbers.
fn gather(
    tls: &Tls,
    listener: &TcpListener,
    me: &Introduction,
) -> Result<Vec<Guest>, MeetingError> {
    let deadline = Instant::now() + PATIENCE;
    let mut guests: Vec<Option<Guest>> = (1..me.tasks).map(|_| None).collect();
    let mut undecided: VecDeque<Undecided> = VecDeque::new();
    let (decided, decisions) = mpsc::channel::<Result<Guest, String>>();
    let mut last = None;
    let outcome = loop {
        while let Ok((socket, from)) = listener.accept() {
            undecided.retain(|other| !other.greeting.is_finished());
            if undecided.len() >= STRANGERS + guests.len()
                && let Some(oldest) = undecided.pop_front()
            {
                oldest.cut();
            }
            match Undecided::listen_to(socket, tls, me, &decided) {
                Ok(other) => undecided.push_back(other),
                Err(error) => {
                    last = Some(format!("from {from}: {error}"));
                    // The process is short of something, which strangers may be sitting on.
                    undecided.drain(..).for_each(|other| other.cut());
                }
            }
        }
        while let Ok(decision) = decisions.try_recv() {
            match decision {
                // A task that has come before was cut off, and has come again.
                Ok(guest) => {
                    let at = guest.introduction.rank as usize - 1;
                    guests[at] = Some(guest);
                }
                Err(why) => last = Some(why),
            }
        }
        if guests.iter().all(Option::is_some) {
            break Ok(());
        }
        if Instant::now() >= deadline {
            let missing = (1..).zip(&guests).filter(|(_, guest)| guest.is_none());
            let missing = missing.map(|(rank, _)| rank).collect();
            break Err(MeetingError::Missing { missing, last });
        }
        thread::sleep(PAUSE);
    };
    undecided.iter().for_each(Undecided::cut);
    outcome.map(|()| guests.into_iter().flatten().collect())
}

/// Hears who has connected.
fn greet(tls: &Tls, socket: TcpStream, rank: u32, tasks: u32) -> Result<Guest, String> {
    let from = socket.peer_addr().map_err(|error| error.to_string())?;
    let failed = |error: io::Error| format!("from {from}: {error}");
    socket.set_nonblocking(false).map_err(failed)?;
    let connection = tls.listen().map_err(|error| error.to_string())?;
    let until = Instant::now() + HANDSHAKE;
    let mut channel = Channel::new(connection, socket, until).map_err(failed)?;
    let introduction: Introduction = receive(&mut channel).map_err(failed)?;
    let host = HostId(introduction.rank);
    let objection = if introduction.rank == rank || introduction.rank >= tasks {
        Some(format!("there is no other task {} of {tasks}", introduction.rank))
    } else if introduction.tasks != tasks {
        Some(format!("it knows of {} tasks, and task {rank} of {tasks}", introduction.tasks))
    } else if introduction.node.len() > LONGEST_NAME {
        Some("the name of its node is too long".to_owned())
    } else {
        tls.objection(channel.connection(), host)
    };
    match objection {
        None => Ok(Guest { introduction, channel }),
        Some(reason) => {
            // It may be gone already.
            let _ = send(&mut channel, &Answer::Refused(reason.clone()));
            Err(format!("from {from}: {reason}"))
        }
    }
}

/// Where everybody listens. Task 0 sees the others' addresses as they are seen from its machine:
/// one on the same machine may have come over the loopback interface, by which nobody else reaches
/// it, and has the address by which the others reach task 0.
fn seat(me: &Introduction, guests: &[Guest]) -> io::Result<Vec<JobHost>> {
    let addresses = guests.iter().map(|guest| {
        let socket = guest.channel.socket();
        let ends = (socket.local_addr()?, socket.peer_addr()?);
        Ok((ends.0.ip().to_canonical(), ends.1.ip().to_canonical()))
    });
    let addresses = addresses.collect::<io::Result<Vec<(IpAddr, IpAddr)>>>()?;
    let seen = addresses.iter().map(|(ours, _)| *ours);
    let ours = seen.clone().find(|address| !address.is_loopback()).or(seen.clone().next());
    let ours = ours.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let all = guests.iter().map(|guest| &guest.introduction);
    let threads = all.clone().chain([me]).map(|task| task.threads).min().unwrap_or(1).max(1);
    let host = |task: &Introduction, address| JobHost {
        name: task.node.clone(),
        address: SocketAddr::new(address, task.port),
        threads,
    };
    let theirs = addresses.iter().map(|(_, peer)| if peer.is_loopback() { ours } else { *peer });
    Ok([host(me, ours)]
        .into_iter()
        .chain(all.zip(theirs).map(|(task, at)| host(task, at)))
        .collect())
}

fn follow(tls: &Tls, place: &Place, me: &Introduction) -> Result<Vec<JobHost>, MeetingError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for (host, port) in
            place.hosts.iter().flat_map(|h| place.ports.iter().map(move |p| (h, *p)))
        {
            let failed = match ask(tls, (host, port), me, deadline) {
                Ok(Answer::Hosts(hosts)) if hosts.len() == me.tasks as usize => return Ok(hosts),
                Ok(Answer::Hosts(hosts)) => {
                    let reason = format!("it knows of {} tasks, not {}", hosts.len(), me.tasks);
                    return Err(MeetingError::Refused { rank: me.rank, reason });
                }
                Ok(Answer::Refused(reason)) => {
                    return Err(MeetingError::Refused { rank: me.rank, reason });
                }
                Err(error) => format!("{host}:{port}: {error}"),
            };
            if Instant::now() >= deadline {
                let Place { hosts, ports } = place.clone();
                let (rank, last) = (me.rank, Some(failed));
                return Err(MeetingError::NotFound { rank, hosts, ports, last });
            }
        }
        thread::sleep(PAUSE);
    }
}

/// Asks who listens at one place where all hosts are. Somebody else may listen there, who has no
/// certificate, and is told nothing.
fn ask(tls: &Tls, place: (&str, u16), me: &Introduction, deadline: Instant) -> io::Result<Answer> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in place.to_socket_addrs()? {
        let socket = match TcpStream::connect_timeout(&address, HANDSHAKE) {
            Ok(socket) => socket,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let connection = tls.dial(HostId(0)).map_err(io::Error::other)?;
        let until = Instant::now() + HANDSHAKE;
        let mut channel = Channel::new(connection, socket, until)?;
        send(&mut channel, me)?;
        // Task 0 answers when all have come.
        channel.until = deadline.max(until);
        return receive(&mut channel);
    }
    Err(last)
}

#[cfg(test)]
mod tests;
