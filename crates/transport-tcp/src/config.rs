//! [`TcpConfig`]: what a process must know to take its place in a rack.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use primitive::CpuFeatures;
use transport_api::HostId;

use crate::JobId;

/// A hash that tells one build of a program from every other.
pub type Build = [u8; 32];

/// How hosts of a rack prove their identity to each other.
#[derive(Clone)]
pub enum Credentials {
    /// TLS 1.3, both sides with a certificate of the job's own authority. A certificate names the
    /// one host that may show it ([`certificate_name`](crate::certificate_name)), and if it names
    /// extended key usages, then both server and client authentication.
    Tls {
        /// This host's certificate and what leads from it to `ca`, as PEM.
        certificate: String,
        /// The key of the certificate, as PEM.
        key: String,
        /// The certificate of the authority that all certificates of the job come from, as PEM.
        ca: String,
    },
    /// None: any process that can reach this machine's loopback interface can join as a host. Only
    /// for measurements and tests; refused unless every address is a loopback address.
    InsecureLoopback,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.write_str(match self {
            Credentials::Tls { .. } => "Tls { .. }",
            Credentials::InsecureLoopback => "InsecureLoopback",
        })
    }
}

/// What a process must know to take its place in a rack; see
/// [`TcpTransport::join`](crate::TcpTransport::join).
#[derive(Debug)]
pub struct TcpConfig {
    /// The job that all hosts belong to.
    pub job: JobId,
    /// Which host this process is.
    pub host: HostId,
    /// Where every host listens, by number, this host included.
    pub addresses: Vec<SocketAddr>,
    /// A socket bound to this host's own address. It stops listening, through any descriptor of it,
    /// once the rack is complete.
    pub listener: TcpListener,
    /// Hosts that another transport joins with this one: this transport neither connects to them nor
    /// reaches them. Empty if not set.
    pub neighbours: Vec<HostId>,
    /// Runtime threads of every host.
    pub threads: u32,
    /// Which build this is: hosts of other builds are refused.
    pub build: Build,
    /// The features of this host's processor: hosts whose processors differ are refused. Detected if
    /// not set; [`CpuFeatures::NONE`] for every host lets them differ.
    pub cpu: CpuFeatures,
    /// How hosts prove their identity.
    pub credentials: Credentials,
    /// A peer that cannot be reached (the cable is out, the machine has no power) is reported as lost
    /// within this time. A peer whose machine answers but whose process sends nothing (it is stopped)
    /// is reported once it has been silent for longer than this, within a quarter more.
    /// One second if not set; ten milliseconds at least.
    pub loss_bound: Duration,
    /// How long all hosts may take to find each other, in [`join`](crate::TcpTransport::join).
    pub join_timeout: Duration,
    /// How long an accepted connection may take to identify its dialler. Connections that exceed it
    /// make room for others.
    pub handshake_timeout: Duration,
}

impl TcpConfig {
    /// The settings of `host` among the hosts at `addresses`, with the usual timeout.
    pub fn new(
        (job, build): (JobId, Build),
        host: HostId,
        addresses: Vec<SocketAddr>,
        listener: TcpListener,
        threads: u32,
        credentials: Credentials,
    ) -> Self {
        Self {
            job,
            host,
            addresses,
            listener,
            neighbours: Vec::new(),
            threads,
            build,
            cpu: CpuFeatures::detected(),
            credentials,
            loss_bound: Duration::from_secs(1),
            join_timeout: Duration::from_secs(20),
            handshake_timeout: Duration::from_secs(5),
        }
    }

    /// Whether another transport joins `host` with this one.
    pub(crate) fn is_neighbour(&self, host: HostId) -> bool {
        self.neighbours.contains(&host)
    }
}
