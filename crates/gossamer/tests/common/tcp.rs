//! Hosts of one process that are joined over TCP, with TLS as in a job, or without.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gossamer_job::{JobId, certificate_name};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use transport_api::HostId;
use transport_tcp::{Credentials, TcpConfig, TcpTransport};

const JOB: JobId = JobId(1);

/// Hosts with the credentials that `credentials` gives each of them.
pub(crate) fn hosts(
    hosts: u32,
    threads: u32,
    credentials: impl Fn(HostId) -> Credentials,
) -> Vec<Arc<TcpTransport>> {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a listener");
    let listeners: Vec<_> = (0..hosts).map(listen).collect();
    let addresses: Vec<_> =
        listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
    let join = |(host, listener)| {
        let (host, names) = (HostId(host), (JOB, [7; 32]));
        let credentials = credentials(host);
        let config = TcpConfig::new(names, host, addresses.clone(), listener, threads, credentials);
        // The machine that runs the tests may be busy with much else.
        let (loss_bound, join_timeout) = (Duration::from_secs(10), Duration::from_secs(60));
        let config = TcpConfig { loss_bound, join_timeout, ..config };
        thread::spawn(|| TcpTransport::join(config))
    };
    let joining: Vec<_> = (0..).zip(listeners).map(join).collect();
    let joined = joining.into_iter().map(|host| host.join().expect("no panic"));
    joined.map(|host| host.expect("a host of a rack")).collect()
}

/// Credentials as a job gives them to its hosts.
pub(crate) fn of_a_job() -> impl Fn(HostId) -> Credentials {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let ca = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    move |host| {
        let params = CertificateParams::new(vec![certificate_name(JOB, host)]);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.expect("parameters").signed_by(&key, &issuer);
        let certificate = certificate.expect("a certificate").pem();
        Credentials::Tls { certificate, key: key.serialize_pem(), ca: ca.clone() }
    }
}
