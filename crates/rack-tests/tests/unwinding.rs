//! Destructors at a bad moment: those of fibers that are unwound because the rack has ended, which
//! still use the rack and wait, and those of arguments, which panic after their request was sent.
//! Neither may end the process, unless a destructor panics by itself: then the reason is printed.

#[allow(unused_macros)]
mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{KINDS, Kind, panic_in, run_as, wait_until, within_deadline};
use gossamer::{Barrier, DelegateError, JoinHandle, Latch, Rack, Trust, Trustee};
use serde::{Deserialize, Serialize};

/// A thread of another host if there is one, else another thread.
fn another() -> Trustee {
    let me = gossamer::local_trustee().trustee();
    gossamer::threads().filter(|trustee| *trustee != me).last().expect("another thread")
}

/// Runs a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Counts guards that borrow it, and is dropped after them.
#[derive(Default)]
struct Alive(Cell<u32>);

struct Guard<'a>(&'a Alive);

impl Alive {
    fn count(&self) -> Guard<'_> {
        self.0.set(self.0.get() + 1);
        Guard(self)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.0.set(self.0.0.get() - 1);
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        assert_eq!(self.0.get(), 0, "what borrows it is there");
    }
}

/// What destructors have seen.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: &str, saw: impl std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{what}: {saw:?}"));
    }

    /// Notes the end of a call that comes too late: the rack has ended, or the trustee's host has
    /// left it first.
    fn note_end<U: std::fmt::Debug>(&self, what: &str, ended: Result<U, DelegateError>) {
        match ended {
            Err(DelegateError::NoRack(_) | DelegateError::PeerLost { .. }) => self.note(what, ()),
            other => self.note(what, other),
        }
    }
}

/// Starts a fiber on this host that sleeps until the rack ends and then runs `destructor`, and
/// waits until it sleeps. `own` makes what the destructor uses, on the fiber's thread.
fn sleeps_until_the_end<A: 'static>(
    own: impl FnOnce() -> A + Send + 'static,
    mut destructor: impl FnMut(&mut A) + Send + 'static,
) {
    let begun = gossamer::local_trustee().entrust(false);
    let tell = begun.clone();
    drop(gossamer::spawn(move || {
        let mut own = own();
        let _on_drop = OnDrop(move || destructor(&mut own));
        tell.apply(|begun| *begun = true);
        loop {
            gossamer::sleep(Duration::from_secs(3600));
        }
    }));
    wait_until("a fiber that sleeps", || begun.apply(|begun| *begun));
}

/// Runs a rack whose fibers note something when it ends, and returns their notes.
fn notes_of_the_end(kind: Kind, main: fn(&Log)) -> Vec<String> {
    let log = Log::default();
    let noted = log.clone();
    run_as(kind, Rack::new(), move || main(&noted)).unwrap_or_else(|error| panic!("{error}"));
    let mut notes = std::mem::take(&mut *log.0.lock().unwrap());
    notes.sort();
    notes
}

#[test]
fn calls_of_destructors_at_the_end_are_errors() {
    within_deadline("calls_of_destructors_at_the_end_are_errors", || {
        for kind in KINDS {
            let notes = notes_of_the_end(kind, |log| {
                let log = log.clone();
                let (there, other) = (another().entrust(0u64), another());
                let latch = another().entrust_with(Latch::new, 0u64);
                sleeps_until_the_end(
                    move || (there, latch, log),
                    move |(there, latch, log)| {
                        log.note_end("apply", there.try_apply(|n| *n += 1));
                        let long = "long".repeat(100_000);
                        let ended = there.try_apply_with(|_, s: String| s.len(), long);
                        log.note_end("apply_with", ended);
                        log.note_end("launch", latch.try_launch_with(|n, more| *n += more, 1));
                        log.note_end("visit", other.try_visit_node(|_, ()| (), ()));
                        let then = log.clone();
                        there.try_apply_then(|n| *n, move |ended| then.note_end("then", ended));
                        there.apply_then(|n| *n += 1, |()| unreachable!("the rack has ended"));
                        let fiber: JoinHandle<()> = other.spawn_with(|()| (), ());
                        log.note("spawn", fiber.join().is_err());
                    },
                );
            });
            let expected = [
                "apply: ()",
                "apply_with: ()",
                "launch: ()",
                "spawn: true",
                "then: ()",
                "visit: ()",
            ];
            assert_eq!(notes, expected, "{kind:?}");
        }
    });
}

/// Set in the child process of the next test.
const CHILD: &str = "GOSSAMER_UNWINDING_TEST_CHILD";

#[test]
fn a_destructor_that_panics_at_the_end_names_its_line_and_what_to_use() {
    const NAME: &str = "a_destructor_that_panics_at_the_end_names_its_line_and_what_to_use";
    let line = line!() + 4;
    if std::env::var_os(CHILD).is_some() {
        drop(Rack::new().threads(2).run(|| {
            let there = another().entrust(0u64);
            sleeps_until_the_end(move || there, |there| there.apply(|n| *n += 1));
        }));
        unreachable!("the process ends before");
    }
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args([NAME, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("a child process");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("the rack has ended"), "{message}");
    assert!(message.contains(&format!("delegated at {}:{line}", file!())), "{message}");
    assert!(message.contains("`try_apply`"), "{message}");
}

#[test]
fn calls_of_destructors_on_the_own_thread_still_run_at_the_end() {
    within_deadline("calls_of_destructors_on_the_own_thread_still_run_at_the_end", || {
        for kind in KINDS {
            let notes = notes_of_the_end(kind, |log| {
                let log = log.clone();
                sleeps_until_the_end(
                    move || {
                        let here = gossamer::local_trustee();
                        (here.entrust(5u64), here.entrust(Latch::new(0u64)), log)
                    },
                    |(own, latch, log)| {
                        // More than a fiber does before it gives way.
                        for _ in 0..100_000 {
                            own.apply(|n| *n += 1);
                        }
                        log.note("apply", own.try_apply(|n| *n));
                        let then = log.clone();
                        own.apply_then(|n| *n, move |n| then.note("then", n));
                        let launched = latch.try_launch_with(|n, ()| *n, ());
                        log.note("launch", launched.is_err());
                        log.note("lock", latch.apply(|latch| *latch.lock()));
                    },
                );
            });
            assert_eq!(notes, ["apply: Ok(100005)", "launch: true", "lock: 0", "then: 100005"]);
        }
    });
}

#[test]
fn waits_of_destructors_at_the_end_return() {
    within_deadline("waits_of_destructors_at_the_end_return", || {
        for kind in KINDS {
            let notes = notes_of_the_end(kind, |log| {
                let log = log.clone();
                sleeps_until_the_end(
                    move || {
                        let sleep = || gossamer::sleep(Duration::from_secs(3600));
                        let here = gossamer::local_trustee();
                        let own = gossamer::spawn_on(here, sleep);
                        let others = gossamer::spawn_on(another(), sleep);
                        (Some([own, others]), Barrier::new(2), log)
                    },
                    |(fibers, barrier, log)| {
                        log.note("barrier", barrier.wait());
                        gossamer::sleep(Duration::from_secs(3600));
                        gossamer::yield_now();
                        for fiber in fibers.take().into_iter().flatten() {
                            log.note("join", fiber.join().is_err());
                        }
                    },
                );
            });
            assert_eq!(notes, ["barrier: false", "join: true", "join: true"]);
        }
    });
}

#[test]
fn a_destructor_gets_a_latch_that_another_fiber_holds_at_the_end() {
    type Shared = Rc<Latch<Vec<&'static str>>>;
    thread_local! {
        static LATCH: Shared = Rc::new(Latch::new(Vec::new()));
    }
    within_deadline("a_destructor_gets_a_latch_that_another_fiber_holds_at_the_end", || {
        let log = Log::default();
        let noted = log.clone();
        // One thread, so that all share the latch. The fibers are unwound in the order of their
        // start: the first one waits for what the third one holds, and the second one is in the
        // queue for it.
        let ended = Rack::new().threads(1).run(move || {
            let latch = LATCH.with(Rc::clone);
            sleeps_until_the_end(
                || LATCH.with(Rc::clone),
                move |latch: &mut Shared| noted.note("held", &*latch.lock()),
            );
            let held = gossamer::spawn(|| {
                gossamer::sleep(Duration::from_millis(2));
                let latch = LATCH.with(Rc::clone);
                let _guard = latch.lock();
                unreachable!("it is held until the end");
            });
            drop(held);
            drop(gossamer::spawn(|| {
                let latch = LATCH.with(Rc::clone);
                let mut guard = latch.lock();
                guard.push("by the third");
                gossamer::sleep(Duration::from_secs(3600));
            }));
            gossamer::sleep(Duration::from_millis(20));
            assert!(latch.try_lock().is_none(), "the third one holds it");
        });
        ended.unwrap();
        assert_eq!(*log.0.lock().unwrap(), [r#"held: ["by the third"]"#]);
    });
}

#[test]
fn fibers_that_call_their_own_thread_for_ever_do_not_keep_a_rack_from_ending() {
    within_deadline("fibers_that_call_their_own_thread_for_ever", || {
        for kind in KINDS {
            let unwound = Log::default();
            let noted = unwound.clone();
            let ended = run_as(kind, Rack::new(), move || {
                let begun = gossamer::local_trustee().entrust(0u32);
                for _ in 0..4 {
                    let (noted, tell) = (noted.clone(), begun.clone());
                    drop(gossamer::spawn(move || {
                        let _on_drop = OnDrop(|| noted.note("unwound", ()));
                        let own = gossamer::local_trustee().entrust(0u64);
                        tell.apply(|begun| *begun += 1);
                        loop {
                            own.apply(|n| *n += 1);
                        }
                    }));
                }
                wait_until("all fibers", || begun.apply(|begun| *begun == 4));
                "the result of main"
            });
            assert_eq!(ended.unwrap(), "the result of main");
            assert_eq!(unwound.0.lock().unwrap().len(), 4);
        }
    });
}

/// Panics when it is dropped, unless it has travelled.
#[derive(Serialize)]
struct Fragile(u8);

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u8::deserialize(from).map(|_| Fragile(0))
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.0 > 0 {
            self.0 = 0;
            panic!("the argument fell over");
        }
    }
}

#[test]
fn arguments_whose_drop_panics_end_their_call() {
    within_deadline("arguments_whose_drop_panics_end_their_call", || {
        for kind in KINDS {
            let ended = run_as(kind, Rack::new().check_leaks(true), || {
                for at in gossamer::threads() {
                    let value = at.entrust(0u64);
                    let latch = at.entrust_with(Latch::new, 0u64);
                    let is_local = value.is_local();
                    let calls: [(&str, &dyn Fn()); 6] = [
                        ("apply_with", &|| {
                            value.apply_with(|n, f: Fragile| *n += 1 + u64::from(f.0), Fragile(1));
                        }),
                        ("try_apply_with", &|| {
                            let add = |n: &mut u64, f: Fragile| *n += 1 + u64::from(f.0);
                            drop(value.try_apply_with(add, Fragile(1)));
                        }),
                        ("apply_with_then", &|| {
                            let add = |n: &mut u64, f: Fragile| *n += 1 + u64::from(f.0);
                            value.apply_with_then(add, Fragile(1), |()| ());
                        }),
                        ("launch_with", &|| {
                            latch.launch_with(|n, f: Fragile| *n += 1 + u64::from(f.0), Fragile(1));
                        }),
                        ("launch_with_then", &|| {
                            let add = |n: &mut u64, f: Fragile| *n += 1 + u64::from(f.0);
                            latch.launch_with_then(add, Fragile(1), |()| ());
                        }),
                        ("spawn_with", &|| {
                            let fiber = at.spawn_with(|f: Fragile| f.0, Fragile(1));
                            drop(fiber);
                        }),
                    ];
                    // On the own thread the very value gets there, and may fall over anywhere.
                    if is_local {
                        let message = panic_in(|| {
                            value.apply_with(|_, f: Fragile| drop(f), Fragile(1));
                        });
                        assert_eq!(message, "the argument fell over");
                        let error = latch.try_launch_with(|_, f: Fragile| drop(f), Fragile(1));
                        let message = error.unwrap_err().to_string();
                        assert!(message.contains("the argument fell over"), "{message}");
                    } else {
                        for (name, call) in calls {
                            assert_eq!(panic_in(call), "the argument fell over", "{name}");
                        }
                        wait_until("all calls", || value.apply(|n| *n) == 3);
                        wait_until("all launches", || latch.launch(|n| *n) == 2);
                    }
                    assert!(latch.apply(|latch| latch.try_lock().is_some()), "the latch is free");
                }
            });
            ended.unwrap();
        }
    });
}

/// Waits, then panics, when it is dropped.
#[derive(Serialize, Deserialize)]
struct Slow(Trust<u64>, bool);

impl Drop for Slow {
    fn drop(&mut self) {
        if std::mem::take(&mut self.1) {
            self.0.apply(|n| *n += 1);
            gossamer::sleep(Duration::from_millis(1));
            panic!("the argument fell over late");
        }
    }
}

#[test]
fn arguments_may_wait_and_panic_when_they_are_dropped() {
    within_deadline("arguments_may_wait_and_panic_when_they_are_dropped", || {
        for kind in KINDS {
            let ended = run_as(kind, Rack::new(), || {
                let latch = another().entrust_with(Latch::new, 0u64);
                let drops = another().entrust(0u64);
                let message = panic_in(|| {
                    latch.launch_with(
                        |n, mut slow: Slow| {
                            *n += u64::from(std::mem::take(&mut slow.1));
                            gossamer::sleep(Duration::from_millis(3));
                        },
                        Slow(drops.clone(), true),
                    );
                });
                assert_eq!(message, "the argument fell over late");
                assert_eq!((latch.launch(|n| *n), drops.apply(|n| *n)), (1, 1));
            });
            ended.unwrap();
        }
    });
}

#[test]
fn what_waits_for_other_fibers_is_unwound_and_gives_up_in_destructors() {
    within_deadline("what_waits_for_other_fibers_is_unwound_and_gives_up_in_destructors", || {
        for kind in KINDS {
            let log = Log::default();
            let inside = log.clone();
            let ended = run_as(kind, Rack::new(), move || {
                let up = gossamer::entrust(0u32);
                let end = another();
                // One of each kind waits when the rack ends.
                let wait = |what: &'static str, wait: fn(Trustee)| {
                    let (log, up) = (inside.clone(), up.clone());
                    drop(gossamer::spawn(move || {
                        let _on_drop = OnDrop(move || log.note(what, ()));
                        up.apply(|up| *up += 1);
                        wait(end);
                    }));
                };
                wait("receiver", |end| {
                    let (_sender, mut receiver) = gossamer::channel_on::<u8>(end, 1);
                    drop(receiver.recv());
                });
                wait("sender", |end| {
                    let (sender, _receiver) = gossamer::channel_on::<u8>(end, 0);
                    drop(sender.send(1));
                });
                wait("notify", |_| gossamer::sync::Notify::new().wait());
                wait("future", |_| gossamer::block_on(std::future::pending()));
                wait("scope", |_| {
                    gossamer::scope(|s| drop(s.spawn(|| gossamer::sleep(common::DEADLINE))))
                });
                wait("callback", |_| {
                    // Not on another host: whose rack ends first, a call there would fail, and be reported.
                    let latch = gossamer::local_trustee().entrust(Latch::new(()));
                    let (called, alive) = (Cell::new(false), Alive::default());
                    gossamer::scope(|s| {
                        let alive = alive.count();
                        let sleep = |(): &mut ()| gossamer::sleep(common::DEADLINE);
                        latch.launch_then(
                            sleep,
                            s.callback(|()| {
                                called.set(true);
                                drop(alive);
                            }),
                        );
                    });
                    unreachable!("it is unwound");
                });
                // And one waits in a destructor then.
                let log = inside.clone();
                sleeps_until_the_end(
                    || gossamer::channel::<u8>(1),
                    move |(sender, receiver)| {
                        log.note("empty", receiver.recv().is_err());
                        log.note("full", sender.send_all([1, 2]).is_err());
                    },
                );
                wait_until("all fibers", || up.apply(|up| *up) == 6);
            });
            ended.unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
            let mut noted = log.0.lock().unwrap().clone();
            noted.sort();
            let all = [
                "callback: ()",
                "empty: true",
                "full: true",
                "future: ()",
                "notify: ()",
                "receiver: ()",
                "scope: ()",
                "sender: ()",
            ];
            assert_eq!(noted, all, "{kind:?}");
        }
    });
}
