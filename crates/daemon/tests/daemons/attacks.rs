//! Attackers without a certificate, and members without the right: nothing gets in, nothing dies,
//! memory stays bounded, and other members are served meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon_protocol::{FromController, FromDaemon, Program, Request, Role, RunRequest};
use gossamer_daemon::security::authority::{self, Authority};
use gossamer_daemon::security::identity::Identity;
use gossamer_daemon::security::tls;
use gossamer_job::JobId;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::calls::{TIMEOUT, as_member, ask, connect, ends, member, runtime};
use crate::common::{self, Rack, Ran};

fn admin(rack: &Rack) -> Arc<ClientConfig> {
    as_member(rack, "admin")
}

/// The daemon has not restarted, and serves an administrator.
fn assert_serves(rack: &Rack, pid: u32) {
    assert!(Path::new(&format!("/proc/{pid}/stat")).exists());
    let ran = Ran::from(rack.gossamer(&["hosts"]).output().unwrap());
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

/// A certificate that was taken back is of no use from the moment at which a daemon has the list,
/// to its holder; a daemon's, to its callers.
#[test]
fn what_is_revoked_is_refused_at_once() {
    let rack = Rack::new(&["a", "b"]);
    let pid = rack.daemon_pid(0);
    rack.add_viewer();
    let viewer = || {
        let mut command = rack.gossamer(&["ps"]);
        command.env("GOSSAMER_IDENTITY", rack.path("rack/viewer"));
        Ran::from(command.output().unwrap())
    };
    assert_eq!(viewer().status, Some(0), "{:?}", viewer());
    let dir = rack.path("rack");
    let revoke = |name: &str| {
        let ran = rack.gossamer(&["rack", "revoke", "--dir", &dir, name]).output().unwrap();
        Ran::from(ran)
    };
    let revoked = revoke("viewer");
    assert_eq!(revoked.status, Some(0), "{revoked:?}");
    assert!(revoked.out.contains("ca/revoked.pem"), "{revoked:?}");
    assert_ne!(revoke("unknown").status, Some(0));
    let list = rack.path("rack/ca/revoked.pem");
    for host in ["a", "b"] {
        fs::copy(&list, rack.path(&format!("rack/{host}/revoked.pem"))).unwrap();
    }
    let refused = viewer();
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.err.to_lowercase().contains("revoked"), "{refused:?}");
    assert_serves(&rack, pid);

    // What is no list changes nothing.
    fs::write(rack.path("rack/a/revoked.pem"), "garbage").unwrap();
    assert_eq!(viewer().status, Some(1), "the last list counts");
    assert_serves(&rack, pid);

    // The administrator has the list already, and does not take b's daemon for b any more.
    let hosts = fs::read(rack.path("rack/admin/hosts.toml")).unwrap();
    assert_eq!(revoke("b").status, Some(0));
    fs::write(rack.path("rack/admin/hosts.toml"), hosts).unwrap();
    let ran = Ran::from(rack.gossamer(&["hosts"]).output().unwrap());
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.err.contains("b: ") && ran.err.to_lowercase().contains("revoked"), "{ran:?}");
    assert!(!ran.err.contains("a: "), "{ran:?}");
}

/// An old list of revoked certificates takes nothing back that a newer one says, also if the daemon
/// starts again with nothing else beside its identity.
#[test]
fn an_old_list_does_not_let_the_revoked_in_again() {
    let mut rack = Rack::new(&["a"]);
    let dir = rack.path("rack");
    let lists = ["first", "second"].map(|name| {
        rack.join(name, "viewer");
        let ran = rack.gossamer(&["rack", "revoke", "--dir", &dir, name]).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        fs::read(rack.path("rack/ca/revoked.pem")).unwrap()
    });
    let revoked = rack.path("rack/a/revoked.pem");
    let is_served = |rack: &Rack, name: &str| {
        let asked = ask(rack, as_member(rack, name), &Request::Describe);
        runtime().block_on(asked).is_ok()
    };
    fs::write(&revoked, &lists[0]).unwrap();
    assert!(!is_served(&rack, "first") && is_served(&rack, "second"));
    fs::write(&revoked, &lists[1]).unwrap();
    assert!(!is_served(&rack, "second"));
    fs::write(&revoked, &lists[0]).unwrap();
    assert!(!is_served(&rack, "second"), "the older list is refused");
    let log = fs::read_to_string(rack.log_file(0)).unwrap();
    assert!(log.contains("is older than list "), "{log}");
    for list in [Some(&lists[0]), None] {
        rack.end_daemon(0, "TERM");
        match list {
            Some(list) => fs::write(&revoked, list).unwrap(),
            None => fs::remove_file(&revoked).unwrap(),
        }
        rack.start_daemon(0);
        assert!(!is_served(&rack, "second"), "a new daemon knows the newest list");
        assert!(is_served(&rack, "admin"));
    }
}

fn run_request() -> RunRequest {
    let program = Program { digest: [7; 32], bytes: 7, name: "p".into() };
    RunRequest {
        job: JobId(7),
        host: 0,
        hosts: 1,
        processes: 1,
        threads: 1,
        program,
        arguments: vec![],
        environment: vec![],
        directory: None,
        input: false,
        limits: Default::default(),
    }
}

#[test]
fn strangers_are_turned_away() {
    let rack = Rack::new(&["a"]);
    let pid = rack.daemon_pid(0);
    runtime().block_on(async {
        let refused = async |what: &str, config: Arc<ClientConfig>| {
            let answer = ask(&rack, config, &Request::Describe).await;
            assert!(answer.is_err(), "{what} got {answer:?}");
        };
        let trusted = |ca: &CertificateDer<'static>| {
            let mut roots = RootCertStore::empty();
            roots.add(ca.clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider);
            builder
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_root_certificates(roots)
        };
        let with_version = |mut config: ClientConfig| {
            config.alpn_protocols = vec![b"gossamer-control/1".to_vec()];
            Arc::new(config)
        };
        let ours = member(&rack, "admin");

        refused("no certificate", with_version(trusted(&ours.ca).with_no_client_auth())).await;

        let other = tempfile::tempdir().unwrap();
        let name = "testrack".parse().unwrap();
        let stranger = authority::init_rack(other.path(), &name, None).unwrap();
        let credentials = (vec![stranger.certificate.clone()], stranger.key.clone_key());
        let config = trusted(&ours.ca).with_client_auth_cert(credentials.0, credentials.1).unwrap();
        refused("the administrator of another rack of the same name", with_version(config)).await;
        let error = connect(&rack, tls::client(&stranger).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "and it trusts no other: {error}");

        let place = rack.place.path().join("expired");
        let request = authority::request(&place).unwrap();
        let authority = Authority::open(&rack.place.path().join("rack")).unwrap();
        let yesterday = SystemTime::now() - Duration::from_secs(60);
        let name = "late".parse().unwrap();
        let card = authority.sign(&request, &name, Role::Admin, yesterday).unwrap();
        authority::accept(&place, &card).unwrap();
        let late = Identity::load(&place).unwrap();
        refused("an administrator whose time is over", tls::client(&late).unwrap()).await;

        let host = member(&rack, "a");
        refused("a host, which may not call", tls::client(&host).unwrap()).await;

        let mut config = ClientConfig::clone(&admin(&rack));
        config.alpn_protocols = vec![b"gossamer-control/2".to_vec()];
        refused("another version", Arc::new(config)).await;
        assert!(ask(&rack, admin(&rack), &Request::Describe).await.is_ok());
    });
    assert_serves(&rack, pid);
}

#[test]
fn the_credential_of_a_job_is_none_for_the_rack() {
    let rack = Rack::new(&["a"]);
    let ran = rack.script("a", "cat /proc/self/fd/$GOSSAMER_JOB_FD");
    let job: serde_json::Value =
        serde_json::from_str(ran.out.strip_prefix("[a] ").unwrap()).unwrap();
    let pem = |field: &str| job[field].as_str().unwrap().as_bytes().to_vec();
    let ours = member(&rack, "admin");
    let stolen = Identity {
        certificate: CertificateDer::from_pem_slice(&pem("certificate")).unwrap(),
        key: PrivateKeyDer::from_pem_slice(&pem("key")).unwrap(),
        ..ours
    };
    runtime().block_on(async {
        let answer = ask(&rack, tls::client(&stolen).unwrap(), &Request::Jobs).await;
        assert!(answer.is_err(), "{answer:?}");
    });
}

#[test]
fn a_viewer_may_look_and_nothing_else() {
    let rack = Rack::new(&["a"]);
    rack.add_viewer();
    let as_viewer = |mut command: std::process::Command| {
        command.env("GOSSAMER_IDENTITY", rack.path("rack/viewer"));
        Ran::from(command.output().unwrap())
    };
    let ran = as_viewer(rack.run("a", &["sh", "-c", "true"]));
    assert_eq!(ran.status, Some(125));
    assert!(ran.err.contains("a: the viewer viewer may not run a job"), "{ran:?}");
    assert_eq!(common::entries(&rack.state(0).join("store")), 0, "and sends no program");
    let ran = as_viewer(rack.gossamer(&["kill", &JobId(7).to_string()]));
    assert!(ran.err.contains("may not kill a job"), "{ran:?}");
    assert!(!ran.err.contains("no job"), "it is not revealed whether it runs: {ran:?}");
    let mut command = rack.gossamer(&["ps"]);
    let ran = Ran::from(command.env("GOSSAMER_IDENTITY", rack.path("rack/a")).output().unwrap());
    assert!(
        ran.err.contains("holds the identity of host a, which may not call daemons"),
        "{ran:?}"
    );
    assert_eq!(as_viewer(rack.gossamer(&["ps"])).status, Some(0));
}

#[test]
fn a_daemon_does_not_trust_its_controller_either() {
    let rack = Rack::new(&["a"]);
    let pid = rack.daemon_pid(0);
    runtime().block_on(async {
        let answers = async |request: RunRequest, messages: Vec<FromController>| {
            let (mut from, mut to) = ends(connect(&rack, admin(&rack)).await.unwrap());
            to.send(&Request::Run(Box::new(request))).await.unwrap();
            for message in messages {
                to.send(&message).await.unwrap();
            }
            loop {
                match from.receive::<FromDaemon>(TIMEOUT).await {
                    Ok(FromDaemon::Refused(reason)) => return reason,
                    Ok(_) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let program = |bytes: &[u8]| FromController::Program(bytes.to_vec());
        let reason =
            answers(run_request(), vec![program(b"another"), FromController::ProgramEnd]).await;
        assert!(reason.contains("does not match its digest"), "{reason}");
        let reason = answers(run_request(), vec![program(b"too many bytes")]).await;
        assert!(reason.contains("larger than 7 bytes"), "{reason}");
        let huge = Program { bytes: u64::MAX, ..run_request().program };
        let reason = answers(RunRequest { program: huge, ..run_request() }, vec![]).await;
        assert!(reason.contains("larger than"), "{reason}");
        let reason = answers(run_request(), vec![FromController::InputEnd]).await;
        assert!(reason.contains("unexpected message"), "{reason}");

        // A file that the store has; the description is of another job, or none.
        let text = b"#!/bin/sh\n";
        let digest = *blake3::hash(text).as_bytes();
        let known = Program { digest, bytes: text.len() as u64, name: "p".into() };
        let request = RunRequest { program: known, ..run_request() };
        let send = vec![program(text), FromController::ProgramEnd];
        let start = |json: &str| FromController::Start(gossamer_job::SecretPem(json.into()));
        let reason = answers(request.clone(), [send, vec![start("{}")]].concat()).await;
        assert!(reason.contains("invalid job description"), "{reason}");
        let ran = rack.script("a", "cat /proc/self/fd/$GOSSAMER_JOB_FD");
        let other = ran.out.strip_prefix("[a] ").unwrap();
        let reason = answers(request.clone(), vec![start(other)]).await;
        assert!(reason.contains("another job"), "{reason}");
        // A job that has run is not run again.
        let job: serde_json::Value = serde_json::from_str(other).unwrap();
        let job = job["job"].as_str().unwrap().parse().unwrap();
        let reason = answers(RunRequest { job, ..request }, vec![start(other)]).await;
        assert!(reason.contains("is run once"), "{reason}");
    });
    assert_eq!(common::entries(&rack.state(0).join("store")), 2, "nothing else was stored");
    assert_serves(&rack, pid);
}

#[test]
fn garbage_and_huge_frames_are_turned_away() {
    let rack = Rack::new(&["a"]);
    let pid = rack.daemon_pid(0);
    for garbage in [&[0; 70_000][..], &[0xff; 70_000], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = StdStream::connect(rack.address(0)).unwrap();
        // It may be closed before all is written.
        let _ = stream.write_all(garbage);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    runtime().block_on(async {
        for frame in [&u32::MAX.to_le_bytes()[..], &[7, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]] {
            let mut stream = connect(&rack, admin(&rack)).await.unwrap();
            stream.write_all(frame).await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            assert!(rest.is_empty(), "{rest:?}");
        }
        // In the middle of a session, too.
        let mut stream = connect(&rack, admin(&rack)).await.unwrap();
        let request = Request::Run(Box::new(run_request()));
        stream.write_all(&daemon_protocol::frame::encode(&request).unwrap()).await.unwrap();
        stream.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    assert_serves(&rack, pid);
}

#[test]
fn slow_talkers_are_turned_away() {
    let rack = Rack::new(&["a"]);
    let pid = rack.daemon_pid(0);
    // One says nothing, one is slow with its handshake, one has a certificate and asks nothing.
    let silent = StdStream::connect(rack.address(0)).unwrap();
    let slow = StdStream::connect(rack.address(0)).unwrap();
    let dripping = {
        let mut slow = slow.try_clone().unwrap();
        std::thread::spawn(move || {
            let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
            for byte in hello.into_iter().chain(std::iter::repeat(0)) {
                if slow.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        })
    };
    runtime().block_on(async {
        let mut idle = connect(&rack, admin(&rack)).await.unwrap();
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(TIMEOUT, idle.read_to_end(&mut rest)).await.unwrap();
    });
    for mut stream in [silent, slow] {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let closed = stream.read(&mut [0; 100]);
        assert!(!matches!(&closed, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock));
    }
    dripping.join().unwrap();
    assert_serves(&rack, pid);
}

#[test]
fn ten_thousand_connections_cost_little_and_block_no_other() {
    let rack = Rack::new(&["a"]);
    let pid = rack.daemon_pid(0);
    assert_serves(&rack, pid);
    let memory = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = memory();
    // Held open as far as this process may; the daemon closes all but the latest anyway.
    let mut held = std::collections::VecDeque::new();
    for _ in 0..10_000 {
        let mut stream = StdStream::connect(rack.address(0)).unwrap();
        let _ = stream.write_all(&[22, 3, 1]);
        held.push_back(stream);
        if held.len() > 500 {
            held.pop_front();
        }
    }
    assert_serves(&rack, pid);
    let descriptors = common::entries(Path::new(&format!("/proc/{pid}/fd")));
    assert!(descriptors < 200, "{descriptors} descriptors are open");
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 << 10, "it has grown by {grown} KiB");
    let ran = rack.script("a", "echo still here");
    assert_eq!(ran.out, "[a] still here\n", "{ran:?}");
}

#[test]
fn metrics_are_served() {
    let rack = Rack::new(&["a"]);
    rack.script("a", "exit 3");
    let page = rack.metrics(0);
    assert!(page.contains("\ngossamer_processes_started_total 1\n"), "{page}");
    assert!(page.contains("\ngossamer_processes_failed_total 1\n"), "{page}");
}
