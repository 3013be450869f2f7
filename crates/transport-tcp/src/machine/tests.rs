//! Two machines, joined by hand: whatever the operations and however their bytes are cut, memory
//! and events end as the order of the lanes says. And one machine whose peer breaks the protocol.

use primitive::sync::Ordering;
use proptest::collection::vec;
use proptest::prelude::*;
use transport_api::{HostId, OpError, Rights, Tag};
use transport_control::Violation;

use super::fake::Fake;
use super::*;
use crate::machine::bulk;
use crate::wire::frame::tests::frame;

const LEN: usize = 256;
const THREADS: u32 = 3;
const ALL: Name = Name { key: RegionKey(1), generation: 4 };
const READABLE: Name = Name { key: RegionKey(2), generation: 0 };
const REVOKED: Name = Name { key: RegionKey(1), generation: 3 };

/// One end: a machine of thread 1 and its process.
struct End {
    machine: Machine,
    fake: Fake,
}

impl End {
    fn new(peer: u32) -> End {
        let fake = Fake::new([(ALL, Rights::ALL), (READABLE, Rights::READ)], LEN);
        let peer = ThreadId { host: HostId(peer), thread: 1 };
        End { machine: Machine::new(peer, THREADS), fake }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.machine.feed(bytes, &mut self.fake)
    }

    /// Moves at most `count` bytes to `other`; how many there were.
    fn send(&mut self, other: &mut End, count: usize) -> Result<usize, Violation> {
        let bytes = self.machine.outgoing();
        let bytes = bytes[..bytes.len().min(count)].to_vec();
        self.machine.sent(bytes.len());
        other.feed(&bytes)?;
        Ok(bytes.len())
    }

    fn memory(&self) -> Vec<u8> {
        contents(&self.fake.regions[0].memory)
    }

    fn take_events(&mut self) -> Vec<String> {
        self.fake.events.drain(..).map(|(thread, event)| format!("{thread} {event:?}")).collect()
    }
}

fn contents(memory: &SharedBytes) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read_into(0, &mut bytes);
    bytes
}

/// Moves everything both ways, in pieces of the sizes `cuts`.
fn exchange(a: &mut End, b: &mut End, cuts: &[usize]) {
    let mut idle = 0;
    for cut in cuts.iter().cycle() {
        let there = a.send(b, *cut).expect("no violation from a");
        let back = b.send(a, cut % 97 + 1).expect("no violation from b");
        idle = if there + back > 0 { 0 } else { idle + 1 };
        if idle == 2 {
            return;
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write { at: usize, bytes: Vec<u8> },
    Signal { at: usize, word: u64 },
    Tagged { at: usize, tag: u64, parts: [Vec<u8>; 2] },
    Read { at: usize, len: usize },
    Swap { at: usize, expected: u64, new: u64 },
    Add { at: usize, addend: u64 },
    Notify { at: usize, value: u32 },
    Bulk { thread: u32, len: usize },
    Wake { thread: u32 },
    Fence,
}

fn op() -> impl Strategy<Value = Op> {
    let word = (0..LEN / 8).prop_map(|word| word * 8);
    let run = (0..LEN).prop_flat_map(|at| (Just(at), 0..=LEN - at));
    prop_oneof![
        run.clone().prop_flat_map(|(at, len)| {
            vec(any::<u8>(), len).prop_map(move |bytes| Op::Write { at, bytes })
        }),
        (word.clone(), any::<u64>()).prop_map(|(at, word)| Op::Signal { at, word }),
        (0..LEN / 16, any::<u64>(), [vec(any::<u8>(), 0..60), vec(any::<u8>(), 0..60)])
            .prop_map(|(at, tag, parts)| Op::Tagged { at: at * 8, tag, parts }),
        run.prop_map(|(at, len)| Op::Read { at, len }),
        (word.clone(), 0u64..2, any::<u64>()).prop_map(|(at, expected, new)| Op::Swap {
            at,
            expected,
            new
        }),
        (word.clone(), any::<u64>()).prop_map(|(at, addend)| Op::Add { at, addend }),
        (word, any::<u32>()).prop_map(|(at, value)| Op::Notify { at, value }),
        (0..THREADS, 0usize..200_000).prop_map(|(thread, len)| Op::Bulk { thread, len }),
        (0..THREADS).prop_map(|thread| Op::Wake { thread }),
        Just(Op::Fence),
    ]
}

/// What operations must come to.
#[derive(Default)]
struct Model {
    memory: Vec<u8>,
    /// Completions at the side that asked: token and value.
    completed: Vec<(u64, u64)>,
    /// What reads must have brought.
    read: Vec<(SharedBytes, Vec<u8>)>,
    /// For each thread of the other side, what has a place in its stream.
    streams: [Vec<String>; THREADS as usize],
    woken: Vec<u32>,
}

impl Model {
    /// Does `op` here and starts it on `machine`.
    fn start(&mut self, machine: &mut Machine, from: ThreadId, token: u64, op: &Op) {
        let word = |memory: &[u8], at: usize| {
            u64::from_le_bytes(memory[at..at + 8].try_into().expect("eight bytes"))
        };
        match op {
            Op::Write { at, bytes } => {
                let memory = SharedBytes::heap(LEN).slice(0, bytes.len());
                memory.write_from(0, bytes);
                machine.write(ALL, *at, &memory);
                self.memory[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Op::Signal { at, word } => {
                machine.signal(ALL, *at, *word);
                self.memory[*at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            Op::Tagged { at, tag, parts } => {
                let body = parts.concat();
                machine.write_tagged(ALL, (*at, *tag), body.len(), |out| out.extend(&body));
                let bytes = [&tag.to_le_bytes(), &body[..]].concat();
                self.memory[*at..at + bytes.len()].copy_from_slice(&bytes);
            }
            Op::Read { at, len } => {
                let into = SharedBytes::heap(LEN).slice(0, *len);
                machine.read(ALL, *at, &into, token);
                self.read.push((into, self.memory[*at..at + len].to_vec()));
                self.completed.push((token, *len as u64));
            }
            Op::Swap { at, expected, new } => {
                machine.compare_swap(ALL, *at, [*expected, *new], token);
                let old = word(&self.memory, *at);
                self.completed.push((token, old));
                if old == *expected {
                    self.memory[*at..at + 8].copy_from_slice(&new.to_le_bytes());
                }
            }
            Op::Add { at, addend } => {
                machine.fetch_add(ALL, *at, *addend, token);
                let old = word(&self.memory, *at);
                self.completed.push((token, old));
                self.memory[*at..at + 8].copy_from_slice(&old.wrapping_add(*addend).to_le_bytes());
            }
            Op::Fence => {
                machine.fence(token);
                self.completed.push((token, 0));
            }
            Op::Notify { at, value } => {
                machine.notify(ALL, *at, 8, 2, *value);
                let (key, at) = (ALL.key, *at as u64);
                let event = Event::Notified { from, key, at, len: 8, value: *value };
                self.streams[2].push(format!("2 {event:?}"));
            }
            Op::Bulk { thread, len } => {
                let payload = vec![token as u8; *len];
                machine.bulk(*thread, token, payload.clone());
                let event = Event::Bulk { from, tag: Tag(token), payload };
                self.streams[*thread as usize].push(format!("{thread} {event:?}"));
            }
            Op::Wake { thread } => {
                machine.wake(*thread);
                self.woken.push(*thread);
            }
        }
    }

    /// Checks that `end`, which carried the operations out, agrees with what was `reported` to the
    /// other.
    fn check(&self, end: &mut End, reported: &[String]) {
        assert_eq!(end.memory(), self.memory);
        assert_eq!(end.fake.woken, self.woken);
        let completed = |(token, value): &(u64, u64)| {
            format!("1 {:?}", Event::Completed { token: *token, value: *value })
        };
        let completed: Vec<_> = self.completed.iter().map(completed).collect();
        let reported: Vec<_> =
            reported.iter().filter(|event| event.contains("Completed")).collect();
        assert_eq!(reported, completed.iter().collect::<Vec<_>>());
        for (into, bytes) in &self.read {
            assert_eq!(contents(into), *bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn operations_keep_their_order_however_they_are_cut(
        ops in vec((any::<bool>(), op()), 0..40),
        cuts in vec(1usize..5000, 1..20),
    ) {
        let (mut a, mut b) = (End::new(1), End::new(0));
        let [mut of_a, mut of_b] = [0, 1].map(|_| {
            Model { memory: vec![0; LEN], ..Model::default() }
        });
        let [thread_a, thread_b] = [0, 1].map(|host| ThreadId { host: HostId(host), thread: 1 });
        for (token, (is_a, op)) in (0..).zip(&ops) {
            if *is_a {
                of_a.start(&mut a.machine, thread_a, token, op);
            } else {
                of_b.start(&mut b.machine, thread_b, token, op);
            }
            a.send(&mut b, 1000).expect("no violation");
        }
        a.machine.goodbye();
        // A side that takes what has arrived makes room for more.
        let (mut reported_a, mut reported_b) = (Vec::new(), Vec::new());
        for _ in 0..ops.len() + 2 {
            exchange(&mut a, &mut b, &cuts);
            for (end, reported) in [(&mut a, &mut reported_a), (&mut b, &mut reported_b)] {
                for (thread, event) in &end.fake.events {
                    let cost = match event {
                        Event::Bulk { payload, .. } => bulk::cost_of(payload.len()),
                        Event::Notified { .. } => bulk::cost_of(0),
                        _ => continue,
                    };
                    end.machine.taken(*thread, cost);
                }
                reported.extend(end.take_events());
            }
        }
        of_a.check(&mut b, &reported_a);
        of_b.check(&mut a, &reported_b);
        for (model, reported) in [(&of_a, &reported_b), (&of_b, &reported_a)] {
            for (thread, stream) in model.streams.iter().enumerate() {
                let prefix = [format!("{thread} Bulk"), format!("{thread} Notified")];
                let arrived: Vec<_> = reported
                    .iter()
                    .filter(|event| prefix.iter().any(|prefix| event.starts_with(prefix)))
                    .collect();
                prop_assert!(arrived == stream.iter().collect::<Vec<_>>(), "thread {}", thread);
            }
        }
        prop_assert_eq!((a.fake.goodbyes, b.fake.goodbyes), (0, 1));
    }

    #[test]
    fn a_peer_that_is_none_does_no_harm(frames in vec((frame(), 0u64..4), 0..60), junk: Vec<u8>) {
        let mut end = End::new(0);
        end.machine.fetch_add(ALL, 0, 1, 5);
        end.machine.read(ALL, 0, &SharedBytes::heap(64), 6);
        for ((mut header, body), key) in frames {
            // Half of the fields mean something, or all of it would end at the first frame.
            header.key = key;
            header.generation %= 5;
            header.thread %= THREADS as u16 + 1;
            header.at %= 2 * LEN as u64;
            let mut bytes = Vec::new();
            header.encode_with(&body, &mut bytes);
            if end.feed(&bytes).is_err() {
                break;
            }
        }
        // The connection ends at the first error; that it is used on does no harm either.
        let _ = end.feed(&junk);
        let readable = contents(&end.fake.regions[1].memory);
        prop_assert!(readable.iter().all(|byte| *byte == 0), "no host may write there");
        prop_assert!(end.machine.outgoing().len() < 4 << 20);
    }
}

/// A frame with one wrong thing, against a region of [`LEN`] bytes.
#[test]
fn what_a_region_does_not_allow_is_refused_and_not_done() {
    let write = |name: Name, at: u64| Header { word: 1, at, ..on(Kind::Write, name, 0) };
    let wrong: [(Header, &[u8]); 13] = [
        (write(ALL, LEN as u64 - 7), &[1; 8]),
        (write(ALL, u64::MAX), &[1; 8]),
        (write(READABLE, 0), &[1; 8]),
        (on(Kind::Signal, ALL, 12), &[]),
        (on(Kind::Signal, ALL, LEN), &[]),
        (on(Kind::Signal, READABLE, 0), &[]),
        (on(Kind::Tagged, ALL, 12), &[1; 8]),
        (on(Kind::Tagged, ALL, LEN - 8), &[1; 8]),
        (on(Kind::Tagged, ALL, usize::MAX & !7), &[1; 8]),
        (on(Kind::Tagged, READABLE, 0), &[1; 8]),
        (Header { word: 1, ..on(Kind::Add, READABLE, 0) }, &[]),
        (Header { word: LEN as u64 + 1, ..on(Kind::Read, ALL, 0) }, &[]),
        (on(Kind::Swap, ALL, 4), &[1; 8]),
    ];
    for (header, body) in wrong {
        let mut end = End::new(0);
        let mut bytes = Vec::new();
        header.encode_with(body, &mut bytes);
        assert!(end.feed(&bytes).is_err(), "{header:?}");
        for region in &end.fake.regions {
            assert!(contents(&region.memory).iter().all(|byte| *byte == 0), "{header:?} wrote");
        }
        assert!(end.machine.outgoing().is_empty(), "{header:?} was answered");
    }
}

/// A notification of bytes that its sender may not have written.
#[test]
fn a_notification_is_refused_where_the_write_before_it_would_be() {
    let notify = |name: Name, at: u64, len: u64| {
        let (mut end, mut bytes) = (End::new(0), Vec::new());
        let header = Header { word: 7, at, ..on(Kind::Notify, name, 0) };
        header.encode_with(&[len, 0].map(u64::to_le_bytes).concat(), &mut bytes);
        let fed = end.feed(&bytes);
        (fed.is_ok(), end.fake.events.len())
    };
    assert_eq!(notify(ALL, 0, LEN as u64), (true, 1));
    assert_eq!(notify(ALL, LEN as u64, 0), (true, 1));
    for (at, len) in [(0, LEN as u64 + 1), (LEN as u64, 1), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(notify(ALL, at, len), (false, 0), "{len} bytes at {at}");
    }
    assert_eq!(notify(READABLE, 0, 8), (false, 0), "it may not write there");
    let later = Name { generation: ALL.generation + 1, ..ALL };
    assert_eq!(notify(later, 0, 8), (true, 0), "there never was such a region");
}

/// Whatever happens to the region between the two.
#[test]
fn a_notification_arrives_if_and_only_if_its_write_does() {
    let values = |end: &mut End| -> Vec<u32> {
        let value = |(_, event)| match event {
            Event::Notified { value, .. } => value,
            other => panic!("{other:?} is no notification"),
        };
        end.fake.events.drain(..).map(value).collect()
    };
    let (mut a, mut b) = (End::new(1), End::new(0));
    let word = SharedBytes::heap(8);
    let write = |end: &mut End, name, value| {
        end.machine.write(name, 0, &word);
        end.machine.notify(name, 0, 8, 0, value);
    };
    write(&mut a, ALL, 1);
    // The notification is behind the write, and arrives after the revocation.
    let frame = a.machine.outgoing().len();
    a.send(&mut b, frame - 8).expect("no violation");
    assert!(values(&mut b).is_empty());
    b.fake.regions[0].revoke();
    b.machine.forget(ALL.key);
    write(&mut a, ALL, 2);
    a.machine.announce(ALL, 0, 8, 0, 3);
    write(&mut a, REVOKED, 4);
    write(&mut a, ALL, 5);
    a.machine.announce(REVOKED, 0, 8, 0, 6);
    exchange(&mut a, &mut b, &[usize::MAX]);
    assert_eq!(values(&mut b), [1, 3, 6]);
    // Those that were dropped cost the stream nothing.
    (0..3).for_each(|_| b.machine.taken(0, bulk::cost_of(0)));
    b.machine.wake(0);
    exchange(&mut a, &mut b, &[usize::MAX]);
    a.machine.outbound.granted(0, 1).expect_err("everything was granted");
}

#[test]
fn a_small_grant_travels_with_the_next_message_and_a_large_one_alone() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    a.machine.bulk(0, 0, vec![1; 100]);
    exchange(&mut a, &mut b, &[usize::MAX]);
    b.machine.taken(0, bulk::cost_of(100));
    assert!(b.machine.outgoing().is_empty(), "a message of its own");
    b.machine.wake(0);
    exchange(&mut a, &mut b, &[usize::MAX]);
    a.machine.outbound.granted(0, 1).expect_err("it was granted");
    // A quarter of the window is much.
    let large = bulk::WINDOW as usize / 4;
    a.machine.bulk(0, 0, vec![1; large]);
    exchange(&mut a, &mut b, &[usize::MAX]);
    b.machine.taken(0, bulk::cost_of(large));
    exchange(&mut a, &mut b, &[usize::MAX]);
    a.machine.outbound.granted(0, 1).expect_err("it was granted");
}

#[test]
fn revoked_regions_are_reported_and_answers_keep_their_order() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    let into = SharedBytes::heap(LEN);
    a.machine.write(REVOKED, 0, &SharedBytes::heap(200_000));
    a.machine.read(REVOKED, 0, &into, 1);
    a.machine.fetch_add(ALL, 0, 1, 2);
    a.machine.compare_swap(REVOKED, 0, [0, 1], 3);
    a.machine.notify(REVOKED, 0, 8, 0, 1);
    exchange(&mut a, &mut b, &[usize::MAX]);
    let error = || OpError::Revoked { key: RegionKey(1), generation: 3 };
    let expected = [
        Event::Failed { token: None, error: error() },
        Event::Failed { token: Some(1), error: error() },
        Event::Completed { token: 2, value: 0 },
        Event::Failed { token: Some(3), error: error() },
    ];
    assert_eq!(a.take_events(), expected.map(|event| format!("1 {event:?}")));
    assert!(b.take_events().is_empty(), "a notification of nothing");
    // A revocation while operations are under way: first the region is dead, then it is not found.
    let steps: [fn(&mut End); 2] = [
        |b| b.fake.regions.iter().for_each(|region| region.revoke()),
        |b| {
            b.fake.regions.clear();
            b.machine.forget(ALL.key);
        },
    ];
    for (token, step) in (4..).zip(steps) {
        step(&mut b);
        a.machine.fetch_add(ALL, 0, 1, token);
        exchange(&mut a, &mut b, &[usize::MAX]);
        let Name { key, generation } = ALL;
        let error = OpError::Revoked { key, generation };
        let failed = Event::Failed { token: Some(token), error };
        assert_eq!(a.take_events(), [format!("1 {failed:?}")]);
    }
}

#[test]
fn a_fence_tells_of_refusals_since_the_last_one_however_many() {
    const MANY: u64 = 100_000;
    let (mut a, mut b) = (End::new(1), End::new(0));
    a.machine.signal(ALL, 0, 7);
    a.machine.fence(1);
    for _ in 0..MANY {
        a.machine.signal(REVOKED, 0, 1);
    }
    a.machine.fence(2);
    a.machine.fence(3);
    exchange(&mut a, &mut b, &[usize::MAX]);
    let events = a.take_events();
    let fences: Vec<_> = events.iter().filter(|event| !event.contains("token: None")).collect();
    let refused = Event::Failed {
        token: Some(2),
        error: OpError::Revoked { key: RegionKey(1), generation: 3 },
    };
    let expected =
        [Event::Completed { token: 1, value: 0 }, refused, Event::Completed { token: 3, value: 0 }];
    assert_eq!(fences, expected.map(|event| format!("1 {event:?}")).iter().collect::<Vec<_>>());
    assert!((events.len() as u64) < MANY, "not every refusal is reported by itself");
}

/// Reads that are worth more than the window wait at the side that asks, with all behind them.
#[test]
fn no_side_is_owed_more_answers_than_the_window() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    let large = SharedBytes::heap(4 << 20);
    let exported = Exported::new((RegionKey(9), 0), Rights::ALL.into(), large.clone());
    b.fake.regions.push(Arc::new(exported));
    let name = Name { key: RegionKey(9), generation: 0 };
    let into = SharedBytes::heap(large.len());
    large.store(8, 77, Ordering::Relaxed);
    a.machine.read(name, 0, &into, 1);
    a.machine.signal(name, 8, 78);
    a.send(&mut b, usize::MAX).expect("no violation");
    assert!(b.machine.answers.len() <= ANSWER_WINDOW);
    assert_eq!(large.load(8, Ordering::Relaxed), 77, "the signal waits behind the read");
    exchange(&mut a, &mut b, &[usize::MAX]);
    assert_eq!((into.load(8, Ordering::Relaxed), large.load(8, Ordering::Relaxed)), (77, 78));
    assert_eq!(a.take_events().len(), 1);

    // One that does not keep to it is sent away before it is answered at length.
    let mut bytes = Vec::new();
    Header { word: BODY_BYTES as u64, ..on(Kind::Read, name, 0) }.encode(0, &mut bytes);
    let refused = (0..100).find_map(|_| b.feed(&bytes).err()).expect("a refusal");
    assert!(refused.to_string().contains("takes no answers"), "{refused}");
    // Failures of operations without a token are not all reported.
    let mut bytes = Vec::new();
    let mut c = End::new(0);
    Header { word: 1, ..on(Kind::Write, REVOKED, 0) }.encode(0, &mut bytes);
    (0..100_000).for_each(|_| c.feed(&bytes).expect("no violation"));
    assert!(c.machine.answers.len() < 2 * ANSWER_WINDOW);
}

/// More regions than a connection remembers: each is found again, and one that is revoked is refused, also if it
/// is remembered behind others.
#[test]
fn of_many_regions_only_what_is_exported_is_written() {
    const REGIONS: u64 = 10;
    let name = |key: u64, generation| Name { key: RegionKey(key), generation };
    let (mut a, mut b) = (End::new(1), End::new(0));
    b.fake = Fake::new(
        std::array::from_fn::<_, { REGIONS as usize }, _>(|key| (name(key as u64, 1), Rights::ALL)),
        LEN,
    );
    let word = |b: &End, key: usize| b.fake.regions[key].memory.load(0, Ordering::Acquire);
    let write = |a: &mut End, b: &mut End, name, word| {
        a.machine.signal(name, 0, word);
        exchange(a, b, &[LEN]);
        a.take_events()
    };
    let order = (0..REGIONS).chain([9, 4, 3, 4, 0, 1, 9, 9, 2]);
    for (number, key) in (1..).zip(order) {
        assert!(write(&mut a, &mut b, name(key, 1), number).is_empty());
        assert_eq!(word(&b, key as usize), number, "region {key}");
    }
    // The third in the list.
    b.fake.regions[1].revoke();
    let refused = write(&mut a, &mut b, name(1, 1), 77);
    assert!(matches!(&refused[..], [it] if it.contains("Revoked")), "{refused:?}");
    let memory = SharedBytes::heap(LEN);
    b.fake.regions[1] = Arc::new(Exported::new((RegionKey(1), 2), Rights::ALL.into(), memory));
    let refused = write(&mut a, &mut b, name(1, 1), 78);
    assert!(matches!(&refused[..], [it] if it.contains("Revoked")), "{refused:?}");
    assert_eq!(word(&b, 1), 0);
    assert!(write(&mut a, &mut b, name(1, 2), 79).is_empty());
    assert_eq!(word(&b, 1), 79);
}
