//! Every interleaving of clients that give batches away and a trustee that finds them by their
//! arrival words: a batch whose arrival word has been noted is served, now or by a later poll. Run
//! by `cargo xtask loom`.
#![cfg(loom)]

mod lanes;

use gossamer_trust_core::arrivals::{Arrivals, Visit};
use gossamer_trust_core::slot::{ClientSlot, PAIR_BYTES, TrusteeSlot};
use lanes::{copied, lane, link, mapped};
use primitive::SharedBytes;
use primitive::limits::CACHE_LINE;
use primitive::sync::Ordering;
use transport_api::RemoteRegion;

const WORD: usize = 8;

/// A client's region: its arrival word in a line of its own, then the memory of the pair.
fn region() -> SharedBytes {
    SharedBytes::heap(CACHE_LINE + PAIR_BYTES)
}

fn pair_in(region: &SharedBytes) -> SharedBytes {
    region.slice(CACHE_LINE, PAIR_BYTES)
}

/// Sends `batches` batches of one request each: their numbers, from one.
fn client(region: RemoteRegion, own: SharedBytes, is_checked: bool, batches: u64) {
    let slot = ClientSlot::new(own, is_checked);
    let (link, lane) = (link(region, CACHE_LINE, Some(0), false), lane());
    assert_eq!(link.is_checked(), is_checked);
    for request in 1..=batches {
        assert!(slot.open(), "a buffer is free");
        slot.append_word(request).expect("a fresh buffer has room for a request");
        let handover = slot.seal(1).expect("a batch");
        link.give(slot.memory(), handover, || &lane);
    }
}

/// The trustee's end of one client, which serves as an inbox does.
struct Served {
    slot: TrusteeSlot,
    batches: std::cell::Cell<u64>,
}

impl Served {
    fn new(region: &SharedBytes, is_checked: bool) -> Self {
        let slot = TrusteeSlot::new(pair_in(region), is_checked);
        Self { slot, batches: std::cell::Cell::new(0) }
    }

    fn visit(&self) -> Visit {
        let arrived = self.slot.arrived();
        if let Some(arrival) = arrived {
            let request = self.slot.buffer(arrival.buffer).load(2 * WORD, Ordering::Relaxed);
            self.batches.set(self.batches.get() + 1);
            assert_eq!(request, self.batches.get(), "batches are served whole and in order");
            // Answered, though the answer is not read.
            self.slot.answer(arrival.end);
        }
        Visit { served: arrived.is_some(), again: self.slot.arrived().is_some() }
    }
}

/// Polls beside the clients, and once more when they are done: then everything must be served.
fn trustee(clients: usize, is_checked: bool, batches: u64) {
    let regions: Vec<_> = (0..clients).map(|_| region()).collect();
    let arrivals = Arrivals::new(regions.iter().map(|region| region.slice(0, CACHE_LINE)).zip(0..));
    let sending = regions.iter().map(|theirs| {
        let (theirs, own) = match is_checked {
            true => (copied(theirs), SharedBytes::heap(PAIR_BYTES)),
            false => (mapped(theirs), pair_in(theirs)),
        };
        loom::thread::spawn(move || client(theirs, own, is_checked, batches))
    });
    let sending: Vec<_> = sending.collect();
    let served: Vec<_> = regions.iter().map(|region| Served::new(region, is_checked)).collect();
    // Every group here is of one client, though its line has words for eight.
    let visit = |number: usize| served[number].visit();
    for _ in 0..2 {
        arrivals.serve(visit);
    }
    sending.into_iter().for_each(|client| client.join().unwrap());
    // A visit serves one batch.
    while arrivals.serve(visit) {}
    for (number, client) in served.iter().enumerate() {
        assert_eq!(client.batches.get(), batches, "a batch of client {number} is lost");
    }
}

fn model(preemptions: usize, clients: usize, is_checked: bool, batches: u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || trustee(clients, is_checked, batches));
}

#[test]
fn a_batch_whose_arrival_is_seen_is_served() {
    model(4, 1, false, 1);
}

#[test]
fn a_second_batch_is_served_too() {
    model(3, 1, false, 2);
}

#[test]
fn clients_do_not_hide_each_other() {
    model(3, 2, false, 1);
}

#[test]
fn a_batch_that_came_as_a_copy_is_served() {
    model(3, 1, true, 1);
}
