//! The rendezvous of tasks in one process, among strangers.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{iter, thread};

use proptest::prelude::*;
use transport_api::HostId;

use crate::authority::JobAuthority;
use crate::description::JobHost;
use crate::secret::Secret;
use crate::slurm::derived::Derived;
use crate::slurm::rendezvous::channel::{Channel, receive};
use crate::slurm::rendezvous::follower::request_hosts;
use crate::slurm::rendezvous::leader::{Claim, MAX_UNAUTHENTICATED, PendingConnection};
use crate::slurm::rendezvous::{
    Answer, Endpoints, HANDSHAKE_TIMEOUT, Introduction, RendezvousError, join, listen,
};
use crate::tls::Tls;

fn tls(secret: u8, step: &str, rank: u32) -> Tls {
    let derived = Derived::new(&Secret::new([secret; 32]), "1", step);
    let authority = JobAuthority::derived(derived.job, &derived.seed).unwrap();
    let (certificate, key) = authority.certificate(HostId(rank)).unwrap();
    Tls::new(derived.job, &certificate, &key.0, &authority.ca()).unwrap()
}

fn introduction(rank: u32, tasks: u32) -> Introduction {
    Introduction {
        rank,
        tasks,
        node: format!("n{rank}"),
        threads: 2 + rank,
        port: 1000 + rank as u16,
    }
}

/// Endpoints on this machine that no other test uses.
fn endpoints() -> Endpoints {
    let port = listen(0).unwrap().local_addr().unwrap().port();
    Endpoints { hosts: vec!["no-such-host.invalid".into(), "127.0.0.1".into()], ports: vec![port] }
}

fn task(
    rank: u32,
    endpoints: &Endpoints,
) -> thread::JoinHandle<Result<Vec<JobHost>, RendezvousError>> {
    let endpoints = endpoints.clone();
    thread::spawn(move || join(&tls(1, "0", rank), &endpoints, &introduction(rank, 3)))
}

#[test]
fn all_tasks_get_the_same_addresses() {
    let endpoints = endpoints();
    let tasks: Vec<_> = [2, 0, 1].map(|rank| task(rank, &endpoints)).into_iter().collect();
    let hosts: Vec<_> = tasks.into_iter().map(|task| task.join().unwrap().unwrap()).collect();
    assert!(hosts.iter().all(|all| *all == hosts[0]), "{hosts:?}");
    let expected = (0..3).map(|rank| JobHost {
        name: format!("n{rank}"),
        address: SocketAddr::from(([127, 0, 0, 1], 1000 + rank)),
        threads: 2,
    });
    assert_eq!(hosts[0], expected.collect::<Vec<_>>());
}

#[test]
fn strangers_get_nothing_and_do_not_keep_tasks_out() {
    let endpoints = endpoints();
    let at = (endpoints.hosts[1].as_str(), endpoints.ports[0]);
    let (leader, first) = (task(0, &endpoints), task(1, &endpoints));
    // While one task is missing, strangers come.
    let connect = || loop {
        if let Ok(socket) = TcpStream::connect(at) {
            break socket;
        }
    };
    let silent: Vec<_> = (0..2 * MAX_UNAUTHENTICATED).map(|_| connect()).collect();
    let mut garbage = connect();
    garbage.write_all(&[0x5a; 4096]).unwrap();
    let soon = || Instant::now() + Duration::from_secs(1);
    for other in [tls(2, "0", 2), tls(1, "1", 2)] {
        let error = request_hosts(&other, at, &introduction(2, 3), soon()).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    // A task that says it is another, and one of a step with another number of tasks.
    for (rank, me) in [(2, introduction(1, 3)), (2, introduction(2, 4)), (2, introduction(7, 3))] {
        let answer = request_hosts(&tls(1, "0", rank), at, &me, soon()).unwrap();
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    }
    let second = task(2, &endpoints);
    for task in [leader, first, second] {
        assert_eq!(task.join().unwrap().unwrap().len(), 3);
    }
    drop(silent);
}

#[test]
fn a_stranger_in_place_of_task_0_gets_nothing() {
    let listener = listen(0).unwrap();
    let at = ("127.0.0.1", listener.local_addr().unwrap().port());
    let stranger = thread::spawn(move || {
        let socket = listener.accept().unwrap().0;
        // Its certificate is good, but for another job.
        let connection = tls(2, "0", 0).listen().unwrap();
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        receive::<Introduction>(&mut Channel::new(connection, socket, until).unwrap()).unwrap_err()
    });
    let soon = Instant::now() + Duration::from_secs(1);
    let error = request_hosts(&tls(1, "0", 1), at, &introduction(1, 3), soon).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    stranger.join().unwrap();
}

#[test]
fn a_slow_sender_does_not_extend_the_deadline() {
    let listener = listen(0).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()));
    for connection in [tls(1, "0", 0).listen().unwrap(), tls(1, "0", 1).dial(HostId(0)).unwrap()] {
        let socket = TcpStream::connect(at).unwrap();
        let mut other = listener.accept().unwrap().0;
        // The beginning of a handshake that makes this side expect 16 KiB.
        let words = [0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc].into_iter().chain(iter::repeat(0));
        let drip = thread::spawn(move || {
            for word in words.take(1000) {
                thread::sleep(Duration::from_millis(5));
                if other.write_all(&[word]).is_err() {
                    return false;
                }
            }
            true
        });
        let until = Instant::now() + Duration::from_millis(100);
        let mut channel = Channel::new(connection, socket, until).unwrap();
        let error = receive::<Introduction>(&mut channel).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        drop(channel);
        assert!(!drip.join().unwrap(), "the sender was read to its end");
    }
}

#[test]
fn messages_above_the_limit_are_refused() {
    let declared = u32::MAX.to_be_bytes();
    let error = receive::<Introduction>(&mut declared.as_slice()).unwrap_err();
    assert!(error.to_string().contains("4294967295 bytes"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = receive::<Answer>(&mut bytes.as_slice());
        let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
        framed.extend(bytes);
        let _ = receive::<Introduction>(&mut framed.as_slice());
    }
}

#[test]
fn an_accepted_connection_is_not_closed() {
    let listener = listen(0).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()));
    for is_accepted in [true, false] {
        let mut task = TcpStream::connect(at).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let (claim, other) = (Claim::default(), socket.try_clone().unwrap());
        let thread = thread::spawn(|| ());
        assert!(!is_accepted || claim.take());
        PendingConnection { socket: other, claim, thread }.close();
        // Its answer still reaches it, or there is nothing more to come.
        assert_eq!(socket.write(&[1]).is_ok(), is_accepted);
        drop(socket);
        let mut received = Vec::new();
        task.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), usize::from(is_accepted));
    }
}

/// Set in the process that gets too few threads.
const IS_SHORT: &str = "GOSSAMER_TEST_SHORT";

/// Bytes of the stack of each of its threads, and of all its memory: some fit, and 16 do not.
const STACK: u64 = 1 << 30;
const MEMORY: u64 = 8 * STACK;

#[test]
fn a_leader_without_a_thread_for_a_stranger_goes_on() {
    use rustix::process::{Resource, Rlimit, setrlimit};

    if std::env::var_os(IS_SHORT).is_none() {
        // The size of stacks is read once, when a process begins.
        let mut short = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "slurm::rendezvous::tests::a_leader_without_a_thread_for_a_stranger_goes_on";
        short.args([name, "--exact"]).env(IS_SHORT, "1");
        let ended = short.env("RUST_MIN_STACK", STACK.to_string()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let endpoints = endpoints();
    let at = (endpoints.hosts[1].as_str(), endpoints.ports[0]);
    let (leader, first) = (task(0, &endpoints), task(1, &endpoints));
    setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) }).unwrap();
    let connect = || loop {
        if let Ok(socket) = TcpStream::connect(at) {
            break socket;
        }
        assert!(!leader.is_finished());
    };
    let strangers: Vec<_> = (0..16).map(|_| connect()).collect();
    // Some are closed, at the latest when their handshake times out.
    let _ = (&strangers[0]).read(&mut [0]);
    assert!(!leader.is_finished(), "{:?}", leader.join().unwrap());
    drop(strangers);
    let hosts = join(&tls(1, "0", 2), &endpoints, &introduction(2, 3)).unwrap();
    for task in [leader, first] {
        assert_eq!(task.join().unwrap().unwrap(), hosts);
    }
}
