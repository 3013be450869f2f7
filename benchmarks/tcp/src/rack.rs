//! Gossamer as a candidate: a rack of two hosts of one thread each, joined over TCP as two hosts of
//! a job are, with the credentials of one or without any.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, io};

use bench_kit::measure::sampling::{CaseError, Sampler, undisturbed};
use bench_kit::product::sample::{Throughput, measure_load};
use bench_kit::product::two_process::Work;
use bench_kit::roles::{Lifeline, Role, RoleProcess};
use gossamer::Rack;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use transport_api::HostId;
use transport_tcp::{Credentials, JobId, TcpConfig, TcpTransport, certificate_name};

/// One host of the rack.
pub(crate) const HOST: Role = Role { name: "gossamer-host", run: host };

/// Names the host among those of the rack.
pub(crate) const NUMBER: &str = "TCP_BENCH_HOST";
const ADDRESSES: &str = "TCP_BENCH_ADDRESSES";
const WORK: &str = "TCP_BENCH_WORK";
const TIME: &str = "TCP_BENCH_NS";
const CERTIFICATE: &str = "TCP_BENCH_CERTIFICATE";
const KEY: &str = "TCP_BENCH_KEY";
const CA: &str = "TCP_BENCH_CA";

const JOB: JobId = JobId(1);
/// What both hosts say that they are: they are one program.
const BUILD: [u8; 32] = [1; 32];

/// Whether the hosts encrypt what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// Plain TCP.
    Off,
    /// TLS 1.3, with certificates made for the sample.
    Tls,
}

impl Security {
    /// What it adds to the name of a case.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Security::Off => "",
            Security::Tls => ", TLS",
        }
    }
}

/// Answered requests per second: host 0, on the first core, asks host 1, on the second.
pub(crate) fn per_second(
    sampler: &Sampler,
    work: Work,
    security: Security,
) -> Result<f64, CaseError> {
    let addresses = free_addresses()?.map(|address| address.to_string()).join(" ");
    let authority = Authority::of(security)?;
    let start = |number: u32, core| {
        let mut variables = variables(number, &addresses, authority.as_ref())?;
        variables.push((WORK, work.text().into()));
        variables.push((TIME, sampler.time.as_nanos().to_string().into()));
        Ok::<_, CaseError>(RoleProcess::spawn(HOST, Some(core), &variables)?)
    };
    let _server = start(1, sampler.cores.second)?;
    let line = start(0, sampler.cores.first)?.first_line()?;
    let mut figures = line.split(' ').map(str::parse);
    match (figures.next(), figures.next()) {
        (Some(Ok(per_second)), Some(Ok(lost))) => undisturbed(lost).map(|()| per_second),
        _ => Err(CaseError::Failed(line)),
    }
}

/// What host `number` is told in its environment to join the other at these addresses.
pub(crate) fn variables(
    number: u32,
    addresses: &str,
    authority: Option<&Authority>,
) -> Result<Vec<(&'static str, OsString)>, CaseError> {
    let mut variables: Vec<(&str, OsString)> =
        vec![(NUMBER, number.to_string().into()), (ADDRESSES, addresses.into())];
    if let Some(authority) = authority {
        let signed = authority.sign(HostId(number));
        variables.extend(signed.map_err(|e| CaseError::Failed(e.to_string()))?);
    }
    Ok(variables)
}

/// The addresses of all hosts, as this one was told them.
pub(crate) fn addresses() -> Result<Vec<SocketAddr>, Box<dyn std::error::Error>> {
    Ok(env::var(ADDRESSES)?.split(' ').map(str::parse).collect::<Result<_, _>>()?)
}

/// How host `number` joins the others, with the credentials that it was told.
pub(crate) fn config(
    number: u32,
    addresses: Vec<SocketAddr>,
    listener: TcpListener,
) -> Result<TcpConfig, env::VarError> {
    let credentials = match env::var(CERTIFICATE) {
        Ok(certificate) => Credentials::Tls { certificate, key: env::var(KEY)?, ca: env::var(CA)? },
        Err(_) => Credentials::InsecureLoopback,
    };
    Ok(TcpConfig::new((JOB, BUILD), HostId(number), addresses, listener, 1, credentials))
}

/// Two addresses of the loopback interface that were free a moment ago.
pub(crate) fn free_addresses() -> io::Result<[SocketAddr; 2]> {
    let listen = || TcpListener::bind(("127.0.0.1", 0));
    let listeners = [listen()?, listen()?];
    Ok([listeners[0].local_addr()?, listeners[1].local_addr()?])
}

/// Signs the certificates of one sample, as `gossamer run` does for a job.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The authority of hosts that encrypt, and none for others.
    pub(crate) fn of(security: Security) -> Result<Option<Authority>, CaseError> {
        match security {
            Security::Off => Ok(None),
            Security::Tls => {
                Authority::new().map(Some).map_err(|e| CaseError::Failed(e.to_string()))
            }
        }
    }

    fn new() -> Result<Authority, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { certificate, issuer: Issuer::new(params, key) })
    }

    /// What a host is told in its environment.
    fn sign(&self, host: HostId) -> Result<[(&'static str, OsString); 3], rcgen::Error> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec![certificate_name(JOB, host)])?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok([
            (CERTIFICATE, certificate.into()),
            (KEY, key.serialize_pem().into()),
            (CA, self.certificate.clone().into()),
        ])
    }
}

/// Ignores its lifeline: the hosts of a rack end together.
fn host(_: Lifeline) -> ExitCode {
    match take_part() {
        Ok(Some(Throughput { per_second, lost })) => println!("{per_second} {lost}"),
        Ok(None) => {}
        Err(e) => {
            // The case reads this line and reports it as the error.
            println!("{e}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn take_part() -> Result<Option<Throughput>, Box<dyn std::error::Error>> {
    let time = Duration::from_nanos(env::var(TIME)?.parse()?);
    let work = Work::named(&env::var(WORK)?).ok_or("unknown work")?;
    let host: u32 = env::var(NUMBER)?.parse()?;
    let addresses = addresses()?;
    let listener = TcpListener::bind(addresses.get(host as usize).ok_or("no such host")?)?;
    let transport = TcpTransport::join(config(host, addresses, listener)?)?;
    let rack = Rack::new().hosts(2).threads(1);
    let throughput = rack.run_on(transport, move || measure_load(work.start(), time));
    Ok(throughput?)
}
