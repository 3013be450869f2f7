//! Every interleaving of a thread that wakes with a service thread that stops looking: one of them
//! notices the other. Run by `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use gossamer_transport_api::{Attendance, StandIn};
use loom::sync::Arc;
use primitive::sync::{AtomicBool, Ordering};
use std::time::Instant;

#[test]
fn a_thread_that_wakes_is_watched_or_rings() {
    /// More than a service thread goes on without anybody awake.
    const TICKS: u32 = 4;
    loom::model(|| {
        let shared = Arc::new((Attendance::new(1), AtomicBool::new(true)));
        let thread = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let (attendance, is_away) = &*shared;
                is_away.store(false, Ordering::Relaxed);
                attendance.must_ring()
            })
        };
        let (attendance, is_away) = &*shared;
        let start = Instant::now();
        let mut service = StandIn::new(1, start);
        for tick in 0..TICKS {
            let now = start + Attendance::TICK * tick;
            service.look(attendance, now, |_| is_away.load(Ordering::Relaxed), |_| true);
        }
        let rings = thread.join().unwrap();
        assert!(rings || service.next(attendance).is_some(), "nobody looks after the thread");
    });
}
