//! The other tasks' side of the rendezvous: tries every endpoint of task 0 until one answers.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Instant;
use std::{io, thread};

use transport_api::HostId;

use crate::description::JobHost;
use crate::slurm::rendezvous::channel::{Channel, receive, send};
use crate::slurm::rendezvous::{
    Answer, Endpoints, HANDSHAKE_TIMEOUT, Introduction, PAUSE, RendezvousError, TIMEOUT,
};
use crate::tls::Tls;

/// Connects to task 0, as another task, and waits for the addresses of all.
pub(crate) fn follow(
    tls: &Tls,
    endpoints: &Endpoints,
    me: &Introduction,
) -> Result<Vec<JobHost>, RendezvousError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        for (host, port) in
            endpoints.hosts.iter().flat_map(|h| endpoints.ports.iter().map(move |p| (h, *p)))
        {
            let failed = match request_hosts(tls, (host, port), me, deadline) {
                Ok(Answer::Hosts(hosts)) if hosts.len() == me.tasks as usize => return Ok(hosts),
                Ok(Answer::Hosts(hosts)) => {
                    let reason = format!(
                        "it sent the addresses of {} tasks, expected {}",
                        hosts.len(),
                        me.tasks
                    );
                    return Err(RendezvousError::Refused { rank: me.rank, reason });
                }
                Ok(Answer::Refused(reason)) => {
                    return Err(RendezvousError::Refused { rank: me.rank, reason });
                }
                Err(error) => format!("{host}:{port}: {error}"),
            };
            if Instant::now() >= deadline {
                let Endpoints { hosts, ports } = endpoints.clone();
                let (rank, last) = (me.rank, Some(failed));
                return Err(RendezvousError::NotFound { rank, hosts, ports, last });
            }
        }
        thread::sleep(PAUSE);
    }
}

/// Sends the introduction to one endpoint and waits for the answer. A stranger that listens there
/// has no certificate and gets nothing.
pub(super) fn request_hosts(
    tls: &Tls,
    endpoint: (&str, u16),
    me: &Introduction,
    deadline: Instant,
) -> io::Result<Answer> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in endpoint.to_socket_addrs()? {
        let socket = match TcpStream::connect_timeout(&address, HANDSHAKE_TIMEOUT) {
            Ok(socket) => socket,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let connection = tls.dial(HostId(0)).map_err(io::Error::other)?;
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        let mut channel = Channel::new(connection, socket, until)?;
        send(&mut channel, me)?;
        // Task 0 answers when all tasks have connected.
        channel.deadline = deadline.max(until);
        return receive(&mut channel);
    }
    Err(last)
}
