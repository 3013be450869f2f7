//! `launch`: closures that may wait, one at a time; `launch_shared`: several that read.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use gossamer::{Condvar, DelegateError, Latch, LatchGuard, Trust, Trustee};
use serde::{Deserialize, Serialize};

use crate::support::{panic_in, wait_until};

fn everywhere() -> Vec<Trustee> {
    gossamer::threads().collect()
}

fn latch_at(trustee: Trustee) -> Trust<Latch<u64>> {
    trustee.entrust_with(Latch::new, 0u64)
}

pub fn a_launched_closure_may_wait() {
    for trustee in everywhere() {
        for other in everywhere() {
            let (latch, helper) = (latch_at(trustee), other.entrust(5u64));
            let sum = latch.launch_with(
                |value, helper: Trust<u64>| {
                    *value += helper.apply(|h| *h);
                    gossamer::sleep(Duration::from_millis(1));
                    gossamer::yield_now();
                    *value += helper.apply_with(|h, n| *h * n, 2);
                    gossamer::spawn(|| 1u64).join().unwrap() + *value
                },
                helper.clone(),
            );
            assert_eq!(sum, 16);
            assert_eq!(latch.launch(|value| *value), 15);
            assert_eq!(latch.apply(|latch| *latch.lock()), 15, "it is free again");
        }
    }
}

pub fn launches_exclude_each_other() {
    const LAUNCHES: u64 = 20;
    let latch = latch_at(*everywhere().last().expect("a thread"));
    let fibers: Vec<_> = everywhere()
        .into_iter()
        .map(|trustee| {
            let count = |latch: Trust<Latch<u64>>| {
                for _ in 0..LAUNCHES {
                    latch.launch(|value| {
                        let before = *value;
                        gossamer::yield_now();
                        *value = before + 1;
                    });
                }
            };
            gossamer::spawn_on_with(trustee, count, latch.clone())
        })
        .collect();
    let threads = fibers.len() as u64;
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(latch.launch(|value| *value), LAUNCHES * threads);
}

pub fn a_latch_is_given_in_order() {
    for trustee in everywhere() {
        let latch = trustee.entrust_with(|()| Latch::new(Vec::<u32>::new()), ());
        let results = Rc::new(RefCell::new(Vec::new()));
        for i in 0..50 {
            let results = results.clone();
            latch.launch_with_then(
                |log, i| {
                    gossamer::yield_now();
                    log.push(i);
                    gossamer::yield_now();
                    i
                },
                i,
                move |i| results.borrow_mut().push(i),
            );
        }
        let ordered: Vec<u32> = (0..50).collect();
        assert_eq!(latch.launch(|log| log.clone()), ordered, "fibers get the latch as they came");
        wait_until("all callbacks", || results.borrow().len() == 50);
        assert_eq!(*results.borrow(), ordered);
    }
    let latch = Rc::new(Latch::new(0));
    let held = latch.try_lock().expect("it is free");
    assert!(latch.try_lock().is_none());
    assert_eq!(format!("{latch:?}"), "Latch(held)");
    drop(held);
    assert_eq!(format!("{latch:?}"), "Latch(0)");
}

pub fn launches_without_a_waiter() {
    for trustee in everywhere() {
        let latch = latch_at(trustee);
        let results = Rc::new(RefCell::new(0));
        let sender = results.clone();
        latch.launch_then(
            |value| {
                gossamer::sleep(Duration::from_millis(2));
                *value = 9;
                *value
            },
            move |value| *sender.borrow_mut() = value,
        );
        // Requests are served while the launched closure sleeps; its latch is held meanwhile.
        let seen = latch.apply(|latch| latch.try_lock().map(|value| *value));
        assert!(matches!(seen, None | Some(0 | 9)), "{seen:?}");
        wait_until("the result of a launch", || *results.borrow() == 9);
    }
}

pub fn a_panic_in_a_launch_opens_the_latch() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Never;
    for trustee in everywhere() {
        let latch = latch_at(trustee);
        let fall = |value: &mut u64, n: u64| -> Never {
            *value = n;
            gossamer::yield_now();
            panic!("launched and fell")
        };
        match latch.try_launch_with(fall, 3) {
            Err(DelegateError::Panicked { trustee: at, report }) => {
                assert_eq!((at, &*report.message), (trustee.thread(), "launched and fell"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(latch.launch(|value| *value), 3);
    }
}

/// The latches that a chain of launches goes through, one inside the other.
type Chain = Vec<Trust<Latch<u64>>>;

/// Launches on the next latch of the chain, from inside the one before. Returns how the last launch
/// ended, which is made on this line: see [`LAUNCHED_AT`].
fn follow(value: &mut u64, mut chain: Chain) -> Result<u64, String> {
    *value += 1;
    if chain.is_empty() {
        return Ok(*value);
    }
    let next = chain.remove(0);
    next.try_launch_with(follow, chain).unwrap_or_else(|error| Err(error.to_string()))
}

/// The line of `follow` that launches.
const LAUNCHED_AT: u32 = line!() - 4;

pub fn a_launch_that_would_wait_for_its_own_caller_is_refused() {
    for home in everywhere() {
        let latch = latch_at(home);
        let others: Chain = everywhere().into_iter().map(latch_at).collect();
        // Straight back to the latch, by one other thread, and by all.
        let ways: Vec<Chain> = std::iter::once(vec![])
            .chain(others.iter().map(|other| vec![other.clone()]))
            .chain([others.clone()])
            .collect();
        for mut chain in ways {
            let hops = chain.len();
            chain.push(latch.clone());
            let first = line!() + 1;
            let ended = latch.launch_with(follow, chain);
            let message = ended.expect_err("a wait that never ends");
            for place in [first, LAUNCHED_AT] {
                let place = format!("launched at {}:{place}:", file!());
                assert!(message.contains(&place), "{hops} hops: {place} not in: {message}");
            }
            assert!(message.contains(&format!("{} refused", home.thread())), "{message}");
        }
        let launches = 2 + everywhere().len() as u64;
        assert_eq!(latch.launch(|value| *value), launches, "only the first of each chain ran");
    }
}

pub fn launches_that_wait_for_no_caller_are_not_refused() {
    for home in everywhere() {
        let (latch, other) = (latch_at(home), latch_at(*everywhere().last().expect("a thread")));
        // The same latch twice, one launch after the other.
        assert_eq!(latch.launch_with(follow, vec![other.clone()]), Ok(1));
        assert_eq!(other.launch_with(follow, vec![latch.clone()]), Ok(2));
        // No fiber waits for the inner one, which runs when the outer one has ended.
        latch.launch_with(
            |_, itself: Trust<Latch<u64>>| itself.launch_then(|value| *value += 10, |()| ()),
            latch.clone(),
        );
        wait_until("the launch without a waiter", || latch.launch(|value| *value) == 12);
        // Nor is another holder a caller: both get it, in turn.
        let fibers: Vec<_> = everywhere()
            .into_iter()
            .map(|trustee| {
                let launch = |(other, latch): (Trust<Latch<u64>>, Trust<Latch<u64>>)| {
                    latch.launch(|_| gossamer::sleep(Duration::from_millis(1)));
                    other.launch(|value| *value += 1);
                };
                gossamer::spawn_on_with(trustee, launch, (other.clone(), latch.clone()))
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(other.launch(|value| *value), 2 + everywhere().len() as u64);
    }
}

/// Launches inside launches, on latches of changing threads; the number of those that have run.
fn descend(value: &mut u64, left: u64) -> Result<u64, String> {
    *value += 1;
    if left == 0 {
        return Ok(*value);
    }
    let trustees = everywhere();
    let next = latch_at(trustees[left as usize % trustees.len()]);
    let below = next.try_launch_with(descend, left - 1);
    below.unwrap_or_else(|error| Err(error.to_string())).map(|below| below + *value)
}

pub fn launches_are_nested_so_deep_and_no_deeper() {
    let depth = primitive::limits::LAUNCH_DEPTH as u64;
    let latch = latch_at(*everywhere().last().expect("a thread"));
    assert_eq!(latch.launch_with(descend, depth), Ok(depth + 1));
    let message = latch.launch_with(descend, depth + 1).unwrap_err();
    assert!(message.contains(&format!("nested more than {depth} deep")), "{message}");
    assert_eq!(latch.launch(|value| *value), 2);
}

pub fn locking_a_latch_twice_is_refused() {
    let latch = Latch::new(1);
    let first = line!() + 1;
    let guard = latch.lock();
    let second = line!() + 1;
    let message = panic_in(|| drop(latch.lock()));
    for place in [format!("locked at {}:{first}:", file!()), format!("{}:{second}:", file!())] {
        assert!(message.contains(&place), "{place} not in: {message}");
    }
    drop(guard);
    assert_eq!(*latch.lock(), 1, "it is free again");
    // A latch inside a latch, locked by a launched closure.
    let nested = gossamer::local_trustee().entrust(Latch::new(Latch::new(5)));
    let message = panic_in(|| {
        nested.launch(|inner| {
            let _guard = inner.lock();
            drop(inner.lock());
        });
    });
    assert!(message.contains("its own fiber holds the latch"), "{message}");
    assert_eq!(nested.launch(|inner| *inner.lock()), 5);
}

/// A queue whose takers wait for jobs, and whose givers wait for room.
#[derive(Default)]
struct Jobs {
    jobs: Vec<u64>,
    taken: u64,
    added: Condvar,
    removed: Condvar,
}

fn take(jobs: &mut LatchGuard<'_, Jobs>, (): ()) -> u64 {
    let added = jobs.added.clone();
    added.wait_while(jobs, |jobs| jobs.jobs.is_empty());
    let job = jobs.jobs.remove(0);
    jobs.taken += 1;
    // It may wait for other things with the latch held, too.
    gossamer::yield_now();
    jobs.removed.notify_one();
    job
}

fn give(jobs: &mut LatchGuard<'_, Jobs>, job: u64) {
    let removed = jobs.removed.clone();
    removed.wait_while(jobs, |jobs| jobs.jobs.len() >= 2);
    jobs.jobs.push(job);
    jobs.added.notify_one();
}

pub fn a_guard_comes_with_and_without_arguments_and_errors() {
    for home in everywhere() {
        let latch = home.entrust_with(Latch::new, 40u32);
        assert_eq!(latch.launch_guard(|n| **n), 40);
        assert_eq!(latch.launch_guard_with(|n, more| **n + more, 1), 41);
        assert_eq!(latch.try_launch_guard(|n| **n).unwrap(), 40);
        assert_eq!(latch.try_launch_guard_with(|n, more| **n + more, 2).unwrap(), 42);
        let fell = latch.try_launch_guard(|_| -> u32 { panic!("it fell") });
        assert!(matches!(&fell, Err(DelegateError::Panicked { .. })), "{fell:?}");
        let message = panic_in(|| latch.launch_guard(|_| -> u32 { panic!("it fell") }));
        assert!(message.contains("it fell"), "{message}");
        let refused = latch.launch_guard_with(
            |_, own: Trust<Latch<u32>>| own.try_launch_guard_with(|n, more| **n + more, 1),
            latch.clone(),
        );
        assert!(matches!(&refused, Err(DelegateError::Refused { .. })), "{refused:?}");
    }
}

pub fn launched_closures_wait_for_each_other_under_a_latch() {
    const EACH: u64 = 30;
    for home in everywhere() {
        let jobs = home.entrust_with(|()| Latch::new(Jobs::default()), ());
        let fibers: Vec<_> = everywhere()
            .into_iter()
            .map(|trustee| {
                let takes = |jobs: Trust<Latch<Jobs>>| {
                    (0..EACH).map(|_| jobs.launch_guard_with(take, ())).sum::<u64>()
                };
                gossamer::spawn_on_with(trustee, takes, jobs.clone())
            })
            .collect();
        let total = EACH * everywhere().len() as u64;
        for job in 0..total {
            jobs.launch_guard_with(give, job);
        }
        let sum: u64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!(sum, (0..total).sum::<u64>());
        assert_eq!(jobs.launch(|jobs| (jobs.taken, jobs.jobs.len())), (total, 0));
        // All at once; and a panic of the condition leaves the latch open.
        let waiting: Vec<_> = everywhere()
            .into_iter()
            .map(|trustee| {
                let takes = |jobs: Trust<Latch<Jobs>>| jobs.launch_guard_with(take, ());
                gossamer::spawn_on_with(trustee, takes, jobs.clone())
            })
            .collect();
        let number = waiting.len() as u64;
        jobs.launch_with(
            |jobs, number| {
                jobs.jobs.extend(0..number);
                jobs.added.notify_all();
            },
            number,
        );
        let sum: u64 = waiting.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!(sum, (0..number).sum::<u64>());
        let message = panic_in(|| {
            jobs.launch_guard_with(
                |jobs, ()| {
                    let added = jobs.added.clone();
                    added.wait_while(jobs, |_| panic!("the condition fell"));
                },
                (),
            );
        });
        assert!(message.contains("the condition fell"), "{message}");
        assert_eq!(jobs.launch(|jobs| jobs.jobs.len()), 0);
    }
    // One that still waits when the rack ends.
    drop(gossamer::spawn(|| {
        let (latch, never) = (Latch::new(0), Condvar::new());
        never.wait(&mut latch.lock());
    }));
}

/// A value that its readers count themselves in.
#[derive(Default)]
struct Counted {
    readers: Cell<u32>,
    most: Cell<u32>,
    writes: u32,
}

impl Counted {
    fn read(&self) {
        self.readers.update(|readers| readers + 1);
        self.most.set(self.most.get().max(self.readers.get()));
        let writes = self.writes;
        gossamer::sleep(Duration::from_millis(2));
        assert_eq!(self.writes, writes, "no writer while there are readers");
        self.readers.update(|readers| readers - 1);
    }

    fn write(&mut self) {
        for _ in 0..3 {
            assert_eq!(self.readers.get(), 0, "no reader while there is a writer");
            gossamer::yield_now();
        }
        self.writes += 1;
    }
}

pub fn readers_share_a_latch() {
    for trustee in gossamer::threads() {
        let latch = trustee.entrust_with(|()| Latch::new(Counted::default()), ());
        let fibers = (0..24).map(|i| {
            let latch = latch.clone();
            gossamer::spawn(move || match i % 6 {
                5 => latch.launch(|value| value.write()),
                4 => assert!(latch.try_launch_shared(|_| -> () { panic!("fell") }).is_err()),
                _ => latch.launch_shared_with(|value, twice: bool| (value.read(), twice).0, true),
            })
        });
        let fibers: Vec<_> = fibers.collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        let (most, writes) = latch.launch(|value| (value.most.get(), value.writes));
        assert!(most > 1 && writes == 4, "{most} at a time, {writes} writes");
        // On the thread itself, without a launch; a reader that panics lets go.
        trustee.visit_with(
            |latch: Trust<Latch<Counted>>| {
                latch.apply_then(
                    |latch| {
                        let reader = latch.read();
                        assert!(reader.writes == 4 && latch.try_lock().is_none());
                        drop(reader);
                        assert!(latch.try_lock().is_some());
                    },
                    drop,
                );
            },
            latch.clone(),
        );
    }
}

pub fn readers_do_not_keep_a_writer_out() {
    for trustee in gossamer::threads() {
        let latch = trustee.entrust_with(|()| Latch::new(Counted::default()), ());
        // Readers that overlap for as long as nothing has been written.
        let readers = (0..4).map(|i| {
            let latch = latch.clone();
            gossamer::spawn(move || {
                gossamer::sleep(Duration::from_micros(500 * i));
                while latch.launch_shared(|value| (value.read(), value.writes).1) == 0 {}
            })
        });
        let readers: Vec<_> = readers.collect();
        gossamer::sleep(Duration::from_millis(5));
        latch.launch(|value| value.write());
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}

pub fn reads_inside_reads_are_refused() {
    for trustee in gossamer::threads() {
        let latch = trustee.entrust_with(|()| Latch::new(Counted::default()), ());
        let inside = |_: &Counted, latch: Trust<Latch<Counted>>| {
            let read = latch.try_launch_shared(|value| value.writes).map_err(|e| e.to_string());
            (read, latch.try_launch(|value| value.write()).map_err(|e| e.to_string()))
        };
        let (read, write) = latch.launch_shared_with(inside, latch.clone());
        for message in [read.unwrap_err(), write.unwrap_err()] {
            assert!(message.contains("that waits for this one"), "{message}");
        }
        assert_eq!(latch.launch_shared(|value| value.writes), 0);
    }
}
