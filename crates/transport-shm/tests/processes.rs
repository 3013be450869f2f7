//! Racks of real processes: this program starts itself again as the other hosts. It has a `main` of
//! its own, because a started host must not run the tests.

#[path = "processes/neighbours.rs"]
mod neighbours;
#[path = "processes/starting.rs"]
mod starting;

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio, abort};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use gossamer_transport_shm::{JoinError, Leader, ShmTransport};
use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{
    Event, HostId, Lane, LossReason, OpError, PeerEvent, Region, RegionKey, RemoteRegion, Rights,
    Tag, Transport,
};

/// Which part a started process plays; unset in the process that runs the tests.
const ROLE: &str = "GOSSAMER_TEST_ROLE";

/// How long anything here may take before it counts as hung.
const DEADLINE: Duration = Duration::from_secs(30);

/// Between two looks at something that has to change.
const LOOK: Duration = Duration::from_millis(1);

/// The build that all hosts claim to be, unless they play strangers.
const BUILD: [u8; 32] = [0xb1; 32];

type Test = (&'static str, fn());

const TESTS: [Test; 13] = [
    ("three_processes_share_memory_and_say_goodbye", three_processes_share_memory_and_say_goodbye),
    ("a_killed_process_is_lost_with_its_signal", a_killed_process_is_lost_with_its_signal),
    ("an_exit_without_a_goodbye_is_a_loss", an_exit_without_a_goodbye_is_a_loss),
    ("the_others_survive_the_leader_to_tell", the_others_survive_the_leader_to_tell),
    ("another_build_is_refused_by_both", another_build_is_refused_by_both),
    ("another_user_is_refused_by_both", another_user_is_refused_by_both),
    ("neighbours_join_and_report_a_loss", neighbours::neighbours_join_and_report_a_loss),
    ("a_neighbour_of_another_user_is_refused", neighbours::a_neighbour_of_another_user_is_refused),
    ("a_process_that_never_joins_is_named", a_process_that_never_joins_is_named),
    ("a_command_that_is_no_host_is_named", a_command_that_is_no_host_is_named),
    (
        "a_process_killed_in_the_handshake_is_named",
        starting::a_process_killed_in_the_handshake_is_named,
    ),
    (
        "a_killed_process_is_named_before_those_it_took_along",
        starting::a_killed_process_is_named_before_those_it_took_along,
    ),
    (
        "a_leader_that_died_before_the_handshake_is_named",
        starting::a_leader_that_died_before_the_handshake_is_named,
    ),
];

fn main() -> ExitCode {
    match env::var(ROLE).as_deref() {
        Err(_) => run_tests(),
        Ok("work") => work(&ShmTransport::join_leader(&BUILD).expect("to join")),
        Ok("storm") => storm(&*ShmTransport::join_leader(&BUILD).expect("to join")),
        Ok("watch") => watch(&ShmTransport::join_leader(&BUILD).expect("to join")),
        Ok("exit") => {
            let rack = ShmTransport::join_leader(&BUILD).expect("to join");
            lane_to(&rack, 0).bulk(0, Tag(1), Vec::new()).expect("a payload");
            std::process::exit(7)
        }
        Ok("leader") => lead_and_abort(),
        Ok("other build") => refused(&[0xb2; 32], |error| matches!(error, JoinError::Build { .. })),
        Ok("other user") => {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).expect("setuid");
            refused(&[0xb2; 32], |error| matches!(error, JoinError::Stranger { uid: 0, .. }))
        }
        Ok("neighbour") => {
            let (rack, alarms) =
                ShmTransport::join_neighbours(&neighbours::neighbours(3, 0)).expect("to join");
            assert_eq!(alarms.len(), 2, "the rack has hosts elsewhere");
            lane_to(&rack, 1).bulk(0, Tag(1), Vec::new()).expect("a payload");
            std::process::exit(7)
        }
        Ok("neighbour of another user") => {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65534)).expect("setuid");
            match ShmTransport::join_neighbours(&neighbours::neighbours(3, 0)) {
                Err(JoinError::Stranger { uid: 0, .. }) => ExitCode::SUCCESS,
                Err(error) => panic!("refused for another reason: {error}"),
                Ok(_) => panic!("not refused"),
            }
        }
        Ok("never") => ExitCode::from(5),
        Ok(other) => starting::play(other).unwrap_or_else(|| panic!("no role {other}")),
    }
}

/// Runs the tests, each of which must leave this process and the machine as it found them.
fn run_tests() -> ExitCode {
    // The first rack makes what the process keeps for good, such as the handle of its input.
    drop(rack_of(&["exit"]));
    cases::run_here(&TESTS, |name, test| {
        let before = traces();
        test();
        // A thread that has been joined may still be in the kernel for a moment.
        let start = Instant::now();
        while traces() != before && start.elapsed() < DEADLINE {
            thread::yield_now();
        }
        assert_eq!(before, traces(), "{name} left something behind");
    })
}

/// What a rack could leave behind: names in shared memory (other programs may come and go there),
/// and this process's descriptors, threads and mappings.
fn traces() -> (BTreeSet<String>, [usize; 3]) {
    let names = |dir: &str| {
        let entries =
            fs::read_dir(dir).unwrap_or_else(|error| panic!("cannot list {dir}: {error}"));
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
    };
    let ours = names("/dev/shm").filter(|name| name.contains("gossamer")).collect();
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    assert!(!maps.contains("/dev/shm/"), "memory with a name is mapped: {maps}");
    let regions = maps.matches("gossamer-region").count();
    (ours, [names("/proc/self/fd").count(), names("/proc/self/task").count(), regions])
}

/// The children of a rack, which are killed and waited for whatever happens.
struct Children(Vec<Child>);

impl Children {
    fn exits(&mut self) -> Vec<Option<i32>> {
        self.0.iter_mut().map(|child| child.wait().expect("an exit").code()).collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Already dead is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn this(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(ROLE, role);
    command
}

fn try_rack_of(roles: &[&str]) -> (Result<Arc<ShmTransport>, JoinError>, Children) {
    let mut leader = Leader::new(roles.len() as u32 + 1).expect("a leader");
    let started = roles.iter().map(|role| leader.spawn(&mut this(role)).expect("a child"));
    let children = Children(started.collect());
    (leader.lead(2, &BUILD), children)
}

fn rack_of(roles: &[&str]) -> (Arc<ShmTransport>, Children) {
    let (rack, children) = try_rack_of(roles);
    (rack.unwrap_or_else(|error| panic!("{error}")), children)
}

fn lane_to(rack: &ShmTransport, host: u32) -> Box<dyn Lane> {
    rack.lane(0, HostId(host)).expect("a lane")
}

/// Polls `lane` until `found` makes something of an event.
fn until<T>(lane: &mut dyn Lane, mut found: impl FnMut(Event) -> Option<T>) -> T {
    let start = Instant::now();
    let mut result = None;
    loop {
        lane.poll(&mut |event| {
            if result.is_none() {
                result = found(event);
            }
        });
        if let Some(result) = result {
            return result;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for {}", lane.peer());
        thread::yield_now();
    }
}

fn end_of(lane: &mut dyn Lane) -> PeerEvent {
    until(lane, |event| match event {
        Event::Peer(end) => Some(end),
        _ => None,
    })
}

fn payload(host: u32) -> Vec<u8> {
    (0..3 << 20).map(|n: u32| (n ^ (n >> 9) ^ host) as u8).collect()
}

/// Every host counts in every host's memory, sends it 3 MiB, waits for its, and says goodbye.
fn work(rack: &ShmTransport) -> ExitCode {
    let (local, hosts) = (rack.local().0, rack.hosts());
    let own = rack.export(RegionKey(1), 4096, Rights::ALL.into()).expect("an export");
    let others: Vec<u32> = (0..hosts).filter(|host| *host != local).collect();
    let mut lanes: Vec<_> = others.iter().map(|host| lane_to(rack, *host)).collect();
    for lane in &mut lanes {
        let region = rack.import(lane.peer(), RegionKey(1), DEADLINE).expect("an import");
        for token in 0..1000 {
            lane.fetch_add(&region, 0, 1, token).expect("a fetch_add");
        }
        lane.bulk(0, Tag(u64::from(local)), payload(local)).expect("a payload");
    }
    // All lanes are polled until all is there: each also moves what it still has to send.
    let (start, mut arrived) = (Instant::now(), BTreeSet::new());
    let done = |arrived: &BTreeSet<u32>| {
        let counted = own.memory().load(0, Ordering::Acquire);
        arrived.len() == others.len() && counted == 1000 * others.len() as u64
    };
    while !done(&arrived) {
        for lane in &mut lanes {
            lane.poll(&mut |event| {
                if let Event::Bulk { from, payload: bytes, .. } = event {
                    assert!(bytes == payload(from.host.0), "the payload of {from}");
                    arrived.insert(from.host.0);
                }
            });
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for the others");
    }
    // Every host has what it waits for once all hosts have said so.
    for lane in &mut lanes {
        lane.bulk(1, Tag(0), Vec::new()).expect("a payload");
    }
    let mut second: Vec<_> =
        others.iter().map(|host| rack.lane(1, HostId(*host)).expect("a lane")).collect();
    let (mut heard, mut left) = (0, BTreeSet::new());
    while heard < others.len() {
        let count = &mut |event| heard += usize::from(matches!(event, Event::Bulk { .. }));
        for lane in &mut second {
            lane.poll(count);
        }
        // Payloads of ours may still have to find room, and others may be done before us.
        lanes.iter_mut().for_each(|lane| note_end(&mut **lane, &mut left));
        assert!(start.elapsed() < DEADLINE, "waited in vain for the others to be done");
    }
    rack.leave();
    while left.len() < others.len() {
        lanes.iter_mut().for_each(|lane| note_end(&mut **lane, &mut left));
        assert!(start.elapsed() < DEADLINE, "waited in vain for the others to leave");
    }
    ExitCode::SUCCESS
}

/// Polls `lane`, and notes in `left` if its peer has left.
fn note_end(lane: &mut dyn Lane, left: &mut BTreeSet<u32>) {
    let peer = lane.peer();
    lane.poll(&mut |event| {
        if let Event::Peer(end) = event {
            assert_eq!(end, PeerEvent::Left(peer));
            left.insert(peer.0);
        }
    });
}

fn three_processes_share_memory_and_say_goodbye() {
    let (rack, mut children) = rack_of(&["work", "work"]);
    assert_eq!((rack.local(), rack.hosts(), rack.threads()), (HostId(0), 3, 2));
    work(&rack);
    assert_eq!(children.exits(), [Some(0), Some(0)]);
}

/// One step of everything at once: regions of both sides, notifications, payloads, wakes.
fn hammer(lane: &mut dyn Lane, region: &RemoteRegion, step: u64) -> Result<(), OpError> {
    let block = SharedBytes::heap(2048);
    lane.write(region, 64, &block)?;
    lane.signal(region, 0, step)?;
    lane.fetch_add(region, 8, 1, step)?;
    lane.write_notify(region, 64, &block, 0, step as u32)?;
    lane.bulk(0, Tag(step), vec![1; 10_000])?;
    lane.flush()?;
    lane.wake(0);
    Ok(())
}

/// Hammers the leader as long as it lives, and then says why it stopped.
fn storm(rack: &dyn Transport) -> ExitCode {
    let _own = rack.export(RegionKey(1), 4096, Rights::ALL.into()).expect("an export");
    let region = rack.import(HostId(0), RegionKey(1), DEADLINE).expect("an import");
    let mut lane = rack.lane(0, HostId(0)).expect("a lane");
    for step in 0.. {
        if let Err(error) = hammer(&mut *lane, &region, step) {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            eprintln!("{error}: {cause}");
            break;
        }
        lane.poll(&mut |_| ());
    }
    ExitCode::FAILURE
}

/// Reports the loss of host 1, and then says goodbye.
fn watch(rack: &ShmTransport) -> ExitCode {
    let lost = end_of(&mut *lane_to(rack, 1));
    rack.leave();
    let seen = matches!(lost, PeerEvent::Lost(HostId(1), LossReason::ProcessEnded { .. }));
    ExitCode::from(if seen { 0 } else { 9 })
}

fn a_killed_process_is_lost_with_its_signal() {
    for round in 0..5 {
        let (rack, mut children) = rack_of(&["storm", "watch"]);
        let own: Region = rack.export(RegionKey(1), 4096, Rights::ALL.into()).expect("an export");
        let region = rack.import(HostId(1), RegionKey(1), DEADLINE).expect("an import");
        let mut lane = lane_to(&rack, 1);
        let mut parker = rack.parker(1).expect("a parker");
        let mut second = rack.lane(1, HostId(1)).expect("a lane");
        let sleeper = thread::spawn(move || {
            let mut lost = false;
            while !lost {
                parker.park(DEADLINE * 2, &mut || false);
                second.poll(&mut |event| lost |= matches!(event, Event::Peer(_)));
            }
        });
        let start = Instant::now();
        while own.memory().load(0, Ordering::Acquire) < 50 * (round + 1) {
            assert!(start.elapsed() < DEADLINE, "the storm does not begin");
            lane.poll(&mut |_| ());
        }
        children.0[0].kill().expect("a kill");
        let mut end = None;
        let lost = loop {
            match hammer(&mut *lane, &region, 1) {
                Ok(()) => assert!(start.elapsed() < DEADLINE, "the loss goes unnoticed"),
                Err(error) => break error,
            }
            lane.poll(&mut |event| {
                if let Event::Peer(event) = event {
                    end = Some(event);
                }
            });
        };
        let pid = children.0[0].id();
        let reason = LossReason::ProcessEnded { pid, how: "signal 9 (SIGKILL)".into() };
        assert_eq!(lost, OpError::PeerLost(HostId(1), reason.clone()));
        assert_eq!(end, Some(PeerEvent::Lost(HostId(1), reason)));
        sleeper.join().expect("the sleeper to hear of it");
        assert_eq!(end_of(&mut *lane_to(&rack, 2)), PeerEvent::Left(HostId(2)));
        assert_eq!(children.exits(), [None, Some(0)]);
    }
}

fn an_exit_without_a_goodbye_is_a_loss() {
    let (rack, mut children) = rack_of(&["exit"]);
    let mut lane = lane_to(&rack, 1);
    let mut arrived = false;
    let end = until(&mut *lane, |event| match event {
        Event::Bulk { .. } => {
            arrived = true;
            None
        }
        Event::Peer(end) => Some(end),
        _ => None,
    });
    let pid = children.0[0].id();
    let reason = LossReason::ProcessEnded { pid, how: "exit status 7".into() };
    assert_eq!(end, PeerEvent::Lost(HostId(1), reason));
    assert!(arrived, "what it sent before arrives first");
    assert_eq!(children.exits(), [Some(7)]);
}

/// Leads a rack, and crashes when the other host is in full swing.
fn lead_and_abort() -> ExitCode {
    let mut leader = Leader::new(2).expect("a leader");
    let _orphan = leader.spawn(&mut this("storm")).expect("a child");
    let rack = leader.lead(2, &BUILD).expect("a rack");
    let own = rack.export(RegionKey(1), 4096, Rights::ALL.into()).expect("an export");
    let start = Instant::now();
    while own.memory().load(0, Ordering::Acquire) < 20 {
        assert!(start.elapsed() < DEADLINE, "the storm does not begin");
        thread::yield_now();
    }
    abort()
}

fn the_others_survive_the_leader_to_tell() {
    let mut leader = this("leader");
    leader.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut leader = leader.spawn().expect("a leader");
    let mut said = String::new();
    // It ends when the last process that could write has ended: the leader and its orphan.
    let mut errors = leader.stderr.take().expect("a pipe");
    errors.read_to_string(&mut said).expect("to hear what they say");
    assert_eq!(leader.wait().expect("an exit").code(), None, "the leader crashes: {said}");
    let expected = format!("host 0 is gone: process {} exited (status unknown)", leader.id());
    assert!(said.contains(&expected), "{said}");
}

/// Plays a host of `build` that must be refused, and exits with success if it was, by `expected`.
fn refused(build: &[u8; 32], expected: impl Fn(&JoinError) -> bool) -> ExitCode {
    match ShmTransport::join_leader(build) {
        Err(error) if expected(&error) => ExitCode::SUCCESS,
        Err(error) => panic!("refused for another reason: {error}"),
        Ok(_) => panic!("not refused"),
    }
}

fn another_build_is_refused_by_both() {
    let (rack, mut children) = try_rack_of(&["other build"]);
    let Err(error) = rack else { panic!("not refused") };
    let text = error.to_string();
    assert!(text.contains(&"b1".repeat(32)) && text.contains(&"b2".repeat(32)), "{text}");
    assert!(text.contains("host 1 (pid "), "{text}");
    assert_eq!(children.exits(), [Some(0)], "the child knows why, too");
}

/// Only root can play another user. Other users have the unit test of the same check, with a spoofed
/// user; that the system does not let them become another is checked here.
fn may_play_another_user() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        let other = rustix::process::Uid::from_raw(65534);
        assert!(rustix::thread::set_thread_uid(other).is_err(), "not root, and yet allowed");
    }
    is_root
}

fn another_user_is_refused_by_both() {
    if !may_play_another_user() {
        return;
    }
    let (rack, mut children) = try_rack_of(&["other user"]);
    let Err(error) = rack else { panic!("not refused") };
    assert!(matches!(error, JoinError::Stranger { uid: 65534, expected_uid: 0, .. }), "{error}");
    assert_eq!(children.exits(), [Some(0)], "the child knows why, too");
}

fn a_process_that_never_joins_is_named() {
    let (rack, _children) = try_rack_of(&["never"]);
    let Err(error) = rack else { panic!("joined without its hosts") };
    assert!(matches!(error, JoinError::Ended { .. }), "{error}");
    assert!(error.to_string().contains("exit status 5"), "{error}");
}

fn a_command_that_is_no_host_is_named() {
    let mut leader = Leader::new(2).expect("a leader");
    assert!(leader.spawn(&mut Command::new("/nonexistent/program")).is_err());
    let short = leader.lead(2, &BUILD);
    assert!(matches!(short, Err(JoinError::Started { hosts: 2, started: 0 })));
    let joined = ShmTransport::join_leader(&BUILD);
    assert!(matches!(joined, Err(JoinError::NoLeader(_))), "this process has no leader");
}
