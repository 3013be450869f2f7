//! Bulk payloads of one pair of threads, and what bounds them.
//!
//! A payload too large for a slot travels by the bulk path of the lane. It may arrive before the
//! batch that it belongs to, so its receiver keeps it, and a broken peer must not make it keep
//! everything:
//!
//! - of requests, a client has at most [`REQUEST_BYTES`] unanswered, and queues what is beyond; a
//!   trustee that gets more gives the client's host up;
//! - of replies, a trustee sends at most [`BATCH_REPLY_BYTES`] per batch, and answers requests beyond
//!   with an error; a client that gets more gives the trustee's host up;
//! - of results that overtake the reply of their request, a client keeps at most
//!   [`BATCH_REPLY_BYTES`], whatever their path, and gives the trustee's host up as well.

use std::cell::Cell;
use std::collections::VecDeque;

use primitive::limits::{BUFFERS, BULK_REPLY_BYTES, BULK_REQUEST_BYTES};
use transport_api::{Namespace, Tag};

use crate::wire::words::MOST_REQUESTS;

/// The tag of a bulk payload that belongs to a request; replies have the other.
pub(crate) const BULK_REQUEST: Tag = Tag::new(Namespace::DELEGATION, 0);
/// The tag of a bulk payload that belongs to a reply.
pub(crate) const BULK_REPLY: Tag = Tag::new(Namespace::DELEGATION, 1);

/// Bytes of the bulk payloads of unanswered requests, at most; few in this crate's own tests.
pub(crate) const REQUEST_BYTES: usize = if cfg!(test) { 64 * 1024 } else { BULK_REQUEST_BYTES };

/// Bytes of the bulk payloads of the replies to one batch, at most; few in this crate's own tests.
pub(crate) const BATCH_REPLY_BYTES: usize = if cfg!(test) { 256 * 1024 } else { BULK_REPLY_BYTES };

/// Bytes of the bulk payloads of unanswered requests, by the buffer that the requests are in.
#[derive(Default)]
pub(crate) struct BulkSent([Cell<usize>; BUFFERS]);

impl BulkSent {
    /// Whether a further payload of `len` bytes may be sent now.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.0.iter().map(Cell::get).sum::<usize>() + len <= REQUEST_BYTES
    }

    /// A payload of `len` bytes is sent, for a request in this buffer.
    pub(crate) fn add(&self, buffer: usize, len: usize) {
        self.0[buffer].set(self.0[buffer].get() + len);
    }

    /// The requests in this buffer have been answered.
    #[inline(always)]
    pub(crate) fn forget(&self, buffer: usize) {
        self.0[buffer].set(0);
    }
}

/// Bulk payloads that have arrived and have not been used.
#[derive(Default)]
pub(crate) struct BulkQueue {
    payloads: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl BulkQueue {
    /// Appends a payload; false, and it is dropped, if there would be more payloads than two batches
    /// have requests, or more than `most` bytes.
    pub(crate) fn push(&mut self, payload: Vec<u8>, most: usize) -> bool {
        let bytes = self.bytes + payload.len();
        let expected = bytes <= most && self.payloads.len() < BUFFERS * MOST_REQUESTS;
        if expected {
            self.bytes = bytes;
            self.payloads.push_back(payload);
        }
        expected
    }

    /// Takes the oldest payload.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        let payload = self.payloads.pop_front()?;
        self.bytes -= payload.len();
        Some(payload)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;
    use primitive::limits::BATCH_REQUESTS;
    use transport_api::{Event, HostId, PeerEvent, Transport};
    use transport_shm::ShmTransport;

    use super::*;
    use crate::error::Chain;
    use crate::{DelegateError, Incident, Node, Trust, Trustee, Wiring};

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Bytes of a payload that no slot takes.
    const LARGE: usize = 20 * 1024;

    /// Has `calls` fibers call another thread at the same time, and returns what they got.
    fn call_at_once<U: Send + 'static>(
        calls: usize,
        call: fn(Trustee) -> Result<U, DelegateError>,
    ) -> Vec<Result<U, DelegateError>> {
        let wiring = Wiring::connect(ShmTransport::threads(2).expect("a rack"), 0, TIMEOUT);
        let wiring = Arc::new(wiring.expect("a wired rack"));
        let done = Arc::new(AtomicBool::new(false));
        let (other, end) = (wiring.clone(), done.clone());
        let trustee = thread::spawn(move || {
            let node = Node::enter(other.node(1).expect("a node"));
            while !end.load(Relaxed) {
                node.poll();
            }
        });
        let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
        let node = Node::enter(wiring.node(0).expect("a node"));
        let results = Arc::new(Mutex::new(Vec::new()));
        fibers.enter(|| {
            for _ in 0..calls {
                let results = results.clone();
                drop(fibers.remote().spawn(move || {
                    let result = call(Trustee::from_number(1).expect("the other thread"));
                    results.lock().push(result);
                }));
            }
            let deadline = Instant::now() + TIMEOUT;
            while results.lock().len() < calls {
                assert!(Instant::now() < deadline, "{} calls ended", results.lock().len());
                fibers.run(1000);
                node.poll();
            }
            node.close();
            fibers.run(1000);
        });
        done.store(true, Relaxed);
        trustee.join().expect("no panic");
        drop(fibers);
        node.clear();
        std::mem::take(&mut *results.lock())
    }

    #[test]
    fn a_client_sends_no_more_than_its_trustee_keeps() {
        const CALLS: usize = 40;
        const { assert!(CALLS < BATCH_REQUESTS && CALLS * LARGE > 2 * REQUEST_BYTES) };
        let results = call_at_once(CALLS, |trustee| {
            trustee.try_visit_node(|_, bytes: Vec<u8>| bytes.len() as u64, vec![0; LARGE])
        });
        for result in results {
            assert_eq!(result.expect("a result"), LARGE as u64);
        }
    }

    #[test]
    fn replies_that_are_too_large_together_are_errors() {
        const CALLS: usize = 40;
        const { assert!(CALLS < BATCH_REQUESTS && CALLS * LARGE > 2 * BATCH_REPLY_BYTES) };
        let results = call_at_once(CALLS, |trustee| {
            trustee.try_visit_node(|_, len: usize| vec![0u8; len], LARGE)
        });
        let (fine, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert!(fine.len() * LARGE >= BATCH_REPLY_BYTES - LARGE, "{} were answered", fine.len());
        assert!(!refused.is_empty());
        for error in refused {
            let said = Chain(&error.expect_err("an error")).to_string();
            assert!(said.contains("fewer large results"), "{said}");
        }
    }

    #[test]
    fn trusts_in_replies_that_are_too_large_together_are_given_back() {
        const CALLS: usize = 40;
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let results = call_at_once(CALLS, |trustee| {
            let entrust = |node: &Node, len: usize| (Trust::entrust_at(node, 5u8), vec![0u8; len]);
            let result = trustee.try_visit_node(entrust, LARGE).map(|(_trust, bytes)| bytes.len());
            ENDED.fetch_add(1, Relaxed);
            while ENDED.load(Relaxed) < CALLS {
                fiber::yield_now();
            }
            // What the drops of trusts have sent is served before this.
            let alive = trustee.try_visit_node(|node, ()| node.alive().len(), ())?;
            result.map(|_| alive)
        });
        let (fine, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert!(!fine.is_empty() && !refused.is_empty(), "{} were refused", refused.len());
        for alive in fine {
            assert_eq!(alive.expect("a count"), 0, "properties are alive without trusts");
        }
    }

    #[test]
    fn a_later_reply_that_is_too_large_is_an_error_and_gives_its_trusts_back() {
        let results = call_at_once(1, |_| {
            let here = crate::local_trustee();
            let entrust = |len: usize| (crate::local_trustee().entrust(5u8), vec![0u8; len]);
            let ended = here.trustee().spawn_with(entrust, LARGE).join();
            let error = ended.map(|_| ()).expect_err("a reply beyond the limit");
            let said = Chain(&error).to_string();
            Ok((said, here.trustee().visit_node(|node, ()| node.alive().len(), ())))
        });
        let (said, alive) = results[0].as_ref().expect("what the fiber saw");
        assert!(said.contains("send it in parts"), "{said}");
        assert_eq!(*alive, 0, "properties are alive without trusts");
    }

    #[test]
    fn a_thread_whose_requests_wait_for_the_budget_has_nothing_to_do() {
        const CALLS: usize = 8;
        const { assert!(CALLS * LARGE > 2 * REQUEST_BYTES) };
        let wiring = Wiring::connect(ShmTransport::threads(2).expect("a rack"), 0, TIMEOUT);
        let wiring = Arc::new(wiring.expect("a wired rack"));
        let fibers = fiber::Scheduler::new(fiber::Config::default()).expect("a scheduler");
        let node = Node::enter(wiring.node(0).expect("a node"));
        fibers.enter(|| {
            let called = std::rc::Rc::new(std::cell::Cell::new(0));
            for _ in 0..CALLS {
                let called = called.clone();
                let _ = fiber::spawn_local(move || {
                    let trustee = Trustee::from_number(1).expect("the other thread");
                    trustee.visit_node(|_, bytes: Vec<u8>| bytes.len() as u64, vec![0; LARGE]);
                    called.set(called.get() + 1);
                });
            }
            while fibers.run(1000) > 0 || node.poll() {}
            assert!(!node.has_work(), "nothing can be done before the other thread answers");
            let (other, done) = (wiring.clone(), Arc::new(AtomicBool::new(false)));
            let end = done.clone();
            let trustee = thread::spawn(move || {
                let node = Node::enter(other.node(1).expect("a node"));
                while !end.load(Relaxed) {
                    node.poll();
                }
            });
            let deadline = Instant::now() + TIMEOUT;
            while called.get() < CALLS {
                assert!(Instant::now() < deadline, "{} calls ended", called.get());
                // As a worker that sleeps until there is work.
                if node.has_work() {
                    node.poll();
                }
                fibers.run(1000);
            }
            done.store(true, Relaxed);
            trustee.join().expect("no panic");
        });
    }

    #[test]
    fn a_peer_that_sends_more_bytes_than_it_may_is_lost() {
        for (tag, most) in
            [(BULK_REQUEST, REQUEST_BYTES), (BULK_REPLY, BUFFERS * BATCH_REPLY_BYTES)]
        {
            let rack = ShmTransport::in_process(2, 1).expect("a rack");
            let other = rack[0].clone();
            let connecting = thread::spawn(move || Wiring::connect(other, 0, TIMEOUT));
            let wiring = Wiring::connect(rack[1].clone(), 0, TIMEOUT).expect("a wired host");
            let _peer = connecting.join().expect("no panic").expect("a wired host");
            let node = Node::enter(wiring.node(0).expect("a node"));
            let mut lane = rack[0].lane(0, HostId(1)).expect("a lane");
            for sent in 0.. {
                lane.bulk(0, tag, vec![0; LARGE]).expect("the victim is there");
                let deadline = Instant::now() + TIMEOUT;
                while !node.poll_lanes() {
                    assert!(Instant::now() < deadline, "payload {sent} did not arrive");
                    lane.poll(&mut |_: Event| {});
                }
                let lost = |incident: &Incident| {
                    matches!(incident, Incident::Peer(PeerEvent::Lost(HostId(0), _)))
                };
                if node.take_incidents().iter().any(lost) {
                    assert_eq!(sent, most / LARGE);
                    break;
                }
                assert!(sent <= most / LARGE, "{sent} payloads were kept");
            }
        }
    }

    #[test]
    fn a_queue_keeps_so_many_bytes_and_no_more() {
        let mut queue = BulkQueue::default();
        assert!(queue.push(vec![0; 6], 10) && !queue.push(vec![0; 5], 10));
        assert!(queue.push(vec![0; 4], 10) && !queue.push(vec![0; 1], 10));
        assert_eq!(queue.pop().map(|payload| payload.len()), Some(6));
        assert!(queue.push(vec![0; 6], 10) && !queue.is_empty());
    }
}
