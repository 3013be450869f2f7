//! Callbacks of notifications: what they may do, what they must not, and that a peer cannot keep them
//! running.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use gossamer_segment::{RemoteSegment, Segment, SegmentError};

use crate::common::{Host, bounded, on_each, shm, tcp};

/// Exports a segment of 16 words at `owner`.
fn export(owner: &Host, name: &str) -> Segment {
    owner.segments.builder(name).len(128).export().expect("a segment")
}

/// Opens a segment that another host exports soon.
fn open(user: &Host, name: &str) -> RemoteSegment {
    let options = user.segments.options().timeout(Duration::from_secs(30));
    options.open(name).expect("a segment")
}

/// Two owners that answer each other's notifications in callbacks; then one drops its segment in one.
#[test]
fn callbacks_use_segments_and_drop_their_own() {
    const ROUNDS: u64 = 200;
    on_each(2, 1, |hosts| {
        let is_over = AtomicBool::new(false);
        let (sender, received) = mpsc::channel();
        thread::scope(|scope| {
            for (me, host) in hosts.iter().enumerate() {
                let (sender, is_over) = (sender.clone(), &is_over);
                scope.spawn(move || {
                    let attached = host.segments.attach(0).expect("attached");
                    let names = ["ping", "pong"];
                    let own = Arc::new(Mutex::new(Some(export(host, names[me]))));
                    let others = names[1 - me];
                    let other = host.segments.options().timeout(Duration::from_secs(30));
                    let other = other.open(others).expect("the other's segment");
                    let notifications =
                        own.lock().unwrap().as_ref().expect("a segment").notifications();
                    if me == 0 {
                        other.at::<u64>(0).write_notify(&1).expect("a write");
                    }
                    notifications
                        .set_callback(move |notification| {
                            assert_eq!((notification.offset, notification.len), (0, 8));
                            let mut own = own.lock().unwrap();
                            let Some(segment) = &*own else { return };
                            let word = segment.at::<u64>(0).read().expect("a word");
                            if word < ROUNDS {
                                other.at::<u64>(0).write_notify(&(word + 1)).expect("a write");
                            } else {
                                // The segment, and by that this callback.
                                *own = None;
                                sender.send(word).expect("a receiver");
                            }
                        })
                        .expect("it takes notifications");
                    while !is_over.load(Ordering::Relaxed) {
                        attached.park(Duration::from_millis(10));
                    }
                });
            }
            drop(sender);
            assert_eq!(received.recv(), Ok(ROUNDS));
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_callback_that_waits_panics_and_is_called_no_more() {
    on_each(2, 1, |hosts| {
        thread::scope(|scope| {
            let (ready, is_ready) = mpsc::channel();
            let (done, is_done) = mpsc::channel::<()>();
            scope.spawn(move || {
                let attached = hosts[1].segments.attach(0).expect("attached");
                let _peers = hosts[1].segments.builder("peers").len(8).export().expect("one");
                let remote = hosts[1].segments.options().timeout(Duration::from_secs(30));
                let remote = remote.open("notified").expect("a segment");
                is_ready.recv().unwrap();
                for word in [1, 2] {
                    remote.at::<u64>(0).write_notify(&word).expect("a write");
                }
                while is_done.try_recv().is_err() {
                    attached.park(Duration::from_millis(1));
                }
            });
            let _attached = hosts[0].segments.attach(0).expect("attached");
            let segment = export(&hosts[0], "notified");
            let peers = hosts[0].segments.options().timeout(Duration::from_secs(30));
            let peers = peers.open("peers").expect("a segment");
            let (sender, received) = mpsc::channel();
            segment
                .notifications()
                .set_callback(move |notification| {
                    sender.send(notification).expect("a receiver");
                    let _ = peers.fence();
                })
                .expect("it takes notifications");
            ready.send(()).unwrap();
            let second = segment.notified().expect("a notification");
            assert_eq!((second.offset, second.missed), (0, 0));
            assert_eq!(received.iter().count(), 1, "the callback was dropped");
            done.send(()).unwrap();
        });
    });
}

/// A callback writes to a host that takes nothing: it is refused before much is kept.
#[test]
fn a_callback_cannot_pile_up_writes() {
    bounded(|| {
        let hosts = tcp(2, 1);
        thread::scope(|scope| {
            let (written, is_written) = mpsc::channel();
            let (done, is_done) = mpsc::channel::<()>();
            let (user, owner) = (&hosts[1], &hosts[0]);
            scope.spawn(move || {
                let attached = user.segments.attach(0).expect("attached");
                let _peers = user.segments.builder("peers").len(64 << 10).export().expect("one");
                let remote = user.segments.options().timeout(Duration::from_secs(30));
                let remote = remote.open("notified").expect("a segment");
                remote.at::<u64>(0).write_notify(&1).expect("a write");
                // It takes nothing until then.
                is_done.recv().unwrap();
                attached.poll();
            });
            let attached = owner.segments.attach(0).expect("attached");
            let segment = export(owner, "notified");
            let peers = owner.segments.options().timeout(Duration::from_secs(30));
            let peers = peers.open("peers").expect("a segment");
            segment
                .notifications()
                .set_callback(move |_| {
                    let bytes = vec![7; 64 << 10];
                    let refused = (0..100).find_map(|_| peers.write(0, &bytes).err());
                    written.send(refused).expect("a receiver");
                })
                .expect("it takes notifications");
            let refused = loop {
                match is_written.try_recv() {
                    Ok(refused) => break refused,
                    Err(_) => attached.park(Duration::from_millis(10)),
                }
            };
            assert!(matches!(refused, Some(SegmentError::WouldWait(_))), "{refused:?}");
            done.send(()).unwrap();
        });
    });
}

/// A callback runs at host 0, once, by a notification of host 1, which exports `peers`. Then `end`
/// checks its result (`None` if it panicked), and says of how many operations host 1 must be notified.
fn in_callback<R: Send + 'static>(
    hosts: &[Host],
    callback: impl FnOnce(RemoteSegment) -> R + Send + 'static,
    end: impl FnOnce(Option<R>, &RemoteSegment) -> u64,
) {
    thread::scope(|scope| {
        let (user, owner) = (&hosts[1], &hosts[0]);
        let (expected, is_expected) = mpsc::channel();
        let peer = scope.spawn(move || {
            let _attached = user.segments.attach(0).expect("attached");
            let peers = export(user, "peers");
            open(user, "notified").at::<u64>(0).write_notify(&1).expect("a write");
            // It takes nothing until then: a callback that notifies until it is refused would not end.
            let expected: u64 = is_expected.recv().expect("a number");
            let mut notified = 0;
            while notified < expected {
                let next = peers.notified().expect("a notification");
                notified += 1 + next.missed;
            }
            assert_eq!(notified, expected);
            assert_eq!(peers.notifications().try_next().expect("a segment"), None);
        });
        let attached = owner.segments.attach(0).expect("attached");
        let segment = export(owner, "notified");
        let peers = open(owner, "peers");
        let (sender, result) = mpsc::channel();
        let (there, mut callback) = (peers.clone(), Some(callback));
        segment
            .notifications()
            .set_callback(move |_| {
                let callback = callback.take().expect("one notification");
                sender.send(callback(there.clone())).expect("a receiver");
            })
            .expect("it takes notifications");
        let result = loop {
            match result.try_recv() {
                Ok(result) => break Some(result),
                Err(mpsc::TryRecvError::Disconnected) => break None,
                Err(mpsc::TryRecvError::Empty) => attached.park(Duration::from_millis(1)),
            }
        };
        expected.send(end(result, &peers)).expect("a peer");
        while !peer.is_finished() {
            attached.park(Duration::from_millis(1));
        }
        peer.join().expect("no panic");
    });
}

/// When no more notifications may be in flight, nothing is done, and the callback gets an error.
#[test]
fn a_callback_changes_no_word_of_which_it_cannot_notify() {
    bounded(|| {
        let callback = |peers: RemoteSegment| {
            let mut done = 0;
            let refused = loop {
                match peers.fetch_add_notify(0, 1) {
                    Ok(before) => {
                        assert_eq!(before, done);
                        done += 1;
                    }
                    Err(refused) => break refused,
                }
            };
            (done, [Err(refused), peers.compare_swap_notify(8, 0, 7), peers.fetch_add_notify(8, 7)])
        };
        in_callback(&shm(2, 1), callback, |result, peers| {
            let (done, refused) = result.expect("a callback without a panic");
            for refused in refused {
                assert!(matches!(refused, Err(SegmentError::WouldWait(_))), "{refused:?}");
            }
            assert_eq!(peers.at::<[u64; 2]>(0).read().expect("a read"), [done, 0]);
            done
        });
    });
}

/// An operation on a word.
type Operation = fn(&RemoteSegment) -> Result<u64, SegmentError>;

/// A word of memory that is not mapped takes a round trip: the callback panics before it begins.
#[test]
fn a_callback_that_would_wait_for_a_word_leaves_it_as_it_is() {
    let operations: [Operation; 4] = [
        |peers| peers.fetch_add(0, 1),
        |peers| peers.fetch_add_notify(0, 1),
        |peers| peers.compare_swap(0, 0, 1),
        |peers| peers.compare_swap_notify(0, 0, 1),
    ];
    for operation in operations {
        bounded(move || {
            let callback = move |peers: RemoteSegment| operation(&peers);
            in_callback(&tcp(2, 1), callback, |result, peers| {
                assert!(result.is_none(), "{result:?}");
                assert_eq!(peers.at::<u64>(0).read().expect("a read"), 0);
                0
            });
        });
    }
}

/// A peer that keeps notifying does not keep the thread that sets the callback, and every notification
/// reaches the callback: by the thread `serve` that takes part in the segments of the owner until it is
/// asked to end.
fn a_peer_keeps_notifying(hosts: &[Host], serve: fn(&Host, mpsc::Sender<Segment>, &AtomicBool)) {
    let (user, owner) = (&hosts[1], &hosts[0]);
    let (is_set, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (taken, is_taken) = mpsc::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let _attached = user.segments.attach(0).expect("attached");
            let remote = open(user, "notified");
            let mut sent = 0;
            while !is_set.load(Ordering::Relaxed) {
                remote.at::<u64>(0).write_notify(&sent).expect("a write");
                sent += 1;
            }
            remote.fence().expect("all have arrived");
            sent
        });
        let (exported, is_exported) = mpsc::channel();
        let is_over = &is_over;
        scope.spawn(move || serve(owner, exported, is_over));
        let segment = is_exported.recv().expect("a segment");
        let first = segment.notified().expect("a notification");
        // By then many wait.
        thread::sleep(Duration::from_millis(100));
        segment
            .notifications()
            .set_callback(move |notification| {
                // Slower than the peer.
                thread::sleep(Duration::from_micros(20));
                taken.send(1 + notification.missed).expect("a receiver");
            })
            .expect("it takes notifications");
        is_set.store(true, Ordering::Relaxed);
        let sent: u64 = writer.join().expect("no panic");
        let mut all = 1 + first.missed;
        while all < sent {
            all += is_taken.recv().expect("a notification");
        }
        assert_eq!(all, sent);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_peer_cannot_keep_a_callback_running() {
    on_each(2, 2, |hosts| {
        a_peer_keeps_notifying(hosts, |owner, exported, is_over| {
            let _server = owner.segments.serve(1).expect("a server");
            exported.send(export(owner, "notified")).expect("a receiver");
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        });
    });
}

#[test]
fn the_next_turn_of_a_callback_comes_with_a_poll() {
    on_each(2, 2, |hosts| {
        a_peer_keeps_notifying(hosts, |owner, exported, is_over| {
            let attached = owner.segments.attach(1).expect("attached");
            exported.send(export(owner, "notified")).expect("a receiver");
            while !is_over.load(Ordering::Relaxed) {
                attached.park(Duration::from_secs(1));
            }
        });
    });
}
