//! Links without a device: what their ends say to each other, peers that break the rules, and
//! devices that do.

use super::*;
use crate::notices::{FETCHED, TAKEN, WINDOW, granted};
use crate::payloads;
use crate::payloads::{BLOCKS, Piece};
use crate::verbs::Work;
use proptest::prelude::*;
use std::collections::VecDeque;
use transport_api::HostId;

/// Threads of every host.
const THREADS: u32 = 2;

const KEY: RegionKey = RegionKey(5);

/// Bytes of a block for payloads.
const BLOCK: usize = 256;

/// A queue pair that only keeps what it is given.
#[derive(Default)]
struct Fake {
    posted: VecDeque<Work>,
    receives: VecDeque<Receive>,
    /// Whether it takes nothing any more, but says so only when asked.
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

fn link() -> Link<Fake> {
    let memory = (SharedBytes::heap(4096), SharedBytes::heap(RECEIVES as usize * RECORD));
    let peer = ThreadId { host: HostId(1), thread: 0 };
    let offers = Offers::new(Some(SharedBytes::heap(BLOCKS * BLOCK)));
    let said = (Notices::new(peer, THREADS), offers, Fetches::new(peer, THREADS));
    let mut link = Link::over(Fake::default(), memory, 64, said).expect("it takes receives");
    link.fetches_from(Arc::new(Remote::new(0, KEY, 0, 0)), BLOCKS * BLOCK);
    link
}

/// What comes of a completion.
fn completed(link: &mut Link<Fake>, id: u64, result: Result<Done, Failure>) -> Vec<Incident> {
    let mut incidents = Vec::new();
    link.take(Completion { id, qp: 0, result }, &mut |incident| incidents.push(incident));
    incidents
}

/// What comes of it that the peer says `word`.
fn hears(link: &mut Link<Fake>, word: u32) -> Vec<Incident> {
    let receive = link.qp.receives.pop_front().expect("a receive");
    completed(link, receive.id, Ok(Done::Notice(word)))
}

/// What comes of it that the peer sends a message of `len` bytes that begins so.
fn gets(link: &mut Link<Fake>, bytes: &[u8; RECORD], len: usize) -> Vec<Incident> {
    let receive = link.qp.receives.pop_front().expect("a receive");
    link.messages.write_from(receive.local.at, bytes);
    completed(link, receive.id, Ok(Done::Message(len)))
}

/// What comes of it that the peer offers a piece of a payload.
fn gets_piece(link: &mut Link<Fake>, piece: Piece) -> Vec<Incident> {
    gets(link, &piece.encode(), RECORD)
}

/// What comes of it that the next READ completes.
fn read(link: &mut Link<Fake>) -> Vec<Incident> {
    let is_read = |work: &Work| work.verb == Verb::Read;
    let index = link.qp.posted.iter().position(is_read).expect("a READ");
    let work = link.qp.posted.remove(index).expect("just found");
    completed(link, work.id, Ok(Done::Sent))
}

fn piece(thread: u32, total: u32, len: u32) -> Piece {
    Piece { tag: 4, total, len, thread }
}

fn record(thread: u32, value: u32) -> Record {
    Record { key: KEY, at: 8, len: 16, value, thread, generation: 3 }
}

/// Carries everything that `from` has posted to `to`, as two devices would; what comes of it there.
fn carry(from: &mut Link<Fake>, to: &mut Link<Fake>) -> Vec<Incident> {
    from.post(&mut |incident| panic!("{incident:?}"));
    let mut incidents = Vec::new();
    while let Some(Work { id, verb, local, is_signalled, .. }) = from.qp.posted.pop_front() {
        match verb {
            Verb::Write(Some(word)) => incidents.extend(hears(to, word)),
            Verb::Send => {
                let mut bytes = [0; RECORD];
                from.staging.read_into(local.at, &mut bytes);
                incidents.extend(gets(to, &bytes, local.len));
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

/// Whether the peer was found to break the rules: that is said once, in words, and the queue pair
/// has ended.
fn is_protocol(link: &Link<Fake>, incidents: &[Incident]) -> bool {
    let [Incident::Failed(LossReason::Protocol(what))] = incidents else { return false };
    !what.is_empty() && link.has_failed && link.qp.has_failed
}

/// Whether nothing that comes of `link` any more concerns anybody.
fn is_over(link: &mut Link<Fake>) -> bool {
    let posted = link.qp.posted.len();
    let remote = Arc::new(Remote::new(0, KEY, 0, 0));
    link.write(&remote, 0, &SharedBytes::heap(64));
    link.notify((KEY, 0), (0, 0), 0, 1);
    link.wake(0);
    link.offer(0, 1, vec![1; 8]);
    link.taken(0);
    link.took(0, payloads::WINDOW);
    link.post(&mut |incident| panic!("{incident:?}"));
    link.qp.posted.len() == posted
        && link.is_quiet()
        && hears(link, 0).is_empty()
        && gets(link, &record(0, 1).encode(), RECORD).is_empty()
        && gets_piece(link, piece(0, 8, 8)).is_empty()
        && completed(link, 0, Ok(Done::Sent)).is_empty()
}

#[test]
fn wakes_and_notifications_are_heard_at_the_other_end() {
    let (mut a, mut b) = (link(), link());
    a.notify((KEY, 3), (8, 16), 1, 77);
    a.wake(1);
    let [Incident::Notified { thread: 1, key: KEY, generation: 3, event }, Incident::Wake(1)] =
        &carry(&mut a, &mut b)[..]
    else {
        panic!("something else")
    };
    let Event::Notified { from, key: KEY, at: 8, len: 16, value: 77 } = event else {
        panic!("{event:?}")
    };
    assert_eq!(*from, ThreadId { host: HostId(1), thread: 0 });
    assert_eq!(b.qp.receives.len(), RECEIVES as usize, "every place is used again");
}

#[test]
fn notifications_wait_for_those_that_nobody_has_taken() {
    const ALL: u32 = 5 * WINDOW;
    let (mut a, mut b) = (link(), link());
    (0..ALL).for_each(|value| a.notify((KEY, 3), (8, 16), 0, value));
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
        b.taken(count);
        assert!(carry(&mut b, &mut a).is_empty(), "that is between the two ends");
    }
    assert_eq!(values, (0..ALL).collect::<Vec<_>>());
}

/// What a peer that breaks the rules does.
type Wrong = fn(&mut Link<Fake>) -> Vec<Incident>;

const WRONG: [(&str, Wrong); 20] = [
    ("wakes a thread that is not there", |link| hears(link, THREADS)),
    ("wakes a thread that cannot be", |link| hears(link, TAKEN - 1)),
    ("takes a notification that was not sent", |link| hears(link, TAKEN | 1)),
    ("takes more notifications than there are", |link| {
        link.notify((KEY, 0), (0, 0), 0, 1);
        hears(link, TAKEN | 2)
    }),
    ("has fetched what was not offered", |link| hears(link, FETCHED | 1)),
    ("grants room for what was not sent", |link| hears(link, granted(1, 1))),
    ("grants more than it was sent", |link| {
        link.offer(1, 0, vec![1; 64]);
        hears(link, granted(1, 3))
    }),
    ("has a thread fetch that is not there", |link| gets_piece(link, piece(THREADS, 8, 8))),
    ("has more fetched than a block", |link| gets_piece(link, piece(0, 1 << 20, BLOCK as u32 + 1))),
    ("has more fetched than the limit", |link| gets_piece(link, piece(0, u32::MAX, 8))),
    ("has more fetched than it has blocks", |link| {
        for _ in 0..BLOCKS {
            assert!(gets_piece(link, piece(0, 8, 8)).is_empty());
        }
        gets_piece(link, piece(0, 8, 8))
    }),
    ("says more of a payload than there is", |link| {
        assert!(gets_piece(link, piece(0, 8, 16)).is_empty());
        read(link)
    }),
    ("says nothing of a payload", |link| {
        assert!(gets_piece(link, piece(0, 8, 0)).is_empty());
        read(link)
    }),
    ("says less and then something else", |link| {
        assert!(gets_piece(link, piece(0, 32, 16)).is_empty());
        assert!(gets_piece(link, piece(0, 24, 8)).is_empty());
        assert!(read(link).is_empty());
        read(link)
    }),
    ("buries a thread that takes nothing", |link| {
        for _ in 0..payloads::WINDOW / 2 {
            assert!(gets_piece(link, piece(0, 8, 8)).is_empty());
            assert_eq!(read(link).len(), 1);
        }
        assert!(gets_piece(link, piece(0, 8, 8)).is_empty());
        read(link)
    }),
    ("sends an empty message", |link| gets(link, &[0; RECORD], 0)),
    ("sends a short message", |link| gets(link, &record(0, 1).encode(), RECORD - 1)),
    ("notifies a thread that is not there", |link| {
        gets(link, &record(THREADS, 1).encode(), RECORD)
    }),
    ("sends garbage", |link| gets(link, &[0xff; RECORD], RECORD)),
    ("sends more notifications than may wait", |link| {
        for value in 0..WINDOW {
            assert_eq!(gets(link, &record(0, value).encode(), RECORD).len(), 1);
        }
        gets(link, &record(0, WINDOW).encode(), RECORD)
    }),
];

#[test]
fn whoever_breaks_the_rules_is_found_out_and_heard_no_more() {
    for (what, act) in WRONG {
        let mut link = link();
        let incidents = act(&mut link);
        assert!(is_protocol(&link, &incidents), "who {what}: {incidents:?}");
        assert!(is_over(&mut link), "who {what}");
    }
}

#[test]
fn a_notification_of_any_region_is_handed_on_with_its_name() {
    // Whether that region is there, and of that generation, the host knows.
    let mut link = link();
    let strange = Record { key: RegionKey(u64::MAX), generation: u32::MAX, ..record(0, 1) };
    let incidents = gets(&mut link, &strange.encode(), RECORD);
    let [Incident::Notified { key: RegionKey(u64::MAX), generation: u32::MAX, .. }] = incidents[..]
    else {
        panic!("{incidents:?}")
    };
    // And whoever drops it makes room for more, as if it had been taken.
    for value in 1..2 * WINDOW {
        link.taken(1);
        assert_eq!(gets(&mut link, &record(0, value).encode(), RECORD).len(), 1);
    }
}

#[test]
fn a_device_that_completes_what_was_not_started_has_failed() {
    let is_failure = |link: &Link<Fake>, incidents: &[Incident]| {
        let [Incident::Failed(LossReason::Connection(why))] = incidents else { return false };
        why.contains("RDMA device") && link.qp.has_failed
    };
    for (id, done) in [
        (IS_RECEIVE, Done::Sent),
        (0, Done::Message(RECORD)),
        (0, Done::Notice(0)),
        (IS_RECEIVE | u64::from(RECEIVES), Done::Message(RECORD)),
        (u64::MAX, Done::Notice(0)),
    ] {
        let mut link = link();
        let incidents = completed(&mut link, id, Ok(done));
        assert!(is_failure(&link, &incidents) && is_over(&mut link), "{id:#x} as {done:?}");
    }
    let mut link = link();
    let incidents = completed(&mut link, 0, Err(Failure::Unexpected(99)));
    assert!(matches!(&incidents[..], [Incident::Failed(LossReason::Connection(_))]));
    assert!(is_over(&mut link));
}

#[test]
fn a_device_that_takes_nothing_more_has_failed() {
    let mut waker = link();
    waker.qp.refuses = true;
    waker.wake(0);
    let mut incidents = Vec::new();
    waker.post(&mut |incident| incidents.push(incident));
    let [Incident::Failed(LossReason::Connection(why))] = &incidents[..] else {
        panic!("{incidents:?}")
    };
    assert!(why.contains("takes no more work"), "{why}");
    let mut hearer = link();
    hearer.qp.refuses = true;
    let incidents = hears(&mut hearer, 0);
    let [Incident::Failed(LossReason::Connection(why)), ..] = &incidents[..] else {
        panic!("{incidents:?}")
    };
    assert!(why.contains("takes no more receives"), "{why}");
}

proptest! {
    /// Whatever a peer says: no panic, no more notifications than may wait, and behind the first
    /// nonsense nothing at all.
    #[test]
    fn any_peer_is_heard_or_found_out(
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
        let mut link = link();
        let mut waiting = 0;
        for (word, bytes, len) in said {
            let incidents = match word {
                Some(word) => hears(&mut link, word),
                None => gets(&mut link, &bytes, len),
            };
            waiting += incidents.iter().filter(|i| matches!(i, Incident::Notified { .. })).count();
            prop_assert!(waiting <= WINDOW as usize);
            if link.has_failed {
                prop_assert!(is_protocol(&link, &incidents) && is_over(&mut link));
                break;
            }
        }
    }
}
