//! What the tests of this crate share: racks over loopback, with and without TLS.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gossamer_transport_tcp::{
    Build, Credentials, JobId, JoinError, TcpConfig, TcpTransport, certificate_name,
};
use primitive::CpuFeatures;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};

pub(crate) const JOB: JobId = JobId(0x1234);
pub(crate) const BUILD: Build = [7; 32];

/// The first words of host 1, of two with one thread each, to host 0: byte by byte, as a dialler of
/// this version writes them.
pub(crate) fn hello(job: u128, seat: u32) -> Vec<u8> {
    let mut bytes = b"gossamer".to_vec();
    for number in [4, 1, 0, seat, 2, 1] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(job.to_le_bytes());
    bytes.extend(BUILD);
    bytes.extend(CpuFeatures::detected().bits().to_le_bytes());
    bytes
}

/// The authority of a job.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Credentials of a host, with what `change` does to its certificate.
    pub(crate) fn issue(
        &self,
        name: String,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Credentials {
        let mut params = CertificateParams::new(vec![name]).expect("parameters");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Credentials::Tls { certificate, key: key.serialize_pem(), ca: self.pem.clone() }
    }

    /// The credentials that `host` should have.
    pub(crate) fn of(&self, host: u32) -> Credentials {
        self.issue(certificate_name(JOB, HostId(host)), |_| ())
    }
}

/// Listeners for `hosts` hosts, and their addresses.
pub(crate) fn listeners(hosts: u32) -> (Vec<TcpListener>, Vec<SocketAddr>) {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a listener");
    let listeners: Vec<_> = (0..hosts).map(listen).collect();
    let addresses = listeners.iter().map(|l| l.local_addr().expect("an address")).collect();
    (listeners, addresses)
}

pub(crate) type Joined = Result<Arc<TcpTransport>, JoinError>;

/// Joins all of `configs` at once.
pub(crate) fn join_all(configs: Vec<TcpConfig>) -> Vec<Joined> {
    let joins = configs.into_iter().map(|config| thread::spawn(|| TcpTransport::join(config)));
    let joins: Vec<_> = joins.collect();
    joins.into_iter().map(|join| join.join().expect("no panic")).collect()
}

/// The settings of a rack whose hosts have the credentials that `credentials` gives them.
pub(crate) fn configs(
    hosts: u32,
    threads: u32,
    credentials: impl Fn(u32) -> Credentials,
) -> Vec<TcpConfig> {
    let (listeners, addresses) = listeners(hosts);
    let config = |(host, listener)| {
        let addresses = addresses.clone();
        let credentials = credentials(host);
        let names = (JOB, BUILD);
        let config = TcpConfig::new(names, HostId(host), addresses, listener, threads, credentials);
        // The machine that runs the tests may be busy with much else.
        TcpConfig { loss_bound: Duration::from_secs(10), ..config }
    };
    (0..).zip(listeners).map(config).collect()
}

/// A rack, for the conformance suite.
pub(crate) fn rack(configs: Vec<TcpConfig>) -> Rack {
    let rack: Vec<_> =
        join_all(configs).into_iter().map(|joined| joined.expect("a rack")).collect();
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}
