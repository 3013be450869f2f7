//! Connections without a device: what their ends send each other, peers and devices that violate the
//! protocol.

use std::collections::VecDeque;

use proptest::prelude::*;
use rdma_protocol::immediate::{FETCHED, NOTIFICATION_CREDITS, WINDOW, payload_credits};
use transport_api::HostId;

use super::*;
use crate::verbs::Work;
use rdma_protocol::payloads;
use rdma_protocol::payloads::BLOCKS;
use rdma_protocol::payloads::Piece;

/// Threads of every host.
const THREADS: u32 = 2;

pub(super) const KEY: RegionKey = RegionKey(5);

/// Bytes of a block for payloads.
const BLOCK: usize = 256;

/// A queue pair that only records what it is given.
#[derive(Default)]
pub(in crate::qp) struct Fake {
    pub(super) posted: VecDeque<Work>,
    receives: VecDeque<Receive>,
    /// Whether it refuses requests.
    refuses: bool,
    has_failed: bool,
}

impl Pair for Fake {
    fn post(&mut self, works: &[Work]) -> io::Result<()> {
        if self.refuses {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.posted.extend(works);
        Ok(())
    }

    fn receive(&mut self, receive: Receive) -> io::Result<()> {
        if self.refuses {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.receives.push_back(receive);
        Ok(())
    }

    fn fail(&mut self) -> io::Result<()> {
        self.has_failed = true;
        Ok(())
    }
}

pub(in crate::qp) fn connection() -> Connection<Fake> {
    let memory = (SharedBytes::heap(4096), SharedBytes::heap(RECEIVES as usize * RECORD));
    let peer = ThreadId { host: HostId(1), thread: 0 };
    let offers = Offers::new(Some(SharedBytes::heap(BLOCKS * BLOCK)));
    let said = (Notifications::new(peer, THREADS), offers, Fetches::new(peer, THREADS));
    let mut connection =
        Connection::over(Fake::default(), memory, 64, said).expect("it takes receives");
    connection.fetch_from(Arc::new(RemoteMemory::new((KEY, 0), 0, 0)), BLOCKS * BLOCK);
    connection
}

/// The incidents of a completion.
pub(super) fn completed(
    connection: &mut Connection<Fake>,
    id: u64,
    result: Result<Done, Failure>,
) -> Vec<Incident> {
    let mut incidents = Vec::new();
    connection.take(Completion { id, qp: 0, result }, &mut |incident| incidents.push(incident));
    incidents
}

/// The incidents of immediate data `word` of the peer.
pub(super) fn receive_immediate(connection: &mut Connection<Fake>, word: u32) -> Vec<Incident> {
    let receive = connection.qp.receives.pop_front().expect("a receive");
    completed(connection, receive.id, Ok(Done::Immediate(word)))
}

/// The incidents of a message of `len` bytes of the peer that begins with `bytes`.
fn receive(connection: &mut Connection<Fake>, bytes: &[u8; RECORD], len: usize) -> Vec<Incident> {
    let receive = connection.qp.receives.pop_front().expect("a receive");
    connection.messages.write_from(receive.local.at, bytes);
    completed(connection, receive.id, Ok(Done::Message(len)))
}

/// The incidents of a piece of a payload that the peer offers.
fn receive_piece(connection: &mut Connection<Fake>, piece: Piece) -> Vec<Incident> {
    receive(connection, &piece.encode(), RECORD)
}

/// The incidents of the completion of the next READ.
fn read(connection: &mut Connection<Fake>) -> Vec<Incident> {
    let is_read = |work: &Work| work.verb == Verb::Read;
    let index = connection.qp.posted.iter().position(is_read).expect("a READ");
    let work = connection.qp.posted.remove(index).expect("just found");
    completed(connection, work.id, Ok(Done::Sent))
}

fn piece(thread: u32, total: u32, len: u32) -> Piece {
    Piece { tag: 4, total, len, thread }
}

fn record(thread: u32, value: u32) -> Record {
    Record { key: KEY, at: 8, len: 64, value, thread, generation: 3 }
}

/// Carries everything that `from` has posted to `to`, as two devices would; the incidents at `to`.
fn carry(from: &mut Connection<Fake>, to: &mut Connection<Fake>) -> Vec<Incident> {
    from.post(&mut |incident| panic!("{incident:?}"));
    let mut incidents = Vec::new();
    while let Some(Work { id, verb, local, is_signalled, .. }) = from.qp.posted.pop_front() {
        match verb {
            Verb::Write(Some(word)) | Verb::Immediate(word) => {
                incidents.extend(receive_immediate(to, word))
            }
            Verb::Send => {
                let mut bytes = [0; RECORD];
                from.staging.read_into(local.at, &mut bytes);
                incidents.extend(receive(to, &bytes, local.len));
            }
            _ => {}
        }
        if is_signalled {
            assert!(completed(from, id, Ok(Done::Sent)).is_empty());
            from.advance(&mut |incident| panic!("{incident:?}"));
        }
    }
    incidents
}

/// Whether the violation was detected: it is reported once, in words, and the queue pair has ended.
fn is_violation(connection: &Connection<Fake>, incidents: &[Incident]) -> bool {
    let [Incident::Failed(LossReason::Protocol(what))] = incidents else { return false };
    !what.is_empty() && connection.has_failed && connection.qp.has_failed
}

/// Whether `connection` has no effect any more.
fn is_over(connection: &mut Connection<Fake>) -> bool {
    let posted = connection.qp.posted.len();
    let remote = Arc::new(RemoteMemory::new((KEY, 0), 0, 0));
    connection.write(&remote, 0, &SharedBytes::heap(64));
    connection.notify((KEY, 0), (0, 64), 0, 1);
    connection.wake(0);
    connection.fence(&remote, 0, 7);
    connection.offer(0, 1, vec![1; 8]);
    connection.notifications_taken(0);
    connection.payloads_taken(0, payloads::WINDOW);
    connection.post(&mut |incident| panic!("{incident:?}"));
    connection.qp.posted.len() == posted
        && connection.is_quiet()
        && receive_immediate(connection, 0).is_empty()
        && receive(connection, &record(0, 1).encode(), RECORD).is_empty()
        && receive_piece(connection, piece(0, 8, 8)).is_empty()
        && completed(connection, 0, Ok(Done::Sent)).is_empty()
}

#[test]
fn wakes_and_notifications_arrive_at_the_other_end() {
    let (mut a, mut b) = (connection(), connection());
    a.notify((KEY, 3), (8, 64), 1, 77);
    a.wake(1);
    let [Incident::Notified { thread: 1, key: KEY, generation: 3, event }, Incident::Wake(1)] =
        &carry(&mut a, &mut b)[..]
    else {
        panic!("something else")
    };
    let Event::Notified { from, key: KEY, at: 8, len: 64, value: 77 } = event else {
        panic!("{event:?}")
    };
    assert_eq!(*from, ThreadId { host: HostId(1), thread: 0 });
    assert_eq!(b.qp.receives.len(), RECEIVES as usize, "every place is used again");
}

#[test]
fn notifications_wait_for_credits() {
    const ALL: u32 = 5 * WINDOW;
    let (mut a, mut b) = (connection(), connection());
    (0..ALL).for_each(|value| a.notify((KEY, 3), (8, 64), 0, value));
    let mut values = Vec::new();
    while values.len() < ALL as usize {
        let come = carry(&mut a, &mut b);
        assert!(come.len() <= WINDOW as usize);
        let count = come.len() as u32;
        values.extend(come.into_iter().map(|incident| match incident {
            Incident::Notified { event: Event::Notified { value, .. }, .. } => value,
            other => panic!("{other:?}"),
        }));
        assert_eq!(carry(&mut a, &mut b).len(), 0, "the window is full");
        assert_eq!(a.waiting_notifications(0), ALL as usize - values.len(), "the others wait");
        assert_eq!(a.waiting_notifications(1), 0, "none for another thread");
        b.notifications_taken(count);
        assert!(carry(&mut b, &mut a).is_empty(), "that is between the two ends");
    }
    assert_eq!(values, (0..ALL).collect::<Vec<_>>());
}

/// A violation of the protocol by a peer.
type Violation = fn(&mut Connection<Fake>) -> Vec<Incident>;

const VIOLATIONS: [(&str, Violation); 20] = [
    ("wakes a thread that is not there", |connection| receive_immediate(connection, THREADS)),
    ("wakes a thread that cannot be", |connection| {
        receive_immediate(connection, NOTIFICATION_CREDITS - 1)
    }),
    ("takes a notification that was not sent", |connection| {
        receive_immediate(connection, NOTIFICATION_CREDITS | 1)
    }),
    ("takes more notifications than there are", |connection| {
        connection.notify((KEY, 0), (0, 64), 0, 1);
        receive_immediate(connection, NOTIFICATION_CREDITS | 2)
    }),
    ("has fetched what was not offered", |connection| receive_immediate(connection, FETCHED | 1)),
    ("grants room for what was not sent", |connection| {
        receive_immediate(connection, payload_credits(1, 1))
    }),
    ("grants more than it was sent", |connection| {
        connection.offer(1, 0, vec![1; 64]);
        receive_immediate(connection, payload_credits(1, 3))
    }),
    ("has a thread fetch that is not there", |connection| {
        receive_piece(connection, piece(THREADS, 8, 8))
    }),
    ("has more fetched than a block", |connection| {
        receive_piece(connection, piece(0, 1 << 20, BLOCK as u32 + 1))
    }),
    ("has more fetched than the limit", |connection| {
        receive_piece(connection, piece(0, u32::MAX, 8))
    }),
    ("has more fetched than it has blocks", |connection| {
        for _ in 0..BLOCKS {
            assert!(receive_piece(connection, piece(0, 8, 8)).is_empty());
        }
        receive_piece(connection, piece(0, 8, 8))
    }),
    ("says more of a payload than there is", |connection| {
        assert!(receive_piece(connection, piece(0, 8, 16)).is_empty());
        read(connection)
    }),
    ("says nothing of a payload", |connection| {
        assert!(receive_piece(connection, piece(0, 8, 0)).is_empty());
        read(connection)
    }),
    ("says less and then something else", |connection| {
        assert!(receive_piece(connection, piece(0, 32, 16)).is_empty());
        assert!(receive_piece(connection, piece(0, 24, 8)).is_empty());
        assert!(read(connection).is_empty());
        read(connection)
    }),
    ("exceeds the window of a thread that takes nothing", |connection| {
        for _ in 0..payloads::WINDOW / 2 {
            assert!(receive_piece(connection, piece(0, 8, 8)).is_empty());
            assert_eq!(read(connection).len(), 1);
        }
        assert!(receive_piece(connection, piece(0, 8, 8)).is_empty());
        read(connection)
    }),
    ("sends an empty message", |connection| receive(connection, &[0; RECORD], 0)),
    ("sends a short message", |connection| receive(connection, &record(0, 1).encode(), RECORD - 1)),
    ("notifies a thread that is not there", |connection| {
        receive(connection, &record(THREADS, 1).encode(), RECORD)
    }),
    ("sends garbage", |connection| receive(connection, &[0xff; RECORD], RECORD)),
    ("sends more notifications than may wait", |connection| {
        for value in 0..WINDOW {
            assert_eq!(receive(connection, &record(0, value).encode(), RECORD).len(), 1);
        }
        receive(connection, &record(0, WINDOW).encode(), RECORD)
    }),
];

#[test]
fn a_peer_that_violates_the_protocol_is_detected_and_ignored() {
    for (what, act) in VIOLATIONS {
        let mut connection = connection();
        let incidents = act(&mut connection);
        assert!(is_violation(&connection, &incidents), "a peer that {what}: {incidents:?}");
        assert!(is_over(&mut connection), "a peer that {what}");
    }
}

#[test]
fn a_notification_of_any_region_is_passed_on_with_its_name() {
    // The host knows whether that region is exported in that generation.
    let mut connection = connection();
    let strange = Record { key: RegionKey(u64::MAX), generation: u32::MAX, ..record(0, 1) };
    let incidents = receive(&mut connection, &strange.encode(), RECORD);
    let [Incident::Notified { key: RegionKey(u64::MAX), generation: u32::MAX, .. }] = incidents[..]
    else {
        panic!("{incidents:?}")
    };
    // A dropped notification makes room for more, as if it had been taken.
    for value in 1..2 * WINDOW {
        connection.notifications_taken(1);
        assert_eq!(receive(&mut connection, &record(0, value).encode(), RECORD).len(), 1);
    }
}

#[test]
fn a_device_that_completes_what_was_not_started_has_failed() {
    let is_failure = |connection: &Connection<Fake>, incidents: &[Incident]| {
        let [Incident::Failed(LossReason::Connection(why))] = incidents else { return false };
        why.contains("RDMA device") && connection.qp.has_failed
    };
    for (id, done) in [
        (IS_RECEIVE, Done::Sent),
        (0, Done::Message(RECORD)),
        (0, Done::Immediate(0)),
        (IS_RECEIVE | u64::from(RECEIVES), Done::Message(RECORD)),
        (u64::MAX, Done::Immediate(0)),
    ] {
        let mut connection = connection();
        let incidents = completed(&mut connection, id, Ok(done));
        assert!(
            is_failure(&connection, &incidents) && is_over(&mut connection),
            "{id:#x} as {done:?}"
        );
    }
    let mut connection = connection();
    let incidents = completed(&mut connection, 0, Err(Failure::Unexpected(99)));
    assert!(matches!(&incidents[..], [Incident::Failed(LossReason::Connection(_))]));
    assert!(is_over(&mut connection));
}

#[test]
fn a_device_that_takes_nothing_more_has_failed() {
    let mut waker = connection();
    waker.qp.refuses = true;
    waker.wake(0);
    let mut incidents = Vec::new();
    waker.post(&mut |incident| incidents.push(incident));
    let [Incident::Failed(LossReason::Connection(why))] = &incidents[..] else {
        panic!("{incidents:?}")
    };
    assert!(why.contains("accepts no more work requests"), "{why}");
    let mut hearer = connection();
    hearer.qp.refuses = true;
    let incidents = receive_immediate(&mut hearer, 0);
    let [Incident::Failed(LossReason::Connection(why)), ..] = &incidents[..] else {
        panic!("{incidents:?}")
    };
    assert!(why.contains("accepts no more receives"), "{why}");
}

proptest! {
    /// Whatever a peer sends: no panic, no more notifications than may wait, and nothing behind the
    /// first violation.
    #[test]
    fn any_peer_is_served_or_detected(
        said in proptest::collection::vec(
            prop_oneof![
                any::<u32>().prop_map(|word| (Some(word), [0; RECORD], 0)),
                (0..THREADS).prop_map(|thread| (Some(thread), [0; RECORD], 0)),
                (any::<[u8; RECORD]>(), 0..=RECORD).prop_map(|(bytes, len)| (None, bytes, len)),
                any::<u32>().prop_map(|value| (None, record(value % 3, value).encode(), RECORD)),
                (0..3u32, 0..600u32, 0..300u32)
                    .prop_map(|(thread, total, len)| (None, piece(thread, total, len).encode(), RECORD)),
            ],
            1..200,
        ),
    ) {
        let mut connection = connection();
        let mut waiting = 0;
        for (word, bytes, len) in said {
            let incidents = match word {
                Some(word) => receive_immediate(&mut connection, word),
                None => receive(&mut connection, &bytes, len),
            };
            waiting += incidents.iter().filter(|i| matches!(i, Incident::Notified { .. })).count();
            prop_assert!(waiting <= WINDOW as usize);
            if connection.has_failed {
                prop_assert!(is_violation(&connection, &incidents) && is_over(&mut connection));
                break;
            }
        }
    }
}
