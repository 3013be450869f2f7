//! A malicious peer writes anything into its slots and sends anything by the bulk path: the
//! trustee's thread does not panic, reads nothing beyond the slot, runs no closure on a property of
//! another type, and gives a reason with every refusal.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gossamer_trust_core::{
    Delegable, EnteredNode, Latch, LocalTrustee, Node, PlainCall, Trustee, Wiring, local_trustee,
};
use primitive::SharedBytes;
use primitive::limits::{CACHE_LINE, SLOT_BYTES, SLOT_STRIDE};
use primitive::sync::Ordering;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use transport_api::{HostId, Lane, Namespace, RegionKey, Tag, Transport};
use transport_shm::ShmTransport;

const TIMEOUT: Duration = Duration::from_secs(10);
const WORD: usize = 8;

/// The keys under which hosts share their slots with host 0 and host 1.
const SLOTS: RegionKey = RegionKey::new(Namespace::DELEGATION, 1 << 32);
const SLOTS_OF_VICTIM: RegionKey = RegionKey::new(Namespace::DELEGATION, 1 << 32 | 1);

/// Whether a closure has ever met a property of another type.
static MISTAKEN: AtomicBool = AtomicBool::new(false);
/// Whether a call of so many bytes has ever been served with another number of them.
static MISCOUNTED: AtomicBool = AtomicBool::new(false);
/// Closures that have run.
static RUN: AtomicU64 = AtomicU64::new(0);

/// A property that knows its type at run time too.
struct Sealed<const N: u64> {
    seal: [u64; 4],
    noted: u64,
}

impl<const N: u64> Sealed<N> {
    fn new() -> Self {
        Sealed { seal: [N; 4], noted: 0 }
    }
    fn touch(&mut self, value: u64) -> u64 {
        RUN.fetch_add(1, SeqCst);
        if self.seal != [N; 4] {
            MISTAKEN.store(true, SeqCst);
        }
        self.noted = self.noted.wrapping_add(value);
        self.noted
    }
}

/// A call of plain bytes, of so many, or of any number if 0.
struct Plain<const BYTES: usize>;

/// Bytes of a call that is too long for the stack.
const LONG: usize = 200;

impl<const BYTES: usize> PlainCall<Sealed<1>> for Plain<BYTES> {
    const BYTES: Option<usize> = if BYTES == 0 { None } else { Some(BYTES) };
    type Run = u64;
    type Reply = [u64; 2];
    type Error = String;

    fn serve(
        run: &mut u64,
        sealed: &mut Sealed<1>,
        word: u64,
        bytes: &[u8],
    ) -> Result<[u64; 2], String> {
        *run += 1;
        assert!(bytes.as_ptr().addr().is_multiple_of(16));
        if Self::BYTES.is_some_and(|len| bytes.len() != len) {
            MISCOUNTED.store(true, SeqCst);
        }
        if word == 3 { Err(format!("three, {bytes:?}")) } else { Ok([sealed.touch(word), *run]) }
    }
}

/// A value that holds one of its own type: one byte per level.
#[derive(Serialize, Deserialize)]
struct Chain(Option<Box<Chain>>);

/// Properties that the victim has, beside the one that every node has.
const PROPERTIES: u32 = 4;

fn entrust_properties(local: LocalTrustee) {
    std::mem::forget(local.entrust(Sealed::<1>::new()));
    std::mem::forget(local.entrust(Sealed::<2>::new()));
    std::mem::forget(local.entrust(Latch::new(Sealed::<3>::new())));
    std::mem::forget(local.entrust(String::from("text")));
}

/// Puts closures of all kinds into this program's table, those of the runtime with them.
fn delegate_everything(local: LocalTrustee) {
    fn spawn(trustee: Trustee, closure: impl FnOnce(Vec<u32>) -> u64 + Delegable) {
        drop(trustee.spawn_with(closure, vec![1]));
    }
    let one = local.entrust(Sealed::<1>::new());
    one.apply(|sealed| sealed.touch(1));
    one.apply_with(|sealed, text: String| sealed.touch(text.len() as u64), String::new());
    one.apply_with(|sealed, words: Vec<u64>| (sealed.touch(1), words), vec![]);
    let two = local.entrust(Sealed::<2>::new());
    two.apply_with(Sealed::touch, 1);
    two.apply_with(|two, pair: (bool, char)| (two.touch(1), pair), (true, 'x'));
    two.apply_with(|two, other| (two.touch(1), other).1, one.clone());
    two.apply(|two| two.touch(1) > 0);
    let three = local.entrust(Latch::new(Sealed::<3>::new()));
    three.launch_with(|three, words: Vec<u8>| three.touch(words.len() as u64), vec![]);
    let text = local.entrust(String::new());
    text.apply_with(|text, more: char| text.push(more), 'x');
    text.apply_with(
        |text, chain: Chain| text.push(if chain.0.is_some() { 'x' } else { 'y' }),
        Chain(None),
    );
    text.apply_with(|_, nothing: Vec<()>| nothing.len() as u64, vec![]);
    assert!(one.plain_call::<Plain<11>>(1, &[2; 11], &[]).is_none());
    assert!(one.plain_call::<Plain<LONG>>(1, &[2; LONG], &[]).is_none());
    assert!(one.plain_call::<Plain<0>>(1, &[2; 11], &[&[3; 9], &[4; 2]]).is_none());
    let trustee = local.trustee();
    spawn(trustee, |words| words.len() as u64);
    drop(trustee.entrust(5u32));
    drop(trustee.entrust_with(|n: u8| vec![n; 3], 1));
    drop(trustee.entrust_moved(vec![String::new()]));
    trustee.visit_node(|node, ()| node.outstanding(), ());
}

/// What the peer does next.
#[derive(Clone, Debug)]
enum Step {
    /// Writes words from word 1 of the buffer that is next, and a signal.
    Write(Vec<u64>, Signal),
    /// Writes anywhere in the region.
    Scribble(usize, u64),
    /// Sends a bulk payload.
    Bulk(u64, Vec<u8>),
    /// Answers what the victim has asked, with these words.
    Answer(Vec<u64>, Signal),
    /// Has the victim ask something.
    Provoke,
}

#[derive(Clone, Debug)]
enum Signal {
    /// Hands the batch over, with these claims about requests and end.
    Batch(u16, u16),
    Any(u64),
}

/// A victim and its peer, in one thread.
struct Scene {
    _rack: Vec<Arc<ShmTransport>>,
    _peer: Wiring,
    lane: Box<dyn Lane>,
    /// The slot in which the peer is the client, and that in which the victim is.
    requests: SharedBytes,
    replies: SharedBytes,
    sequence: u64,
    answers: u64,
}

/// Where buffer `sequence % 2` of the only pair begins.
fn buffer(sequence: u64) -> usize {
    CACHE_LINE + (sequence % 2) as usize * SLOT_STRIDE
}

impl Scene {
    /// Runs `act` with a new victim on this thread.
    fn with<R>(act: impl FnOnce(&mut Scene, &EnteredNode, &fiber::Scheduler) -> R) -> R {
        let rack = ShmTransport::in_process(2, 1).expect("a rack");
        let (peer, victim) = (rack[0].clone(), rack[1].clone());
        let connecting = thread::spawn(move || Wiring::connect(peer, 0, TIMEOUT));
        let wiring = Wiring::connect(victim, 0, TIMEOUT).expect("a wired victim");
        let peer = connecting.join().expect("no panic").expect("a wired peer");
        let memory = |owner, key| {
            let region = rack[0].import(owner, key, TIMEOUT).expect("slots");
            region.mapped().expect("shared memory is mapped").clone()
        };
        let mut scene = Scene {
            requests: memory(HostId(1), SLOTS),
            replies: memory(HostId(0), SLOTS_OF_VICTIM),
            lane: rack[0].lane(0, HostId(1)).expect("a lane"),
            _rack: rack,
            _peer: peer,
            sequence: 1,
            answers: 1,
        };
        let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
        let node = Node::enter(wiring.node(0).expect("a node"));
        let result = fibers.enter(|| {
            entrust_properties(local_trustee());
            let result = act(&mut scene, &node, &fibers);
            node.close();
            fibers.run(10_000);
            result
        });
        drop(fibers);
        node.clear();
        result
    }

    fn signal(signal: &Signal, sequence: u64, reply: bool) -> u64 {
        match signal {
            Signal::Any(word) => *word,
            Signal::Batch(requests, end) => {
                u64::from(reply) << 63
                    | sequence << 32
                    | u64::from(*requests) << 16
                    | u64::from(*end)
            }
        }
    }

    fn act(&mut self, step: &Step, fibers: &fiber::Scheduler) {
        match step {
            Step::Write(words, signal) => self.write(words, signal),
            Step::Scribble(at, word) => {
                let at = at % (self.requests.len() / WORD) * WORD;
                self.requests.store(at, *word, Ordering::Release);
            }
            Step::Bulk(tag, payload) => {
                self.lane
                    .bulk(0, Tag::new(Namespace::DELEGATION, *tag), payload.clone())
                    .expect("the victim is there");
            }
            Step::Answer(words, signal) => {
                let at = buffer(self.answers);
                for (i, word) in (1..).zip(words) {
                    self.replies.store(at + i * WORD, *word, Ordering::Relaxed);
                }
                let word = Self::signal(signal, self.answers, true);
                self.replies.store(at, word, Ordering::Release);
                if word >> 32 == self.answers | 1 << 31 {
                    self.answers += 1;
                }
            }
            Step::Provoke => {
                // From a fiber: what it asks has no answer that makes sense, which it must survive.
                drop(fibers.remote().spawn(|| {
                    let peer = Trustee::from_number(0).expect("the peer");
                    drop(peer.spawn_with(|words: Vec<u32>| words.len() as u64, vec![7; 3]));
                }));
            }
        }
    }

    fn write(&mut self, words: &[u64], signal: &Signal) {
        let at = buffer(self.sequence);
        for (i, word) in (1..).zip(words) {
            self.requests.store(at + i * WORD, *word, Ordering::Relaxed);
        }
        let word = Self::signal(signal, self.sequence, false);
        self.requests.store(at, word, Ordering::Release);
    }

    /// Lets the victim do what it does, checks what it said, and returns what happened.
    fn serve(&mut self, node: &EnteredNode, fibers: &fiber::Scheduler) -> String {
        for _ in 0..3 {
            fibers.run(1000);
            node.poll();
            node.poll_lanes();
        }
        let incidents = format!("{:?}", node.take_incidents());
        assert!(!MISTAKEN.load(SeqCst), "a closure ran on a property of another type");
        assert!(!MISCOUNTED.load(SeqCst), "a call was served with too few bytes, or too many");
        let text = self.text();
        for never in ["access to bytes", "overflow", "out of range", "index out of bounds"] {
            assert!(!text.contains(never), "{text}");
        }
        let at = buffer(self.sequence);
        if self.requests.load(at, Ordering::Acquire) >> 32 == self.sequence | 1 << 31 {
            self.sequence += 1;
        }
        incidents
    }

    /// What can be read in the current buffer.
    fn text(&self) -> String {
        let mut bytes = vec![0; SLOT_BYTES];
        self.requests.read_into(buffer(self.sequence), &mut bytes);
        bytes.truncate(8192);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends one request and returns what is said in reply.
    fn request(
        &mut self,
        head: u64,
        payload: &[u64],
        node: &EnteredNode,
        fibers: &fiber::Scheduler,
    ) -> String {
        for at in (0..SLOT_BYTES).step_by(WORD) {
            self.requests.store(buffer(self.sequence) + at, 0, Ordering::Relaxed);
        }
        let words: Vec<u64> = [head].into_iter().chain(payload.iter().copied()).collect();
        let (before, at) = (self.sequence, buffer(self.sequence));
        self.write(&words, &Signal::Batch(1, 1 + words.len() as u16));
        let text = {
            node.poll();
            let text = self.text();
            self.serve(node, fibers);
            text
        };
        assert_eq!(
            self.sequence,
            before + 1,
            "word {:x}",
            self.requests.load(at, Ordering::Relaxed)
        );
        text
    }
}

fn head(property: u32, closure: u32, words: usize, bulk: bool) -> u64 {
    u64::from(property) << 32
        | u64::from(bulk) << 31
        | (words as u64 & 0x7ff) << 20
        | u64::from(closure & 0xf_ffff)
}

fn fill_table() {
    if black_box(std::env::args().count()) == usize::MAX {
        delegate_everything(local_trustee());
    }
}

const UNKNOWN: &str = "it names a closure that this program does not have";

#[test]
fn every_closure_on_every_property_runs_or_is_refused_with_a_reason() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        let mut ran = BTreeSet::new();
        let mut reasons = BTreeSet::new();
        let closures = (0..1000)
            .find(|closure| {
                scene.request(head(1, *closure, 0, false), &[], node, fibers).contains(UNKNOWN)
            })
            .expect("an end of the table");
        // How many there are depends on what the optimiser shares.
        assert!(closures > 10, "only {closures} closures in the table");
        for closure in 0..closures {
            for property in 1..=PROPERTIES + 1 {
                for payload in [&[][..], &[0], &[0; 8], &[u64::MAX; 3], &[3, 5]] {
                    let head = head(property, closure, payload.len(), false);
                    let before = RUN.load(SeqCst);
                    let said = scene.request(head, payload, node, fibers);
                    if RUN.load(SeqCst) > before {
                        ran.insert(property);
                    }
                    for reason in [
                        "there is no property",
                        "and the closure works on a",
                        "the value ends before all of it has been read",
                    ] {
                        if said.contains(reason) {
                            reasons.insert(reason);
                        }
                    }
                }
            }
        }
        assert!(ran.contains(&1) && ran.contains(&2), "only properties {ran:?} were worked on");
        assert_eq!(reasons.len(), 3, "only these reasons were given: {reasons:?}");
    });
}

#[test]
fn a_request_cannot_be_longer_than_its_batch_or_its_batch_than_the_buffer() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        for (requests, end) in
            [(1, 0), (1, 1), (1, 2), (65_535, 3), (2, 2), (0, 0), (0, 9), (1, 8192), (1, 65_535)]
        {
            for words in [0, 1, 7, 2047] {
                let before = scene.sequence;
                scene.write(&[head(1, 0, words, false), 1, 2, 3], &Signal::Batch(requests, end));
                scene.serve(node, fibers);
                assert_eq!(scene.sequence, before + 1, "{requests} requests, end {end}");
            }
        }
    });
}

#[test]
fn a_word_left_out_is_that_of_the_last_plain_call_served_or_not() {
    fill_table();
    const B: u64 = u64::from_ne_bytes([2; 8]);
    const GONE: u32 = PROPERTIES + 5;
    Scene::with(|scene, node, fibers| {
        // Calls of eleven bytes with word 3 are told from others by their error.
        let threes = |said: String| said.matches("three, [").count();
        let is_whole = |said: &str| said.contains(&format!("three, [{}2]", "2, ".repeat(10)));
        let mut say = |requests: &[(u64, &[u64])]| {
            let words: Vec<u64> =
                requests.iter().flat_map(|(head, words)| [&[*head], *words].concat()).collect();
            scene.request(words[0], &words[1..], node, fibers)
        };
        let all = 0..1000;
        let serve = |property, closure| head(property, closure, 3, false);
        let again = |closure| head(1, closure, 2, false);
        let plain = (all.clone())
            .find(|closure| is_whole(&say(&[(serve(1, *closure), &[3, B, B])])))
            .expect("a call of plain bytes");
        let first = (serve(1, plain), &[3, B, B][..]);
        let without = (all.clone())
            .find(|closure| threes(say(&[first, (again(*closure), &[B, B])])) == 2)
            .expect("one with its word left out");
        let without = (again(without), &[B, B][..]);
        let unknown =
            all.clone().find(|closure| say(&[(again(*closure), &[0; 2])]).contains(UNKNOWN));
        let unknown = (again(unknown.expect("an end of the table")), &[3, B][..]);
        let other = (all.clone())
            .find(|closure| {
                say(&[(head(GONE, *closure, 0, false), &[])]).contains("wanted a alloc")
            })
            .expect("a closure on the text");
        let gone = (serve(GONE, plain), &[3, B, B][..]);
        let gone_other = (serve(GONE, other), &[7, B, B][..]);
        let short = (head(1, plain, 2, false), &[7, B][..]);
        let gone_short = (head(GONE, plain, 0, false), &[][..]);
        let cases: [(&[_], usize); 9] = [
            (&[without], 0),
            (&[gone, without], 1),
            (&[gone, without, without], 2),
            (&[first, gone_other, without], 2),
            (&[first, unknown, without], 1),
            (&[first, short, without], 1),
            (&[first, gone_short, without], 1),
            (&[gone, short, without], 0),
            (&[gone, short, first, without], 2),
        ];
        for (number, (requests, expected)) in cases.into_iter().enumerate() {
            let said = say(requests);
            assert_eq!(threes(said.clone()), expected, "case {number}: {said:?}");
        }
        assert!(say(&[short]).contains("16 bytes"), "{}", say(&[short]));
        assert!(say(&[without]).contains("leaves its word out"), "{}", say(&[without]));
    });
}

#[test]
fn a_plain_call_of_so_many_bytes_is_served_with_exactly_so_many() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        // Those that are served with 11 and 200 bytes: the other kind has all that is sent.
        let kinds = [11, LONG].map(|len| {
            let found = (0..1000).find(|closure| {
                let said =
                    scene.request(head(1, *closure, 41, false), &plain_words(3, 40), node, fibers);
                said.matches("2, ").count() == len - 1 && said.contains("three, [")
            });
            (found.expect("a call of plain bytes"), len)
        });
        for (closure, len) in kinds {
            for bytes in 0..=2 * LONG {
                let is_whole = bytes >= len + WORD;
                let payload: Vec<u8> = [&3u64.to_le_bytes()[..], &[2; 2 * LONG]].concat();
                scene.act(&Step::Bulk(0, payload[..bytes].to_vec()), fibers);
                scene.serve(node, fibers);
                let said = scene.request(head(1, closure, 1, true), &[0], node, fibers);
                let expected = if is_whole {
                    format!("three, [{}2]", "2, ".repeat(len - 1))
                } else {
                    format!("has {bytes} bytes of arguments, and at least {} were", len + WORD)
                };
                assert!(said.contains(&expected), "{len}, bulk of {bytes}: {said}");
                let words = bytes / WORD;
                if bytes % WORD == 0 && words > 0 {
                    let head = head(1, closure, words, false);
                    let said = scene.request(head, &plain_words(3, words - 1), node, fibers);
                    assert!(said.contains(&expected), "{len}, {words} words: {said}");
                }
            }
        }
    });
}

/// The words of a call of plain bytes: its own, and some of twos.
fn plain_words(word: u64, others: usize) -> Vec<u64> {
    [&[word][..], &vec![u64::from_ne_bytes([2; 8]); others]].concat()
}

/// A payload for the bulk path: the header of an encoded value with this body, and the body.
fn encoded(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u64).to_le_bytes()[..], body].concat()
}

#[test]
fn values_that_would_exhaust_the_stack_or_the_memory_are_refused_with_a_reason() {
    fill_table();
    // A chain 30,000 deep; half a gigabyte of text, or a vector of as many elements of no bytes.
    let claim = (512u32 << 20).to_le_bytes();
    let payloads =
        [(encoded(&[1; 30_000]), "nested more than"), (encoded(&claim), "with 0 bytes left")];
    Scene::with(|scene, node, fibers| {
        for (payload, reason) in payloads {
            let mut refused = 0;
            for closure in 0..1000 {
                scene.act(&Step::Bulk(0, payload.clone()), fibers);
                scene.serve(node, fibers);
                // On the text, which is the fourth property behind the node's own.
                let said = scene.request(head(4, closure, 1, true), &[0], node, fibers);
                refused += usize::from(said.contains(reason));
                if said.contains(UNKNOWN) {
                    break;
                }
            }
            assert!(refused > 0, "no closure was refused because of {reason:?}");
        }
    });
}

/// The head of a reply that stands apart, of the request whose head was at word `at`.
fn apart(status: u64, at: usize, len: usize) -> u64 {
    (len as u64) << 32 | (at as u64) << 4 | status
}

#[test]
fn replies_that_stand_apart_are_taken_for_what_they_are() {
    /// What calls have ended with; they run on this test's thread.
    static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    const NONSENSE: &str = "makes no sense";
    let (done, refused) = (0, 2);
    // A text where the kind of a refusal belongs: a header for seven bytes, a length, and the text.
    let nay = [7u64, u64::from_le_bytes(*b"\x03\0\0\0nay\0")];
    // What the peer writes from word 1 on, where the only request was, the word at which it says
    // that all ends, and what the victim makes of it.
    let cases: [(&[u64], u16, &str); 10] = [
        (&[77], 2, "77"),
        (&[1, apart(refused, 1, 15), nay[0], nay[1]], 5, NONSENSE),
        (&[1, apart(done, 1, 8), 78], 4, "78"),
        (&[1, apart(done, 1, 1000), 78], 4, NONSENSE),
        (&[1, apart(done, 1, usize::MAX >> 32), 78], u16::MAX, NONSENSE),
        (&[1, apart(3, 1, 8), 78], 4, NONSENSE),
        // That the result comes later, of a call that is no launch.
        (&[1, apart(4, 1, 0)], 3, NONSENSE),
        (&[1, apart(done, 1, 7), 78], 4, "decode"),
        (&[80, apart(done, 1, 8), 78], 0, "80"),
        // The last: a peer that replies to what it was not asked is given up.
        (&[79, apart(done, 9, 8), 78], 4, "79"),
    ];
    Scene::with(|scene, node, fibers| {
        for (words, end, expected) in cases {
            drop(fibers.remote().spawn(|| {
                let peer = Trustee::from_number(0).expect("the peer");
                let ended = match peer.try_visit_node(|_, ()| 5u64, ()) {
                    Ok(number) => number.to_string(),
                    Err(error) => error.to_string(),
                };
                ENDED.lock().unwrap().push(ended);
            }));
            scene.serve(node, fibers);
            scene.act(&Step::Answer(words.to_vec(), Signal::Batch(0, end)), fibers);
            let incidents = scene.serve(node, fibers);
            let ended = std::mem::take(&mut *ENDED.lock().unwrap());
            assert!(matches!(&ended[..], [one] if one.contains(expected)), "{expected}: {ended:?}");
            let lost = incidents.contains("belong to no request");
            assert_eq!(lost, expected == "79", "{expected}: {incidents}");
        }
    });
}

/// The words of an encoded value with so many fields and this body.
fn encoded_words(fields: u64, body: &[&[u8]]) -> Vec<u64> {
    let mut bytes = body.concat();
    let header = fields << 32 | bytes.len() as u64;
    bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    let body = bytes.chunks(WORD).map(|word| u64::from_le_bytes(word.try_into().expect("a word")));
    [header].into_iter().chain(body).collect()
}

#[test]
fn a_later_reply_of_a_host_that_was_not_asked_ends_no_call() {
    /// What calls have ended with.
    static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    fn ended() -> Vec<String> {
        std::mem::take(&mut *ENDED.lock().unwrap())
    }
    fill_table();
    Scene::with(|scene, node, fibers| {
        let reply = |scene: &mut Scene, closure: u32, call: u64| {
            let (token, done) = ((call << 32).to_le_bytes(), [0]);
            let (len, payload) = (8u32.to_le_bytes(), 77u64.to_le_bytes());
            let words = encoded_words(3, &[&token, &done, &len, &payload]);
            let head = head(0, closure, words.len(), false);
            let batch = Signal::Batch(1, 2 + words.len() as u16);
            scene.write(&[&[head], &words[..]].concat(), &batch);
            scene.serve(node, fibers)
        };
        // Its first call is to the peer, which may end it.
        drop(fibers.remote().spawn(|| {
            let peer = Trustee::from_number(0).expect("the peer");
            let result = peer.spawn_with(|words: Vec<u32>| words.len() as u64, vec![]).join();
            ENDED.lock().unwrap().push(format!("{result:?}"));
        }));
        scene.serve(node, fibers);
        let ends = |closure: &u32| {
            reply(scene, *closure, 1);
            !ENDED.lock().unwrap().is_empty()
        };
        let replies = (0..1000).find(ends).expect("a closure that ends a call");
        assert_eq!(ended(), ["Ok(77)"]);
        // The second is to a thread of its own.
        drop(fibers.remote().spawn(|| {
            let latch = local_trustee().entrust(Latch::new(0u64));
            let result = latch.try_launch(|value| {
                fiber::park();
                *value
            });
            ENDED.lock().unwrap().push(format!("{result:?}"));
        }));
        scene.serve(node, fibers);
        let incidents = reply(scene, replies, 2);
        assert!(incidents.contains("belong to no request"), "{incidents}");
        assert_eq!(ended(), [""; 0]);
    });
}

#[test]
fn a_peer_gets_replies_of_its_own_calls_only() {
    fill_table();
    Scene::with(|scene, node, fibers| {
        let mut spawns = |thread: u32| {
            // Where the reply goes, and a vector without elements.
            let (token, len) = (7u64.to_le_bytes(), [0; 4]);
            let words = encoded_words(4, &[&thread.to_le_bytes(), &token, &len]);
            let mut said = (0..1000).map(|closure| {
                scene.request(head(0, closure, words.len(), false), &words, node, fibers)
            });
            let mut refused = 0;
            let is_more = |said: &String| !said.contains(UNKNOWN);
            said.by_ref().take_while(is_more).for_each(|said| {
                refused += usize::from(said.contains("expected the sender, thread 0 of host 0"));
            });
            refused
        };
        assert_eq!(spawns(0), 0);
        for thread in [1, 2, u32::MAX] {
            assert!(spawns(thread) > 0, "a fiber replies to thread {thread}");
        }
    });
}

fn any_head() -> impl Strategy<Value = u64> {
    let sensible = (0..=PROPERTIES + 1, 0..60u32, 0..12usize, prop::bool::weighted(0.1))
        .prop_map(|(property, closure, words, bulk)| head(property, closure, words, bulk));
    prop_oneof![4 => sensible, 1 => any::<u64>()]
}

fn any_words() -> impl Strategy<Value = Vec<u64>> {
    let apart =
        (0..16u64, 0..12usize, 0..700usize).prop_map(|(bits, at, len)| apart(bits, at, len));
    let word = prop_oneof![any_head(), apart, 0..9u64, any::<u64>(), Just(u64::MAX), Just(0)];
    // Some are what an encoded value begins with.
    let header = (0..80u64, 0..4u64).prop_map(|(body, fields)| fields << 32 | body);
    (any::<bool>(), header, any_head(), prop::collection::vec(word, 0..80)).prop_map(
        |(encoded, header, head, mut words)| {
            if encoded {
                words.splice(..0, [head, header]);
            }
            words
        },
    )
}

fn any_signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        6 => (0..30u16, 0..90u16).prop_map(|(requests, end)| Signal::Batch(requests, end)),
        1 => (any::<u16>(), any::<u16>()).prop_map(|(requests, end)| Signal::Batch(requests, end)),
        1 => any::<u64>().prop_map(Signal::Any),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any_words(), any_signal()).prop_map(|(words, signal)| Step::Write(words, signal)),
        1 => (any::<usize>(), any::<u64>()).prop_map(|(at, word)| Step::Scribble(at, word)),
        2 => (0..3u64, any::<bool>(), prop::collection::vec(any::<u8>(), 0..100))
            .prop_map(|(tag, valid, payload)| {
                Step::Bulk(tag, if valid { encoded(&payload) } else { payload })
            }),
        2 => (any_words(), any_signal()).prop_map(|(words, signal)| Step::Answer(words, signal)),
        1 => Just(Step::Provoke),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_peer_writes_the_trustee_goes_on(steps in prop::collection::vec(any_step(), 1..40)) {
        fill_table();
        // Panics of delegated closures are expected and answered; their messages are of no use.
        static QUIET: std::sync::Once = std::sync::Once::new();
        QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
        Scene::with(|scene, node, fibers| {
            for step in &steps {
                scene.act(step, fibers);
                scene.serve(node, fibers);
            }
        });
    }
}
