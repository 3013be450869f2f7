//! Every interleaving of a client and a trustee that hand the buffers of their pair back and forth:
//! no batch is lost or served twice, and each side sees all of what it was handed. The trustee finds
//! batches as it does in a rack, by a copy of where the next one's signal will be. Run by
//! `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

mod lanes;

use gossamer_trust_core::expected::Expected;
use gossamer_trust_core::link::Link;
use gossamer_trust_core::slot::{ClientSlot, Handover, PAIR_BYTES, TrusteeSlot};
use lanes::{copied, lane, link, mapped};
use primitive::SharedBytes;
use primitive::limits::BUFFERS;
use primitive::sync::Ordering;

const WORD: usize = 8;

/// What a request of one word becomes when it is answered.
const ANSWERED: u64 = 1000;

/// How a buffer gets to the other side.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Both use the same memory.
    Mapped,
    /// Each has its own; what travels keeps its order.
    Stream,
    /// Each has its own; what travels has no order.
    Unordered,
}

/// One side's way to give a buffer to the other.
fn link_to(theirs: &SharedBytes, way: Way) -> Link {
    let region = if way == Way::Mapped { mapped(theirs) } else { copied(theirs) };
    link(region, 0, None, way == Way::Stream)
}

fn give(link: &Link, ours: &SharedBytes, handover: Handover) {
    let lane = lane();
    link.give(ours, handover, || &lane);
}

fn pair() -> SharedBytes {
    SharedBytes::heap(PAIR_BYTES)
}

/// Sends `batches` (the requests of each), with as many in flight as there are buffers, and checks
/// the answers.
fn client(slot: &ClientSlot, link: &Link, batches: &[&[u64]]) {
    let (mut sent, mut answered) = (0, 0);
    let mut places = vec![Vec::new(); batches.len()];
    while answered < batches.len() {
        let mut moved = false;
        if sent < batches.len() && slot.in_flight() < BUFFERS {
            assert!(slot.open(), "a buffer is free");
            for request in batches[sent] {
                let place = slot.append_word(*request);
                places[sent].push(place.expect("a fresh buffer has room for two requests"));
            }
            let handover = slot.seal(batches[sent].len()).expect("a batch");
            give(link, slot.memory(), handover);
            (sent, moved) = (sent + 1, true);
        }
        if slot.answered().is_some() {
            for (at, request) in places[answered].iter().zip(batches[answered]) {
                let reply = slot.memory().load((at + 1) * WORD, Ordering::Relaxed);
                assert_eq!(reply, request + ANSWERED);
            }
            slot.take_back();
            (answered, moved) = (answered + 1, true);
        }
        if !moved {
            loom::thread::yield_now();
        }
    }
    assert_eq!((slot.in_flight(), slot.answered(), slot.seal(0)), (0, None, None));
}

/// Serves `batches`, checking that they are what comes, in order.
fn trustee(slot: &TrusteeSlot, link: &Link, batches: &[&[u64]]) {
    let expected = Expected::of(0, slot);
    for requests in batches {
        let arrival = loop {
            // SAFETY: made and renewed of `slot`, which outlives it.
            let signal = unsafe { expected.signal() };
            // A signal can be there before its batch, where what travels has no order.
            match signal.and_then(|signal| slot.arrival(signal)) {
                Some(arrival) => break arrival,
                None => loom::thread::yield_now(),
            }
        };
        assert_eq!(arrival.end, 1 + 2 * requests.len());
        let buffer = slot.buffer(arrival.buffer);
        for (i, request) in requests.iter().enumerate() {
            let at = (2 + 2 * i) * WORD;
            assert_eq!(buffer.load(at, Ordering::Relaxed), *request);
            buffer.store(at, request + ANSWERED, Ordering::Relaxed);
        }
        give(link, slot.memory(), slot.answer(arrival.end));
        expected.renew(slot);
    }
    assert_eq!(slot.arrived(), None, "nothing is served twice");
}

/// Runs both sides over all interleavings with up to `preemptions` forced switches.
fn model(preemptions: usize, way: Way, batches: &'static [&'static [u64]]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let ours = pair();
        let theirs = if way == Way::Mapped { ours.clone() } else { pair() };
        let (to_trustee, to_client) = (link_to(&theirs, way), link_to(&ours, way));
        let serving = loom::thread::spawn(move || {
            let slot = TrusteeSlot::new(theirs, to_client.is_checked());
            trustee(&slot, &to_client, batches);
        });
        client(&ClientSlot::new(ours, to_trustee.is_checked()), &to_trustee, batches);
        serving.join().unwrap();
    });
}

#[test]
fn a_batch_and_its_answer_are_seen_intact() {
    model(3, Way::Mapped, &[&[7, 8]]);
}

#[test]
fn buffers_are_used_in_turn_and_again() {
    model(2, Way::Mapped, &[&[1], &[2], &[3]]);
}

#[test]
fn more_batches_than_buffers_of_different_sizes() {
    model(2, Way::Mapped, &[&[1, 2], &[3], &[4, 5], &[6]]);
}

#[test]
fn copies_on_both_sides_are_handed_over_intact() {
    // What comes without order has many more interleavings: one forced switch less.
    model(1, Way::Unordered, &[&[1, 2], &[3], &[4]]);
}

#[test]
fn a_stream_hands_over_what_its_signals_cover() {
    model(2, Way::Stream, &[&[1, 2], &[3], &[4]]);
}
