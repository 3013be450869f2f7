//! Racks over loopback for the suite, with and without TLS.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use gossamer_job::{JobAuthority, JobId};
use transport_api::conformance::Rack;
use transport_api::{HostId, Transport};
use transport_tcp::{Credentials, TcpTransport};

const JOB: JobId = JobId(0x5e6);

/// Credentials of TLS as a job gives them to its hosts.
pub(crate) fn of_a_job() -> impl Fn(HostId) -> Credentials {
    let authority = JobAuthority::random(JOB).expect("an authority");
    move |host| {
        let (certificate, key) = authority.certificate(host).expect("a certificate");
        Credentials::Tls { certificate, key: key.0, ca: authority.ca() }
    }
}

/// A rack over loopback whose hosts have the credentials that `credentials` gives them.
pub(crate) fn rack(hosts: u32, threads: u32, credentials: impl Fn(HostId) -> Credentials) -> Rack {
    let rack = TcpTransport::in_process(hosts, threads, |config| {
        config.job = JOB;
        config.credentials = credentials(config.host);
    });
    let rack = rack.expect("a rack");
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}
