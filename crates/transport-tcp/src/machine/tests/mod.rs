//! Two machines, joined by hand: whatever the operations and however their bytes are cut, memory
//! and events end as the order of the lanes says. And one machine whose peer breaks the protocol.

use primitive::sync::Ordering;
use proptest::collection::vec;
use proptest::prelude::*;
use transport_api::{HostId, OpError, Rights, Tag};
use transport_control::Violation;

mod regions;
mod windows;

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
