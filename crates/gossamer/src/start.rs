//! How the processes of a rack are started and find each other:
//! - a daemon has started this one as a host of a job, with the addresses of the others;
//! - Slurm has started it as a task of a step, and the tasks find each other;
//! - or the program starts itself again for each further host, on this machine.

use std::sync::Arc;
#[cfg(feature = "tcp")]
use std::{net::TcpListener, os::unix::net::UnixDatagram, time::Duration};

#[cfg(all(feature = "tcp", feature = "shm", not(feature = "rdma")))]
use gossamer_job::JobHost;
#[cfg(feature = "tcp")]
use gossamer_job::{JobDescription, JobError, LISTEN_FD, slurm, statistics_socket};
#[cfg(feature = "tcp")]
use primitive::CpuFeatures;
#[cfg(feature = "tcp")]
use transport_api::HostId;
use transport_api::Transport;
#[cfg(feature = "tcp")]
use transport_tcp::{TcpConfig, TcpTransport};

use crate::children::Children;
use crate::topology::Topology;
#[cfg(feature = "tcp")]
use crate::topology::{TransportKind, Transports};
use crate::{Rack, RackError};

/// Set in the environment of a program that was started for a further host: the name of the thread that
/// runs the rack. It is also that of the thread that joins it, where several threads start racks: the tests
/// of a program.
#[cfg(feature = "shm")]
const IS_HOST: &str = "GOSSAMER_HOST_PROCESS";

/// Names this host's RDMA device, if its address in the job does not determine it.
#[cfg(feature = "rdma")]
const RDMA_DEVICE: &str = "GOSSAMER_RDMA_DEVICE";

/// A place among the hosts of a rack.
pub(crate) struct Joined {
    pub(crate) transport: Arc<dyn Transport>,
    /// The machines of the hosts; `None` if all are on this one.
    pub(crate) topology: Option<Topology>,
    /// Where to report what the threads of this process do.
    #[cfg(feature = "tcp")]
    pub(crate) reports: Option<UnixDatagram>,
    /// Where packages of jams come from.
    #[cfg(all(feature = "jam", feature = "tcp"))]
    pub(crate) packages: Option<crate::packages::Prepared>,
}

impl From<Arc<dyn Transport>> for Joined {
    fn from(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            topology: None,
            #[cfg(feature = "tcp")]
            reports: None,
            #[cfg(all(feature = "jam", feature = "tcp"))]
            packages: None,
        }
    }
}

/// Connects this process with the other hosts. A job replaces the settings that it
/// determines; otherwise the processes of the other hosts are started, into `children`.
pub(crate) fn assemble(rack: &mut Rack, children: &mut Children) -> Result<Joined, RackError> {
    #[cfg(feature = "tcp")]
    if let Some(job) = JobDescription::from_environment()? {
        only_once(job.hosts.len() as u32)?;
        let reports = statistics_socket()?;
        let no_listener = || JobError::Descriptor { variable: LISTEN_FD, value: String::new() };
        let listener = JobDescription::listener_from_environment()?.ok_or_else(no_listener)?;
        // Before any other host can send a jam.
        #[cfg(feature = "jam")]
        let packages = crate::packages::prepare(&job)?;
        let topology = Some(topology_of(&job));
        return Ok(Joined {
            topology,
            transport: join(rack, job, listener)?,
            reports,
            #[cfg(feature = "jam")]
            packages,
        });
    }
    #[cfg(feature = "tcp")]
    if let Some(step) = slurm::Step::from_environment().map_err(slurm::SlurmError::from)? {
        only_once(step.tasks())?;
        let (job, listener) = slurm::join(&step, rack.requested_threads())?;
        let topology = Some(topology_of(&job));
        return Ok(Joined { topology, ..join(rack, job, listener)?.into() });
    }
    rack.check(rack.hosts, rack.threads)?;
    Ok(start(rack, children)?.into())
}

/// The machines of a job, whose hosts all have equally many threads.
#[cfg(feature = "tcp")]
fn topology_of(job: &JobDescription) -> Topology {
    let threads = job.hosts[job.host as usize].threads;
    let names = job.hosts.iter().map(|host| host.name.as_str());
    Topology::new(Some(job.job.to_string()), threads, names, JOB_TRANSPORTS)
}

/// The transports of a job, as [`join`] picks them.
#[cfg(feature = "tcp")]
const JOB_TRANSPORTS: Transports = if cfg!(feature = "rdma") {
    Transports { within_machine: TransportKind::Rdma, between_machines: TransportKind::Rdma }
} else if cfg!(feature = "shm") {
    Transports { within_machine: TransportKind::SharedMemory, between_machines: TransportKind::Tcp }
} else {
    Transports { within_machine: TransportKind::Tcp, between_machines: TransportKind::Tcp }
};

/// Joins this process's job: over shared memory to the hosts of this machine and over TCP to all
/// others; or, if the program was built for RDMA, over RDMA to all of them.
#[cfg(feature = "tcp")]
fn join(
    rack: &mut Rack,
    job: JobDescription,
    listener: TcpListener,
) -> Result<Arc<dyn Transport>, RackError> {
    use transport_tcp::Credentials;

    let threads = job.hosts[job.host as usize].threads;
    if let Some(other) = job.hosts.iter().find(|host| host.threads != threads) {
        return Err(RackError::Settings(format!(
            "host {} has {} threads and this host {threads}: give all hosts equally many",
            other.name, other.threads
        )));
    }
    rack.apply_job(&job);
    rack.check(rack.hosts, rack.threads)?;
    let (host, build) = (HostId(job.host), *trust_core::build_identity());
    let addresses = job.hosts.iter().map(|host| host.address).collect();
    let credentials = Credentials::Tls { certificate: job.certificate, key: job.key.0, ca: job.ca };
    let config = TcpConfig::new((job.job, build), host, addresses, listener, threads, credentials);
    let loss_bound = Duration::from_millis(job.loss_bound_ms);
    let mut config = TcpConfig { loss_bound, ..config };
    if rack.mixed_processors {
        config.cpu = CpuFeatures::NONE;
    }
    #[cfg(all(feature = "shm", not(feature = "rdma")))]
    if let Some(members) = neighbours(&job.hosts, host) {
        use transport_shm::{Neighbours, ShmTransport};

        use crate::mixed::Mixed;

        let (secret, hosts) = (job.secret.of_neighbours(members[0]), rack.hosts);
        let near = Neighbours { host, members: members.clone(), hosts, threads, secret, build };
        let (near, alarms) = ShmTransport::join_neighbours(&near)?;
        if members.len() == hosts as usize {
            return Ok(near);
        }
        let far = TcpTransport::join(TcpConfig { neighbours: members, ..config })?;
        return Ok(Mixed::new(near, alarms, far));
    }
    connect(rack, config)
}

/// The hosts on the machine of `host`, if there is more than one.
#[cfg(all(feature = "tcp", feature = "shm", not(feature = "rdma")))]
fn neighbours(hosts: &[JobHost], host: HostId) -> Option<Vec<HostId>> {
    let here = &hosts[host.0 as usize].name;
    let all = (0..).map(HostId).zip(hosts);
    let members: Vec<_> = all.filter(|(_, h)| h.name == *here).map(|(number, _)| number).collect();
    (members.len() > 1).then_some(members)
}

/// Connects the hosts of a job over TCP.
#[cfg(all(feature = "tcp", not(feature = "rdma")))]
fn connect(_: &Rack, config: TcpConfig) -> Result<Arc<dyn Transport>, RackError> {
    Ok(TcpTransport::join(config)?)
}

/// Connects the hosts of a job over TCP, with one thread more for RDMA, and over RDMA on top of it.
#[cfg(feature = "rdma")]
fn connect(rack: &Rack, mut config: TcpConfig) -> Result<Arc<dyn Transport>, RackError> {
    use transport_rdma::{RdmaConfig, RdmaTransport};

    let address = config.addresses[config.host.0 as usize].ip();
    config.threads += 1;
    let mut rdma = RdmaConfig { host_address: Some(address), ..rack.rdma.clone() };
    if let Ok(device) = std::env::var(RDMA_DEVICE) {
        rdma.device = Some(device);
    }
    let carrier = TcpTransport::join(config)?;
    let transport = RdmaTransport::over(carrier, rdma)?;
    if rack.hosts > 1 {
        crate::unencrypted::warn();
    }
    Ok(transport)
}

/// Refuses to be a host of a second rack: the first has ended on all `hosts`.
#[cfg(feature = "tcp")]
fn only_once(hosts: u32) -> Result<(), RackError> {
    use std::sync::atomic::{AtomicBool, Ordering};

    static HAS_JOINED: AtomicBool = AtomicBool::new(false);
    if HAS_JOINED.swap(true, Ordering::Relaxed) && hosts > 1 {
        let reason = "this process already ran the rack of its job: a process of a job can run only \
                      its first rack";
        return Err(RackError::Settings(reason.into()));
    }
    Ok(())
}

/// Starts the program again for each further host; or this is one of those.
#[cfg(feature = "shm")]
fn start(rack: &Rack, children: &mut Children) -> Result<Arc<dyn Transport>, RackError> {
    use std::env;
    use std::process::Command;

    use transport_shm::{Leader, ShmTransport};

    let current = std::thread::current();
    let current = current.name().unwrap_or_default();
    match env::var_os(IS_HOST) {
        Some(runs_rack) if runs_rack == current => {
            crate::children::end_with_parent().map_err(RackError::Spawn)?;
            return Ok(ShmTransport::join_leader(trust_core::build_identity())?);
        }
        Some(runs_rack) if rack.hosts > 1 => {
            return Err(RackError::Settings(other_rack(&runs_rack.to_string_lossy(), current)));
        }
        _ => {}
    }
    if rack.hosts == 1 {
        return Ok(ShmTransport::threads(rack.threads)?);
    }
    let mut leader = Leader::new(rack.hosts)?;
    let program = env::current_exe().map_err(RackError::Spawn)?;
    for _ in 1..rack.hosts {
        let mut command = Command::new(&program);
        command.args(env::args_os().skip(1)).env(IS_HOST, current);
        crate::children::make_part_of_this(&mut command);
        children.0.push(leader.spawn(&mut command)?);
    }
    Ok(leader.lead(rack.threads, trust_core::build_identity())?)
}

/// Why a process that was started for the rack of one thread runs none of several hosts for another.
#[cfg(feature = "shm")]
fn other_rack(runs_rack: &str, current: &str) -> String {
    format!(
        "thread {current:?} cannot run a rack of its own: this process is a host of the rack of thread \
         {runs_rack:?}; if these are tests, give racks of several hosts a test program with \
         `harness = false`, or use one host with several threads"
    )
}

#[cfg(not(feature = "shm"))]
fn start(_: &Rack, _: &mut Children) -> Result<Arc<dyn Transport>, RackError> {
    let reason = "gossamer was built without the feature `shm`, which racks on one machine need: \
                  enable it, or start this program with `gossamer run`";
    Err(RackError::Settings(reason.into()))
}
