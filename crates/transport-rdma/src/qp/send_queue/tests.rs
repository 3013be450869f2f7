//! Send queues over a device that carries out its requests in order, on demand.

use std::sync::Arc;

use proptest::prelude::*;
use transport_api::RegionKey;

use super::*;
use crate::memory::remote::RemoteMemory;

const DEPTH: usize = 16;
const STAGING: usize = 4096;

/// A device that carries out its requests in order, on demand, and whose memory stands for the
/// peer's.
struct Device {
    /// Requests that it holds.
    depth: usize,
    staging: SharedBytes,
    memory: SharedBytes,
    posted: VecDeque<Work>,
}

impl Device {
    fn new() -> Self {
        let (staging, memory) = (SharedBytes::heap(STAGING), SharedBytes::heap(1 << 16));
        Self { depth: DEPTH, staging, memory, posted: VecDeque::new() }
    }

    fn post(&mut self, queue: &mut SendQueue) {
        self.posted.extend(queue.chain());
        queue.posted();
        assert!(self.posted.len() <= self.depth, "{} requests in flight", self.posted.len());
    }

    /// Carries out up to `count` requests; signalled ones complete.
    fn work(&mut self, queue: &mut SendQueue, count: usize, sink: &mut dyn FnMut(Event)) {
        for _ in 0..count {
            let Some(work) = self.posted.pop_front() else { return };
            let Local { at, len } = work.local;
            let mut bytes = vec![0; len];
            match work.verb {
                Verb::Write(_) => {
                    self.staging.read_into(at, &mut bytes);
                    self.memory.write_from(work.remote.0 as usize, &bytes);
                }
                Verb::Read => {
                    self.memory.read_into(work.remote.0 as usize, &mut bytes);
                    self.staging.write_from(at, &bytes);
                }
                _ => {}
            }
            if work.is_signalled {
                queue.completed(work.id, &self.staging, &mut |outcome| match outcome {
                    Outcome::Event(event) => sink(event),
                    Outcome::Piece { at } => panic!("an unexpected piece at {at}"),
                });
                let any = queue.start_deferred(&self.staging, &mut |refused| match refused {
                    Refused::Operation(event) => sink(event),
                    Refused::Notification => panic!("no notification was started"),
                });
                if any {
                    self.post(queue);
                }
            }
        }
    }
}

fn remote() -> Arc<RemoteMemory> {
    Arc::new(RemoteMemory::new((RegionKey(1), 2), 0, 0))
}

fn write(queue: &mut SendQueue, device: &Device, at: usize, bytes: &[u8]) {
    let to = remote();
    queue.send(Verb::Write(None), Some((&to, at)), Source::Bytes(bytes), &device.staging);
}

fn read(queue: &mut SendQueue, at: usize, into: &SharedBytes, token: u64) {
    let destination =
        Destination::Part { token, into: into.clone(), at: 0, end: Some(Ok(into.len())) };
    queue.fetch(Verb::Read, (&remote(), at), into.len(), destination);
}

#[test]
fn most_requests_are_not_signalled_and_the_last_can_be() {
    let (mut queue, mut device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    (0..8).for_each(|n| write(&mut queue, &device, n * 8, &[1; 8]));
    let signalled = |works: &[Work]| works.iter().filter(|work| work.is_signalled).count();
    assert_eq!(signalled(queue.chain()), 2, "one of four");
    write(&mut queue, &device, 0, &[1; 8]);
    let mark = queue.next_id();
    queue.settle();
    assert!(queue.chain().last().is_some_and(|work| work.is_signalled));
    device.post(&mut queue);
    assert!(!queue.has_completed(mark));
    device.work(&mut queue, DEPTH, &mut |_| ());
    assert!(queue.has_completed(mark) && queue.is_quiet());
}

#[test]
fn small_writes_without_a_result_free_the_staging_memory() {
    // The staging memory is full long before the queue is: each byte takes a word of it.
    const DEEP: usize = STAGING;
    let (mut queue, mut device) = (SendQueue::new(DEEP, STAGING), Device::new());
    device.depth = DEEP;
    (0..STAGING).for_each(|n| write(&mut queue, &device, n, &[1]));
    let mut rounds = 0;
    while queue.next_id() < STAGING as u64 {
        rounds += 1;
        assert!(rounds < STAGING, "{} requests have started, and no more do", queue.next_id());
        device.post(&mut queue);
        device.work(&mut queue, DEEP, &mut |event| panic!("{event:?}"));
    }
}

#[test]
fn a_request_that_changes_memory_behind_a_read_is_fenced() {
    let (mut queue, mut device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    write(&mut queue, &device, 0, &[1; 8]);
    read(&mut queue, 0, &SharedBytes::heap(8), 1);
    read(&mut queue, 8, &SharedBytes::heap(8), 2);
    write(&mut queue, &device, 0, &[2; 8]);
    let fenced: Vec<_> = queue.chain().iter().map(|work| work.is_fenced).collect();
    assert_eq!(fenced, [false, false, false, true]);
    device.post(&mut queue);
    device.work(&mut queue, DEPTH, &mut |_| ());
    write(&mut queue, &device, 0, &[3; 8]);
    assert!(!queue.chain()[0].is_fenced, "the reads are done");
}

#[test]
fn no_request_waits_for_the_read_of_a_payload() {
    let (mut queue, device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    queue.fetch(Verb::Read, (&remote(), 0), 64, Destination::Piece);
    write(&mut queue, &device, 0, &[1; 8]);
    read(&mut queue, 0, &SharedBytes::heap(8), 1);
    write(&mut queue, &device, 8, &[2; 8]);
    let fenced: Vec<_> = queue.chain().iter().map(|work| work.is_fenced).collect();
    assert_eq!(fenced, [false, false, false, true]);
}

#[test]
fn immediate_data_goes_with_the_last_write() {
    let (mut queue, device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    write(&mut queue, &device, 0, &[1; 8]);
    queue.send_immediate(7, &device.staging);
    queue.send_immediate(8, &device.staging);
    let verbs: Vec<_> = queue.chain().iter().map(|work| work.verb).collect();
    assert_eq!(verbs, [Verb::Write(Some(7)), Verb::Immediate(8)]);
    assert_eq!(queue.chain()[1].local.len, 0, "a message of its own");
}

#[test]
fn a_deferred_request_fails_with_its_region() {
    let (mut queue, mut device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    (0..DEPTH).for_each(|n| write(&mut queue, &device, n * 8, &[1; 8]));
    let doomed = remote();
    let destination = || Destination::Word { token: 5 };
    queue.fetch(Verb::Add(1), (&doomed, 0), 8, destination());
    doomed.revoke();
    device.post(&mut queue);
    let mut events = Vec::new();
    device.work(&mut queue, DEPTH, &mut |event| events.push(event));
    let error = OpError::Revoked { key: RegionKey(1), generation: 2 };
    assert!(
        matches!(&events[..], [Event::Failed { token: Some(5), error: e }] if *e == error),
        "{events:?}"
    );
}

#[test]
fn a_refused_read_fails_behind_its_last_byte() {
    const PARTS: usize = 3;
    let (mut queue, mut device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    let (doomed, into) = (remote(), SharedBytes::heap(PARTS * 8));
    let part = |queue: &mut SendQueue, number: usize| {
        let (at, end) = (number * 8, (number + 1 == PARTS).then_some(Ok(PARTS * 8)));
        let destination = Destination::Part { token: 5, into: into.clone(), at, end };
        queue.fetch(Verb::Read, (&doomed, at), 8, destination);
    };
    (0..DEPTH - 1).for_each(|n| write(&mut queue, &device, n * 8, &[1; 8]));
    // The first part is posted, the others are deferred.
    (0..PARTS).for_each(|number| part(&mut queue, number));
    device.post(&mut queue);
    doomed.revoke();
    let mut events = Vec::new();
    device.work(&mut queue, DEPTH - 1, &mut |event| events.push(event));
    assert!(events.is_empty(), "bytes are still to come: {events:?}");
    device.work(&mut queue, 1, &mut |event| events.push(event));
    let [Event::Failed { token: Some(5), error: OpError::Revoked { .. } }] = events[..] else {
        panic!("{events:?}")
    };
    assert!(queue.is_quiet() && queue.fetches() == (3, 3));
}

fn fence(queue: &mut SendQueue, token: u64) {
    queue.fetch(Verb::Read, (&remote(), 0), 8, Destination::Fence { token, refused: None });
}

#[test]
fn a_fence_completes_behind_what_was_started_before_it() {
    let (mut queue, mut device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    // Most of it is deferred.
    (0..3 * DEPTH).for_each(|n| write(&mut queue, &device, n * 8, &[1; 8]));
    fence(&mut queue, 5);
    let mut events = Vec::new();
    for written in 0..3 * DEPTH {
        device.post(&mut queue);
        assert!(events.is_empty(), "only {written} writes have taken effect");
        device.work(&mut queue, 1, &mut |event| events.push(event));
    }
    device.post(&mut queue);
    device.work(&mut queue, 1, &mut |event| events.push(event));
    assert!(matches!(events[..], [Event::Completed { token: 5, value: 0 }]), "{events:?}");
    assert_eq!(queue.fetches(), (1, 1));
}

#[test]
fn a_fence_reports_a_refusal_once() {
    let (mut queue, mut device) = (SendQueue::new(DEPTH, STAGING), Device::new());
    (0..DEPTH).for_each(|n| write(&mut queue, &device, n * 8, &[1; 8]));
    let doomed = remote();
    let to = Some((&doomed, 0));
    queue.send(Verb::Write(None), to, Source::Bytes(&[1; 8]), &device.staging);
    doomed.revoke();
    fence(&mut queue, 5);
    fence(&mut queue, 6);
    let mut events = Vec::new();
    while !queue.is_quiet() {
        device.post(&mut queue);
        device.work(&mut queue, DEPTH, &mut |event| events.push(event));
    }
    let error = OpError::Revoked { key: RegionKey(1), generation: 2 };
    let [
        Event::Failed { token: None, error: first },
        Event::Failed { token: Some(5), error: second },
        Event::Completed { token: 6, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((first, second), (&error, &error));
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, usize),
    Read(usize, usize),
    Immediate,
    Flush,
    Work(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..2000, 0usize..=STAGING / PART).prop_map(|(at, len)| Step::Write(at, len)),
        2 => (0usize..2000, 1usize..=STAGING / PART).prop_map(|(at, len)| Step::Read(at, len)),
        1 => Just(Step::Immediate),
        2 => Just(Step::Flush),
        2 => (1usize..DEPTH).prop_map(Step::Work),
    ]
}

proptest! {
    /// For any requests: the device's queue never overflows, all requests complete in order, and every
    /// read sees exactly the writes before it.
    #[test]
    fn a_queue_keeps_its_order_and_its_bounds(steps in proptest::collection::vec(step(), 1..150)) {
        let (mut queue, mut device) = (SendQueue::new(DEPTH, STAGING), Device::new());
        let mut expected = vec![0u8; 4096];
        let mut reads = Vec::new();
        let mut done = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(at, len) => {
                    let bytes = vec![n as u8 + 1; len];
                    expected[at..at + len].copy_from_slice(&bytes);
                    write(&mut queue, &device, at, &bytes);
                }
                Step::Read(at, len) => {
                    let into = SharedBytes::heap(len);
                    read(&mut queue, at, &into, reads.len() as u64);
                    reads.push((into, expected[at..at + len].to_vec()));
                }
                Step::Immediate => queue.send_immediate(1, &device.staging),
                Step::Flush => device.post(&mut queue),
                Step::Work(count) => {
                    device.work(&mut queue, count, &mut |event| done.push(event));
                }
            }
            if queue.is_crowded() {
                device.post(&mut queue);
            }
        }
        let mut rounds = 0;
        while !queue.is_quiet() {
            queue.settle();
            device.post(&mut queue);
            device.work(&mut queue, DEPTH, &mut |event| done.push(event));
            rounds += 1;
            prop_assert!(rounds < 1000, "it does not end");
        }
        let tokens: Vec<_> = done.iter().map(|event| match event {
            Event::Completed { token, .. } => *token,
            other => panic!("{other:?}"),
        }).collect();
        prop_assert_eq!(tokens, (0..reads.len() as u64).collect::<Vec<_>>());
        for (into, expected) in reads {
            let mut seen = vec![0; into.len()];
            into.read_into(0, &mut seen);
            prop_assert_eq!(seen, expected);
        }
    }
}
