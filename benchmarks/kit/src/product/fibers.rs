//! Our fibers beside those of other crates: the bodies of the suites `fiber-*`.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use fiber::{Config, Scheduler};

use crate::harness::{Case, Unit};
use crate::measure::sampling::SingleThread;

fn case(name: &str, body: impl Fn(&mut SingleThread, &Scheduler) + Sync + 'static) -> Case {
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        sampler.try_single_thread(|thread| {
            body(thread, &Scheduler::new(Config::default())?);
            Ok(())
        })
    })
}

/// `fibers` fibers yield to each other.
pub fn turns(fibers: usize) -> Case {
    case("gossamer", move |thread, scheduler| {
        let stop = Rc::new(Cell::new(false));
        scheduler.enter(|| {
            for _ in 0..fibers {
                let stop = stop.clone();
                fiber::spawn_local(move || {
                    let mut turn = 0u64;
                    while !stop.get() {
                        turn = black_box(turn + 1);
                        fiber::yield_now();
                    }
                });
            }
        });
        thread.measure(|n| resume(scheduler, n));
        stop.set(true);
        while scheduler.run(usize::MAX) > 0 {}
    })
}

/// Resumes ready fibers n times.
fn resume(scheduler: &Scheduler, n: u64) {
    let mut left = usize::try_from(n).unwrap_or(usize::MAX);
    while left > 0 {
        left -= scheduler.run(left);
    }
}

/// A fiber that does nothing, on a pooled stack.
pub fn spawn() -> Case {
    case("gossamer", |thread, scheduler| {
        thread.measure(|n| {
            scheduler.enter(|| {
                for _ in 0..n {
                    fiber::spawn_local(black_box(|| black_box(())));
                    scheduler.run(1);
                }
            });
        });
    })
}

/// As [`spawn`], 64 fibers before any is run, and joined.
pub fn spawn_and_join() -> Case {
    const AT_A_TIME: u64 = 64;
    case("gossamer, 64 at a time", |thread, scheduler| {
        thread.measure(|n| {
            scheduler.enter(|| {
                let mut left = n;
                while left > 0 {
                    let some = left.min(AT_A_TIME);
                    let all: Vec<_> =
                        (0..some).map(|_| fiber::spawn_local(|| black_box(()))).collect();
                    scheduler.run(usize::MAX);
                    all.into_iter().for_each(|one| one.join().expect("it does nothing"));
                    left -= some;
                }
            });
        });
    })
}

/// Two fibers that wake each other and park.
pub fn park() -> Case {
    case("gossamer", |thread, scheduler| {
        let (ids, stop) = (Rc::new(Cell::new([None; 2])), Rc::new(Cell::new(false)));
        scheduler.enter(|| {
            let start = |other: usize| {
                let (ids, stop) = (ids.clone(), stop.clone());
                fiber::spawn_local(move || {
                    while !stop.get() {
                        if let Some(other) = ids.get()[other] {
                            fiber::unpark(other);
                        }
                        fiber::park();
                    }
                })
                .id()
            };
            ids.set([Some(start(1)), Some(start(0))]);
        });
        thread.measure(|n| resume(scheduler, n));
        stop.set(true);
        ids.get().into_iter().flatten().for_each(|id| scheduler.unpark(id));
        scheduler.run(usize::MAX);
    })
}
