//! Channels and notifications that are waited for beside other things, and not for long.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use gossamer::sync::Notify;
use gossamer::{
    DelegateError, Receiver, RecvError, RecvTimeoutError, Sender, Trust, Trustee, TrySendError,
    after, channel_on, select, spawn_on_with,
};

use crate::support::wait_until;

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(60);

fn everywhere() -> Vec<Trustee> {
    gossamer::threads().collect()
}

/// A future is polled, and dropped before it is ready.
fn poll_once<F: Future>(future: F) {
    let mut future = pin!(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Two channels and a clock: each future that loses is dropped.
pub fn no_value_of_a_channel_that_loses_is_lost() {
    const VALUES: u64 = 200;
    for home in everywhere() {
        let send = |sender: Sender<u64>| {
            for n in 0..VALUES {
                sender.send(n).unwrap();
                if n % 16 == 0 {
                    gossamer::sleep(Duration::from_micros(100));
                }
            }
        };
        let last = *everywhere().last().unwrap();
        let [mut left, mut right] = [home, last].map(|at| {
            let (sender, receiver) = channel_on::<u64>(at, 3);
            drop(spawn_on_with(at, send, sender.clone()));
            (receiver, 0, true)
        });
        while left.2 || right.2 {
            let (side, got) = select! {
                got = left.0.next(), if left.2 => (&mut left, got),
                got = right.0.next(), if right.2 => (&mut right, got),
                () = after(Duration::from_micros(50)) => continue,
            };
            match got {
                Ok(value) => {
                    assert_eq!(value, side.1, "in their order");
                    side.1 += 1;
                }
                Err(RecvError::Closed) => side.2 = false,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((left.1, right.1), (VALUES, VALUES));
    }
}

pub fn a_receiver_waits_up_to_a_timeout() {
    for home in everywhere() {
        let (sender, mut receiver) = channel_on::<u64>(home, 8);
        for n in 0..3 {
            let late = receiver.recv_timeout(SHORT);
            assert!(matches!(late, Err(RecvTimeoutError::Timeout)), "{late:?}");
            sender.send(n).unwrap();
            sender.send(n + 10).unwrap();
            // With what the wait before has left, by each of the calls.
            let [first, second] = match n {
                0 => [receiver.recv().unwrap(), receiver.recv_timeout(LONG).unwrap()],
                1 => [receiver.try_recv().unwrap(), receiver.recv().unwrap()],
                _ => [(); 2].map(|()| receiver.recv_timeout(LONG).unwrap()),
            };
            assert_eq!([first, second], [n, n + 10]);
        }
        let sending = |sender: Sender<u64>| {
            gossamer::sleep(SHORT);
            sender.send(7).unwrap();
        };
        let sending = spawn_on_with(*everywhere().last().unwrap(), sending, sender);
        assert_eq!(receiver.recv_timeout(LONG).unwrap(), 7);
        sending.join().unwrap();
        let closed = receiver.recv_timeout(LONG);
        assert!(matches!(closed, Err(RecvTimeoutError::Failed(RecvError::Closed))), "{closed:?}");
    }
}

/// What a future has begun to wait for does not disturb a receiver that is used elsewhere then.
pub fn a_receiver_that_has_begun_to_wait_may_travel() {
    for home in everywhere() {
        for there in everywhere() {
            let (sender, mut receiver) = channel_on::<u64>(home, 8);
            poll_once(receiver.next());
            let take = |mut receiver: Receiver<u64>| {
                let first = receiver.recv().unwrap();
                poll_once(receiver.next());
                (first, receiver)
            };
            let taking = spawn_on_with(there, take, receiver);
            sender.send(1).unwrap();
            let (first, mut receiver) = taking.join().unwrap();
            assert_eq!(first, 1);
            // To another thread of this host without an encoding, and with the wait.
            poll_once(receiver.next());
            let taking = gossamer::spawn(move || {
                let second = gossamer::block_on(receiver.next()).unwrap();
                poll_once(receiver.next());
                (second, receiver)
            });
            sender.send(2).unwrap();
            let (second, mut receiver) = taking.join().unwrap();
            assert_eq!(second, 2);
            let taking = gossamer::spawn(move || (receiver.recv().unwrap(), receiver));
            gossamer::sleep(SHORT);
            sender.send(3).unwrap();
            let (third, receiver) = taking.join().unwrap();
            assert_eq!(third, 3);
            drop(receiver);
            wait_until("the end of the receiver", || {
                matches!(sender.try_send(4), Err(TrySendError::Closed(4)))
            });
        }
    }
}

/// Fibers everywhere give up all the time, and one of them gets each permit all the same.
pub fn no_permit_is_lost_when_a_wait_gives_up() {
    const PERMITS: u32 = 8;
    for home in everywhere() {
        let notify = spawn_on_with(home, |()| Notify::new(), ()).join().unwrap();
        let used = gossamer::entrust(0u32);
        let wait = |(notify, used): (Notify, Trust<u32>)| {
            while used.apply(|used| *used) < PERMITS {
                match notify.wait_timeout(Duration::from_micros(30)) {
                    Ok(()) => used.apply(|used| *used += 1),
                    Err(DelegateError::TimedOut { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let waiting: Vec<_> = everywhere()
            .into_iter()
            .map(|thread| spawn_on_with(thread, wait, (notify.clone(), used.clone())))
            .collect();
        for n in 0..PERMITS {
            notify.notify_one();
            wait_until("the permit", || used.apply(|used| *used) == n + 1);
        }
        waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
}

pub fn a_notified_future_that_is_dropped_gives_its_permit_back() {
    for home in everywhere() {
        let notify = spawn_on_with(home, |()| Notify::new(), ()).join().unwrap();
        let is_late = |notify: &Notify| {
            matches!(notify.wait_timeout(SHORT), Err(DelegateError::TimedOut { .. }))
        };
        // Before it was notified, after it, and meanwhile.
        poll_once(notify.notified());
        notify.notify_one();
        notify.wait_timeout(LONG).unwrap();
        for pause in [SHORT, Duration::ZERO] {
            let mut notified = Box::pin(notify.notified());
            let mut context = Context::from_waker(Waker::noop());
            assert!(notified.as_mut().poll(&mut context).is_pending());
            notify.notify_one();
            gossamer::sleep(pause);
            drop(notified);
            notify.wait_timeout(LONG).unwrap();
            assert!(is_late(&notify), "one permit");
            // What is for all that wait is for none that waits later.
            let mut notified = Box::pin(notify.notified());
            assert!(notified.as_mut().poll(&mut context).is_pending());
            notify.notify_all();
            gossamer::sleep(pause);
            drop(notified);
            assert!(is_late(&notify), "no permit");
        }
        notify.notify_one();
        select! {
            notified = notify.notified() => notified.unwrap(),
            () = after(LONG) => panic!("the permit was not found"),
        }
    }
}
