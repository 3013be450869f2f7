//! Every interleaving of the two ends of notice slots: messages arrive whole and in order, also in the
//! line that both write, and none is slept over, whether its slot is polled or not. Run by
//! `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use std::cell::Cell;
use std::cmp;

use gossamer_transport_api::park_word::{AWAKE, ParkWord};
use gossamer_transport_api::{NOTICE_SLOTS_BYTES, Notice, NoticeEnd, RegionKey};
use loom::sync::{Arc, Condvar, Mutex};
use primitive::SharedBytes;
use primitive::sync::{AtomicU32, Ordering};

fn notice(n: u64) -> Notice {
    Notice { key: RegionKey(n), at: n + 100, len: n + 200, value: n as u32 }
}

/// The ends of two threads, and a parker of the second.
struct Pair {
    first: NoticeEnd,
    second: NoticeEnd,
    memories: [SharedBytes; 2],
}

impl Pair {
    fn new() -> Self {
        let [there, back] = [(); 2].map(|()| SharedBytes::heap(NOTICE_SLOTS_BYTES));
        let first = NoticeEnd::new(there.clone(), back.clone(), cmp::Ordering::Less);
        let second = NoticeEnd::new(back.clone(), there.clone(), cmp::Ordering::Greater);
        Self { first, second, memories: [back, there] }
    }
}

/// Whether the parker of the second end finds the notice `number`.
fn is_there([sends, receives]: &[SharedBytes; 2], number: u32) -> bool {
    NoticeEnd::is_there((sends, 0), (receives, 0), cmp::Ordering::Greater, number)
}

fn take(end: &NoticeEnd) -> Notice {
    loop {
        match end.take().expect("an honest sender") {
            Some(taken) => return taken,
            None => loom::thread::yield_now(),
        }
    }
}

/// The first goes into the line, the others through slots.
#[test]
fn messages_arrive_whole_and_in_order() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let Pair { first, second, .. } = Pair::new();
        let thread = loom::thread::spawn(move || {
            for n in 0..3 {
                while !first.try_send(notice(n)).unwrap() {
                    loom::thread::yield_now();
                }
            }
        });
        for n in 0..3 {
            assert_eq!(take(&second), notice(n));
        }
        thread.join().unwrap();
    });
}

/// All go through the line, which each end writes over as soon as an answer confirms what it sent.
#[test]
fn answers_arrive_whole_in_the_line_of_what_they_answer() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let Pair { first, second, .. } = Pair::new();
        let thread = loom::thread::spawn(move || {
            for n in 0..2 {
                assert!(first.try_send(notice(n)).unwrap());
                assert_eq!(take(&first), notice(n + 10));
            }
        });
        for n in 0..2 {
            assert_eq!(take(&second), notice(n));
            assert!(second.try_send(notice(n + 10)).unwrap());
        }
        thread.join().unwrap();
    });
}

/// A notice of each end crosses that of the other, so that the next ones go through slots, or the line.
#[test]
fn notices_that_cross_arrive_whole_and_in_order() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let Pair { first, second, .. } = Pair::new();
        let both = |end: NoticeEnd, own: u64, other: u64| {
            for n in 0..2 {
                assert!(end.try_send(notice(own + n)).unwrap());
            }
            for n in 0..2 {
                assert_eq!(take(&end), notice(other + n));
            }
        };
        let thread = loom::thread::spawn(move || both(first, 0, 10));
        both(second, 10, 0);
        thread.join().unwrap();
    });
}

/// The park word of a receiver, and what senders that are not polled tell it.
struct Sleeper {
    word: AtomicU32,
    attention: AtomicU32,
    wakes: Mutex<u32>,
    woken: Condvar,
}

impl Sleeper {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let mut wakes = self.wakes.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        let before = *wakes;
        while *wakes == before {
            wakes = self.woken.wait(wakes).unwrap();
        }
    }

    fn wake(&self) {
        *self.wakes.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

/// The receiver sleeps whenever it finds nothing, and changes once whether it polls. A message that
/// it slept over would leave it asleep for ever, which loom reports. The message is in the line, or in a
/// slot if the line was used before.
fn no_message_is_slept_over(is_polled_first: bool, is_in_line: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let Pair { first: sender, second: receiver, memories } = Pair::new();
        let sleeper = Arc::new(Sleeper {
            word: AtomicU32::new(AWAKE),
            attention: AtomicU32::new(0),
            wakes: Mutex::new(0),
            woken: Condvar::new(),
        });
        if !is_in_line {
            assert!(sender.try_send(notice(0)).unwrap());
            assert_eq!(receiver.take(), Ok(Some(notice(0))));
        }
        receiver.set_polled(is_polled_first);
        let there = sleeper.clone();
        let thread = loom::thread::spawn(move || {
            assert!(sender.try_send(notice(0)).unwrap());
            if !sender.is_polled() {
                there.attention.fetch_or(1, Ordering::AcqRel);
            }
            if ParkWord::new(&there.word).must_wake() {
                there.wake();
            }
        });
        let mut look_first = true;
        receiver.set_polled(!is_polled_first);
        let is_polled = Cell::new(!is_polled_first);
        loop {
            let is_asked = sleeper.attention.swap(0, Ordering::AcqRel) != 0;
            // The look that a change calls for, or one of those that it begins.
            let look = std::mem::take(&mut look_first) || is_polled.get() || is_asked;
            if look && let Some(taken) = receiver.take().expect("an honest sender") {
                assert_eq!(taken, notice(0));
                break;
            }
            let next = receiver.next();
            let ready = || {
                sleeper.attention.load(Ordering::Relaxed) != 0
                    || is_polled.get() && is_there(&memories, next)
            };
            ParkWord::new(&sleeper.word).park(ready, |word, expected| sleeper.wait(word, expected));
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_receiver_that_begins_to_poll_sleeps_over_nothing() {
    for is_in_line in [false, true] {
        no_message_is_slept_over(false, is_in_line);
    }
}

#[test]
fn a_receiver_that_ends_polling_sleeps_over_nothing() {
    for is_in_line in [false, true] {
        no_message_is_slept_over(true, is_in_line);
    }
}

/// The receiver takes a message without noting the number of the next one where its parker looks, as a
/// thread does that does not poll; the number that is noted is older then, and it does not sleep.
#[test]
fn a_parker_with_an_older_number_sleeps_over_nothing() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let Pair { first: sender, second: receiver, memories } = Pair::new();
        let sleeper = Arc::new(Sleeper {
            word: AtomicU32::new(AWAKE),
            attention: AtomicU32::new(0),
            wakes: Mutex::new(0),
            woken: Condvar::new(),
        });
        receiver.set_polled(true);
        let mut noted = receiver.next();
        for n in 0..2 {
            assert!(sender.try_send(notice(n)).unwrap());
            assert_eq!(receiver.take(), Ok(Some(notice(n))));
        }
        let there = sleeper.clone();
        let thread = loom::thread::spawn(move || {
            // Of the slots, which are two, it takes that of the number that is noted.
            assert!(sender.try_send(notice(2)).unwrap());
            assert!(sender.is_polled());
            if ParkWord::new(&there.word).must_wake_behind_fence() {
                there.wake();
            }
        });
        loop {
            if let Some(arrived) = receiver.take().expect("an honest sender") {
                assert_eq!(arrived, notice(2));
                break;
            }
            let ready = || is_there(&memories, noted);
            ParkWord::new(&sleeper.word).park(ready, |word, expected| sleeper.wait(word, expected));
            noted = receiver.next();
        }
        thread.join().unwrap();
    });
}
