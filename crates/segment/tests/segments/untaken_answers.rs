//! A peer that asks for names without end and takes no answer: the host that answers keeps little for
//! it, and gives it up.
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossamer_segment::SegmentError;
use transport_api::{HostId, LossReason, Namespace, Tag};

use crate::common::{Host, on_each};

/// A question for a name: its number, and the name.
const LOOKUP: Tag = Tag::new(Namespace::SEGMENTS, 1);
const TIMEOUT: Duration = Duration::from_secs(30);

/// Questions that are far more than any queue holds the answers of.
const MANY: u64 = 200_000;

/// Sets a flag when it is dropped, so that a failed assertion ends the other side, too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks host 0, and never polls.
fn ask_without_end(host: &Host, is_over: &AtomicBool) {
    let mut lane = host.transport.lane(0, HostId(0)).expect("a lane");
    for number in 0..MANY {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let question = [&number.to_le_bytes()[..], b"wanted"].concat();
        // It fails once this host is given up.
        if lane.bulk(0, LOOKUP, question).and_then(|()| lane.flush()).is_err() {
            return;
        }
        if number % 64 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
    while !is_over.load(Ordering::Relaxed) {
        let _ = lane.flush();
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_peer_that_takes_no_answers_is_given_up() {
    on_each(2, 1, |hosts| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends = Ends(&is_over);
            let attached = hosts[0].segments.attach(0).expect("attached");
            let _segment = hosts[0].segments.builder("wanted").len(64).export().expect("one");
            scope.spawn(|| ask_without_end(&hosts[1], &is_over));
            let options = hosts[0].segments.options().host(HostId(1));
            let start = Instant::now();
            let reason = loop {
                attached.park(Duration::from_millis(1));
                match options.clone().uncached().lookup("nothing") {
                    Err(SegmentError::PeerLost(HostId(1), reason)) => break reason,
                    other => assert!(start.elapsed() < TIMEOUT, "{other:?}"),
                }
            };
            let LossReason::Protocol(text) = &reason else { panic!("{reason}") };
            assert!(text.contains("lookups whose answers it does not take"), "{text}");
        });
    });
}
