//! Task 0's side of the rendezvous: accepts connections, authenticates each on a thread of its own,
//! and answers when every task has connected.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use std::{io, thread};

use transport_api::HostId;

use crate::description::JobHost;
use crate::slurm::rendezvous::channel::{Channel, receive, send};
use crate::slurm::rendezvous::{
    Answer, Endpoints, HANDSHAKE_TIMEOUT, Introduction, PAUSE, RendezvousError, TIMEOUT, listen,
};
use crate::tls::Tls;

/// Unauthenticated connections that strangers may hold, beside those of the tasks.
pub(super) const MAX_UNAUTHENTICATED: usize = 64;
/// Bytes of the longest name of a node.
const LONGEST_NAME: usize = 255;

/// A task that has connected and authenticated.
struct Member {
    introduction: Introduction,
    channel: Channel,
}

/// Accepts all other tasks, as task 0, and sends them the addresses of all.
pub(crate) fn lead(
    tls: &Tls,
    endpoints: &Endpoints,
    me: &Introduction,
) -> Result<Vec<JobHost>, RendezvousError> {
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    let bound = endpoints.ports.iter().find_map(|port| listen(*port).map_err(|e| last = e).ok());
    let failed = || RendezvousError::Listen { ports: endpoints.ports.clone(), error: last };
    let listener = bound.ok_or_else(failed)?;
    listener.set_nonblocking(true)?;
    let mut members = accept_tasks(tls, &listener, me)?;
    let hosts = addresses(me, &members)?;
    for member in &mut members {
        member.channel.deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        // One that has ended meanwhile is missed when the hosts connect.
        let _ = send(&mut member.channel, &Answer::Hosts(hosts.clone()));
    }
    Ok(hosts)
}

/// Whether a connection was accepted (or refused) or closed: the first to claim it decides. An
/// accepted task waits for its answer on the same connection, so that must not be closed any more.
#[derive(Clone, Default)]
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Claims the connection; false if it was claimed before.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// A connection that has not authenticated yet, and the thread that reads from it.
pub(super) struct PendingConnection {
    pub(super) socket: TcpStream,
    pub(super) claim: Claim,
    pub(super) thread: thread::JoinHandle<()>,
}

impl PendingConnection {
    /// Starts a thread that authenticates `socket` and sends the outcome to `outcomes`.
    fn start(
        socket: TcpStream,
        tls: &Tls,
        me: &Introduction,
        outcomes: &mpsc::Sender<Result<Member, String>>,
    ) -> io::Result<PendingConnection> {
        let (tls, outcomes, other) = (tls.clone(), outcomes.clone(), socket.try_clone()?);
        let (rank, tasks, claim) = (me.rank, me.tasks, Claim::default());
        let theirs = claim.clone();
        let run = move || {
            let outcome = authenticate(&tls, socket, rank, tasks);
            if theirs.take() {
                let _ = outcomes.send(outcome);
            }
        };
        let thread = thread::Builder::new().spawn(run)?;
        Ok(PendingConnection { socket: other, claim, thread })
    }

    /// Closes the connection unless it was accepted meanwhile, which also ends its thread.
    pub(super) fn close(&self) {
        if self.claim.take() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Waits for all other tasks; returns them in the order of their ranks.
fn accept_tasks(
    tls: &Tls,
    listener: &TcpListener,
    me: &Introduction,
) -> Result<Vec<Member>, RendezvousError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut members: Vec<Option<Member>> = (1..me.tasks).map(|_| None).collect();
    let mut pending: VecDeque<PendingConnection> = VecDeque::new();
    let (sender, outcomes) = mpsc::channel::<Result<Member, String>>();
    let mut last = None;
    let outcome = loop {
        while let Ok((socket, from)) = listener.accept() {
            pending.retain(|other| !other.thread.is_finished());
            if pending.len() >= MAX_UNAUTHENTICATED + members.len()
                && let Some(oldest) = pending.pop_front()
            {
                oldest.close();
            }
            match PendingConnection::start(socket, tls, me, &sender) {
                Ok(other) => pending.push_back(other),
                Err(error) => {
                    last = Some(format!("from {from}: {error}"));
                    // The process is short of a resource, which strangers may hold.
                    pending.drain(..).for_each(|other| other.close());
                }
            }
        }
        while let Ok(outcome) = outcomes.try_recv() {
            match outcome {
                // A task that was accepted before has lost its connection and come back.
                Ok(member) => {
                    let at = member.introduction.rank as usize - 1;
                    members[at] = Some(member);
                }
                Err(why) => last = Some(why),
            }
        }
        if members.iter().all(Option::is_some) {
            break Ok(());
        }
        if Instant::now() >= deadline {
            let missing = (1..).zip(&members).filter(|(_, member)| member.is_none());
            let missing = missing.map(|(rank, _)| rank).collect();
            break Err(RendezvousError::Missing { missing, last });
        }
        thread::sleep(PAUSE);
    };
    pending.iter().for_each(PendingConnection::close);
    outcome.map(|()| members.into_iter().flatten().collect())
}

/// Authenticates the other side of `socket` and reads its introduction.
fn authenticate(tls: &Tls, socket: TcpStream, rank: u32, tasks: u32) -> Result<Member, String> {
    let from = socket.peer_addr().map_err(|error| error.to_string())?;
    let failed = |error: io::Error| format!("from {from}: {error}");
    socket.set_nonblocking(false).map_err(failed)?;
    let connection = tls.listen().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut channel = Channel::new(connection, socket, deadline).map_err(failed)?;
    let introduction: Introduction = receive(&mut channel).map_err(failed)?;
    let host = HostId(introduction.rank);
    let objection = if introduction.rank == rank || introduction.rank >= tasks {
        Some(format!("no other task has rank {} of {tasks}", introduction.rank))
    } else if introduction.tasks != tasks {
        Some(format!("it expects {} tasks, task {rank} expects {tasks}", introduction.tasks))
    } else if introduction.node.len() > LONGEST_NAME {
        Some(format!("the name of its node is longer than {LONGEST_NAME} bytes"))
    } else {
        tls.objection(channel.connection(), host)
    };
    match objection {
        None => Ok(Member { introduction, channel }),
        Some(reason) => {
            // It may have disconnected already.
            let _ = send(&mut channel, &Answer::Refused(reason.clone()));
            Err(format!("from {from}: {reason}"))
        }
    }
}

/// Where all tasks listen. Task 0 sees the others' addresses as they are seen from its machine:
/// one on the same machine may have come over the loopback interface, by which no other
/// machine reaches it, so it gets the address by which the others reach task 0.
fn addresses(me: &Introduction, members: &[Member]) -> io::Result<Vec<JobHost>> {
    let addresses = members.iter().map(|member| {
        let socket = member.channel.socket();
        let ends = (socket.local_addr()?, socket.peer_addr()?);
        Ok((ends.0.ip().to_canonical(), ends.1.ip().to_canonical()))
    });
    let addresses = addresses.collect::<io::Result<Vec<(IpAddr, IpAddr)>>>()?;
    let seen = addresses.iter().map(|(ours, _)| *ours);
    let ours = seen.clone().find(|address| !address.is_loopback()).or(seen.clone().next());
    let ours = ours.unwrap_or(Ipv4Addr::LOCALHOST.into());
    let all = members.iter().map(|member| &member.introduction);
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
