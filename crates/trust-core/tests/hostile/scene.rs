//! [`Scene`]: a victim and its peer, which writes anything, in one thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use gossamer_trust_core::{EnteredNode, Node, Trustee, Wiring, local_trustee};
use primitive::SharedBytes;
use primitive::limits::{CACHE_LINE, SLOT_BYTES, SLOT_STRIDE};
use primitive::sync::Ordering;
use transport_api::{HostId, Lane, Namespace, RegionKey, Tag, Transport};
use transport_shm::ShmTransport;

use crate::victim::{MISCOUNTED, MISTAKEN, entrust_properties};

const TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const WORD: usize = 8;

/// The keys under which hosts share their slots with host 0 and host 1.
const SLOTS: RegionKey = RegionKey::new(Namespace::DELEGATION, 1 << 32);
const SLOTS_OF_VICTIM: RegionKey = RegionKey::new(Namespace::DELEGATION, 1 << 32 | 1);

/// What the peer does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
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
pub(crate) enum Signal {
    /// Hands the batch over, with these claims about requests and end.
    Batch(u16, u16),
    Any(u64),
}

/// A victim and its peer, in one thread.
pub(crate) struct Scene {
    _rack: Vec<Arc<ShmTransport>>,
    _peer: Wiring,
    lane: Box<dyn Lane>,
    /// The slot in which the peer is the client, and that in which the victim is.
    pub(crate) requests: SharedBytes,
    pub(crate) replies: SharedBytes,
    pub(crate) sequence: u64,
    answers: u64,
}

/// Where buffer `sequence % 2` of the only pair begins.
pub(crate) fn buffer(sequence: u64) -> usize {
    CACHE_LINE + (sequence % 2) as usize * SLOT_STRIDE
}

impl Scene {
    /// Runs `act` with a new victim on this thread.
    pub(crate) fn with<R>(act: impl FnOnce(&mut Scene, &EnteredNode, &fiber::Scheduler) -> R) -> R {
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

    pub(crate) fn act(&mut self, step: &Step, fibers: &fiber::Scheduler) {
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

    /// The bytes of the batch that was answered last.
    pub(crate) fn answered(&self) -> Vec<u8> {
        let mut bytes = vec![0; SLOT_BYTES];
        self.requests.read_into(buffer(self.sequence - 1), &mut bytes);
        bytes
    }

    /// The first word after what the victim has asked in the batch that [`Step::Answer`] answers next.
    pub(crate) fn end_of_asked(&self) -> usize {
        self.replies.load(buffer(self.answers), Ordering::Acquire) as u16 as usize
    }

    pub(crate) fn write(&mut self, words: &[u64], signal: &Signal) {
        let at = buffer(self.sequence);
        for (i, word) in (1..).zip(words) {
            self.requests.store(at + i * WORD, *word, Ordering::Relaxed);
        }
        let word = Self::signal(signal, self.sequence, false);
        self.requests.store(at, word, Ordering::Release);
    }

    /// Fills the buffer that is next with zeroes.
    pub(crate) fn clear(&mut self) {
        for at in (0..SLOT_BYTES).step_by(WORD) {
            self.requests.store(buffer(self.sequence) + at, 0, Ordering::Relaxed);
        }
    }

    /// Lets the victim do what it does, checks what it said, and returns what happened.
    pub(crate) fn serve(&mut self, node: &EnteredNode, fibers: &fiber::Scheduler) -> String {
        for round in 0..1000 {
            fibers.run(1000);
            node.poll();
            node.poll_lanes();
            // Longer only for a batch that takes longer.
            if round >= 2 && self.is_answered() {
                break;
            }
        }
        let incidents = format!("{:?}", node.take_incidents());
        assert!(!MISTAKEN.load(SeqCst), "a closure ran on a property of another type");
        assert!(!MISCOUNTED.load(SeqCst), "a call was served with too few bytes, or too many");
        let text = self.text();
        for never in ["access to bytes", "overflow", "out of range", "index out of bounds"] {
            assert!(!text.contains(never), "{text}");
        }
        if self.is_answered() {
            self.sequence += 1;
        }
        incidents
    }

    /// Whether the batch that was handed over is answered.
    fn is_answered(&self) -> bool {
        let signal = self.requests.load(buffer(self.sequence), Ordering::Acquire);
        signal >> 32 == self.sequence | 1 << 31
    }

    /// What can be read in the current buffer.
    fn text(&self) -> String {
        let mut bytes = vec![0; SLOT_BYTES];
        self.requests.read_into(buffer(self.sequence), &mut bytes);
        bytes.truncate(8192);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends one request and returns what is said in reply.
    pub(crate) fn request(
        &mut self,
        head: u64,
        payload: &[u64],
        node: &EnteredNode,
        fibers: &fiber::Scheduler,
    ) -> String {
        self.clear();
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

/// The head of a request.
pub(crate) fn head(property: u32, closure: u32, words: usize, bulk: bool) -> u64 {
    u64::from(property) << 32
        | u64::from(bulk) << 31
        | (words as u64 & 0x7ff) << 20
        | u64::from(closure & 0x7_ffff)
}

/// The head of a run of requests.
pub(crate) fn run_head(property: u32, closure: u32, requests: usize) -> u64 {
    head(property, closure, requests, false) | 1 << 19
}

/// A payload for the bulk path: the header of an encoded value with this body, and the body.
pub(crate) fn encoded(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u64).to_le_bytes()[..], body].concat()
}
