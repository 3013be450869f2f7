//! Who does not belong is sent away with a reason, and does no harm: after every attack the rack
//! comes up with those who belong, and works.

mod common;
#[path = "strangers/settings.rs"]
mod settings;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, iter, thread};

use common::{Authority, BUILD, JOB, Joined, configs, hello, join_all};
use gossamer_transport_tcp::{
    Credentials, JobId, JoinError, TcpConfig, TcpTransport, certificate_name,
};
use primitive::CpuFeatures;
use primitive::sync::Ordering;
use rcgen::CertificateParams;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use transport_api::{HostId, RegionKey, Rights, Transport};

/// Nothing takes longer unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The beginning of a handshake that makes the other side expect 16 KiB.
const LARGE_RECORD: [u8; 9] = [0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];

/// Has host 0 of `configs` wait for the others while `attack` is under way against its address, and
/// lets them come afterwards. They must find each other and work.
fn attacked(mut configs: Vec<TcpConfig>, attack: impl FnOnce(SocketAddr)) {
    for config in &mut configs {
        config.join_timeout = DEADLINE;
    }
    let others = configs.split_off(1);
    let victim = configs.pop().expect("a first host");
    let address = victim.addresses[0];
    let victim = thread::spawn(|| TcpTransport::join(victim));
    attack(address);
    let mut hosts = join_all(others);
    hosts.insert(0, victim.join().expect("no panic"));
    let hosts: Vec<_> = hosts.into_iter().map(|host| host.expect("a rack")).collect();
    let region = hosts[0].export(RegionKey(1), 64, Rights::ALL.into()).expect("an export");
    for (word, host) in (1..).zip(&hosts[1..]) {
        let remote = host.import(HostId(0), RegionKey(1), DEADLINE).expect("an import");
        let mut lane = host.lane(0, HostId(0)).expect("a lane");
        lane.signal(&remote, 8 * word as usize, word).expect("a signal");
        lane.flush().expect("a flush");
        let start = Instant::now();
        while region.memory().load(8 * word as usize, Ordering::Acquire) != word {
            assert!(start.elapsed() < DEADLINE, "the rack does not work");
            thread::yield_now();
        }
    }
}

/// Joins as host 1 of a rack whose host 0 is at `address`, with `change`d settings.
fn intrude(
    address: SocketAddr,
    (hosts, credentials): (u32, Credentials),
    change: impl FnOnce(&mut TcpConfig),
) -> Joined {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut addresses = vec![listener.local_addr().expect("an address"); hosts as usize];
    addresses[0] = address;
    let names = (JOB, BUILD);
    let mut config = TcpConfig::new(names, HostId(1), addresses, listener, 1, credentials);
    config.join_timeout = DEADLINE;
    change(&mut config);
    TcpTransport::join(config)
}

#[track_caller]
fn refused(joined: Joined, words: &str) {
    match joined {
        Err(JoinError::Refused { host: HostId(0), reason, .. }) if reason.contains(words) => {}
        other => panic!("not refused for {words}: {:?}", other.err()),
    }
}

#[track_caller]
fn untrusted(joined: Joined, words: &str) {
    match joined {
        Err(JoinError::Untrusted { host: HostId(0), reason, .. }) if reason.contains(words) => {}
        other => panic!("not distrusted for {words}: {:?}", other.err()),
    }
}

#[test]
fn another_job_build_or_shape_is_refused() {
    let insecure = || Credentials::InsecureLoopback;
    attacked(configs(2, 1, |_| insecure()), |address| {
        let rack = || (2, insecure());
        refused(intrude(address, rack(), |config| config.job = JobId(1)), "another job");
        refused(intrude(address, rack(), |config| config.build = [8; 32]), "build 0808");
        let other = |bits: u128| {
            let cpu = CpuFeatures::from_bits(CpuFeatures::detected().bits() ^ bits);
            intrude(address, rack(), |config| config.cpu = cpu)
        };
        refused(other(1 << 127), "the processor of host 0 lacks #127;");
        let first = CpuFeatures::detected().bits().trailing_zeros();
        let lacks = format!("host 1 lacks {};", CpuFeatures::from_bits(1 << first));
        refused(other(1 << first), &lacks);
        refused(intrude(address, rack(), |config| config.threads = 2), "of 2 threads");
        refused(intrude(address, (3, insecure()), |_| ()), "has 3 hosts");
    });
    let authority = Authority::new();
    attacked(configs(2, 1, |host| authority.of(host)), |address| {
        let rack = || (2, authority.of(1));
        refused(intrude(address, rack(), |config| config.build = [8; 32]), "build 0808");
        let other = |bits: u128| {
            let cpu = CpuFeatures::from_bits(CpuFeatures::detected().bits() ^ bits);
            intrude(address, rack(), |config| config.cpu = cpu)
        };
        refused(other(1 << 127), "the processor of host 0 lacks #127;");
        let first = CpuFeatures::detected().bits().trailing_zeros();
        let lacks = format!("host 1 lacks {};", CpuFeatures::from_bits(1 << first));
        refused(other(1 << first), &lacks);
        // Its own check of the listener's certificate comes first.
        untrusted(intrude(address, rack(), |config| config.job = JobId(1)), "not valid for name");
    });
}

#[test]
fn a_host_is_the_one_that_its_certificate_names() {
    let authority = Authority::new();
    attacked(configs(3, 1, |host| authority.of(host)), |address| {
        let as_another = intrude(address, (3, authority.of(2)), |_| ());
        refused(as_another, "its certificate is not that of host 1");
        let name = certificate_name(JobId(1), HostId(1));
        let of_another_job = authority.issue(name, |_| ());
        refused(intrude(address, (3, of_another_job), |_| ()), "certificate is not that of host 1");
        // A process that listens in place of host 0 is detected as well.
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let there = elsewhere.local_addr().expect("an address");
        let names = (JOB, BUILD);
        let addresses = vec![there; 2];
        let stranger = authority.of(1);
        let mut config = TcpConfig::new(names, HostId(0), addresses, elsewhere, 1, stranger);
        config.join_timeout = Duration::from_secs(2);
        let stranger = thread::spawn(|| TcpTransport::join(config));
        untrusted(intrude(there, (2, authority.of(1)), |_| ()), "not valid for name");
        assert!(stranger.join().expect("no panic").is_err());
    });
}

/// The parts of `credentials`, with the authority of `trusted`: one who comes with certificates of
/// his own and does not mind whom he speaks to.
fn trusting(credentials: Credentials, trusted: &Authority) -> Credentials {
    let Credentials::Tls { certificate, key, .. } = credentials else { unreachable!() };
    let Credentials::Tls { ca, .. } = trusted.of(1) else { unreachable!() };
    Credentials::Tls { certificate, key, ca }
}

#[test]
fn certificates_of_another_authority_or_time_or_purpose_are_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let name = || certificate_name(JOB, HostId(1));
    attacked(configs(2, 1, |host| authority.of(host)), |address| {
        untrusted(intrude(address, (2, other.of(1)), |_| ()), "certificate");
        let forged = trusting(other.of(1), &authority);
        untrusted(intrude(address, (2, forged), |_| ()), "alert");
        let expired = authority.issue(name(), |params: &mut CertificateParams| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        untrusted(intrude(address, (2, expired), |_| ()), "Expired");
        let early = authority.issue(name(), |params: &mut CertificateParams| {
            params.not_before = rcgen::date_time_ymd(3000, 1, 1);
        });
        untrusted(intrude(address, (2, early), |_| ()), "alert");
        let for_servers = authority.issue(name(), |params: &mut CertificateParams| {
            params.extended_key_usages.pop();
        });
        untrusted(intrude(address, (2, for_servers), |_| ()), "alert");
    });
}

type Raw = StreamOwned<ClientConnection, TcpStream>;
type Anonymous = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

/// A TLS connection to host 0 by a client that follows no protocol.
fn raw(
    address: SocketAddr,
    credentials: Credentials,
    identify: impl FnOnce(Anonymous, &str, &str) -> ClientConfig,
) -> Raw {
    let Credentials::Tls { certificate, key, ca } = credentials else { unreachable!() };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).expect("PEM")).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots);
    let name = ServerName::try_from(certificate_name(JOB, HostId(0))).expect("a name");
    let config = Arc::new(identify(builder, &certificate, &key));
    let client = ClientConnection::new(config, name).expect("a client");
    StreamOwned::new(client, connect(address))
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    socket
}

/// What comes until the other side closes; it must close.
fn until_closed(socket: &mut impl Read) -> Result<String, String> {
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("the connection is still open")
        }
        Err(error) if answer.is_empty() => Err(error.to_string()),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

#[test]
fn no_process_joins_without_a_certificate() {
    let authority = Authority::new();
    attacked(configs(2, 1, |host| authority.of(host)), |address| {
        let mut nameless =
            raw(address, authority.of(1), |builder, _, _| builder.with_no_client_auth());
        let _ = nameless.write_all(&hello(JOB.0, u32::MAX));
        let answer = until_closed(&mut nameless).expect_err("an alert");
        assert!(answer.contains("CertificateRequired"), "{answer}");
        // With one, the job must be the right one all the same.
        let mut named = raw(address, authority.of(1), |builder, certificate, key| {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(vec![certificate], key).expect("a client")
        });
        named.write_all(&hello(5, u32::MAX)).expect("a hello");
        let answer = until_closed(&mut named).expect("a verdict");
        assert!(answer.contains("another job"), "{answer:?}");
    });
}

#[test]
fn garbage_is_refused() {
    let authority = Authority::new();
    let secure = configs(2, 1, |host| authority.of(host));
    let insecure = configs(2, 1, |_| Credentials::InsecureLoopback);
    for configs in [secure, insecure] {
        attacked(configs, |address| {
            let mut random = fastrand(7);
            let noise: Vec<u8> = (0..4000).map(|_| random() as u8).collect();
            let http = b"GET / HTTP/1.1\r\nHost: rack\r\n\r\n".repeat(10);
            let mut hello_and_more = hello(JOB.0 + 1, u32::MAX);
            hello_and_more.extend([0xff; 4000]);
            for garbage in [&noise[..], &http, &[0; 100], &[0xff; 5000], &hello_and_more] {
                let mut socket = connect(address);
                let _ = socket.write_all(garbage);
                let _ = until_closed(&mut socket);
            }
            // Said half, and gone.
            for cut in [0, 1, 40, 79] {
                connect(address).write_all(&hello(JOB.0, u32::MAX)[..cut]).expect("a part");
            }
        });
    }
}

/// A small generator of noise.
fn fastrand(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}

#[test]
fn a_slow_dialler_is_disconnected() {
    let authority = Authority::new();
    let secure = configs(2, 1, |host| authority.of(host));
    let insecure = configs(2, 1, |_| Credentials::InsecureLoopback);
    for (mut configs, words) in
        [(secure, LARGE_RECORD.to_vec()), (insecure, hello(JOB.0, u32::MAX))]
    {
        configs[0].handshake_timeout = Duration::from_millis(300);
        attacked(configs, |address| {
            let mut slow = connect(address);
            // A byte before anything else happens, time after time, and never enough of them.
            let mut words = words.into_iter().chain(iter::repeat(0)).take(79);
            while words.next().is_some_and(|byte| slow.write_all(&[byte]).is_ok()) {
                thread::sleep(Duration::from_millis(15));
            }
            assert!(words.next().is_some(), "the connection stays open");
            let _ = until_closed(&mut slow);
        });
    }
}

/// Bytes that this process has in memory.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line VmRSS");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kilobytes.expect("a number") * 1024
}

/// Descriptors that this process may have.
fn descriptors() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").expect("the limits of this process");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    line.split_whitespace().nth(3).and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}

#[test]
fn ten_thousand_connections_use_bounded_resources() {
    let count = 10_000.min(descriptors().saturating_sub(400));
    assert!(count >= 500, "with so few descriptors nothing is tested");
    let authority = Authority::new();
    let configs = configs(2, 1, |host| authority.of(host));
    let mut held = Vec::new();
    attacked(configs, |address| {
        let before = resident();
        for n in 0..count {
            let mut socket = connect(address);
            if n % 2 == 0 {
                let _ = socket.write_all(&LARGE_RECORD);
            }
            held.push(socket);
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < 32 << 20, "{grown} bytes for {count} strangers");
    });
    let mut open = 0;
    for mut socket in held {
        socket.set_nonblocking(true).expect("a socket");
        let read = socket.read(&mut [0; 64]);
        open += usize::from(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
    assert_eq!(open, 0, "once the rack is complete, all strangers are gone");
}

#[test]
fn no_host_listens_once_the_rack_is_complete() {
    let configs = configs(2, 1, |_| Credentials::InsecureLoopback);
    // As a process of a job has, whose daemon has handed it one.
    let copy = |config: &TcpConfig| config.listener.try_clone().expect("another descriptor");
    let listeners: Vec<_> = configs.iter().map(copy).collect();
    let hosts = join_all(configs);
    assert!(hosts.iter().all(Result::is_ok));
    for listener in listeners {
        let address = listener.local_addr().expect("an address");
        let refused = TcpStream::connect(address).expect_err("the host listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
