//! Every interleaving of a thread that wakes with a service thread that stops looking: one of them
//! notices the other. Run by `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use std::time::Instant;

use gossamer_transport_api::{PollTracker, ProgressThread};
use loom::sync::Arc;
use primitive::sync::{AtomicBool, Ordering};

#[test]
fn a_thread_that_wakes_is_watched_or_rings() {
    /// More than a service thread goes on without anybody awake.
    const TICKS: u32 = 4;
    loom::model(|| {
        let shared = Arc::new((PollTracker::new(1), AtomicBool::new(true)));
        let thread = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let (poll_tracker, is_away) = &*shared;
                is_away.store(false, Ordering::Relaxed);
                poll_tracker.must_notify()
            })
        };
        let (poll_tracker, is_away) = &*shared;
        let start = Instant::now();
        let mut service = ProgressThread::new(1, start);
        for tick in 0..TICKS {
            let now = start + PollTracker::TICK * tick;
            service.look(poll_tracker, now, |_| is_away.load(Ordering::Relaxed), |_| true);
        }
        let rings = thread.join().unwrap();
        assert!(rings || service.next(poll_tracker).is_some(), "no thread polls for it");
    });
}
