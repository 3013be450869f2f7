//! Processes that join a rack and then misbehave: the others drop them with a reason that says what
//! they did, or are not harmed. This program starts itself again as such processes, so it has a
//! `main` of its own.

use std::io::stdin;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use gossamer_transport_shm::{Leader, Neighbours, ShmTransport};
use primitive::limits::PENDING_REQUESTS;
use primitive::sync::Ordering;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketType, send, sockopt};
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getpid, getppid, getrlimit, pidfd_getfd,
    pidfd_open, setrlimit,
};
use transport_api::{
    Event, HostId, Lane, LossReason, OpError, PeerEvent, RegionKey, Rights, Tag, Transport,
};
use transport_control::Message;

/// Which part a started process plays; unset in the process that runs the tests.
const ROLE: &str = "GOSSAMER_TEST_ROLE";

/// How long anything here may take before it counts as hung.
const DEADLINE: Duration = Duration::from_secs(30);

const BUILD: [u8; 32] = [0xb2; 32];

/// Regions that the leader exports, and one that it does not.
const EXPORTED: u64 = 1;
const SECOND: u64 = 2;
const UNKNOWN: u64 = 99;

/// How the host ends whose revocation has failed as it must.
const HAS_FAILED: u8 = 9;

/// Far more imports than a peer may have unanswered.
const FLOOD: u64 = 50 * PENDING_REQUESTS as u64;

/// As many packets as each import of a flood gets into.
const WITHIN: u64 = PENDING_REQUESTS as u64 / 2;

const TESTS: [(&str, fn()); 6] = [
    ("imports_without_end_are_a_violation", imports_without_end_are_a_violation),
    ("answers_left_unread_are_a_violation", answers_left_unread_are_a_violation),
    ("many_imports_within_the_limit_are_none", many_imports_within_the_limit_are_none),
    ("a_sabotaged_alarm_neither_blocks_nor_is_lost", a_sabotaged_alarm_neither_blocks_nor_is_lost),
    (
        "a_process_without_connection_is_quiet_when_it_ends",
        a_process_without_connection_is_quiet_when_it_ends,
    ),
    (
        "a_host_that_cannot_watch_its_peers_claims_nothing",
        a_host_that_cannot_watch_its_peers_claims_nothing,
    ),
];

fn main() -> ExitCode {
    match env::var(ROLE).as_deref() {
        Err(_) => cases::run_here(&TESTS, |_, test| test()),
        Ok("unknown") => flood(UNKNOWN, FLOOD),
        Ok("unread") => flood(EXPORTED, FLOOD),
        Ok("within") => flood(UNKNOWN, WITHIN),
        Ok("sabotage") => sabotage(),
        Ok("mute") => mute(),
        Ok("unwatched") => unwatched(),
        Ok(other) => panic!("no role {other}"),
    }
}

/// A started process, which is killed and waited for whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Already dead is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn this(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(ROLE, role);
    command
}

/// A rack of this process and of one in `role`.
fn rack_with(role: &str) -> (Arc<ShmTransport>, Running) {
    let mut leader = Leader::new(2).expect("a leader");
    let child = Running(leader.spawn(&mut this(role)).expect("a child"));
    (leader.lead(1, &BUILD).unwrap_or_else(|error| panic!("{error}")), child)
}

/// Polls the lane to `host` until `found` makes something of an event.
fn until<T>(rack: &ShmTransport, host: HostId, found: impl Fn(Event) -> Option<T>) -> T {
    let mut lane = rack.lane(0, host).expect("a lane");
    let (start, mut result) = (Instant::now(), None);
    while result.is_none() {
        lane.poll(&mut |event| result = result.take().or(found(event)));
        assert!(start.elapsed() < DEADLINE, "waited in vain for {host}");
        thread::yield_now();
    }
    result.expect("a result")
}

fn end_of(rack: &ShmTransport, host: HostId) -> PeerEvent {
    until(rack, host, |event| match event {
        Event::Peer(end) => Some(end),
        _ => None,
    })
}

/// Joins, and then imports `key` again and again over its socket to the leader, without reading an
/// answer, until the leader hangs up or that was `count` times.
fn flood(key: u64, count: u64) -> ExitCode {
    // The socket stays open through this copy.
    let socket = stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let rack = ShmTransport::join_leader(&BUILD).expect("to join");
    if key == EXPORTED {
        // From here on every import is answered at once.
        rack.import(HostId(0), RegionKey(key), DEADLINE).expect("an import");
    }
    // Nothing of this process reads the socket any more.
    rack.sever();
    // Numbers that this process has not used for its own imports.
    for number in (1 << 32)..(1 << 32) + count {
        if !import(&socket, number, key) {
            break;
        }
    }
    if count == WITHIN {
        // Anything but the end of the connection means that it was not dropped.
        drop(socket);
        return ExitCode::from(7);
    }
    // Would be a loss of its own.
    thread::sleep(DEADLINE * 2);
    ExitCode::FAILURE
}

/// Sends an import that waits for ever for its region; false if the leader has hung up.
fn import(socket: &OwnedFd, number: u64, key: u64) -> bool {
    let import = Message::Import { number, key: RegionKey(key), timeout: u64::MAX };
    let mut packet = vec![b'c'];
    import.encode(&mut packet);
    loop {
        match send(socket, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => return true,
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(socket, PollFlags::OUT)], None).expect("to wait");
            }
            Err(Errno::PIPE | Errno::CONNRESET) => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

#[track_caller]
fn assert_violates(end: &PeerEvent) {
    let PeerEvent::Lost(HostId(1), LossReason::Protocol(text)) = end else { panic!("{end:?}") };
    assert_eq!(text, "more than 4096 unanswered requests");
}

fn imports_without_end_are_a_violation() {
    let (rack, _child) = rack_with("unknown");
    assert_violates(&end_of(&rack, HostId(1)));
}

fn answers_left_unread_are_a_violation() {
    let (rack, _child) = rack_with("unread");
    let _region = rack.export(RegionKey(EXPORTED), 4096, Rights::ALL.into()).expect("an export");
    assert_violates(&end_of(&rack, HostId(1)));
}

fn many_imports_within_the_limit_are_none() {
    let (rack, _child) = rack_with("within");
    let end = end_of(&rack, HostId(1));
    let PeerEvent::Lost(_, LossReason::ProcessEnded { how, .. }) = &end else { panic!("{end:?}") };
    assert_eq!(how, "exit status 7");
}

/// Imports two regions, closes its connection, and runs on with both mapped.
fn mute() -> ExitCode {
    let rack = ShmTransport::join_leader(&BUILD).expect("to join");
    let import = |key| rack.import(HostId(0), RegionKey(key), DEADLINE).expect("an import");
    let _regions = [EXPORTED, SECOND].map(import);
    rack.sever();
    thread::sleep(DEADLINE * 2);
    ExitCode::FAILURE
}

/// How the revocation that was begun with `token` on thread 0 has ended.
fn end_of_revocation(own: &mut dyn Lane, token: u64) -> Result<(), OpError> {
    let (start, mut end) = (Instant::now(), None);
    while end.is_none() {
        own.poll(&mut |event| match event {
            Event::Completed { token: t, .. } if t == token => end = Some(Ok(())),
            Event::Failed { token: Some(t), error } if t == token => end = Some(Err(error)),
            _ => {}
        });
        assert!(start.elapsed() < DEADLINE, "the revocation hangs");
        thread::yield_now();
    }
    end.expect("an end")
}

fn a_process_without_connection_is_quiet_when_it_ends() {
    let (rack, child) = rack_with("mute");
    let export = |key| rack.export(RegionKey(key), 4096, Rights::ALL.into()).expect("an export");
    let _regions = [EXPORTED, SECOND].map(export);
    let end = end_of(&rack, HostId(1));
    let PeerEvent::Lost(_, LossReason::Connection(_)) = &end else { panic!("{end:?}") };
    let mut own = rack.lane(0, HostId(0)).expect("a lane");
    let key = RegionKey(EXPORTED);
    rack.begin_revoke(0, key, 7).expect("a revocation");
    let busy = OpError::NotQuiet { key, hosts: vec![HostId(1)] };
    assert_eq!(end_of_revocation(&mut *own, 7), Err(busy));
    rack.begin_revoke(0, RegionKey(SECOND), 8).expect("a revocation");
    drop(child);
    assert_eq!(end_of_revocation(&mut *own, 8), Ok(()), "the process has ended");
}

/// Exports a region, and revokes it when its service thread fails at once, because `poll` takes no
/// more descriptors than the limit of them.
fn unwatched() -> ExitCode {
    let rack = ShmTransport::join_leader(&BUILD).expect("to join");
    let key = RegionKey(EXPORTED);
    let region = rack.export(key, 4096, Rights::ALL.into()).expect("an export");
    let mut own = rack.lane(0, HostId(1)).expect("a lane");
    while region.memory().load(0, Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    let limit = Rlimit { current: Some(1), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    rack.begin_revoke(0, key, 7).expect("a revocation");
    let busy = OpError::NotQuiet { key, hosts: vec![HostId(0)] };
    match end_of_revocation(&mut *own, 7) {
        Err(error) if error == busy => ExitCode::from(HAS_FAILED),
        other => panic!("{other:?}"),
    }
}

fn a_host_that_cannot_watch_its_peers_claims_nothing() {
    let (rack, _child) = rack_with("unwatched");
    let remote = rack.import(HostId(1), RegionKey(EXPORTED), DEADLINE).expect("an import");
    let mut lane = rack.lane(0, HostId(1)).expect("a lane");
    lane.signal(&remote, 0, 1).expect("a signal");
    let (start, mut end) = (Instant::now(), None);
    while end.is_none() {
        // Rarely, so that this thread may be in an operation when the region is revoked.
        thread::sleep(Duration::from_millis(200));
        lane.poll(&mut |event| {
            if let Event::Peer(event) = event {
                end = Some(event);
            }
        });
        assert!(start.elapsed() < DEADLINE, "the end goes unnoticed");
    }
    let end = end.expect("an end");
    let how = format!("exit status {HAS_FAILED}");
    let PeerEvent::Lost(_, LossReason::ProcessEnded { how: h, .. }) = &end else {
        panic!("{end:?}")
    };
    assert_eq!(*h, how);
}

/// Host `host` of two that share a machine, in a rack of three.
fn neighbours(host: u32, tester: u32) -> Neighbours {
    let mut secret = [0x78; 32];
    secret[..4].copy_from_slice(&tester.to_ne_bytes());
    let (host, members) = (HostId(host), vec![HostId(0), HostId(1)]);
    Neighbours { host, members, hosts: 3, threads: 1, secret, build: BUILD }
}

/// The numbers of this process's descriptors.
fn descriptors() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").expect("the descriptors of this process");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().parse();
    entries.map(|entry| name(entry.expect("an entry")).expect("a number")).collect()
}

/// Joins by alarms, harms every descriptor that may be an alarm of the other host as much as it can,
/// and says so.
fn sabotage() -> ExitCode {
    let tester = getppid().expect("a parent").as_raw_nonzero().get() as u32;
    let before = descriptors();
    let (rack, _alarms) = ShmTransport::join_neighbours(&neighbours(1, tester)).expect("to join");
    let this = pidfd_open(getpid(), PidfdFlags::empty()).expect("a handle of this process");
    for number in descriptors().into_iter().filter(|number| !before.contains(number)) {
        // A copy of the descriptor, of the same open file. The list's own is closed by now.
        let Ok(file) = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) else { continue };
        let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a name");
        let is_eventfd = name.to_string_lossy().contains("eventfd");
        if is_eventfd || sockopt::socket_type(&file) == Ok(SocketType::DGRAM) {
            // Fills it while it cannot block this process, and only then lets it block.
            fcntl_setfl(&file, OFlags::NONBLOCK).expect("a flag");
            let full = if is_eventfd { u64::MAX - 1 } else { 0 };
            while rustix::io::write(&file, &full.to_ne_bytes()).is_ok() {}
            fcntl_setfl(&file, OFlags::empty()).expect("no flag");
        }
    }
    rack.lane(0, HostId(0)).expect("a lane").bulk(0, Tag(1), Vec::new()).expect("a payload");
    thread::sleep(DEADLINE * 2);
    ExitCode::FAILURE
}

/// Sleeps as a thread with connections does, edge-triggered; whether it was rung before a second had
/// passed.
fn is_rung(epoll: &OwnedFd) -> bool {
    let mut events = Vec::with_capacity(1);
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    epoll::wait(epoll, spare_capacity(&mut events), Some(&second)).expect("to wait");
    !events.is_empty()
}

fn a_sabotaged_alarm_neither_blocks_nor_is_lost() {
    let child = Running(this("sabotage").spawn().expect("a child"));
    let joined = ShmTransport::join_neighbours(&neighbours(0, std::process::id()));
    let (rack, alarms) = joined.unwrap_or_else(|error| panic!("{error}"));
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, &alarms[0], epoll::EventData::new_u64(0), flags).expect("to watch");
    until(&rack, HostId(1), |event| matches!(event, Event::Bulk { .. }).then_some(()));

    // Rings as any thread of this host does, on the open file that the child has sabotaged.
    let (rang, all_rang) = mpsc::channel();
    let (ring, to_ring) = mpsc::channel();
    let ringing = rack.clone();
    thread::spawn(move || {
        for () in to_ring {
            ringing.unpark(0);
            rang.send(()).expect("a test that listens");
        }
    });
    for _ in 0..3 {
        alarms[0].announce();
        ring.send(()).expect("a thread that rings");
        all_rang.recv_timeout(DEADLINE).expect("the ring not to block");
        assert!(is_rung(&epoll), "a ring is lost");
        alarms[0].cancel();
    }
    drop(child);
}
