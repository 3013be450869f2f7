//! A peer that belongs to the rack and then sends what no peer sends: it is lost, with what it sent
//! in the reason, and nothing else happens. The peer is written out byte by byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gossamer_transport_tcp::{Credentials, TcpTransport};
use transport_api::{Event, HostId, LossReason, PeerEvent, Region, RegionKey, Rights, Transport};

use crate::common::{JOB, configs, hello};

const DEADLINE: Duration = Duration::from_secs(60);
const CONTROL: u32 = u32::MAX;

/// Takes a place of host 1 of two at host 0.
fn take(address: SocketAddr, seat: u32) -> TcpStream {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    socket.write_all(&hello(JOB.0, seat)).expect("a hello");
    let mut verdict = [1; 1024];
    socket.read_exact(&mut verdict).expect("a verdict");
    assert_eq!(verdict[0], 0, "refused: {}", String::from_utf8_lossy(&verdict));
    socket
}

/// A host with one peer, which is the test itself.
struct Victim {
    host: Arc<TcpTransport>,
    region: Region,
    /// The peer's ends: of the thread, and control.
    thread: TcpStream,
    control: TcpStream,
}

fn victim() -> Victim {
    let mut config = configs(2, 1, |_| Credentials::InsecureLoopback).remove(0);
    config.loss_bound = Duration::from_millis(500);
    config.join_timeout = Duration::from_secs(2);
    let address = config.addresses[0];
    let joining = thread::spawn(|| TcpTransport::join(config));
    let (thread, control) = (take(address, 0), take(address, CONTROL));
    let host = joining.join().expect("no panic").expect("a rack");
    let region = host.export(RegionKey(1), 64, Rights::READ.into()).expect("an export");
    Victim { host, region, thread, control }
}

/// A frame, with the fields that a test sets.
fn frame(kind: u8, thread: u16, length: u32, fields: [u64; 3], body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0];
    bytes.extend(thread.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    fields.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

fn plain(kind: u8, fields: [u64; 3], body: &[u8]) -> Vec<u8> {
    frame(kind, 0, body.len() as u32, fields, body)
}

/// A message of the control plane, in its frame.
fn message(kind: u8, words: &[u64]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    plain(15, [0; 3], &[kind].into_iter().chain(words).collect::<Vec<_>>())
}

fn heartbeat() -> Vec<u8> {
    message(1, &[])
}

/// What becomes of the peer.
fn end(host: &TcpTransport) -> PeerEvent {
    let mut lane = host.lane(0, HostId(1)).expect("a lane");
    let start = Instant::now();
    let mut end = None;
    while end.is_none() {
        lane.poll(&mut |event| match event {
            Event::Peer(event) => end = Some(event),
            other => panic!("{other:?}"),
        });
        assert!(start.elapsed() < DEADLINE, "nothing becomes of it");
        thread::yield_now();
    }
    end.expect("an end")
}

#[track_caller]
fn breaks_the_protocol(victim: &Victim, words: &str) {
    match end(&victim.host) {
        PeerEvent::Lost(HostId(1), LossReason::Protocol(what)) if what.contains(words) => {}
        other => panic!("not lost for {words}: {other:?}"),
    }
    let mut bytes = [0; 64];
    victim.region.memory().read_into(0, &mut bytes);
    assert_eq!(bytes, [0; 64], "something was written");
}

#[test]
fn frames_that_no_peer_sends_end_the_connection() {
    let cases: [(Vec<u8>, &str); 12] = [
        // Write, signal, read, compare-and-swap, add, on a region that may only be read.
        (frame(1, 0, u32::MAX, [1, 0, 1], &[]), "declares 4294967295 bytes"),
        (plain(1, [1, 0, 1], &[1; 8]), "Write of 8 bytes at 0 of region 1"),
        (plain(2, [1, 8, 7], &[]), "Signal of 8 bytes"),
        (plain(3, [1, 60, 8], &[]), "Read of 8 bytes at 60"),
        (plain(4, [1, 0, 0], &[1; 8]), "Swap of 8 bytes"),
        (plain(5, [1, 0, 1], &[]), "Add of 8 bytes"),
        // An answer without a request, threads that do not exist, a payload above the limit.
        (plain(6, [0, 0, 7], &[]), "answers nothing"),
        (frame(9, 4, 0, [0; 3], &[]), "thread 4"),
        (plain(11, [0, 0, 1 << 31], &[]), "above the limit"),
        (plain(12, [0, 0, 0], &[1]), "has not begun"),
        (plain(13, [0, 0, 5], &[]), "a grant of 5"),
        (vec![0xff; 100], "a frame of kind 255"),
    ];
    for (bytes, words) in cases {
        let mut victim = victim();
        victim.thread.write_all(&bytes).expect("a frame");
        breaks_the_protocol(&victim, words);
    }
}

#[test]
fn control_frames_that_no_peer_sends_end_the_connection() {
    let import = |number: u64| message(2, &[number, 9, u64::MAX]);
    for (bytes, words) in [
        (frame(15, 0, u32::MAX, [0; 3], &[]), "declares 4294967295 bytes"),
        (plain(2, [1, 8, 7], &[]), "Signal on a control connection"),
        ((0..5000).flat_map(import).collect(), "more than 4096 unanswered requests"),
        ([import(7), import(7)].concat(), "import 7 twice"),
        (message(7, &[9]), "an answer to revocation 9, which is not open"),
        (message(99, &[]), "a control message of 1 bytes"),
        (plain(15, [0; 3], &[1; 1001]), "a control message of 1001 bytes"),
    ] {
        let mut victim = victim();
        // It may be sent away before it has said all of it.
        let _ = victim.control.write_all(&bytes);
        breaks_the_protocol(&victim, words);
    }
}

#[test]
fn a_payload_that_is_announced_costs_nothing() {
    let mut victim = victim();
    let announced = plain(11, [0, 0, 1 << 30], &[]);
    victim.thread.write_all(&announced).expect("a frame");
    victim.thread.write_all(&plain(12, [0; 3], &[1; 1000])).expect("a frame");
    victim.thread.write_all(&announced).expect("a frame");
    breaks_the_protocol(&victim, "window of thread 0");
}

#[test]
fn a_goodbye_of_half_a_host_is_none() {
    let mut victim = victim();
    victim.control.write_all(&heartbeat()).expect("a heartbeat");
    drop(victim.thread);
    let lost = end(&victim.host);
    let PeerEvent::Lost(_, LossReason::Connection(why)) = &lost else { panic!("{lost:?}") };
    assert!(why.contains("without a goodbye"), "{why}");
    // The peer hears why it was given up: a frame of that kind comes before the end.
    let mut heard = Vec::new();
    victim.control.read_to_end(&mut heard).expect("the rest");
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert!(heard.contains("host 0 has given this host up"), "{heard:?}");
}

#[test]
fn a_peer_that_falls_silent_is_lost() {
    let mut victim = victim();
    victim.control.write_all(&heartbeat()).expect("a heartbeat");
    let lost = end(&victim.host);
    let PeerEvent::Lost(_, LossReason::Connection(why)) = &lost else { panic!("{lost:?}") };
    assert!(why.contains("silent for more than 500ms"), "{why}");
}

#[test]
fn a_peer_that_joins_and_never_says_a_word_is_lost() {
    let victim = victim();
    let lost = end(&victim.host);
    let PeerEvent::Lost(_, LossReason::Connection(why)) = &lost else { panic!("{lost:?}") };
    assert!(why.contains("silent"), "{why}");
}
