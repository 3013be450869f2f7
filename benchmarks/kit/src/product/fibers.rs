//! Our fibers beside those of other crates: the bodies of the suites `fiber-*`.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use fiber::{Config, Scheduler};

use crate::harness::{Case, Unit};
use crate::measure::room::Alone;

fn case(name: &str, body: impl Fn(&mut Alone, &Scheduler) + Sync + 'static) -> Case {
    Case::new(name, Unit::Nanoseconds, move |room| {
        room.try_alone(|alone| {
            body(alone, &Scheduler::new(Config::default())?);
            Ok(())
        })
    })
}

/// `fibers` fibers yield to each other.
pub fn turns(fibers: usize) -> Case {
    case("gossamer", move |alone, scheduler| {
        let over = Rc::new(Cell::new(false));
        scheduler.enter(|| {
            for _ in 0..fibers {
                let over = over.clone();
                fiber::spawn_local(move || {
                    let mut turn = 0u64;
                    while !over.get() {
                        turn = black_box(turn + 1);
                        fiber::yield_now();
                    }
                });
            }
        });
        alone.measure(|n| resume(scheduler, n));
        over.set(true);
        scheduler.run(usize::MAX);
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
    case("gossamer", |alone, scheduler| {
        alone.measure(|n| {
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
    case("gossamer, 64 at a time", |alone, scheduler| {
        alone.measure(|n| {
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
    case("gossamer", |alone, scheduler| {
        let (ids, over) = (Rc::new(Cell::new([None; 2])), Rc::new(Cell::new(false)));
        scheduler.enter(|| {
            let start = |other: usize| {
                let (ids, over) = (ids.clone(), over.clone());
                fiber::spawn_local(move || {
                    while !over.get() {
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
        alone.measure(|n| resume(scheduler, n));
        over.set(true);
        ids.get().into_iter().flatten().for_each(|id| scheduler.unpark(id));
        scheduler.run(usize::MAX);
    })
}
