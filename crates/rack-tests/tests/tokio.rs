//! Delegated calls as futures, awaited by tasks of an async runtime whose threads are outside
//! the rack.

mod common;

use common::{KINDS, run, within_deadline};
use gossamer::{DelegateError, HostId, Latch, Segment, SegmentError, Trust, delegate};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs `task` on a runtime beside the rack while the fiber that calls this waits.
fn beside<R: Send + 'static>(task: impl Future<Output = R> + Send + 'static) -> R {
    let outside = std::thread::spawn(|| runtime().block_on(task));
    common::wait_until("the tasks", || outside.is_finished());
    outside.join().unwrap()
}

#[test]
fn tasks_await_delegated_calls() {
    within_deadline("tasks_await_delegated_calls", || {
        for kind in KINDS {
            run(kind, || {
                let counters: Vec<Trust<u64>> =
                    gossamer::threads().map(|trustee| trustee.entrust(0)).collect();
                let inside = counters.clone();
                beside(async move {
                    let tasks: Vec<_> = (0..100u64)
                        .map(|i| {
                            let counter = inside[i as usize % inside.len()].clone();
                            tokio::spawn(async move {
                                counter.apply_async(|c| *c += 1).await.unwrap();
                                tokio::task::yield_now().await;
                                counter.apply_with_async(|_, i| i, i).await.unwrap()
                            })
                        })
                        .collect();
                    for (i, task) in (0..).zip(tasks) {
                        assert_eq!(task.await.unwrap(), i);
                    }
                });
                let sum: u64 = counters.iter().map(|counter| counter.apply(|c| *c)).sum();
                assert_eq!(sum, 100);
            })
            .unwrap();
        }
    });
}

#[test]
fn tasks_start_fibers_and_fibers_wait_for_tasks() {
    within_deadline("tasks_start_fibers_and_fibers_wait_for_tasks", || {
        for kind in KINDS {
            run(kind, || {
                let handle = gossamer::Handle::current();
                let runtime = gossamer::spawn_blocking(runtime).join().unwrap();
                let tasks: Vec<_> = (0..100u64)
                    .map(|n| {
                        let handle = handle.clone();
                        runtime.spawn(async move {
                            tokio::time::sleep(std::time::Duration::from_millis(n % 3)).await;
                            let far = at_the_last(n);
                            handle.spawn(far).await.unwrap()
                        })
                    })
                    .collect();
                for (n, task) in (0..).zip(tasks) {
                    assert_eq!(gossamer::block_on(task).unwrap(), n + 1);
                }
                let falls = handle.clone();
                let fallen = async move { falls.spawn(|| panic!("fell")).await.is_err() };
                assert!(gossamer::block_on(runtime.spawn(fallen)).unwrap());
                // Its drop blocks.
                gossamer::spawn_blocking(move || drop(runtime)).join().unwrap();
            })
            .unwrap();
        }
        let handle = gossamer::Rack::new().threads(1).run(gossamer::Handle::current).unwrap();
        assert!(handle.spawn(|| ()).join().is_err(), "the rack has ended");
    });
}

/// Asks the last thread of the rack.
fn at_the_last(n: u64) -> impl FnOnce() -> u64 + Send {
    move || gossamer::threads().last().unwrap().entrust(n).apply(|n| *n + 1)
}

#[test]
fn failures_reach_the_task() {
    within_deadline("failures_reach_the_task", || {
        for kind in KINDS {
            let kept = run(kind, || {
                // The first is the thread that carries the requests of tasks.
                let counters: Vec<Trust<u64>> =
                    gossamer::threads().map(|trustee| trustee.entrust(0)).collect();
                let inside: Vec<_> =
                    counters.iter().map(|c| (c.trustee().thread(), c.clone())).collect();
                beside(async move {
                    for (thread, counter) in inside {
                        let fall = |_: &mut u64| -> u64 { panic!("async and fell") };
                        match counter.apply_async(fall).await {
                            Err(DelegateError::Panicked { trustee, report }) => {
                                assert_eq!(trustee, thread);
                                assert_eq!(report.message, "async and fell");
                            }
                            other => panic!("{other:?}"),
                        }
                        drop(counter.apply_async(|c| *c += 1));
                        assert_eq!(counter.apply_async(|c| *c).await.unwrap(), 1, "in order");
                    }
                });
                counters.iter().all(|counter| counter.apply(|c| *c) == 1)
            });
            assert!(kept.unwrap());
        }
        let late = gossamer::Rack::new().threads(1).run(|| gossamer::entrust(1u64)).unwrap();
        let failed = runtime().block_on(late.apply_async(|value| *value));
        assert!(matches!(failed, Err(DelegateError::NoRack(_))), "the rack has ended");
    });
}

#[test]
fn tasks_launch_visit_and_entrust() {
    within_deadline("tasks_launch_visit_and_entrust", || {
        for kind in KINDS {
            run(kind, || {
                for at in gossamer::threads() {
                    let latch = at.entrust_with(Latch::new, 1u64);
                    let inside = latch.clone();
                    beside(async move {
                        let wait = |n: &mut u64| {
                            gossamer::yield_now();
                            *n += 1;
                        };
                        inside.launch_async(wait).await.unwrap();
                        let n = 2u64;
                        let sum = delegate!(inside => launch_async, [n] |value| *value + n).await;
                        assert_eq!(sum.unwrap(), 4);
                        let fell = inside.launch_with_async(|_, n: u8| -> u8 { panic!("{n}") }, 7);
                        let fell = fell.await.unwrap_err();
                        assert!(matches!(fell, DelegateError::Panicked { .. }), "{fell:?}");
                        let there = at.visit_async(|| gossamer::local_trustee().trustee()).await;
                        assert_eq!(there.unwrap().number(), at.number());
                        assert_eq!(at.visit_with_async(|n| n + 1, 7u64).await.unwrap(), 8);
                        let made = at.entrust_with_async(|n: u64| n + 1, 7).await.unwrap();
                        let sent = at.entrust_async(7u64).await.unwrap();
                        assert_eq!(made.apply_async(|n| *n).await.unwrap(), 8);
                        assert_eq!(sent.apply_async(|n| *n).await.unwrap(), 7);
                    });
                    assert_eq!(latch.launch(|n| *n), 2);
                }
            })
            .unwrap();
        }
    });
}

#[test]
fn tasks_use_segments() {
    within_deadline("tasks_use_segments", || {
        for kind in KINDS {
            run(kind, || {
                let far = gossamer::threads().last().unwrap();
                let host = far.thread().host;
                let export = |()| Segment::builder("far").len(1 << 20).export().unwrap();
                let owner = far.entrust_with(export, ());
                let segments = gossamer::segments();
                beside(async move {
                    let far = segments.open_async("far").await.unwrap();
                    let tasks: Vec<_> = (0..20usize)
                        .map(|n| {
                            let far = far.clone();
                            tokio::spawn(async move {
                                far.at::<u64>(n).write_async(n as u64).await.unwrap();
                                far.fence_async().await.unwrap();
                                far.fetch_add_async(1024, 1).await.unwrap();
                                far.at::<u64>(n).read_async().await.unwrap()
                            })
                        })
                        .collect();
                    for (n, task) in (0..).zip(tasks) {
                        assert_eq!(task.await.unwrap(), n);
                    }
                    let block = vec![7; 300_000];
                    far.write_notify_async(4096, block.clone()).await.unwrap();
                    assert_eq!(far.read_async(4096, 300_000).await.unwrap(), block);
                    let near = segments.builder("near").len(64).export_async().await.unwrap();
                    let there = segments.options().host(HostId(0));
                    there.open_async("near").await.unwrap().write_async(0, *b"near").await.unwrap();
                    near.revoke_async().await.unwrap();
                    let gone = segments.open_async("near").await.unwrap_err();
                    assert!(matches!(gone, SegmentError::NotFound { .. }), "{gone}");
                });
                let sum = owner.apply(|owner| owner.at::<u64>(128).read().unwrap());
                assert_eq!(sum, 20);
                let mut notification = None;
                common::wait_until("a notification", || {
                    notification = owner.apply(|owner| {
                        let notification = owner.notifications().try_next().unwrap()?;
                        Some((notification.from.0, notification.offset, notification.len))
                    });
                    notification.is_some()
                });
                assert_eq!(notification, Some((0, 4096, 300_000)), "at {host}");
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn what_tasks_wait_for_ends_with_the_rack() {
    within_deadline("what_tasks_wait_for_ends_with_the_rack", || {
        for kind in KINDS {
            let waiting = run(kind, || {
                let hour = std::time::Duration::from_secs(3600);
                gossamer::segments().options().timeout(hour).open_async("never")
            });
            let ended = runtime().block_on(waiting.unwrap()).unwrap_err();
            assert!(matches!(ended, SegmentError::RackEnded), "{kind:?}: {ended}");
        }
    });
}
