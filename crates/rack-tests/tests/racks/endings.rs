//! How racks end: failures of requests without a waiter, leaks, panics of `main`, settings that make no
//! sense, dedicated trustees, and trusts that outlive their rack.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gossamer::{Barrier, DelegateError, JoinError, Latch, Rack, RackError, Trust, Trustee};
use transport_shm::ShmTransport;
use trust_core::Chain;

use crate::common::{KINDS, Kind, panic_in, run, run_as, wait_until, within_deadline};

fn another() -> Trustee {
    let me = gossamer::local_trustee().trustee();
    gossamer::threads().filter(|trustee| *trustee != me).last().expect("another thread")
}

#[track_caller]
fn is_unobserved(ended: Result<(), RackError>, said: &str) {
    match ended {
        Err(RackError::Unobserved { count: 1, first, .. }) => {
            assert!(Chain(&first).to_string().contains(said), "{first:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// As `is_unobserved`; it is the callback of a call in this file that has panicked.
#[track_caller]
fn is_panic_of_callback(ended: Result<(), RackError>, said: &str) {
    if let Err(RackError::Unobserved { first, .. }) = &ended {
        let printed = first.to_string();
        let expected =
            "first: a callback panicked, of the call at crates/rack-tests/tests/racks/endings.rs:";
        assert!(first.is_callback && printed.starts_with(expected), "{printed}");
    }
    is_unobserved(ended, said);
}

#[test]
fn unobserved_failures_fail_the_rack() {
    within_deadline("unobserved_failures_fail_the_rack", || {
        for kind in KINDS {
            is_unobserved(
                run(kind, || {
                    let remote = another().entrust(0u8);
                    remote.apply_then(|_| panic!("no waiter"), |()| unreachable!());
                    assert_eq!(remote.apply(|value| *value), 0);
                }),
                "no waiter",
            );
        }
    });
}

/// An update that panics fails the rack as a request does, with the line of its `scatter`; those before it
/// have run.
#[test]
fn updates_that_fail_fail_the_rack() {
    within_deadline("updates_that_fail_fail_the_rack", || {
        for kind in KINDS {
            let ended = run(kind, || {
                let sums = gossamer::Sharded::<u64, u64>::new(|| 0);
                let other = sums.shards().iter().position(|shard| !shard.is_local()).unwrap();
                let keys: Vec<u64> =
                    (0..).filter(|key| sums.index_of(key) == other).take(3).collect();
                let mut scatter = sums.scatter(|sum: &mut u64, _, fails: bool| {
                    assert!(!fails, "no update");
                    *sum += 1;
                });
                SCATTERED.store(line!() - 4, Ordering::Relaxed);
                for (key, fails) in keys.into_iter().zip([false, true, false]) {
                    scatter.send(key, fails);
                }
                scatter.finish();
                assert_eq!(sums.shards()[other].apply(|sum| *sum), 1);
            });
            let Err(RackError::Unobserved { count: 1, first, .. }) = &ended else {
                panic!("{ended:?}")
            };
            let line = format!("endings.rs:{}:", SCATTERED.load(Ordering::Relaxed));
            assert!(first.place.as_ref().is_some_and(|place| place.contains(&line)), "{first:?}");
            is_unobserved(ended, "no update");
        }
    });
}

/// The line of the `scatter` above.
static SCATTERED: AtomicU32 = AtomicU32::new(0);

/// More than the address space has room for.
const TOO_MANY_BYTES: usize = usize::MAX / 4;
/// So much that some fit into the address space, and nine do not.
const VERY_MANY_BYTES: usize = 48 << 40;

#[test]
fn a_rack_whose_main_gets_no_stack_does_not_start() {
    within_deadline("a_rack_whose_main_gets_no_stack_does_not_start", || {
        for kind in KINDS {
            let ended = run_as(kind, Rack::new().stack_bytes(TOO_MANY_BYTES), || unreachable!());
            let printed = format!("{:?}", ended.map(|(): ()| ()).unwrap_err());
            assert!(printed.contains("no stack of"), "{kind:?}: {printed}");
        }
    });
}

#[test]
fn a_closure_that_gets_no_stack_is_an_error_of_its_caller() {
    within_deadline("a_closure_that_gets_no_stack_is_an_error_of_its_caller", || {
        let settings = Rack::new().threads(2).stack_bytes(VERY_MANY_BYTES);
        let ended = settings.run(|| {
            let me = gossamer::local_trustee().trustee();
            for trustee in [me, another()] {
                let latch = trustee.entrust_with(Latch::new, 1u8);
                let sleep = |()| gossamer::sleep(Duration::from_secs(1000));
                let sleepers: Vec<_> = (0..8).map(|_| trustee.spawn_with(sleep, ())).collect();
                let lost = |fiber: &gossamer::JoinHandle<()>| fiber.is_finished();
                wait_until("one that cannot start", || sleepers.iter().any(lost));
                let failed = sleepers.into_iter().find(lost).expect("there is one");
                let failed = failed.join().unwrap_err();
                assert!(matches!(failed, JoinError::Delegate(_)), "{failed:?}");
                let error = DelegateError::from(failed);
                assert!(matches!(error, DelegateError::Refused { .. }), "{error:?}");
                assert!(error.to_string().contains("no stack of"), "{error}");
                let error = latch.try_launch_with(|value, ()| *value, ()).unwrap_err();
                assert!(matches!(error, DelegateError::Refused { .. }), "{error:?}");
                assert!(error.to_string().contains("no stack of"), "{error}");
                let free = latch.apply(|latch| latch.try_lock().is_some());
                assert!(free, "the latch of a closure that never ran is free");
            }
        });
        ended.unwrap();
    });
}

#[test]
fn panics_of_callbacks_fail_the_rack() {
    within_deadline("panics_of_callbacks_fail_the_rack", || {
        for kind in KINDS {
            is_panic_of_callback(
                run(kind, || {
                    let remote = another().entrust(0u8);
                    remote.apply_then(|_| (), |()| panic!("a callback fell over"));
                    remote.apply_then(|value| *value += 1, |()| {});
                    assert_eq!(remote.apply(|value| *value), 1, "replies behind it are taken");
                }),
                "a callback fell over",
            );
            is_panic_of_callback(
                run(kind, || {
                    let remote = another().entrust(0u8);
                    let other = remote.clone();
                    remote.apply_then(|_| (), move |()| other.apply(|value| *value += 1));
                    remote.apply(|_| ());
                }),
                "would wait inside the callback",
            );
            // A scope waits for the callbacks after one that panics.
            let calls = Arc::new(AtomicU32::new(0));
            let seen = calls.clone();
            let main = move || {
                let remote = another().entrust(0u8);
                let calls = Cell::new(0);
                gossamer::scope(|s| {
                    remote.apply_then(|_| (), s.callback(|()| panic!("one of a scope fell over")));
                    for _ in 0..1000 {
                        remote.apply_then(|_| (), s.callback(|()| calls.set(calls.get() + 1)));
                    }
                });
                seen.store(calls.get(), Ordering::Relaxed);
            };
            is_panic_of_callback(run(kind, main), "one of a scope fell over");
            assert_eq!(calls.load(Ordering::Relaxed), 1000);
        }
        run(Kind::Threads, || {
            let local = gossamer::local_trustee().entrust(0u8);
            let said = panic_in(|| local.apply_then(|_| (), |()| panic!("here and now")));
            assert_eq!(said, "here and now", "a local callback runs in the caller");
            assert_eq!(local.apply(|value| *value), 0);
        })
        .unwrap();
    });
}

/// Falls over when it is encoded.
#[derive(serde::Deserialize)]
struct Unspeakable;
impl serde::Serialize for Unspeakable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("its encoding fell over");
    }
}

#[test]
fn values_that_panic_while_they_are_encoded_end_their_call() {
    within_deadline("values_that_panic_while_they_are_encoded_end_their_call", || {
        for kind in KINDS {
            run(kind, || {
                let latch = another().entrust_with(|()| Latch::new(0u8), ());
                let said = panic_in(|| latch.launch_with(|_, _: Unspeakable| (), Unspeakable));
                assert_eq!(said, "its encoding fell over");
                let start = || drop(another().spawn_with(|_: Unspeakable| (), Unspeakable));
                assert_eq!(panic_in(start), "its encoding fell over");
                let error = latch.try_launch_with(|_, ()| Unspeakable, ()).map(drop).unwrap_err();
                assert!(matches!(error, DelegateError::BadResult { .. }), "{error:?}");
                assert!(Chain(&error).to_string().contains("its encoding fell over"), "{error:?}");
                assert_eq!(latch.launch(|value| *value), 0, "all goes on");
            })
            .unwrap();
        }
    });
}

#[test]
fn panics_of_callbacks_of_launches_fail_the_rack() {
    within_deadline("panics_of_callbacks_of_launches_fail_the_rack", || {
        for kind in KINDS {
            for remote in [false, true] {
                is_panic_of_callback(
                    run(kind, move || {
                        let me = gossamer::local_trustee().trustee();
                        let at = if remote { another() } else { me };
                        let latch = at.entrust_with(|()| Latch::new(0u8), ());
                        latch.launch_then(|_| (), |()| panic!("a callback fell over"));
                        assert_eq!(latch.launch(|value| *value), 0);
                    }),
                    "a callback fell over",
                );
            }
        }
    });
}

/// The line of a request, for the test below.
static SENT: AtomicU32 = AtomicU32::new(0);

/// The host of `main` reports failures, also those of requests of other hosts, with the line that sent
/// them.
#[test]
fn unobserved_failures_of_other_hosts_fail_the_rack() {
    within_deadline("unobserved_failures_of_other_hosts_fail_the_rack", || {
        for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Threads) {
            for sender in [2, 3] {
                let ended = run(kind, move || {
                    let here = gossamer::local_trustee().entrust(0u8);
                    let sender = gossamer::threads().nth(sender).expect("the other host's");
                    let send = |here: Trust<u8>| {
                        here.apply_then(|_| panic!("no waiter"), |()| unreachable!());
                        line!() - 1
                    };
                    let line = gossamer::spawn_on_with(sender, send, here).join().unwrap();
                    SENT.store(line, Ordering::Relaxed);
                });
                let error = ended.unwrap_err();
                let RackError::Unobserved { host, count: 1, first } = &error else {
                    panic!("{error:?}")
                };
                assert_eq!(host.0, 1);
                let sent = format!("endings.rs:{}:", SENT.load(Ordering::Relaxed));
                assert!(
                    first.place.as_ref().is_some_and(|place| place.contains(&sent)),
                    "{first:?}"
                );
                let printed = format!("{error:?}");
                let expected =
                    "1 fire-and-forget request of host 1 failed: first: the request delegated at";
                assert!(printed.starts_with(expected), "{printed}");
                let place =
                    format!(": no waiter, at {}:{}:", file!(), SENT.load(Ordering::Relaxed));
                assert!(printed.contains(&sent) && printed.contains(&place), "{printed}");
            }
        }
    });
}

struct FallsOver;
impl Drop for FallsOver {
    fn drop(&mut self) {
        panic!("its drop fell over");
    }
}

#[test]
fn panics_of_drops_fail_the_rack() {
    within_deadline("panics_of_drops_fail_the_rack", || {
        for kind in KINDS {
            is_unobserved(
                run(kind, || {
                    let trust = another().entrust_with(|()| FallsOver, ());
                    let other = another().entrust(7u8);
                    drop(trust);
                    assert_eq!(other.apply(|value| *value), 7, "the trustee goes on");
                }),
                "its drop fell over",
            );
        }
    });
}

#[test]
fn leaks_are_named() {
    within_deadline("leaks_are_named", || {
        for kind in KINDS {
            let ended = run(kind, || {
                std::mem::forget(another().entrust(vec![1u8]));
                std::mem::forget(gossamer::local_trustee().entrust("here"));
            });
            match ended {
                Err(RackError::Leaked(mut names)) => {
                    names.sort();
                    assert_eq!(names, ["&str", "alloc::vec::Vec<u8>"]);
                }
                other => panic!("{other:?}"),
            }
        }
        struct Cycle(Option<Trust<Cycle>>);
        let ended = run(Kind::Threads, || {
            let cycle = another().entrust_with(|()| Cycle(None), ());
            cycle.apply_with(|cycle, itself| cycle.0 = Some(itself), cycle.clone());
            assert!(cycle.apply(|cycle| cycle.0.is_some()));
        });
        assert!(matches!(ended, Err(RackError::Leaked(names)) if names.len() == 1));
    });
}

#[test]
fn a_panic_of_main_is_the_panic_of_run() {
    within_deadline("a_panic_of_main_is_the_panic_of_run", || {
        for kind in KINDS {
            let said = panic_in(|| run(kind, || -> () { panic!("main fell over") }));
            assert_eq!(said, "main fell over");
        }
        assert_eq!(run(Kind::Threads, || 7).unwrap(), 7, "the next rack is a new one");
    });
}

#[test]
fn fibers_without_a_joiner_are_unwound() {
    within_deadline("fibers_without_a_joiner_are_unwound", || {
        struct CountsDrop(Arc<AtomicU32>);
        impl Drop for CountsDrop {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        for kind in KINDS {
            let unwound = Arc::new(AtomicU32::new(0));
            let drops = unwound.clone();
            run(kind, move || {
                let begun = gossamer::local_trustee().entrust(0u32);
                for i in 0..8 {
                    let (drops, begun) = (CountsDrop(drops.clone()), begun.clone());
                    drop(gossamer::spawn(move || {
                        let _drops = drops;
                        begun.apply(|begun| *begun += 1);
                        drop(begun);
                        if i % 2 == 0 {
                            gossamer::sleep(std::time::Duration::from_secs(3600));
                        } else {
                            drop(gossamer::Latch::new(0).lock());
                            gossamer::spawn(|| gossamer::sleep(std::time::Duration::MAX))
                                .join()
                                .unwrap();
                        }
                    }));
                }
                wait_until("all fibers", || begun.apply(|begun| *begun) == 8);
            })
            .unwrap();
            assert_eq!(unwound.load(Ordering::SeqCst), 8);
        }
    });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for rack in
        [Rack::new().hosts(0), Rack::new().threads(0), Rack::new().threads(2).dedicated_trustees(2)]
    {
        let ended = rack.run(|| unreachable!("it does not start"));
        let ended: Result<(), _> = ended;
        assert!(matches!(ended, Err(RackError::Settings(_))), "{ended:?}");
    }
}

#[test]
fn more_threads_than_a_host_can_have_are_refused() {
    for rack in [Rack::new().threads(1000), Rack::new().threads(u32::MAX)] {
        let ended: Result<(), _> = rack.run(|| unreachable!("it does not start"));
        assert!(
            matches!(ended, Err(RackError::Join(transport_shm::JoinError::Size(1, _)))),
            "{ended:?}"
        );
    }
}

#[test]
fn dedicated_trustees_are_held_against_the_threads_that_the_transport_has() {
    for dedicated in [2, 3] {
        let settings = Rack::new().threads(8).dedicated_trustees(dedicated);
        let transport = ShmTransport::threads(2).expect("a rack");
        let ended = settings.run_on(transport, || unreachable!("it does not start"));
        let ended: Result<Option<()>, _> = ended;
        assert!(matches!(ended, Err(RackError::Settings(_))), "{ended:?}");
    }
    let settings = Rack::new().threads(1).dedicated_trustees(1);
    let transport = ShmTransport::threads(2).expect("a rack");
    let trustees = settings.run_on(transport, || gossamer::trustees().count());
    assert_eq!(trustees.expect("a rack"), Some(1), "what was asked for is not what counts");
}

#[test]
fn dedicated_trustees_hold_properties_and_run_no_fibers() {
    within_deadline("dedicated_trustees_hold_properties_and_run_no_fibers", || {
        for kind in KINDS {
            let rack = Rack::new().dedicated_trustees(1).check_leaks(true);
            run_as(kind, rack, || {
                let last = gossamer::threads().map(|t| t.thread().thread).max().expect("threads");
                assert!(gossamer::trustees().all(|trustee| trustee.thread().thread == last));
                for _ in 0..6 {
                    let counter = gossamer::entrust(0u32);
                    assert_eq!(counter.trustee().thread().thread, last);
                    let inside = counter.clone();
                    let fiber = gossamer::spawn(move || {
                        inside.apply(|c| *c += 1);
                        gossamer::local_trustee().trustee().thread().thread
                    });
                    assert_ne!(fiber.join().unwrap(), last);
                    assert_eq!(counter.apply(|c| *c), 1);
                }
                let shards = gossamer::Sharded::<u32, u32>::new(|| 0);
                assert!(shards.shards().iter().all(|s| s.trustee().thread().thread == last));
            })
            .unwrap();
        }
    });
}

#[test]
fn a_trust_that_outlives_its_rack_is_of_no_other() {
    within_deadline("a_trust_that_outlives_its_rack_is_of_no_other", || {
        let kept: Trust<u32> =
            Rack::new().threads(2).run(|| gossamer::local_trustee().entrust(1u32)).unwrap();
        let its_rack_has_ended = "the rack of this trust has ended, and its property with it";
        let said = panic_in(|| kept.apply(|value| *value));
        assert!(said.contains(its_rack_has_ended), "{said}");
        let kept = Arc::new(Mutex::new(Some(kept)));
        run(Kind::Threads, move || {
            let own = gossamer::local_trustee().entrust(2u32);
            let kept = kept.lock().unwrap().take().expect("kept");
            let error = kept.try_apply(|value| *value).unwrap_err();
            assert!(matches!(error, DelegateError::NoRack(_)), "{error}");
            assert!(error.to_string().starts_with(its_rack_has_ended), "{error}");
            let said = panic_in(|| kept.apply_then(|_| (), drop));
            assert!(said.contains(its_rack_has_ended), "{said}");
            drop(kept.clone());
            drop(kept);
            assert_eq!(own.apply(|value| *value), 2);
        })
        .expect("a drop of the other rack's trust keeps nothing alive here");
    });
}

/// What calls say that need a thread of a rack, and `kept` of one that runs, on this thread.
fn refusals(kept: Option<&Trust<u32>>) -> Vec<String> {
    let mut said = vec![
        panic_in(|| gossamer::entrust(1)),
        panic_in(|| gossamer::spawn(|| ())),
        panic_in(|| gossamer::threads().count()),
        panic_in(gossamer::local_trustee),
        panic_in(gossamer::Handle::current),
        panic_in(gossamer::segments),
        gossamer::try_entrust(1).unwrap_err().to_string(),
    ];
    said.extend(kept.map(|kept| panic_in(|| kept.apply(|value| *value))));
    said.extend(kept.map(|kept| panic_in(|| kept.apply_then(|_| (), drop))));
    said
}

#[test]
fn use_outside_a_rack_is_refused() {
    let before = refusals(None);
    // A thread that is started inside a rack is still no thread of it.
    let inside = run(Kind::Threads, || {
        let kept = gossamer::entrust(1);
        std::thread::spawn(move || refusals(Some(&kept))).join().unwrap()
    });
    for said in before.into_iter().chain(inside.unwrap()) {
        let advice =
            ["never runs on one", "`gossamer::spawn`", "`Handle::current()`", "`apply_async`"];
        let expected = said.starts_with("this is not a thread of a rack");
        assert!(expected && advice.iter().all(|part| said.contains(part)), "{said}");
    }
}

#[test]
#[ignore = "takes 8 GiB of memory; run it with `cargo test --release -p gossamer-rack-tests --test racks -- --ignored gibibyte`"]
fn a_gibibyte_there_and_back_and_not_a_byte_more() {
    use serde_bytes::ByteBuf;
    run(Kind::Threads, || {
        const GIB: usize = 1 << 30;
        let echo = another().entrust(0usize);
        // The length in front of the bytes takes eight.
        let back = echo.apply_with(
            |len, bytes: ByteBuf| {
                *len = bytes.len();
                bytes
            },
            ByteBuf::from(vec![7; GIB - 8]),
        );
        assert!(back.len() == GIB - 8 && back.iter().all(|byte| *byte == 7));
        drop(back);
        let more =
            echo.try_apply_with(|_, bytes: ByteBuf| bytes.len(), ByteBuf::from(vec![7; GIB]));
        assert!(matches!(more, Err(DelegateError::BadArguments { .. })), "{more:?}");
        let more = echo.try_apply(|_| ByteBuf::from(vec![7; GIB]));
        assert!(matches!(more, Err(DelegateError::BadResult { .. })), "{more:?}");
        assert_eq!(echo.apply(|len| *len), GIB - 8);
    })
    .unwrap();
}

/// A wait, and the function that messages name for it.
type Wait = (&'static str, fn(Barrier));

/// What a closure may not do.
const WAITS: [Wait; 13] = [
    ("`sleep`", |_| gossamer::sleep(Duration::from_millis(1))),
    ("`yield_now`", |_| gossamer::yield_now()),
    ("`join`", |_| gossamer::spawn(|| gossamer::sleep(Duration::from_secs(60))).join().unwrap()),
    ("`Barrier::wait`", |barrier| assert!(barrier.wait())),
    ("`Sender::send`", |_| drop(gossamer::channel::<u8>(1).0.send(1))),
    ("`Sender::try_send`", |_| drop(gossamer::channel::<u8>(1).0.try_send(1))),
    ("`Receiver::recv`", |_| drop(gossamer::channel::<u8>(1).1.recv())),
    ("`Receiver::recv_timeout`", |_| {
        drop(gossamer::channel::<u8>(1).1.recv_timeout(Duration::from_millis(1)));
    }),
    ("`Notify::wait`", |_| gossamer::sync::Notify::new().wait()),
    ("`Notify::wait_timeout`", |_| {
        drop(gossamer::sync::Notify::new().wait_timeout(Duration::from_millis(1)));
    }),
    ("`entrust_with`", |_| drop(another().entrust_with(|()| (), ()))),
    ("`visit_node`", |_| another().visit_node(|_, ()| (), ())),
    ("`try_visit_node`", |_| drop(another().try_visit_node(|_, ()| (), ()))),
];

#[test]
fn waiting_inside_a_closure_is_refused_and_names_both_places() {
    within_deadline("waiting_inside_a_closure_is_refused_and_names_both_places", || {
        for kind in KINDS {
            run(kind, || {
                let barrier = Barrier::new(2);
                let local = gossamer::local_trustee().entrust(0u32);
                let remote = another().entrust(0u32);
                for (wait, (name, _)) in WAITS.iter().enumerate() {
                    for counter in [&local, &remote] {
                        let arguments = (wait, barrier.clone());
                        let said = panic_in(|| {
                            let wait = |counter: &mut u32, (wait, barrier): (usize, Barrier)| {
                                *counter += 1;
                                WAITS[wait].1(barrier);
                                *counter += 1000;
                            };
                            counter.apply_with(wait, arguments);
                        });
                        let refused = format!("{name} at ");
                        assert!(said.contains(&refused), "{said}");
                        assert!(said.contains("would wait inside the"), "{said}");
                        // Only a delegated call has a form that does not wait.
                        let then =
                            if *name == "`entrust_with`" { "use `entrust_with_then`" } else { "" };
                        assert!(said.contains(then), "{said}");
                        assert_eq!(said.contains("_then`"), !then.is_empty(), "{said}");
                        assert!(said.contains("make the property a `Latch`"), "{said}");
                        assert!(said.matches("endings.rs").count() >= 2, "{said}");
                    }
                }
                for counter in [&local, &remote] {
                    assert_eq!(counter.apply(|c| *c) as usize, WAITS.len(), "it ended there");
                }
            })
            .unwrap();
        }
    });
}
