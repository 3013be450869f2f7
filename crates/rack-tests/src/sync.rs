//! Channels, notifications, calls of all shards, flushes, and work outside the rack.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gossamer::sync::Notify;
use gossamer::{
    DelegateError, Handle, Latch, Receiver, RecvError, SendError, Sender, Sharded, Trust, Trustee,
    TryRecvError, TrySendError, channel, channel_on, spawn_on_with,
};

use crate::support::{Counted, panic_in, wait_until};

fn everywhere() -> Vec<Trustee> {
    gossamer::threads().collect()
}

/// Values of all threads, tagged by sender; each sends some one by one and some at once.
pub fn values_of_every_thread_arrive_in_order() {
    const EACH: u64 = 300;
    for home in everywhere() {
        let (sender, receiver) = channel_on::<(u32, u64)>(home, 10);
        for thread in everywhere() {
            let send = |(me, sender): (u32, Sender<(u32, u64)>)| {
                (0..EACH / 3).for_each(|n| sender.send((me, n)).unwrap());
                sender.send_all((EACH / 3..EACH).map(|n| (me, n))).unwrap();
            };
            drop(spawn_on_with(thread, send, (thread.number(), sender.clone())));
        }
        drop(sender);
        let mut next = HashMap::new();
        for (from, n) in receiver {
            let expected = next.entry(from).or_insert(0);
            assert_eq!(n, *expected, "in the order in which {from} sent them");
            *expected += 1;
        }
        assert_eq!(next.len(), everywhere().len());
        assert!(next.values().all(|count| *count == EACH), "{next:?}");
    }
}

pub fn senders_wait_while_a_channel_is_full() {
    for home in everywhere() {
        for capacity in [0, 1, 4] {
            let (sender, mut receiver) = channel_on::<u64>(home, capacity);
            let sent = gossamer::entrust(0u64);
            for thread in everywhere() {
                let send = |(sender, sent): (Sender<u64>, Trust<u64>)| {
                    sender.send(7).unwrap();
                    sent.apply(|sent| *sent += 1);
                };
                drop(spawn_on_with(thread, send, (sender.clone(), sent.clone())));
            }
            let threads = everywhere().len() as u64;
            let room = (capacity as u64).min(threads);
            wait_until("those for whom there is room", || sent.apply(|sent| *sent) == room);
            gossamer::sleep(Duration::from_millis(2));
            assert_eq!(sent.apply(|sent| *sent), room, "the others wait: {capacity}");
            if threads > capacity as u64 {
                assert!(matches!(sender.try_send(1), Err(TrySendError::Full(1))));
            }
            for _ in 0..threads {
                assert_eq!(receiver.recv().unwrap(), 7);
            }
            wait_until("all senders", || sent.apply(|sent| *sent) == threads);
            assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
            if capacity > 0 {
                sender.try_send(8).unwrap();
                assert_eq!(receiver.try_recv().unwrap(), 8);
            }
            drop(sender);
            assert!(matches!(receiver.recv(), Err(RecvError::Closed)));
        }
    }
}

pub fn a_channel_may_have_any_capacity() {
    let (sender, mut receiver) = channel::<u64>(usize::MAX);
    for n in 0..3 {
        sender.send(n).unwrap();
        assert_eq!(receiver.recv().unwrap(), n);
    }
}

pub fn a_receiver_that_goes_gives_values_back() {
    for home in everywhere() {
        let drops = gossamer::entrust(0u32);
        let (sender, receiver) = channel_on::<u64>(home, 1);
        let (trusts, of_trusts) = channel_on::<Trust<Counted>>(home, 4);
        let counted = |drops: Trust<u32>| Counted(drops);
        trusts.send(home.entrust_with(counted, drops.clone())).unwrap();
        sender.send(1).unwrap();
        // Waits with three values, and gets them back; the first one is lost with the receiver.
        let waiting = gossamer::spawn_on_with(
            *everywhere().last().unwrap(),
            |sender: Sender<u64>| match sender.send_all([2, 3, 4]) {
                Err(SendError::Closed(values)) => values,
                other => panic!("{other:?}"),
            },
            sender.clone(),
        );
        gossamer::sleep(Duration::from_millis(2));
        assert!(!waiting.is_finished());
        drop((receiver, of_trusts));
        let back = waiting.join().unwrap();
        assert_eq!(back, [2, 3, 4]);
        wait_until("the end of the values", || drops.apply(|drops| *drops) == 1);
        wait_until("the end of the receiver", || {
            matches!(sender.send(5), Err(SendError::Closed(5)))
        });
        assert!(matches!(sender.try_send(6), Err(TrySendError::Closed(6))));
    }
}

/// A receiver that has brought values travels with them.
pub fn receivers_travel_with_what_they_have_brought() {
    let (sender, mut receiver) = channel::<u64>(1000);
    let send = |sender: Sender<u64>| sender.send_all(0..1000).unwrap();
    spawn_on_with(*everywhere().last().unwrap(), send, sender).join().unwrap();
    let mut seen = 0;
    for thread in everywhere() {
        let take = |mut receiver: Receiver<u64>| {
            let some: Vec<u64> = receiver.iter().take(100).collect();
            (some, receiver)
        };
        let (some, back) = spawn_on_with(thread, take, receiver).join().unwrap();
        assert_eq!(some, (seen..seen + 100).collect::<Vec<_>>(), "at {thread:?}");
        seen += 100;
        receiver = back;
    }
    assert!(receiver.into_iter().eq(seen..1000));
}

/// Values of all sizes, and values that hold trusts and senders.
pub fn a_channel_takes_what_arguments_take() {
    for home in everywhere() {
        let (sender, mut receiver) = channel_on::<Vec<u8>>(home, 4);
        let sizes = [0, 1, 70_000, 3, 300_000, 10_000, 10_000, 60_000, 1 << 20];
        let send = move |sender: Sender<Vec<u8>>| {
            sender.send_all(sizes.map(|len| vec![len as u8; len])).unwrap();
        };
        let sending = gossamer::spawn(move || send(sender));
        for len in sizes {
            assert!(receiver.recv().unwrap() == vec![len as u8; len], "{len} bytes");
        }
        sending.join().unwrap();
        assert!(matches!(receiver.recv(), Err(RecvError::Closed)));

        // Requests with a channel for the reply.
        let (requests, mut served) = channel_on::<(u64, Sender<u64>)>(home, 8);
        let serve = move || {
            while let Ok((n, reply)) = served.recv() {
                reply.send(n * n).unwrap();
            }
        };
        let serving = gossamer::spawn(serve);
        for n in 0..20 {
            let (reply, mut answer) = channel(1);
            requests.send((n, reply)).unwrap();
            assert_eq!(answer.recv().unwrap(), n * n);
        }
        drop(requests);
        serving.join().unwrap();
    }
}

pub fn notifications_are_permits() {
    for home in everywhere() {
        let notify = spawn_on_with(home, |()| Notify::new(), ()).join().unwrap();
        // Kept until a fiber waits, once.
        notify.notify_one();
        notify.notify_one();
        notify.wait();
        let woken = gossamer::entrust(0u32);
        let wait = |(notify, woken): (Notify, Trust<u32>)| {
            notify.wait();
            woken.apply(|woken| *woken += 1);
        };
        for thread in everywhere() {
            drop(spawn_on_with(thread, wait, (notify.clone(), woken.clone())));
        }
        gossamer::sleep(Duration::from_millis(2));
        assert_eq!(woken.apply(|woken| *woken), 0, "the second permit was the first");
        notify.notify_one();
        wait_until("one", || woken.apply(|woken| *woken) == 1);
        gossamer::sleep(Duration::from_millis(2));
        assert_eq!(woken.apply(|woken| *woken), 1);
        // Those that wait by now; the rest by further ones.
        notify.notify_all();
        wait_until("all", || {
            notify.notify_all();
            woken.apply(|woken| *woken) == everywhere().len() as u32
        });
        // From a delegated closure.
        home.entrust(1).apply_with(|_, notify: Notify| notify.notify_one(), notify.clone());
        notify.wait();
    }
}

pub fn shards_are_called_at_once() {
    let shards = Sharded::<u32, Vec<u32>>::new(Vec::new);
    for key in 0..100 {
        let index = shards.index_of(&key);
        shards.shards()[index].apply_with(|values, key| values.push(key), key);
    }
    shards.broadcast(|values, by| values.iter_mut().for_each(|value| *value += by), 1000);
    let all = shards.gather(|values| values.clone());
    assert_eq!(all.len(), shards.shards().len());
    for (shard, values) in shards.shards().iter().zip(&all) {
        assert_eq!(shard.apply(|values| values.clone()), *values, "in their order");
    }
    let sum = shards.reduce(|values| values.iter().sum::<u32>(), |a, b| a + b);
    assert_eq!(sum, (1000..1100u32).sum::<u32>());
    shards.for_each(|values| values.clear());
    let failed = shards.try_gather(|values| values[0]);
    assert!(matches!(failed, Err(gossamer::DelegateError::Panicked { .. })), "{failed:?}");
    assert!(shards.gather(|values| values.is_empty()).into_iter().all(|empty| empty));
}

pub fn a_flush_waits_for_callbacks_and_a_fence_for_all_threads() {
    let done = Rc::new(RefCell::new(0));
    let counters: Vec<Trust<u64>> = everywhere().into_iter().map(|t| t.entrust(0)).collect();
    for counter in counters.iter().cycle().take(500) {
        let done = done.clone();
        counter.apply_then(|count| *count += 1, move |()| *done.borrow_mut() += 1);
    }
    gossamer::flush();
    assert_eq!(*done.borrow(), 500);
    gossamer::flush();
    let add = |counters: Vec<Trust<u64>>| {
        for counter in counters.iter().cycle().take(500) {
            counter.apply_then(|count| *count += 1, drop);
        }
    };
    let fibers: Vec<_> =
        everywhere().into_iter().map(|t| spawn_on_with(t, add, counters.clone())).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    gossamer::fence();
    let sum: u64 = counters.iter().map(|counter| counter.apply(|count| *count)).sum();
    assert_eq!(sum, 500 * (1 + everywhere().len() as u64));
}

pub fn blocking_work_and_futures_park_the_fiber() {
    let here = gossamer::local_trustee().entrust(0u32);
    let (release, released) = std::sync::mpsc::channel();
    // All of them block at the same time.
    let blocked: Vec<_> = (0..20u32)
        .map(|n| {
            let (up, is_up) = std::sync::mpsc::channel();
            let work = gossamer::spawn_blocking(move || {
                up.send(()).unwrap();
                n
            });
            (is_up, work)
        })
        .collect();
    let waiting = gossamer::spawn_blocking(move || released.recv().unwrap());
    here.apply(|count| *count += 1);
    release.send(5).unwrap();
    assert_eq!(waiting.join().unwrap(), 5);
    for (n, (is_up, work)) in (0..).zip(blocked) {
        assert_eq!(work.join().unwrap(), n);
        is_up.recv().unwrap();
    }
    let panicked = gossamer::spawn_blocking(|| panic!("the disk is full")).join().unwrap_err();
    assert!(panicked.to_string().contains("the disk is full"), "{panicked}");
    // From threads outside, as futures, and on the fiber itself.
    let handle = Handle::current();
    let outside = gossamer::spawn_blocking(move || {
        let sum = || gossamer::entrust(1).apply(|one| *one + 2);
        handle.spawn(sum).join().unwrap()
    });
    let host = gossamer::local_host();
    let sum = gossamer::block_on(async move {
        let fiber = gossamer::spawn(move || gossamer::local_host() == host);
        (outside.await.unwrap(), fiber.await.unwrap())
    });
    assert_eq!(sum, (3, true));
    let failed = gossamer::block_on(gossamer::spawn(|| panic!("a fiber fell")));
    assert!(failed.is_err());
}

pub fn fibers_of_a_scope_borrow_on_all_threads_of_the_host() {
    let counters: Vec<Trust<u64>> = everywhere().into_iter().map(|t| t.entrust(0)).collect();
    let words: Vec<String> = (0..40).map(|n| "x".repeat(n)).collect();
    let longest = gossamer::scope(|s| {
        let parts: Vec<_> = words
            .chunks(4)
            .map(|part| {
                s.spawn(|| {
                    let bytes = part.iter().map(|word| word.len() as u64).sum::<u64>();
                    for counter in &counters {
                        counter.apply_with(|count, bytes| *count += bytes, bytes);
                    }
                    (part.last().unwrap(), gossamer::local_trustee().trustee())
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    let mut threads: Vec<_> = longest.iter().map(|(_, thread)| *thread).collect();
    threads.sort();
    threads.dedup();
    let here = everywhere().into_iter().filter(|t| t.thread().host == gossamer::local_host());
    assert_eq!(threads, here.collect::<Vec<_>>());
    assert_eq!(longest.iter().map(|(word, _)| word.len()).max(), Some(39));
    for counter in counters {
        assert_eq!(counter.apply(|count| *count), (0..40).sum::<u64>());
    }
    // One that is still waiting when the rack ends.
    drop(gossamer::spawn(|| {
        let borrowed = [1, 2, 3];
        gossamer::scope(|s| {
            for number in &borrowed {
                s.spawn(move || gossamer::sleep(Duration::from_secs(3600 * number)));
            }
        });
    }));
}

pub fn callbacks_of_a_scope_borrow() {
    const EACH: u64 = 300;
    let counters: Vec<Trust<u64>> = everywhere().into_iter().map(|t| t.entrust(0)).collect();
    let latches: Vec<Trust<Latch<u64>>> =
        everywhere().into_iter().map(|t| t.entrust_with(Latch::new, 7)).collect();
    let (sum, texts, failures) = (Cell::new(0), RefCell::new(vec![]), Cell::new(0));
    gossamer::scope(|s| {
        for counter in &counters {
            for n in 1..=EACH {
                let add = |count: &mut u64, n| {
                    *count += n;
                    n
                };
                counter.apply_with_then(add, n, s.callback(|n| sum.set(sum.get() + n)));
            }
            // A result that no slot holds.
            let long = |count: &mut u64| "x".repeat(*count as usize * 10);
            counter.apply_then(long, s.callback(|text| texts.borrow_mut().push(text)));
            counter.try_apply_then(
                |_| panic!("a request falls"),
                s.callback(|result: Result<(), DelegateError>| {
                    assert!(result.unwrap_err().to_string().contains("panicked"));
                    failures.set(failures.get() + 1);
                }),
            );
        }
        for latch in &latches {
            let wait = |seven: &mut u64| {
                gossamer::sleep(Duration::from_millis(3));
                *seven
            };
            latch.launch_then(wait, s.callback(|seven| sum.set(sum.get() + seven)));
        }
    });
    // Without a flush, and although launched closures have waited.
    let all = counters.len();
    assert_eq!(sum.get(), all as u64 * (7 + EACH * (EACH + 1) / 2));
    assert_eq!((texts.borrow().len(), failures.get()), (all, all));
    assert!(texts.borrow().iter().all(|text| text.len() as u64 == EACH * (EACH + 1) * 5));

    // On the own thread a panic of a callback goes to the scope's closure, and the scope waits for the
    // other callbacks.
    let own = gossamer::local_trustee().entrust(0u8);
    let calls = Cell::new(0);
    let message = panic_in(|| {
        gossamer::scope(|s| {
            for counter in &counters {
                counter.apply_then(|_| (), s.callback(|()| calls.set(calls.get() + 1)));
            }
            own.apply_then(|_| (), s.callback(|()| panic!("here and now")));
        });
    });
    assert_eq!((&message[..], calls.get()), ("here and now", all));

    // From fibers of other threads of the host, and from a callback.
    let total = AtomicU64::new(0);
    let (total, there) = (&total, counters.last().expect("a thread"));
    gossamer::scope(|s| {
        let add = move |n| {
            let add = move |()| {
                total.fetch_add(n, Ordering::Relaxed);
            };
            there.apply_then(|_| (), s.callback(add));
        };
        for _ in 0..10 {
            s.spawn(move || add(1));
        }
        own.apply_then(|_| 5, s.callback(add));
    });
    assert_eq!(total.load(Ordering::Relaxed), 15);
}
