//! Both ends of a queue pair, without the queue pair: messages arrive in order, on demand.

use std::collections::{BTreeMap, VecDeque};

use primitive::SharedBytes;
use primitive::limits::MESSAGE_BYTES;
use proptest::prelude::*;
use transport_api::{Event, HostId, Tag, ThreadId, WAITING_OVERHEAD};

use super::fetches::{AHEAD, AT_ONCE};
use super::*;

const THREADS: u32 = 3;
const BLOCK: usize = 256;
const PEER: ThreadId = ThreadId { host: HostId(1), thread: 0 };

/// A sender, a receiver, and the messages between them.
struct Ends {
    offers: Offers,
    fetches: Fetches,
    /// The receiver's staging memory: a part for each piece that is read at a time.
    staging: SharedBytes,
    sent_pieces: VecDeque<Piece>,
    /// Where the READs that are under way are from.
    reads: VecDeque<(usize, usize)>,
    /// By thread: tags and payloads.
    come: BTreeMap<u32, VecDeque<(u64, Vec<u8>)>>,
}

/// A payload that says what it is: its bytes follow from its length and `seed`.
fn payload(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(31) ^ (n >> 8) ^ seed) as u8).collect()
}

impl Ends {
    fn new() -> Self {
        let mut fetches = Fetches::new(PEER, THREADS);
        fetches.blocks_of(BLOCK);
        Self {
            offers: Offers::new(Some(SharedBytes::heap(BLOCKS * BLOCK))),
            fetches,
            staging: SharedBytes::heap(BLOCK),
            sent_pieces: VecDeque::new(),
            reads: VecDeque::new(),
            come: BTreeMap::new(),
        }
    }

    fn offer(&mut self) {
        while let Some(piece) = self.offers.offer() {
            self.sent_pieces.push_back(piece);
        }
        assert!(self.sent_pieces.len() + self.fetches.pieces.len() <= BLOCKS);
    }

    /// The receiver handles the next record.
    fn receive(&mut self) {
        let Some(piece) = self.sent_pieces.pop_front() else { return };
        self.fetches.announced(&piece.encode(), RECORD).expect("a piece");
        self.read();
    }

    fn read(&mut self) {
        while let Some(read) = self.fetches.read() {
            self.reads.push_back(read);
        }
        assert!(self.reads.len() <= AT_ONCE);
    }

    /// The next READ completes.
    fn complete(&mut self) {
        let Some((at, len)) = self.reads.pop_front() else { return };
        let memory = self.offers.memory.as_ref().expect("blocks");
        self.staging.copy_part(0, memory, at..at + len);
        if let Some((thread, event)) = self.fetches.arrived(&self.staging, 0).expect("in order") {
            let Event::Bulk { from: PEER, tag, payload } = event else { panic!("{event:?}") };
            self.come.entry(thread).or_default().push_back((tag.0, payload));
        }
        self.read();
        if let Some(count) = self.fetches.acknowledge() {
            self.offers.blocks_fetched(count).expect("what was offered");
            self.offer();
        }
    }

    /// `thread` takes the next payload that has come for it.
    fn take(&mut self, thread: u32) -> Option<(u64, Vec<u8>)> {
        let (tag, payload) = self.come.get_mut(&thread)?.pop_front()?;
        if let Some(cost) = self.fetches.taken(thread, cost_of(payload.len())) {
            self.offers.add_credits(thread, cost).expect("what was charged");
            self.offer();
        }
        Some((tag, payload))
    }

    /// Delivers all messages and READs.
    fn settle(&mut self) {
        while !self.sent_pieces.is_empty() || !self.reads.is_empty() {
            self.receive();
            self.complete();
        }
    }
}

#[test]
fn a_receiver_that_takes_nothing_is_sent_at_most_a_window() {
    const LEN: usize = 100 << 10;
    let mut ends = Ends::new();
    for tag in 0..40 {
        ends.offers.push(1, tag, vec![0; LEN]);
        ends.offers.push(2, tag, Vec::new());
    }
    ends.offer();
    ends.settle();
    assert_eq!(ends.come[&1].len(), 11, "a window of 1 MiB, and what fills it");
    assert_eq!(ends.come[&2].len(), 40, "not held up");
    let waiting = ends.offers.waiting().bulk_bytes(Tag(0).namespace());
    assert_eq!(waiting, (40 - 11) * (LEN + WAITING_OVERHEAD), "the others wait");
    // A half of the window is granted at a time.
    (0..6).for_each(|tag| assert_eq!(ends.take(1), Some((tag, vec![0; LEN]))));
    ends.settle();
    assert_eq!(ends.come[&1].len(), 11);
    assert!(!ends.offers.is_quiet());
}

#[test]
fn a_payload_larger_than_the_window_and_all_blocks_arrives() {
    let large = payload(7, 3 << 20);
    let mut ends = Ends::new();
    ends.offers.push(0, 1, large.clone());
    ends.offers.push(0, 2, Vec::new());
    ends.offer();
    ends.settle();
    assert!(ends.take(0) == Some((1, large)) && !ends.offers.is_quiet());
    ends.settle();
    assert_eq!(ends.take(0), Some((2, Vec::new())));
    assert!(ends.offers.is_quiet());
    assert_eq!(ends.offers.waiting().bulk_bytes(Tag(0).namespace()), 0);
}

#[test]
fn threads_take_turns() {
    let mut ends = Ends::new();
    ends.offers.push(0, 0, vec![1; 100 * BLOCK]);
    ends.offers.push(1, 0, vec![2; BLOCK]);
    ends.offer();
    assert_eq!(ends.sent_pieces[1].thread, 1, "does not wait for the larger one");
}

#[test]
fn a_large_total_allocates_little() {
    let mut fetches = Ends::new().fetches;
    let piece = Piece { tag: 0, total: MESSAGE_BYTES as u32, len: 8, thread: 0 };
    fetches.announced(&piece.encode(), RECORD).expect("a piece");
    assert_eq!(fetches.read(), Some((0, 8)));
    assert!(fetches.arrived(&SharedBytes::heap(BLOCK), 0).expect("a part").is_none());
    let (.., bytes) = fetches.inflows[&0].payload.as_ref().expect("a part of it");
    assert!(bytes.len() == 8 && bytes.capacity() <= AHEAD);
}

#[test]
fn blocks_of_other_sizes_are_refused_in_words() {
    let descriptor =
        |len| MemoryDescriptor { rights: Rights::READ, len, address: 0, remote_key: 1 };
    let bytes = (2 * BLOCKS * BLOCK) as u64;
    assert_eq!(invalid(&descriptor(bytes), 2, BLOCK), None);
    assert!(invalid(&descriptor(bytes + 1), 2, BLOCK).is_some());
    assert!(
        invalid(&MemoryDescriptor { rights: Rights::WRITE, ..descriptor(bytes) }, 2, BLOCK)
            .is_some()
    );
    let larger = invalid(&descriptor(2 * bytes), 2, BLOCK).expect("an invalid");
    assert!(larger.contains("pieces of 512 bytes") && larger.contains("at most 256"), "{larger}");
}

proptest! {
    #[test]
    fn pieces_are_decoded_as_they_were_encoded(
        tag in any::<u64>(),
        total in any::<u32>(),
        len in any::<u32>(),
        thread in any::<u32>(),
    ) {
        let piece = Piece { tag, total, len, thread };
        let mut bytes = piece.encode();
        prop_assert_eq!(Piece::decode(&bytes), Some(piece));
        bytes[20] = 1;
        prop_assert_eq!(Piece::decode(&bytes), None);
    }

    /// In whatever order records and READs arrive and payloads are taken: each thread gets what was sent
    /// to it, whole and in order.
    #[test]
    fn payloads_arrive_whole_and_in_order(
        steps in proptest::collection::vec((0u8..5, 0..THREADS, 0usize..2000), 1..300),
    ) {
        let mut ends = Ends::new();
        let mut sent: BTreeMap<u32, VecDeque<(u64, usize)>> = BTreeMap::new();
        let taken = |ends: &mut Ends, sent: &mut BTreeMap<u32, VecDeque<(u64, usize)>>, thread| {
            let Some((tag, bytes)) = ends.take(thread) else { return false };
            let expected = sent.get_mut(&thread).and_then(VecDeque::pop_front);
            let (number, len) = expected.expect("something was sent");
            assert!(tag == number && bytes == payload(tag, len), "{tag} for {number}");
            true
        };
        for (tag, (step, thread, len)) in (0..).zip(steps) {
            match step {
                0 | 1 => {
                    ends.offers.push(thread, tag, payload(tag, len));
                    sent.entry(thread).or_default().push_back((tag, len));
                    ends.offer();
                }
                2 => ends.receive(),
                3 => ends.complete(),
                _ => drop(taken(&mut ends, &mut sent, thread)),
            }
        }
        loop {
            ends.settle();
            let mut any = false;
            for thread in 0..THREADS {
                any |= taken(&mut ends, &mut sent, thread);
            }
            if !any {
                break;
            }
        }
        prop_assert!(sent.values().all(VecDeque::is_empty) && ends.offers.is_quiet());
    }
}
