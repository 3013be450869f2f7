//! How a rack over TCP and TLS ends when one of its hosts is lost at once, without a
//! goodbye, and when it fails without that.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gossamer::sync::Notify;
use gossamer::{
    Chain, DelegateError, HostId, JoinError, Latch, LookupError, LossReason, OnPeerLoss, Rack,
    RackError, ReadMode, Receiver, RecordsError, RecvError, SegmentError, SendError, Sender,
    ShardedRecords, Team, Trust, TryRecvError, TrySendError, channel, channel_on,
};
use serde::{Deserialize, Serialize, Serializer};
use transport_api::Transport;
use transport_tcp::TcpTransport;

use crate::common::{self, tcp, wait_until, within_deadline};

/// Runs `main` on host 0 of two, with what makes the other vanish.
fn run<R: Send + 'static>(
    on_peer_loss: OnPeerLoss,
    main: impl FnOnce(Arc<TcpTransport>) -> R + Send + 'static,
) -> Result<R, RackError> {
    let mut hosts = tcp::hosts(2, 2, tcp::of_a_job());
    let other = hosts.remove(1);
    let settings = Rack::new().on_peer_loss(on_peer_loss);
    let serving = {
        let (settings, other) = (settings.clone(), other.clone());
        thread::spawn(move || settings.run_on(other as Arc<dyn Transport>, || ()))
    };
    let ended = settings.run_on(hosts.remove(0) as Arc<dyn Transport>, move || main(other));
    let left = serving.join().expect("it does not panic").expect_err("it has lost `main`");
    assert!(matches!(left, RackError::PeerLost { host: HostId(0), .. }), "{left}");
    ended.map(|result| result.expect("host 0 runs main"))
}

/// A value on the other host.
fn far_away() -> Trust<u64> {
    let last = gossamer::threads().last().expect("a thread");
    last.entrust_with(|()| 5, ())
}

#[test]
fn a_rack_ends_with_a_host_and_says_which() {
    within_deadline("a_rack_ends_with_a_host_and_says_which", || {
        let ended = run(OnPeerLoss::EndRack, |other| {
            let value = far_away();
            assert_eq!(value.apply(|value| *value), 5);
            other.sever();
            wait_until("the end of the rack", || value.try_apply(|value| *value).is_err());
            gossamer::sleep(common::DEADLINE);
        });
        let Err(RackError::PeerLost { host, .. }) = &ended else { panic!("{ended:?}") };
        assert_eq!(host.0, 1);
        let printed = format!("{:?}", ended.unwrap_err());
        assert!(printed.starts_with("host 1 was lost and the rack ended: "), "{printed}");
    });
}

#[test]
fn main_goes_on_without_a_host_if_it_wants_to() {
    within_deadline("main_goes_on_without_a_host_if_it_wants_to", || {
        let ended = run(OnPeerLoss::Return, |other| {
            let value = far_away();
            let here = gossamer::local_trustee().entrust(2u64);
            other.sever();
            let lost = loop {
                if let Err(error) = value.try_apply(|value| *value) {
                    break error;
                }
            };
            assert!(matches!(lost, DelegateError::PeerLost { .. }), "{lost:?}");
            // A fiber that cannot be reached has not panicked.
            let joined = value.trustee().spawn(|| 1u8).join().unwrap_err();
            assert!(matches!(joined, JoinError::Delegate(_)), "{joined:?}");
            let lost = DelegateError::from(joined);
            assert!(matches!(lost, DelegateError::PeerLost { host: HostId(1), .. }), "{lost:?}");
            let neighbour = gossamer::threads().nth(1).expect("a second thread of this host");
            let there = neighbour.entrust_with(|()| 3u64, ());
            // What names no trustee passes over the host that is lost.
            for _ in 0..4 {
                assert_eq!(gossamer::entrust_with(|()| (), ()).trustee().thread().host.0, 0);
                let host = gossamer::spawn_with(|()| gossamer::local_host(), ());
                assert_eq!(host.join().expect("a fiber of this host").0, 0);
            }
            here.apply(|value| *value) + there.apply(|value| *value)
        });
        assert_eq!(ended.expect("it ends well"), 5);
    });
}

/// Counts in a cell when it is dropped.
struct Dropped<'a>(&'a Cell<u32>);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_scope_ends_without_the_callbacks_of_a_lost_host() {
    within_deadline("a_scope_ends_without_the_callbacks_of_a_lost_host", || {
        let counts = Arc::new(Mutex::new((0, 0)));
        let seen = counts.clone();
        let ended = run(OnPeerLoss::Return, move |other| {
            let value = far_away();
            let there = gossamer::threads().last().expect("a thread");
            let latch = there.entrust_with(Latch::new, 0u64);
            let (called, dropped) = (Cell::new(0), Cell::new(0));
            gossamer::scope(|s| {
                let callback = || {
                    let dropped = Dropped(&dropped);
                    let called = &called;
                    s.callback(move |()| {
                        let _dropped = dropped;
                        called.set(called.get() + 1);
                    })
                };
                value.apply_then(|_| (), callback());
                // Under way for longer than the host lives.
                latch.launch_then(|_| gossamer::sleep(common::DEADLINE), callback());
                value.apply(|_| ());
                other.sever();
                (0..5000).for_each(|_| value.apply_then(|_| (), callback()));
            });
            *seen.lock().unwrap() = (called.get(), dropped.get());
        });
        assert_eq!(*counts.lock().unwrap(), (1, 5002), "all are gone when the scope ends");
        // The failures are the rack's, as without a scope.
        match ended {
            Err(RackError::Unobserved { count: 5001, first, .. }) => {
                let printed = first.to_string();
                assert!(printed.contains("crates/rack-tests/tests/racks/losses.rs:"), "{printed}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn records_of_a_lost_host_are_typed_errors_both_ways() {
    within_deadline("records_of_a_lost_host_are_typed_errors_both_ways", || {
        let ended = run(OnPeerLoss::Return, |other| {
            let records = ShardedRecords::<u64, u64>::new("records", 100).unwrap();
            let at = |key: u64| records.shard(&key).trustee().thread().host;
            let keys = [0, 1].map(|host| (0..).find(|key| at(*key) == HostId(host)).unwrap());
            for key in keys {
                records.put(&key, &(key + 1)).unwrap();
            }
            assert_eq!(keys.map(|key| records.get(&key).unwrap()), keys.map(|key| Some(key + 1)));
            other.sever();
            let [near, far] = keys;
            for read in [ReadMode::OneSided, ReadMode::Delegated] {
                let lost = loop {
                    if let Err(error) = records.get_by(&far, read) {
                        break error;
                    }
                };
                let is_lost = matches!(lost, RecordsError::PeerLost { host: HostId(1), .. });
                assert!(is_lost, "{read:?}: {lost}");
                assert_eq!(records.get_by(&near, read).unwrap(), Some(near + 1));
            }
            let lost = records.put(&far, &0).unwrap_err();
            assert!(matches!(lost, RecordsError::PeerLost { .. }), "{lost}");
        });
        ended.expect("it ends well");
    });
}

#[test]
fn a_rack_that_fails_without_a_loss_fails_where_main_runs() {
    within_deadline("a_rack_that_fails_without_a_loss_fails_where_main_runs", || {
        let mut hosts = tcp::hosts(2, 2, tcp::of_a_job());
        let other: Arc<dyn Transport> = hosts.remove(1);
        let settings = Rack::new().check_leaks(true);
        let serving = {
            let settings = settings.clone();
            thread::spawn(move || settings.run_on(other, || ()))
        };
        let leak = || std::mem::forget(far_away());
        let ended = settings.run_on(hosts.remove(0) as Arc<dyn Transport>, leak);
        assert!(matches!(ended, Err(RackError::Leaked(_))), "{ended:?}");
        let other = serving.join().expect("it does not panic");
        assert!(matches!(other, Ok(None)), "it is no failure of that host: {other:?}");
    });
}

#[test]
fn a_host_that_leaves_a_starting_rack_is_not_blamed_for_the_one_that_died() {
    let name = "a_host_that_leaves_a_starting_rack_is_not_blamed_for_the_one_that_died";
    within_deadline(name, || {
        let mut hosts = tcp::hosts(3, 2, tcp::of_a_job());
        // As host 1 does when it cannot start because it has lost host 2.
        hosts[1].leave();
        hosts[2].sever();
        let ended = Rack::new().run_on(hosts.remove(0) as Arc<dyn Transport>, || ());
        let error = format!("{:?}", ended.expect_err("two of three hosts are gone"));
        assert!(error.contains("host 2 is gone"), "{error}");
    });
}

#[test]
fn the_names_of_a_host_go_with_it() {
    within_deadline("the_names_of_a_host_go_with_it", || {
        let ended = run(OnPeerLoss::Return, |other| {
            let far = gossamer::threads().last().expect("a thread");
            let publish = |()| {
                let value = gossamer::local_trustee().entrust(5u64);
                let publication = gossamer::publish("value", &value).expect("a publication");
                (publication, gossamer::Segment::builder("words").len(64).export().expect("words"))
            };
            let kept = far.entrust_with(publish, ());
            let value = gossamer::lookup::<u64>("value").expect("a trust");
            assert_eq!(value.apply(|value| *value), 5);
            let words = gossamer::RemoteSegment::open("words").expect("a segment");
            words.at::<u64>(0).write(&7).expect("a write");
            words.fence().expect("a fence");
            other.sever();
            wait_until("the loss", || value.try_apply(|value| *value).is_err());
            let lost = words.at::<u64>(0).read().expect_err("its owner is gone");
            assert!(matches!(lost, SegmentError::PeerLost(HostId(1), _)), "{lost}");
            let gone = gossamer::lookup::<u64>("value").expect_err("its host is gone");
            let not_found = matches!(gone, LookupError::Segment(SegmentError::NotFound { .. }));
            assert!(not_found, "{gone}");
            let gone = gossamer::RemoteSegment::open("words").expect_err("its host is gone");
            assert!(matches!(gone, SegmentError::NotFound { .. }), "{gone}");
            let there = gossamer::segments().options().host(HostId(1));
            let gone = gossamer::lookup_with::<u64>(&there, "value").expect_err("a lost host");
            let lost = LookupError::Segment(SegmentError::PeerLost(HostId(1), lost_reason(&gone)));
            assert_eq!(gone.to_string(), lost.to_string());
            // Its own names are as good as before.
            let near = gossamer::entrust(6u64);
            let _publication = gossamer::publish("value", &near).expect("a publication");
            let near = gossamer::lookup::<u64>("value").expect("a trust");
            drop(kept);
            near.apply(|value| *value)
        });
        assert_eq!(ended.expect("it ends well"), 6);
    });
}

#[test]
fn a_channel_says_whose_values_may_be_missing() {
    within_deadline("a_channel_says_whose_values_may_be_missing", || {
        let ended = run(OnPeerLoss::Return, |other| {
            let far = gossamer::threads().last().expect("a thread");
            let lost = Rc::new(Cell::new(None));
            let tell = lost.clone();
            // Neither of these holds up the others.
            let _panics = gossamer::on_host_lost(|_| panic!("a listener that panics"));
            let _waits = gossamer::on_host_lost(|_| gossamer::sleep(common::DEADLINE));
            let _listening = gossamer::on_host_lost(move |host| tell.set(Some(host)));
            // Three channels: the receiver, a sender, and the channel itself are on the other host.
            let (to_lost, receiver) = channel::<u64>(4);
            let (sender, mut of_lost) = channel::<u64>(4);
            let (at_lost, mut from_lost) = channel_on::<u64>(far, 4);
            let there = |(mut receiver, sender): (Receiver<u64>, Sender<u64>)| {
                sender.send(receiver.recv().unwrap()).unwrap();
                gossamer::sleep(common::DEADLINE);
                drop((receiver, sender));
            };
            drop(gossamer::spawn_on_with(far, there, (receiver, sender)));
            to_lost.send(1).unwrap();
            wait_until("the other host", || of_lost.try_recv().is_ok());
            // These are in the channel, or wait, when the receiver goes.
            let waiting = {
                let to_lost = to_lost.clone();
                gossamer::spawn(move || to_lost.send_all(2..100))
            };
            at_lost.send(5).unwrap();
            other.sever();
            let error = of_lost.recv().unwrap_err();
            assert!(matches!(error, RecvError::HostLost(HostId(1))), "{error}");
            assert!(matches!(of_lost.try_recv(), Err(TryRecvError::Empty)), "said once");
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(&error, SendError::Closed(values) if values.last() == Some(&99)));
            assert!(matches!(to_lost.send(7), Err(SendError::Closed(7))));
            let lost_peer = |error: &DelegateError| matches!(error, DelegateError::PeerLost { .. });
            wait_until(
                "the loss",
                || matches!(at_lost.send(6), Err(SendError::Failed(error)) if lost_peer(&error)),
            );
            let error = from_lost.recv().unwrap_err();
            assert!(matches!(&error, RecvError::Failed(error) if lost_peer(error)), "{error}");
            wait_until("the callback", || lost.get() == Some(HostId(1)));
            assert!(gossamer::live_hosts().eq([HostId(0)]));
            assert_eq!(gossamer::hosts().len(), 2);
            gossamer::fence(); // does not wait for the lost host
        });
        ended.expect("it ends well");
    });
}

/// A value that cannot be dropped in peace.
#[derive(Serialize, Deserialize)]
struct Brittle(u64);

impl Drop for Brittle {
    fn drop(&mut self) {
        panic!("a destructor that panics");
    }
}

#[test]
fn a_value_that_panics_hides_a_loss_from_nobody() {
    within_deadline("a_value_that_panics_hides_a_loss_from_nobody", || {
        let ended = run(OnPeerLoss::Return, |other| {
            let far = gossamer::threads().last().expect("a thread");
            let (brittle, brittle_there) = channel::<Brittle>(4);
            let (sender, there) = channel::<u64>(4);
            let lost = Rc::new(Cell::new(false));
            let tell = lost.clone();
            let _listening = gossamer::on_host_lost(move |_| tell.set(true));
            let (ready, mut is_ready) = channel::<()>(1);
            type Kept = (Receiver<Brittle>, Receiver<u64>, Sender<()>);
            let keep = |(brittle, there, ready): Kept| {
                ready.send(()).unwrap();
                gossamer::sleep(common::DEADLINE);
                drop((brittle, there));
            };
            drop(gossamer::spawn_on_with(far, keep, (brittle_there, there, ready)));
            is_ready.recv().unwrap();
            // More than one: a second panic while the first one unwinds would end the process.
            assert!(brittle.send_all([Brittle(1), Brittle(2)]).is_ok());
            sender.send(1).unwrap();
            other.sever();
            wait_until("the callback", || lost.get());
            wait_until("the end of the second channel", || {
                matches!(sender.try_send(2), Err(TrySendError::Closed(2)))
            });
        });
        match ended {
            Err(RackError::Unobserved { first, .. }) => {
                let printed = Chain(&first).to_string();
                assert!(printed.contains("a destructor that panics"), "{printed}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_notification_of_a_lost_host_is_no_failure() {
    within_deadline("a_notification_of_a_lost_host_is_no_failure", || {
        let ended = run(OnPeerLoss::Return, |other| {
            let far = gossamer::threads().last().expect("a thread");
            let notify = far.entrust_with(|()| Notify::new(), ()).apply(|notify| notify.clone());
            notify.notify_one();
            notify.wait();
            other.sever();
            wait_until("the loss", || notify.try_wait().is_err());
            notify.notify_one();
            notify.notify_all();
            gossamer::flush();
            7
        });
        assert_eq!(ended.expect("it ends well"), 7);
    });
}

thread_local! {
    /// What the `Serialize` of a [`Curious`] sends on, and how often it did.
    static SENDER: RefCell<Option<Sender<Curious>>> = const { RefCell::new(None) };
    static TRIED: Cell<u32> = const { Cell::new(0) };
}

/// A value that uses its channel when it is encoded.
#[derive(Debug, Deserialize)]
struct Curious(u64);

impl Serialize for Curious {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SENDER.with_borrow(|sender| {
            if let Some(sender) = sender {
                let refused = sender.try_send(Curious(0));
                assert!(matches!(refused, Err(TrySendError::Closed(_))), "{refused:?}");
                TRIED.set(TRIED.get() + 1);
            }
        });
        self.0.serialize(serializer)
    }
}

#[test]
fn values_that_use_their_channel_when_they_return_find_it_closed() {
    let name = "values_that_use_their_channel_when_they_return_find_it_closed";
    within_deadline(name, || {
        let ended = run(OnPeerLoss::Return, |other| {
            let far = gossamer::threads().last().expect("a thread");
            let (sender, receiver) = channel::<Curious>(1);
            let (ready, mut is_ready) = channel::<u64>(1);
            let there = |(mut receiver, ready): (Receiver<Curious>, Sender<u64>)| {
                ready.send(receiver.recv().unwrap().0).unwrap();
                gossamer::sleep(common::DEADLINE);
                drop(receiver);
            };
            drop(gossamer::spawn_on_with(far, there, (receiver, ready)));
            sender.send(Curious(1)).unwrap();
            assert_eq!(is_ready.recv().unwrap(), 1);
            let waiting = {
                let sender = sender.clone();
                gossamer::spawn(move || sender.send_all([2, 3, 4].map(Curious)))
            };
            let is_full = || matches!(sender.try_send(Curious(5)), Err(TrySendError::Full(_)));
            wait_until("the sender that waits", is_full);
            gossamer::sleep(Duration::from_millis(5));
            SENDER.set(Some(sender.clone()));
            other.sever();
            let error = waiting.join().unwrap().unwrap_err();
            SENDER.set(None);
            let SendError::Closed(values) = error else { panic!("{error:?}") };
            assert!(values.iter().map(|value| value.0).eq([2, 3, 4]), "{values:?}");
            assert_eq!(TRIED.get(), 3, "each value was encoded once, while the channel was closed");
        });
        ended.expect("it ends well");
    });
}

#[test]
fn a_team_ends_with_a_host_that_is_lost_before_it_or_in_it() {
    within_deadline("a_team_ends_with_a_host_that_is_lost_before_it_or_in_it", || {
        let ended = run(OnPeerLoss::Return, |other| {
            let waiting = gossamer::spawn(|| {
                Team::try_run(
                    |team, ()| loop {
                        team.barrier();
                        gossamer::sleep(Duration::from_millis(1));
                    },
                    (),
                )
                .map(|_: Vec<()>| ())
            });
            gossamer::sleep(Duration::from_millis(50));
            other.sever();
            let error = waiting.join().unwrap().unwrap_err().to_string();
            assert!(error.contains("member"), "{error}");
            wait_until("the loss", || gossamer::live_hosts().count() == 1);
            // The next one would need its threads, too.
            let error = Team::try_run(|team, ()| team.all_reduce(1, |a, b| a + b), ()).unwrap_err();
            assert!(Chain(&error).to_string().contains("host 1"), "{}", Chain(&error));
        });
        ended.expect("it ends well");
    });
}

fn lost_reason(error: &LookupError) -> LossReason {
    match error {
        LookupError::Segment(SegmentError::PeerLost(_, reason)) => reason.clone(),
        other => panic!("{other}"),
    }
}
