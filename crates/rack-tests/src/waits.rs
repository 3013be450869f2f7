//! Waits with an end: calls and joins with a timeout, timers, and `select!`.

use std::cell::Cell;
use std::time::{Duration, Instant};

use gossamer::{
    Access, DelegateError, JoinTimeout, Latch, Notify, RemoteSegment, Segment, Trust, Trustee,
    after, interval, select, spawn_on, spawn_on_with,
};
use serde::{Deserialize, Serialize};

use crate::support::{panic_in, wait_until};

const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(3600);

/// A thread of another host if there is one, else another thread.
fn another() -> Trustee {
    let me = gossamer::local_trustee().trustee();
    gossamer::threads().filter(|trustee| *trustee != me).last().expect("another thread")
}

thread_local! {
    static DROPPED: Cell<u32> = const { Cell::new(0) };
}

/// Counts its drops on each thread.
#[derive(Serialize, Deserialize)]
struct Counted(u32);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
    }
}

pub fn a_call_that_times_out_still_runs() {
    let counter = another().entrust(0u32);
    let count = |n: &mut u32, more: u32| {
        *n += more;
        Counted(*n)
    };
    let mut calls = 0;
    let before = DROPPED.get();
    // A thread that gets no processor may find the reply before it looks at the clock.
    loop {
        counter.apply_then(|_| std::thread::sleep(Duration::from_millis(100)), |()| ());
        calls += 1;
        assert!(calls < 100, "no call has timed out");
        match counter.apply_with_timeout(count, 1, SHORT) {
            Err(DelegateError::TimedOut { trustee, timeout }) => {
                assert_eq!((trustee, timeout), (counter.trustee().thread(), SHORT));
                break;
            }
            other => assert_eq!(other.map(|n| n.0).unwrap(), calls),
        }
    }
    assert_eq!(counter.apply(|n| *n), calls, "it has run all the same");
    wait_until("the drop of the late reply", || DROPPED.get() - before == calls);
    assert_eq!(counter.apply_timeout(|n| *n, LONG).unwrap(), calls);
    assert_eq!(counter.apply_timeout(|n| *n, Duration::MAX).unwrap(), calls);
}

pub fn calls_on_the_own_thread_do_not_time_out() {
    let own = gossamer::local_trustee().entrust(1u32);
    let late = |n: &mut u32| {
        std::thread::sleep(SHORT);
        *n + 1
    };
    assert_eq!(own.apply_timeout(late, Duration::ZERO).unwrap(), 2);
    let panicked = own.apply_timeout(|_| -> u32 { panic!("no bread") }, LONG);
    assert!(matches!(panicked, Err(DelegateError::Panicked { .. })), "{panicked:?}");
    let waits = panic_in(|| {
        own.apply_with(
            |_, other: Trust<u32>| drop(other.apply_timeout(|n| *n, SHORT)),
            own.clone(),
        );
    });
    assert!(waits.contains("`apply_timeout`"), "{waits}");
}

pub fn a_launch_that_times_out_runs_when_the_latch_is_free() {
    for trustee in gossamer::threads() {
        let latch = trustee.entrust_with(Latch::new, 0u32);
        let gate = gossamer::local_trustee().entrust(false);
        let holds = latch.launch_with_later(
            |n, gate: Trust<bool>| {
                while !gate.apply(|open| *open) {
                    gossamer::sleep(SHORT);
                }
                *n += 1;
            },
            gate.clone(),
        );
        let timed_out = latch.launch_timeout(|n| *n += 10, SHORT);
        assert!(matches!(timed_out, Err(DelegateError::TimedOut { .. })), "{timed_out:?}");
        let timed_out = latch.launch_with_timeout(|n, more| *n += more, 100u32, SHORT);
        assert!(matches!(timed_out, Err(DelegateError::TimedOut { .. })), "{timed_out:?}");
        assert!(!holds.is_ready());
        gate.apply(|open| *open = true);
        holds.wait().unwrap();
        assert_eq!(latch.launch(|n| *n), 111, "all have run, in order");
        assert_eq!(latch.launch_timeout(|n| *n, LONG).unwrap(), 111);
    }
}

type Counter = Trust<Latch<u32>>;

pub fn a_timed_launch_that_waits_for_itself_is_refused_at_once() {
    // Long enough for a refusal; a launch that waits for itself lets it pass.
    const TIMEOUT: Duration = Duration::from_secs(20);
    for trustee in gossamer::threads() {
        let latch = trustee.entrust_with(Latch::new, 0u32);
        let refused = latch.launch_with(
            |_, own: Counter| {
                [
                    own.launch_timeout(|n| *n, TIMEOUT),
                    own.launch_with_timeout(|n, more| *n + more, 1, TIMEOUT),
                ]
            },
            latch.clone(),
        );
        for refused in refused {
            let Err(DelegateError::Refused { reason, .. }) = &refused else {
                panic!("{refused:?}")
            };
            assert!(reason.contains("that waits for this one"), "{reason}");
        }
        assert_eq!(latch.launch(|n| *n), 0);
    }
}

/// A caller that stops waiting may let go of its latch: what it has launched is not refused.
pub fn a_timed_launch_begins_a_new_chain() {
    for trustee in gossamer::threads() {
        let [outer, inner] = [0; 2].map(|_: u32| trustee.entrust_with(Latch::new, 0u32));
        let timed_out = outer.launch_with(
            |_, (outer, inner): (Counter, Counter)| {
                let waits_for_outer = |n: &mut u32, outer: Counter| {
                    *n += 1;
                    outer.launch(|n| *n += 1);
                };
                inner.launch_with_timeout(waits_for_outer, outer, SHORT)
            },
            (outer.clone(), inner.clone()),
        );
        assert!(matches!(timed_out, Err(DelegateError::TimedOut { .. })), "{timed_out:?}");
        wait_until("the launches", || outer.launch(|n| *n) == 1);
        assert_eq!(inner.launch(|n| *n), 1);
    }
}

pub fn a_join_that_times_out_gives_the_handle_back() {
    for trustee in gossamer::threads() {
        let gate = gossamer::local_trustee().entrust(false);
        let waits = |gate: Trust<bool>| {
            while !gate.apply(|open| *open) {
                gossamer::sleep(SHORT);
            }
            7
        };
        let mut fiber = spawn_on_with(trustee, waits, gate.clone());
        for _ in 0..2 {
            fiber = match fiber.join_timeout(SHORT) {
                Err(JoinTimeout::TimedOut(fiber)) => fiber,
                other => panic!("{other:?}"),
            };
        }
        gate.apply(|open| *open = true);
        assert_eq!(fiber.join_timeout(LONG).unwrap(), 7);
        let panics = spawn_on(trustee, || panic!("no bread")).join_timeout(LONG);
        let Err(JoinTimeout::Failed(error)) = panics.map(|(): ()| ()) else {
            panic!("it panicked")
        };
        assert!(error.to_string().contains("no bread"), "{error}");
    }
}

pub fn replies_are_waited_for_later() {
    let trusts: Vec<_> = gossamer::threads().zip(1u64..).map(|(t, n)| t.entrust(n)).collect();
    let replies: Vec<_> =
        trusts.iter().map(|trust| trust.apply_with_later(|n, by| *n * by, 10u64)).collect();
    let sum: u64 = replies.into_iter().map(|reply| reply.wait().unwrap()).sum();
    let count = trusts.len() as u64;
    assert_eq!(sum, 10 * count * (count + 1) / 2);
    for trust in &trusts {
        let panicked = trust.apply_later(|_| -> u64 { panic!("no bread") }).wait();
        assert!(matches!(panicked, Err(DelegateError::Panicked { .. })), "{panicked:?}");
        // In a delegated closure a call may be made, and its reply not waited for.
        drop(trust.apply_later(|n| *n += 1));
    }
    let sum: u64 = trusts.iter().map(|trust| trust.apply(|n| *n)).sum();
    assert_eq!(sum, count * (count + 3) / 2);
}

pub fn whatever_is_there_first_is_selected() {
    let owner = Segment::builder("bells")
        .len(4096)
        .access(Access::read().write_for(gossamer::threads().map(|t| t.thread().host)))
        .notify(Notify::Always)
        .export()
        .unwrap();
    let notifications = owner.notifications();
    let (gate, far) = (gossamer::local_trustee().entrust(0u32), another());
    let latch = far.entrust_with(Latch::new, 5u32);
    let until = |(gate, step): (Trust<u32>, u32)| {
        while gate.apply(|n| *n) < step {
            gossamer::sleep(SHORT);
        }
    };
    // Each is there only when the one before it has been selected.
    let mut fiber = spawn_on_with(far, until, (gate.clone(), 1));
    let mut reply = latch.launch_with_later(
        |n, gate: Trust<u32>| {
            while gate.apply(|n| *n) < 2 {
                gossamer::sleep(SHORT);
            }
            *n
        },
        gate.clone(),
    );
    let ring = spawn_on_with(
        far,
        |gate: Trust<u32>| {
            while gate.apply(|n| *n) < 3 {
                gossamer::sleep(SHORT);
            }
            RemoteSegment::open("bells").unwrap().at::<u64>(0).write_notify(&7).unwrap();
        },
        gate.clone(),
    );
    let (mut has_ended, mut has_replied) = (false, false);
    let mut seen = Vec::new();
    let next = || gate.apply(|n| *n += 1);
    while seen.last() != Some(&"notified") {
        let what = select! {
            ended = &mut fiber, if !has_ended => {
                ended.unwrap();
                has_ended = true;
                next();
                "ended"
            }
            value = &mut reply, if !has_replied => {
                assert_eq!(value.unwrap(), 5);
                has_replied = true;
                next();
                "replied"
            }
            notification = notifications.next() => {
                assert_eq!(notification.unwrap().offset, 0);
                "notified"
            }
            () = after(SHORT) => {
                if seen.is_empty() {
                    next();
                }
                "late"
            },
        };
        if seen.last() != Some(&what) {
            seen.push(what);
        }
    }
    seen.retain(|what| *what != "late");
    assert_eq!(seen, ["ended", "replied", "notified"]);
    ring.join().unwrap();
    assert!(!select! {
        _ = after(LONG), if false => true,
        else => false,
    });
    let none = panic_in(|| select! { () = after(LONG), if false => () });
    assert!(none.contains("no `else`"), "{none}");
}

pub fn losers_of_a_select_keep_their_value() {
    let trust = another().entrust(3u32);
    let mut reply = trust.apply_later(|n| *n);
    wait_until("the reply", || reply.is_ready());
    // The first that is there wins, each time.
    for _ in 0..3 {
        let won = select! {
            () = std::future::ready(()) => "first",
            _ = &mut reply => "second",
        };
        assert_eq!(won, "first");
    }
    let value = select! {
        value = &mut reply => value.unwrap(),
        () = after(Duration::ZERO) => 0,
    };
    assert_eq!(value, 3);
}

pub fn intervals_and_deadlines_do_not_drift() {
    let start = Instant::now();
    let mut ticks = interval(SHORT);
    let first = ticks.tick();
    assert!(first >= start);
    gossamer::sleep_until(first + 3 * SHORT);
    let mut due = vec![first];
    while due.len() < 6 {
        due.push(select! {
            due = &mut ticks => due,
            () = after(LONG) => unreachable!(),
        });
    }
    assert!(due.is_sorted() && due.windows(2).all(|two| two[1] - two[0] == SHORT), "{due:?}");
    assert!(Instant::now() >= first + 5 * SHORT);
    gossamer::sleep_until(start);
}
