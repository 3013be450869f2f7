//! Segments at the end of a rack, and outside one. `src/segments.rs` has what fibers
//! do with them.

use std::sync::mpsc;
use std::thread;

use gossamer::{LookupError, RemoteSegment, Segment, SegmentError};

use crate::common::{KINDS, panic_in, run, wait_until, within_deadline};

#[test]
fn waits_on_segments_end_with_the_rack() {
    within_deadline("waits_on_segments_end_with_the_rack", || {
        for kind in KINDS {
            let (send, ended) = mpsc::channel();
            let (segments, outside) = run(kind, move || {
                let segments = gossamer::segments();
                let (begun, is_begun) = mpsc::channel();
                let inside = send.clone();
                drop(gossamer::spawn(move || {
                    struct Unwound(mpsc::Sender<&'static str>);
                    impl Drop for Unwound {
                        fn drop(&mut self) {
                            let _ = self.0.send("the fiber");
                        }
                    }
                    let _unwound = Unwound(inside);
                    let owner = Segment::builder("never").len(64).export().unwrap();
                    begun.send(()).unwrap();
                    unreachable!("no host notifies it: {:?}", owner.notified());
                }));
                let there = segments.clone();
                let outside = thread::spawn(move || {
                    let wait = std::time::Duration::from_secs(3600);
                    let ended = there.options().timeout(wait).open("nothing").unwrap_err();
                    let _ = send.send("the thread");
                    ended
                });
                wait_until("the fiber", || is_begun.try_recv().is_ok());
                (segments, outside)
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
            let late = outside.join().unwrap();
            assert!(matches!(late, SegmentError::RackEnded), "{late}");
            let both = [ended.recv().unwrap(), ended.recv().unwrap()];
            assert!(both.contains(&"the fiber") && both.contains(&"the thread"), "{both:?}");
            let late = segments.open("never").unwrap_err();
            assert!(matches!(late, SegmentError::RackEnded), "{late}");
            let late = segments.builder("late").len(64).export().unwrap_err();
            assert!(matches!(late, SegmentError::RackEnded), "{late}");
        }
    });
}

#[test]
fn outside_a_rack_segments_and_lookups_say_so() {
    assert!(matches!(RemoteSegment::open("prices"), Err(SegmentError::NotAttached)));
    let export = Segment::builder("prices").len(64).export();
    assert!(matches!(export, Err(SegmentError::NotAttached)), "{export:?}");
    let message = panic_in(gossamer::segments);
    assert!(message.contains("inside `Rack::run`"), "{message}");
    let missing = gossamer::lookup::<u64>("orders").unwrap_err();
    assert!(matches!(missing, LookupError::Segment(SegmentError::NotAttached)), "{missing}");
}
