//! [`Topology`]: the machines of the rack, the hosts on each, and the transports between them, however
//! the rack was started.

use std::{fmt, fs};

use transport_api::{HostId, Transport};

/// The machines of a rack, the hosts on each of them, and the transports that connect the hosts, for
/// programs that place their work by hand. All hosts get the same answer, in a rack of local processes, in a
/// job and under Slurm.
///
/// ```
/// use gossamer::{Rack, local_host};
///
/// Rack::new().threads(2).run(|| {
///     let topology = gossamer::topology();
///     assert_eq!(topology.job, None); // started by hand, not by a daemon or Slurm
///     assert_eq!(topology.threads, 2);
///     for machine in &topology.machines {
///         println!("{}: {:?}", machine.name, machine.hosts);
///     }
///     for host in gossamer::hosts() {
///         if let Some(transport) = topology.transport(local_host(), host) {
///             println!("{host} over {transport}"); // host 0 over shared memory
///         }
///     }
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The number of the job, as `gossamer ps` shows it, or of the Slurm step; `None` if the program
    /// was started by hand.
    pub job: Option<String>,
    /// Runtime threads of each host.
    pub threads: u32,
    /// The machines, in the order of their first hosts.
    pub machines: Vec<Machine>,
    transports: Transports,
}

/// What carries requests, segments and jams between two hosts of a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TransportKind {
    /// Memory of their machine that both hosts map.
    SharedMemory,
    /// TCP and TLS.
    Tcp,
    /// RDMA, for data; control messages go over TCP and TLS.
    Rdma,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportKind::SharedMemory => "shared memory",
            TransportKind::Tcp => "TCP",
            TransportKind::Rdma => "RDMA",
        })
    }
}

/// The transports of a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transports {
    /// Between hosts of one machine.
    pub(crate) within_machine: TransportKind,
    /// Between machines.
    pub(crate) between_machines: TransportKind,
}

/// A machine of the rack. Its hosts share its memory, unless the program was built for RDMA and runs in a
/// job ([`Topology::transport`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// Its name: in a job that of the host in the rack, under Slurm that of the node, else what the
    /// system calls this machine.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<HostId>,
}

impl Topology {
    /// The transport between two hosts, also for a host and itself; `None` if the rack does not have
    /// them.
    #[must_use]
    pub fn transport(&self, one: HostId, other: HostId) -> Option<TransportKind> {
        let machine = |host| self.machines.iter().position(|machine| machine.hosts.contains(&host));
        let (from, to) = (machine(one)?, machine(other)?);
        Some(if one == other {
            TransportKind::SharedMemory
        } else if from == to {
            self.transports.within_machine
        } else {
            self.transports.between_machines
        })
    }

    /// The topology of hosts on machines of these names, host by host.
    pub(crate) fn new<'a>(
        job: Option<String>,
        threads: u32,
        names: impl Iterator<Item = &'a str>,
        transports: Transports,
    ) -> Self {
        let mut machines: Vec<Machine> = Vec::new();
        for (host, name) in (0..).map(HostId).zip(names) {
            match machines.iter_mut().find(|machine| machine.name == name) {
                Some(machine) => machine.hosts.push(host),
                None => machines.push(Machine { name: name.to_owned(), hosts: vec![host] }),
            }
        }
        Self { job, threads, machines, transports }
    }

    /// That of processes on this machine.
    pub(crate) fn local(transport: &dyn Transport) -> Self {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        let name = if name.is_empty() { "localhost" } else { name };
        let names = (0..transport.hosts()).map(|_| name);
        let memory = TransportKind::SharedMemory;
        let transports = Transports { within_machine: memory, between_machines: memory };
        Self::new(None, transport.threads(), names, transports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_grouped_by_machine() {
        let (within_machine, between_machines) = (TransportKind::SharedMemory, TransportKind::Tcp);
        let transports = Transports { within_machine, between_machines };
        let topology = Topology::new(None, 3, ["b", "a", "b"].into_iter(), transports);
        let machines = topology.machines.iter();
        let machines: Vec<_> = machines.map(|m| (m.name.as_str(), m.hosts.clone())).collect();
        assert_eq!(machines, [("b", vec![HostId(0), HostId(2)]), ("a", vec![HostId(1)])]);
    }

    #[test]
    fn a_host_reaches_itself_by_memory_and_others_by_the_transport_of_their_machine() {
        let from_first = |within_machine, between_machines| {
            let names = ["b", "a", "b"].into_iter();
            let transports = Transports { within_machine, between_machines };
            let topology = Topology::new(None, 1, names, transports);
            [0, 1, 2, 3].map(|host| topology.transport(HostId(0), HostId(host)))
        };
        let [memory, tcp, rdma] =
            [TransportKind::SharedMemory, TransportKind::Tcp, TransportKind::Rdma];
        assert_eq!(from_first(memory, tcp), [Some(memory), Some(tcp), Some(memory), None]);
        assert_eq!(from_first(rdma, rdma), [Some(memory), Some(rdma), Some(rdma), None]);
    }
}
