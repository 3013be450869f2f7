//! Files that fibers wait for: [`Polled`].

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fiber::spawn_local;
use gossamer::{OnReadable, Polled, Rack, RackError, Readiness};

use crate::common::wait_until;

/// Far longer than a thread without work stays awake.
const LONG: Duration = Duration::from_millis(30);

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// Its sleep ends after 200 ms without a wake, so many rounds show that there was one.
#[test]
fn sleeping_threads_wake_for_their_files() {
    let (ours, mut theirs) = pair();
    let fiber = move || {
        let ours = Polled::new(ours).unwrap();
        let mut word = [0; 1];
        while ours.read_with(|mut stream| stream.read(&mut word)).unwrap() == 1 {
            ours.write_with(|mut stream| stream.write(&word)).unwrap();
        }
    };
    let rack = thread::spawn(|| {
        Rack::new().threads(2).run(|| gossamer::spawn(fiber).join().unwrap()).unwrap();
    });
    let mut slow = 0;
    for round in 0..20u8 {
        thread::sleep(LONG);
        let start = Instant::now();
        theirs.write_all(&[round]).unwrap();
        let mut word = [0; 1];
        theirs.read_exact(&mut word).unwrap();
        assert_eq!(word, [round]);
        slow += u32::from(start.elapsed() > Duration::from_millis(50));
    }
    drop(theirs);
    rack.join().unwrap();
    assert!(slow < 10, "{slow} of 20 answers came when the sleep had ended by itself");
}

#[test]
fn a_thread_with_other_work_looks_at_its_files() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"x").unwrap();
    Rack::new()
        .threads(1)
        .run(move || {
            let done = Arc::new(AtomicBool::new(false));
            let stop = done.clone();
            let busy = gossamer::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    gossamer::yield_now();
                }
            });
            let ours = Polled::new(ours).unwrap();
            // An attempt that fails, so that only the poll makes it ready again.
            ours.read_with(|mut stream| stream.read(&mut [0; 8])).unwrap();
            assert!(ours.try_read_with(|mut stream| stream.read(&mut [0; 8])).is_none());
            theirs.write_all(b"y").unwrap();
            assert!(ours.wait(Readiness::Readable, None));
            done.store(true, Ordering::Relaxed);
            busy.join().unwrap();
        })
        .unwrap();
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (ours, _theirs) = pair();
    Rack::new()
        .threads(1)
        .run(move || {
            let ours = Polled::new(ours).unwrap();
            assert!(ours.wait(Readiness::Writable, None), "at first, it may be tried");
            assert!(ours.try_read_with(|mut stream| stream.read(&mut [0; 8])).is_none());
            assert!(!ours.may_read());
            assert!(!ours.wait(Readiness::Readable, Some(Instant::now() + LONG)));
            assert!(ours.wait(Readiness::Either, None), "it may be written");
        })
        .unwrap();
}

/// The end may be there with the data, and then brings no event of its own.
#[test]
fn an_end_behind_data_is_not_missed() {
    let (ours, mut theirs) = pair();
    Rack::new()
        .threads(1)
        .run(move || {
            let ours = Polled::new(ours).unwrap();
            assert!(ours.try_read_with(|mut stream| stream.read(&mut [0; 8])).is_none());
            theirs.write_all(b"last").unwrap();
            drop(theirs);
            assert!(ours.wait(Readiness::Readable, None));
            let mut bytes = [0; 8];
            assert_eq!(ours.read_with(|mut stream| stream.read(&mut bytes)).unwrap(), 4);
            ours.clear_readable();
            assert_eq!(ours.read_with(|mut stream| stream.read(&mut bytes)).unwrap(), 0);
        })
        .unwrap();
}

#[test]
fn files_come_and_go() {
    let served = Arc::new(AtomicU32::new(0));
    let count = served.clone();
    Rack::new()
        .threads(2)
        .run(move || {
            for _ in 0..50 {
                let fibers: Vec<_> = (0..8)
                    .map(|_| {
                        let ((ours, mut theirs), count) = (pair(), count.clone());
                        let fiber = gossamer::spawn(move || {
                            let ours = Polled::new(ours).unwrap();
                            ours.read_with(|mut stream| stream.read(&mut [0; 1])).unwrap();
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                        theirs.write_all(b"x").unwrap();
                        (fiber, theirs)
                    })
                    .collect();
                fibers.into_iter().for_each(|(fiber, _)| fiber.join().unwrap());
            }
        })
        .unwrap();
    assert_eq!(served.load(Ordering::Relaxed), 400);
}

/// By the worker, once for each time it was asked for, also if the file is readable already, and if the
/// thread sleeps.
#[test]
fn a_call_comes_once_when_the_file_is_readable() {
    let (ours, mut theirs) = pair();
    Rack::new()
        .threads(1)
        .run(move || {
            let calls = Rc::new(Cell::new(0));
            let ours = Polled::new(ours).unwrap();
            let (count, number) = (calls.clone(), ours.number());
            let call: OnReadable = Rc::new(move |called| {
                assert_eq!(called, number);
                count.set(count.get() + 1);
            });
            let wait_for = |expected: u32| {
                let deadline = Instant::now() + 100 * LONG;
                while calls.get() < expected && Instant::now() < deadline {
                    gossamer::sleep(Duration::from_millis(1));
                }
                assert_eq!(calls.get(), expected);
            };
            // It may be tried at first.
            ours.when_readable(&call);
            assert_eq!(calls.get(), 0, "the call came from the fiber");
            wait_for(1);
            assert!(ours.try_read_with(|mut stream| stream.read(&mut [0; 8])).is_none());
            ours.when_readable(&call);
            gossamer::sleep(LONG);
            assert_eq!(calls.get(), 1, "there is nothing to read");
            theirs.write_all(b"x").unwrap();
            wait_for(2);
            theirs.write_all(b"y").unwrap();
            gossamer::sleep(LONG);
            assert_eq!(calls.get(), 2, "no further call was requested");
            ours.when_readable(&call);
            drop(ours);
            gossamer::sleep(LONG);
            assert_eq!(calls.get(), 2, "the file is gone");
        })
        .unwrap();
}

/// The worker, which makes the call, goes on.
#[test]
fn a_call_that_panics_is_reported_when_the_rack_ends() {
    let (ours, mut theirs) = pair();
    let ended = Rack::new().threads(1).run(move || {
        let ours = Polled::new(ours).unwrap();
        let call: OnReadable = Rc::new(|_| panic!("a test's panic"));
        ours.when_readable(&call);
        gossamer::sleep(Duration::from_millis(1));
        theirs.write_all(b"x").unwrap();
        ours.read_with(|mut stream| stream.read(&mut [0; 1])).unwrap();
    });
    let Err(RackError::Unobserved { count: 1, first, .. }) = ended else { panic!("{ended:?}") };
    assert!(first.is_callback && first.error.to_string().contains("a test's panic"), "{first}");
}

/// Also if both are ready in one poll: what is left of the poll is not for the new file.
#[test]
fn a_file_made_in_a_call_gets_no_event_of_one_dropped_there() {
    let (first, mut first_writer) = pair();
    let (second, mut second_writer) = pair();
    let (third, _third_writer) = pair();
    Rack::new()
        .threads(1)
        .run(move || {
            let (first, second) = (Polled::new(first).unwrap(), Polled::new(second).unwrap());
            for file in [&first, &second] {
                assert!(file.try_read_with(|mut stream| stream.read(&mut [0; 1])).is_none());
            }
            let made = Rc::new(Cell::new(None));
            let (place, files) = (made.clone(), Cell::new(Some((second, third))));
            let call: OnReadable = Rc::new(move |_| {
                let (dropped, file) = files.take().expect("one call");
                drop(dropped);
                let file = Polled::new(file).unwrap();
                assert!(file.try_read_with(|mut stream| stream.read(&mut [0; 1])).is_none());
                place.set(Some(file));
            });
            first.when_readable(&call);
            first_writer.write_all(b"x").unwrap();
            second_writer.write_all(b"x").unwrap();
            gossamer::sleep(LONG);
            let made = made.take().expect("a call");
            assert!(!made.may_read(), "it is taken for readable");
        })
        .unwrap();
}

/// The operation waits after it has found nothing, and the data comes meanwhile.
#[test]
fn data_that_arrives_during_an_attempt_is_not_missed() {
    let (ours, mut theirs) = pair();
    let attempt = move || {
        let ours = Polled::new(ours).unwrap();
        let nothing = ours.try_read_with(|mut stream| {
            let read = stream.read(&mut [0; 1]);
            theirs.write_all(b"x").unwrap();
            gossamer::sleep(LONG);
            read
        });
        assert!(nothing.is_none(), "there was nothing to read");
        let deadline = Instant::now() + Duration::from_secs(20);
        assert!(ours.wait(Readiness::Readable, Some(deadline)), "the byte was missed");
        assert_eq!(ours.read_with(|mut stream| stream.read(&mut [0; 1])).unwrap(), 1);
    };
    Rack::new().threads(1).run(attempt).unwrap();
}

#[test]
fn a_regular_file_cannot_be_waited_for() {
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    Rack::new().threads(1).run(move || assert!(Polled::new(program).is_err())).unwrap();
}

/// Fibers that wait for files do not keep a rack from ending.
#[test]
fn a_rack_ends_while_fibers_wait_for_files() {
    let (ours, _theirs) = pair();
    Rack::new()
        .threads(2)
        .run(move || {
            drop(gossamer::spawn(move || {
                let ours = Polled::new(ours).unwrap();
                let _ = ours.read_with(|mut stream| stream.read(&mut [0; 1]));
            }));
            gossamer::sleep(LONG);
        })
        .unwrap();
}

/// A fiber that may not wait for a file, since another one does, leaves that one its wake-up.
#[test]
fn a_second_waiter_panics_and_the_first_is_woken() {
    let (ours, mut theirs) = pair();
    Rack::new()
        .threads(1)
        .run(move || {
            let ours = Rc::new(Polled::new(ours).unwrap());
            assert!(ours.try_read_with(|mut stream| stream.read(&mut [0; 8])).is_none());
            let file = ours.clone();
            let first = spawn_local(move || file.wait(Readiness::Readable, None));
            gossamer::yield_now();
            let file = ours.clone();
            let second = spawn_local(move || file.wait(Readiness::Readable, None));
            let panic = second.join().unwrap_err().to_string();
            assert!(panic.contains("the file already has a waiter"), "{panic}");
            theirs.write_all(b"x").unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            while !first.is_finished() {
                assert!(Instant::now() < deadline, "the first waiter sleeps on");
                gossamer::sleep(Duration::from_millis(1));
            }
            assert!(first.join().unwrap());
        })
        .unwrap();
}

/// A flush in a destructor, for example: it gives up, and the process goes on.
#[test]
fn a_destructor_that_waits_until_a_deadline_gives_up_when_the_rack_ends() {
    struct Waits(Polled<UnixStream>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(!self.0.wait(Readiness::Readable, Some(Instant::now() + 100 * LONG)));
        }
    }
    let (ours, _theirs) = pair();
    Rack::new()
        .threads(1)
        .run(move || {
            drop(gossamer::spawn(move || {
                let ours = Waits(Polled::new(ours).unwrap());
                assert!(ours.0.try_read_with(|mut stream| stream.read(&mut [0; 1])).is_none());
                gossamer::sleep(1000 * LONG);
            }));
            gossamer::sleep(LONG);
        })
        .unwrap();
}

/// A file that is always ready keeps its fiber from waiting, and yet others run and are woken.
#[test]
fn a_file_that_is_always_ready_keeps_no_other_fiber_waiting() {
    let ((ours, theirs), (other, mut writer)) = (pair(), pair());
    theirs.set_nonblocking(true).unwrap();
    Rack::new()
        .threads(1)
        .run(move || {
            let done = Rc::new(Cell::new(false));
            let other = Polled::new(other).unwrap();
            assert!(other.try_read_with(|mut stream| stream.read(&mut [0; 8])).is_none());
            let stop = done.clone();
            let busy = spawn_local(move || {
                let (ours, theirs) = (Polled::new(ours).unwrap(), Polled::new(theirs).unwrap());
                writer.write_all(b"x").unwrap();
                for _ in 0..100_000 {
                    ours.write_with(|mut stream| stream.write(b"y")).unwrap();
                    theirs.read_with(|mut stream| stream.read(&mut [0; 1])).unwrap();
                    if stop.get() {
                        return true;
                    }
                }
                false
            });
            assert!(other.wait(Readiness::Readable, None));
            done.set(true);
            assert!(busy.join().unwrap(), "the other fiber ran only when this one had ended");
        })
        .unwrap();
}

/// While an operation waits, its file does not count as ready. What it leaves brings no event of its own.
#[test]
fn a_waiter_is_woken_for_what_an_operation_leaves() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"1234").unwrap();
    Rack::new()
        .threads(1)
        .run(move || {
            let ours = Rc::new(Polled::new(ours).unwrap());
            // The event of what is there comes first.
            ours.clear_readable();
            assert!(ours.wait(Readiness::Readable, None));
            let read = |yields: u32| {
                let ours = ours.clone();
                spawn_local(move || {
                    let read = |mut stream: &UnixStream| {
                        let read = stream.read(&mut [0; 1]);
                        (0..yields).for_each(|_| gossamer::yield_now());
                        read
                    };
                    assert_eq!(ours.read_with(read).unwrap(), 1);
                })
            };
            let (first, second) = (read(10), read(0));
            wait_until("the second fiber", || second.is_finished());
            first.join().unwrap();
            second.join().unwrap();
            // One that waits by a call.
            let third = read(10);
            gossamer::yield_now();
            assert!(!ours.may_read(), "the third fiber is reading");
            let called = Rc::new(Cell::new(false));
            let tell = called.clone();
            let call: OnReadable = Rc::new(move |_| tell.set(true));
            ours.when_readable(&call);
            wait_until("the call", || called.get());
            third.join().unwrap();
            // Its end would be an event.
            drop(theirs);
        })
        .unwrap();
}
