//! Hosts that are processes: killed, stopped and continued. Without the usual harness, because this
//! program is also the other host.

mod common;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, thread};

use common::{BUILD, JOB, listeners};
use gossamer_transport_tcp::{Credentials, TcpConfig, TcpTransport};
use transport_api::{Event, HostId, Lane, LossReason, PeerEvent, Tag, Transport};

const DEADLINE: Duration = Duration::from_secs(60);
/// Says to this program that it is host 1: where both hosts listen, and the loss bound.
const HOST: &str = "TRANSPORT_TCP_TEST_HOST";

fn join(host: u32, addresses: Vec<SocketAddr>, listener: TcpListener, bound: u64) -> Host {
    let insecure = Credentials::InsecureLoopback;
    let mut config = TcpConfig::new((JOB, BUILD), HostId(host), addresses, listener, 1, insecure);
    config.loss_bound = Duration::from_millis(bound);
    let transport = TcpTransport::join(config).expect("a rack");
    let lane = transport.lane(0, HostId(1 - host)).expect("a lane");
    Host { transport, lane }
}

struct Host {
    transport: Arc<TcpTransport>,
    lane: Box<dyn Lane>,
}

impl Host {
    fn next(&mut self) -> Event {
        let (start, mut next) = (Instant::now(), None);
        while next.is_none() {
            self.lane.poll(&mut |event| {
                assert!(next.replace(event).is_none(), "one thing at a time");
            });
            assert!(start.elapsed() < DEADLINE, "nothing happens");
            thread::sleep(Duration::from_millis(1));
        }
        next.expect("an event")
    }

    /// Sends a payload and waits for it to come back.
    fn is_answered(&mut self, tag: u64) {
        self.lane.bulk(0, Tag(tag), vec![1; 100]).expect("a payload");
        self.lane.flush().expect("a flush");
        match self.next() {
            Event::Bulk { tag: back, .. } if back == Tag(tag) => {}
            other => panic!("{other:?} instead of an answer"),
        }
    }
}

/// Host 1: sends back whatever comes, until the other is gone.
fn be_the_other_host(words: &str) {
    let mut words = words.split(' ');
    let mut word = || words.next().expect("a word");
    let addresses = [word(), word()].map(|address| address.parse().expect("an address"));
    let bound = word().parse().expect("a bound");
    let listener = io::stdin().as_fd().try_clone_to_owned().expect("a listener").into();
    let mut host = join(1, addresses.into(), listener, bound);
    loop {
        match host.next() {
            Event::Bulk { tag, payload, .. } => {
                host.lane.bulk(0, tag, payload).expect("a payload");
                host.lane.flush().expect("a flush");
            }
            Event::Peer(event) => {
                println!("{event:?}");
                return host.transport.leave();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Host 0, and the process that is host 1.
fn rack(bound: u64) -> (Host, Child) {
    let (mut listeners, addresses) = listeners(2);
    let theirs: OwnedFd = listeners.pop().expect("a listener").into();
    let words = format!("{} {} {bound}", addresses[0], addresses[1]);
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(HOST, words).stdin(theirs).stdout(Stdio::piped());
    let child = command.spawn().expect("a process");
    let mut host = join(0, addresses, listeners.pop().expect("a listener"), bound);
    host.is_answered(1);
    (host, child)
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
}

/// What the other host said, once it has ended.
fn last_words(mut child: Child) -> String {
    let mut words = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut words).expect("words");
    child.wait().expect("an end");
    words
}

fn lost(host: &mut Host) -> String {
    match host.next() {
        Event::Peer(PeerEvent::Lost(HostId(1), LossReason::Connection(why))) => why,
        other => panic!("{other:?} is no loss"),
    }
}

fn a_process_that_is_stopped_for_less_than_the_bound_is_not_lost() {
    let (mut host, child) = rack(2000);
    for tag in 2..5 {
        signal(&child, "-STOP");
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1500) {
            host.lane.poll(&mut |event| panic!("{event:?}"));
            thread::sleep(Duration::from_millis(10));
        }
        signal(&child, "-CONT");
        host.is_answered(tag);
    }
    host.transport.leave();
    assert!(last_words(child).contains("Left"), "a goodbye is heard");
}

fn a_process_that_stays_stopped_is_lost() {
    let (mut host, child) = rack(500);
    signal(&child, "-STOP");
    let why = lost(&mut host);
    assert!(why.contains("silent"), "{why}");
    signal(&child, "-CONT");
    // It learns that it was given up, and why.
    let words = last_words(child);
    assert!(words.contains("has given this host up: it was silent"), "{words}");
}

fn a_process_that_is_killed_is_lost() {
    let (mut host, mut child) = rack(30_000);
    child.kill().expect("a process to kill");
    lost(&mut host);
    child.wait().expect("an end");
}

const TESTS: [(&str, fn()); 3] = [
    (
        "a_process_that_is_stopped_for_less_than_the_bound_is_not_lost",
        a_process_that_is_stopped_for_less_than_the_bound_is_not_lost,
    ),
    ("a_process_that_stays_stopped_is_lost", a_process_that_stays_stopped_is_lost),
    ("a_process_that_is_killed_is_lost", a_process_that_is_killed_is_lost),
];

fn main() -> ExitCode {
    if let Ok(words) = env::var(HOST) {
        be_the_other_host(&words);
        return ExitCode::SUCCESS;
    }
    cases::run_here(&TESTS, |_, test| test())
}
