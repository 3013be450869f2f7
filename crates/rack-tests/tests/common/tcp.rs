//! Hosts of one process that are joined over TCP, with TLS as in a job, or without.

use std::sync::Arc;
use std::time::Duration;

use gossamer_job::{JobAuthority, JobId};
use transport_api::HostId;
use transport_tcp::{Credentials, TcpTransport};

const JOB: JobId = JobId(1);

/// Hosts with the credentials that `credentials` gives each of them.
pub(crate) fn hosts(
    hosts: u32,
    threads: u32,
    credentials: impl Fn(HostId) -> Credentials,
) -> Vec<Arc<TcpTransport>> {
    let joined = TcpTransport::in_process(hosts, threads, |config| {
        config.job = JOB;
        config.credentials = credentials(config.host);
        // An emulated guest is slow.
        config.join_timeout = Duration::from_secs(60);
    });
    joined.expect("a rack")
}

/// Credentials as a job gives them to its hosts.
pub(crate) fn of_a_job() -> impl Fn(HostId) -> Credentials {
    let authority = JobAuthority::random(JOB).expect("an authority");
    move |host| {
        let (certificate, key) = authority.certificate(host).expect("a certificate");
        Credentials::Tls { certificate, key: key.0, ca: authority.ca() }
    }
}
