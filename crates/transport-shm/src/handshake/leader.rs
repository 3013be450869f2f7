//! How the processes that one of them starts become a rack: [`Leader`] in that one,
//! [`ShmTransport::join_leader`] in the others. Those of `rendezvous.rs` go on here.
//!
//! ```text
//!   leader                                     child (one socket each, made before it is started)
//!   Hello: protocol, build            <--->    Hello: protocol, build
//!   Rank: which host it is             --->
//!   Peer: a socket, for every other    --->
//!   Memory: the host memory           <--->    Memory: the host memory
//!   Alarms                            <--->    Alarms: in a rack with hosts elsewhere
//!                                              and the same between every two children
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;

use transport_api::HostId;

use crate::handshake::assemble::{Rank, assemble};
use crate::handshake::end::{End, cause};
use crate::handshake::error::{JoinError, Party, check_size};
use crate::transport::ShmTransport;
use crate::wire::packet::Packet;
use crate::wire::socket;

/// The leader's side of making a rack of processes: it starts the other hosts and leads them.
///
/// ```no_run
/// use gossamer_transport_shm::{Leader, ShmTransport};
/// use std::{env, process::Command};
/// let identity = [0; 32]; // of the executable, the same in all its processes
/// let transport = if env::var_os("MY_RACK").is_some() {
///     ShmTransport::join_leader(&identity)?
/// } else {
///     let mut leader = Leader::new(2)?;
///     leader.spawn(Command::new(env::current_exe()?).env("MY_RACK", "1"))?;
///     leader.lead(4, &identity)?
/// };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Leader {
    hosts: u32,
    children: Vec<End>,
}

impl Leader {
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
        assemble(Rank { host: HostId(0), hosts, threads, has_alarms: false }, children)
    }
}

impl ShmTransport {
    /// Joins the rack of the process that started this one with [`Leader::spawn`], and leaves
    /// this process with an empty standard input. `identity` as for [`Leader::lead`].
    ///
    /// # Errors
    /// [`JoinError::NoLeader`] if the standard input is no such socket; any other
    /// [`JoinError`].
    pub fn join_leader(identity: &[u8; 32]) -> Result<Arc<ShmTransport>, JoinError> {
        let stdin = io::stdin();
        rustix::net::sockopt::socket_type(&stdin)
            .map_err(|error| JoinError::NoLeader(error.into()))?;
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
        let (host, hosts, threads) = leader.expect_rank()?;
        check_size(hosts, threads)?;
        if !(1..hosts).contains(&host.0) {
            return Err(leader.violation(format!("the rank of {host} in a rack of {hosts} hosts")));
        }
        let ends = leader.expect_peers(hosts as usize - 2)?;
        assemble(Rank { host, hosts, threads, has_alarms: false }, ends)
    }
}

impl End {
    /// The rank that the leader assigns: which host, of how many, with how many threads.
    pub(crate) fn expect_rank(&self) -> Result<(HostId, u32, u32), JoinError> {
        match self.receive()?.0 {
            Packet::Rank { host, hosts, threads } => Ok((host, hosts, threads)),
            other => Err(self.violation(format!("{other:?} instead of a rank"))),
        }
    }

    /// The ends to `others` further hosts, which the leader hands over; then this one, to the leader
    /// itself.
    pub(crate) fn expect_peers(self, others: usize) -> Result<Vec<End>, JoinError> {
        let mut ends = Vec::new();
        while ends.len() < others {
            match self.receive()? {
                (Packet::Peer { host, pid }, mut files) => {
                    // The message comes with exactly one.
                    let Some(socket) = files.pop() else { continue };
                    ends.push(End::new(Party::Host(host, pid), host, pid, socket)?);
                }
                (other, _) => {
                    return Err(self.violation(format!("{other:?} instead of a socket to a peer")));
                }
            }
        }
        ends.push(self);
        Ok(ends)
    }
}

/// Makes sure that `children` are of this build, assigns their ranks, and connects each with every
/// other.
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
        child.send(&Packet::Rank { host: child.host, hosts, threads }, &[])?;
    }
    for (index, one) in children.iter().enumerate() {
        for other in &children[..index] {
            let (of_one, of_other) = socket::pair()?;
            let (host, pid) = (other.host, other.peer.pid);
            one.send(&Packet::Peer { host, pid }, &[of_one])?;
            let (host, pid) = (one.host, one.peer.pid);
            other.send(&Packet::Peer { host, pid }, &[of_other])?;
        }
    }
    Ok(())
}
