//! [`Topology`]: the machines of the rack and the hosts on each, however the rack was started.

use std::fs;

use transport_api::{HostId, Transport};

/// The machines of a rack, and the hosts on each of them, for programs that place their work by hand.
/// All hosts get the same answer, in a rack of local processes, in a job and under Slurm.
///
/// ```
/// use gossamer::Rack;
///
/// Rack::new().threads(2).run(|| {
///     let topology = gossamer::topology();
///     assert_eq!(topology.job, None); // started by hand, not by a daemon or Slurm
///     assert_eq!(topology.threads, 2);
///     for machine in &topology.machines {
///         println!("{}: {:?}", machine.name, machine.hosts);
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
}

/// A machine of the rack. Its hosts share its memory.
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
    /// The topology of hosts on machines of these names, host by host.
    pub(crate) fn new<'a>(
        job: Option<String>,
        threads: u32,
        names: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut machines: Vec<Machine> = Vec::new();
        for (host, name) in (0..).map(HostId).zip(names) {
            match machines.iter_mut().find(|machine| machine.name == name) {
                Some(machine) => machine.hosts.push(host),
                None => machines.push(Machine { name: name.to_owned(), hosts: vec![host] }),
            }
        }
        Self { job, threads, machines }
    }

    /// That of processes on this machine.
    pub(crate) fn local(transport: &dyn Transport) -> Self {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        let name = if name.is_empty() { "localhost" } else { name };
        let names = (0..transport.hosts()).map(|_| name);
        Self::new(None, transport.threads(), names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_grouped_by_machine() {
        let topology = Topology::new(None, 3, ["b", "a", "b"].into_iter());
        let machines = topology.machines.iter();
        let machines: Vec<_> = machines.map(|m| (m.name.as_str(), m.hosts.clone())).collect();
        assert_eq!(machines, [("b", vec![HostId(0), HostId(2)]), ("a", vec![HostId(1)])]);
    }
}
