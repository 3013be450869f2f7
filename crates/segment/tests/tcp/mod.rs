//! What the tests of this crate share: racks over loopback, with and without TLS.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};
use transport_tcp::{Credentials, JobId, TcpConfig, TcpTransport, certificate_name};

const JOB: JobId = JobId(0x5e6);

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

    /// The credentials of `host`.
    pub(crate) fn of(&self, host: u32) -> Credentials {
        let names = vec![certificate_name(JOB, HostId(host))];
        let mut params = CertificateParams::new(names).expect("parameters");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Credentials::Tls { certificate, key: key.serialize_pem(), ca: self.pem.clone() }
    }
}

/// A rack over loopback whose hosts have the credentials that `credentials` gives them.
pub(crate) fn rack(hosts: u32, threads: u32, credentials: impl Fn(u32) -> Credentials) -> Rack {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a listener");
    let listeners: Vec<_> = (0..hosts).map(listen).collect();
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().expect("an address")).collect();
    let join = |(host, listener)| {
        let (names, addresses) = ((JOB, [7; 32]), addresses.clone());
        let config =
            TcpConfig::new(names, HostId(host), addresses, listener, threads, credentials(host));
        // The machine that runs the tests may be busy with much else.
        let config = TcpConfig { loss_bound: Duration::from_secs(10), ..config };
        thread::spawn(|| TcpTransport::join(config).expect("a rack"))
    };
    let joins: Vec<_> = (0..).zip(listeners).map(join).collect();
    let rack: Vec<_> = joins.into_iter().map(|join| join.join().expect("no panic")).collect();
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}
