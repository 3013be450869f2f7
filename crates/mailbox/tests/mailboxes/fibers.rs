//! Mailboxes used by fibers: a wait parks the fiber, and others of its thread run.
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler, spawn_local};
use gossamer_segment::Segments;
use mailbox::{FrameHeader, Mailbox, Parts, Sender};
use progress::Progress;
use transport_api::conformance::within;
use transport_api::integrity::checksum_of;
use transport_api::{HostId, Transport};
use transport_shm::ShmTransport;
use transport_tcp::TcpTransport;

/// A host of a rack.
#[derive(Clone)]
struct Host {
    segments: Segments,
    transport: Arc<dyn Transport>,
}

/// Runs `test` on a rack over shared memory and on one over loopback connections.
fn on_each(hosts: u32, test: fn(&[Host])) {
    let host = |transport: Arc<dyn Transport>| {
        let segments = Segments::new(transport.clone());
        Host { segments, transport }
    };
    within(Duration::from_secs(60), move || {
        let rack = ShmTransport::in_process(hosts, hosts).expect("a rack");
        test(&rack.into_iter().map(|it| host(it)).collect::<Vec<_>>());
        let rack = TcpTransport::in_process(hosts, hosts, |_| ()).expect("a rack");
        test(&rack.into_iter().map(|it| host(it)).collect::<Vec<_>>());
    });
}

thread_local! {
    /// The fibers of this thread.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// Attaches the calling thread as `thread`, runs `main` in a fiber of it, and returns when that has
/// ended. As a runtime thread does, it polls in every round.
fn in_fiber(host: &Host, thread: u32, main: impl FnOnce() + 'static) {
    let transport = &host.transport;
    let lanes = (0..transport.hosts())
        .map(|peer| transport.lane(thread, HostId(peer)).expect("a lane"))
        .collect();
    let all_mapped = (0..transport.hosts()).all(|peer| transport.maps(HostId(peer)));
    let progress = Progress::new(lanes, all_mapped);
    let mut parker = transport.parker(thread).expect("a parker");
    let there = transport.clone();
    let config = Config { wake: Arc::new(move || there.unpark(thread)), ..Config::default() };
    let scheduler = Scheduler::new(config).expect("a scheduler");
    let _attached = host.segments.attach_worker(thread, progress.clone());
    scheduler.enter(|| {
        let main = spawn_local(main);
        while !main.is_finished() {
            let now = Instant::now();
            LIVE.set(scheduler.live());
            let deadline = scheduler.expire(now);
            let resumed = scheduler.run(64);
            if progress.poll() || resumed > 0 {
                continue;
            }
            let timeout = deadline.map_or(Duration::from_secs(1), |deadline| deadline - now);
            parker.park(timeout, &mut || {
                scheduler.has_ready() || scheduler.drain_inbox() || progress.poll()
            });
        }
        main.join().expect("a fiber that ends without a panic");
    });
    progress.close();
}

const COUNT: u64 = 300;

fn send_all(host: &Host) {
    let options = Sender::options(&host.segments).timeout(Duration::from_secs(30));
    let mut sender = options.open("fibers").expect("an open mailbox");
    for reply in 0..COUNT {
        let payload = [reply as u8; 40];
        let parts = Parts { payload: &payload, ..Parts::default() };
        let header = FrameHeader { reply, ..FrameHeader::default() };
        sender.send(&header, parts).expect("a frame");
        if reply % 100 == 7 {
            // Long enough that the receiver sleeps.
            fiber::sleep(Duration::from_millis(3));
        }
    }
    sender.close(Duration::from_secs(30)).expect("the receiver takes all");
}

fn receive_all(mut inbox: Mailbox) {
    for reply in 0..COUNT {
        let frame = inbox.next().expect("a frame");
        assert_eq!(frame.header().reply, reply);
        let mut payload = [0; 40];
        frame.copy_payload(&mut payload);
        assert_eq!(payload, [reply as u8; 40]);
        drop(frame);
        if reply % 100 == 50 {
            // Long enough that the sender sleeps, which has banks for a few frames.
            fiber::sleep(Duration::from_millis(3));
        }
    }
    while inbox.senders() > 0 {
        assert!(inbox.next_timeout(Duration::from_millis(1)).expect("no error").is_none());
    }
}

fn export(host: &Host) -> Mailbox {
    let builder = Mailbox::builder("fibers").banks(2).frames(4).frame_bytes(64);
    builder.export(&host.segments).expect("a mailbox")
}

/// Where the first claim is (`layout.rs`), and in it the end of its sender (`claim.rs`).
const CLAIM: usize = 128;
const DONE: usize = CLAIM + 40;

/// A host that claims a bank set again and again, and serves nobody that opens its flags, keeps one
/// fiber of the receiver waiting.
#[test]
fn one_opening_of_a_bank_set_at_a_time() {
    within(Duration::from_secs(60), || {
        let rack = TcpTransport::in_process(2, 2, |_| ()).expect("a rack");
        let transport: Arc<dyn Transport> = rack[0].clone();
        let host = Host { segments: Segments::new(transport.clone()), transport };
        let there = host.clone();
        in_fiber(&host, 0, move || {
            let mut inbox = export(&there);
            let raw = there.segments.open("fibers").expect("its segment");
            for epoch in 1..=100_u64 {
                // Of host 1, whose thread was never started.
                let claim = epoch << 32 | 2;
                let hello = [claim, 0, 2];
                let words = [claim, hello[0], hello[1], hello[2], checksum_of(3, |at| hello[at])];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                raw.write(CLAIM, &bytes).expect("a write");
                for _ in 0..200 {
                    assert!(inbox.poll().expect("no error").is_none(), "a frame");
                }
                fiber::yield_now();
            }
            LIVE.with(|live| assert!(live.get() <= 4, "{} fibers", live.get()));
        });
    });
}

/// The banks may be another's as soon as a sender is told that they are released.
#[test]
fn a_sender_that_was_released_writes_nothing_more() {
    on_each(1, |hosts| {
        let host = hosts[0].clone();
        in_fiber(&hosts[0], 0, move || {
            let mut inbox = export(&host);
            let raw = host.segments.open("fibers").expect("its segment");
            let may_close = Rc::new(Cell::new(false));
            let told = may_close.clone();
            let closing = spawn_local(move || {
                let options = Sender::options(&host.segments).timeout(Duration::from_secs(30));
                let sender = options.open("fibers").expect("an open mailbox");
                while !told.get() {
                    fiber::yield_now();
                }
                sender.close(Duration::from_secs(30)).expect("it is released");
            });
            let mut poll = || {
                assert!(inbox.poll().expect("no error").is_none(), "a frame");
                fiber::yield_now();
                inbox.senders()
            };
            while poll() == 0 {}
            may_close.set(true);
            let done = || raw.at_byte::<u64>(DONE).read().expect("a word");
            while done() == 0 {
                fiber::yield_now();
            }
            // As the receiver and another sender have it, before this one runs again.
            let epoch = raw.at_byte::<u64>(CLAIM).read().expect("a claim") >> 32;
            raw.write(DONE, &0_u64.to_ne_bytes()).expect("a write");
            raw.write(CLAIM, &(epoch << 32).to_ne_bytes()).expect("a write");
            while !closing.is_finished() {
                poll();
            }
            closing.join().expect("no panic");
            assert_eq!(done(), 0, "it says once more that it is done");
        });
    });
}

/// Two fibers of one thread: if a wait of one of them held the thread, the other could not end it.
#[test]
fn both_sides_on_one_thread() {
    on_each(1, |hosts| {
        let host = hosts[0].clone();
        in_fiber(&hosts[0], 0, move || {
            let inbox = export(&host);
            let sender = spawn_local(move || send_all(&host));
            receive_all(inbox);
            sender.join().expect("no panic");
        });
    });
}

#[test]
fn between_hosts() {
    on_each(2, |hosts| {
        std::thread::scope(|scope| {
            let (receiver, sender) = (hosts[0].clone(), hosts[1].clone());
            scope.spawn(move || {
                let host = receiver.clone();
                in_fiber(&receiver, 0, move || receive_all(export(&host)));
            });
            scope.spawn(move || {
                let host = sender.clone();
                in_fiber(&sender, 1, move || send_all(&host));
            });
        });
    });
}
