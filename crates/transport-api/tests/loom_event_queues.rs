//! Every interleaving of events, ends and sleep: no thread sleeps over what its lanes have to report.
//! Run by `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use std::sync::Arc;

use gossamer_transport_api::park_word::ParkWord;
use gossamer_transport_api::{Event, EventQueue, EventQueues, HostId, LossReason, PeerEvent};
use loom::sync::{Condvar, Mutex};
use primitive::sync::{AtomicU32, Ordering};

const PEER: HostId = HostId(1);

/// A thread of a process with its park word, on which it waits as on a futex.
struct Sleeper {
    all: Arc<EventQueues>,
    word: AtomicU32,
    wakes: Mutex<u32>,
    woken: Condvar,
}

impl Sleeper {
    fn new() -> loom::sync::Arc<Self> {
        loom::sync::Arc::new(Self {
            all: EventQueues::new(HostId(0), 2, 1),
            word: AtomicU32::new(0),
            wakes: Mutex::new(0),
            woken: Condvar::new(),
        })
    }

    fn deliver(&self, token: u64) {
        self.all.deliver(0, PEER, Event::Completed { token, value: 0 });
        self.wake();
    }

    fn end(&self) {
        let reason = LossReason::Connection("it is gone".into());
        assert!(self.all.end(&PeerEvent::Lost(PEER, reason)));
        self.wake();
    }

    fn wake(&self) {
        if ParkWord::new(&self.word).must_wake() {
            *self.wakes.lock().unwrap() += 1;
            self.woken.notify_all();
        }
    }

    fn sleep(&self) {
        ParkWord::new(&self.word).park(
            || self.all.has_events(0),
            |word, expected| {
                let mut wakes = self.wakes.lock().unwrap();
                let before = *wakes;
                // The kernel compares under the lock that a wake takes.
                while word.load(Ordering::Relaxed) == expected && *wakes == before {
                    wakes = self.woken.wait(wakes).unwrap();
                }
            },
        );
    }
}

/// Polls as a lane does, and sleeps in between, until the end is reported; the tokens in front of
/// it. A thread that sleeps over any of it deadlocks, which loom reports.
fn until_the_end(sleeper: &Sleeper, event_queue: &mut EventQueue) -> Vec<u64> {
    let mut tokens = Vec::new();
    let mut note = |event| {
        if let Event::Completed { token, .. } = event {
            tokens.push(token);
        }
    };
    loop {
        let end = sleeper.all.end_of(PEER);
        event_queue.take(&mut note);
        match end {
            Some(end) => event_queue.report(end, &mut note),
            None => sleeper.sleep(),
        }
        if event_queue.is_over() {
            return tokens;
        }
    }
}

#[test]
fn no_thread_sleeps_over_events_or_an_end_and_events_come_first() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let sleeper = Sleeper::new();
        let mut event_queue = sleeper.all.open(0, PEER).unwrap();
        let reader = {
            let sleeper = sleeper.clone();
            loom::thread::spawn(move || {
                sleeper.deliver(1);
                sleeper.end();
            })
        };
        assert_eq!(until_the_end(&sleeper, &mut event_queue), [1]);
        assert!(!sleeper.all.has_events(0), "and then it may sleep");
        reader.join().unwrap();
    });
}

#[test]
fn no_thread_sleeps_over_events_of_two_readers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let sleeper = Sleeper::new();
        let mut event_queue = sleeper.all.open(0, PEER).unwrap();
        let readers = [1, 2].map(|token| {
            let sleeper = sleeper.clone();
            loom::thread::spawn(move || sleeper.deliver(token))
        });
        let mut count = 0;
        while count < 2 {
            event_queue.take(&mut |_| count += 1);
            if count < 2 {
                sleeper.sleep();
            }
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
