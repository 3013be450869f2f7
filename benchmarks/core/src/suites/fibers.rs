//! What fibers cost, ours and those of other crates: a switch, a spawn on a pooled stack, a park
//! with its unpark.
//!
//! The bare crates have no scheduler. For park and unpark they get the smallest one there can be: a
//! queue of numbers, from which the thread resumes one fiber after another. `may` has a scheduler
//! of its own, here with one worker on the measured core.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Once};
use std::time::Duration;

use bench_kit::harness::{Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::sampling::{CaseError, Reading, Sampler, SingleThread};
use bench_kit::product::fibers as ours;
use may::coroutine;

use super::raw_fibers::{
    Corosensei, CorosenseiPool, Ctx, CtxPool, Gener, GenerPool, RawFiber, RawPool, STACK,
};

/// The suites `fiber-switch-1`, `fiber-switch-64`, `fiber-spawn` and `fiber-park`.
pub(crate) fn suites() -> Vec<Suite> {
    let mut suites = vec![switch(1), switch(64), spawn(), park()];
    for suite in &mut suites {
        suite.time = Duration::from_millis(50);
    }
    suites
}

fn suite(name: impl Into<String>, about: impl Into<String>) -> Suite {
    Suite::new(name, about, Placement::SingleThread)
}

fn switch(fibers: usize) -> Suite {
    let about = format!(
        "{fibers} fibers take turns; an operation is a switch from the scheduler to a fiber and back"
    );
    let mut suite = suite(format!("fiber-switch-{fibers}"), about);
    suite.push(turns("corosensei", fibers, Corosensei::endless));
    suite.push(turns("context", fibers, Ctx::endless));
    suite.push(turns("generator", fibers, Gener::endless));
    suite.push(Case::new("may", Unit::Nanoseconds, move |sampler| may_turns(sampler, fibers)));
    suite.push(ours::turns(fibers).beside(Peer::case("corosensei")));
    suite
}

/// What a fiber does between two switches of the `fiber-switch` suites.
type Tick = Box<dyn FnMut()>;

fn turns<F: RawFiber<Tick> + 'static>(name: &str, fibers: usize, make: fn(Tick) -> F) -> Case {
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        sampler.single_thread(|thread| {
            let tick = || {
                let mut turn = 0u64;
                Box::new(move || turn = black_box(turn + 1)) as Tick
            };
            let mut all: Vec<F> = (0..fibers).map(|_| make(tick())).collect();
            thread.measure(|n| {
                let mut left = n;
                while left > 0 {
                    for fiber in all.iter_mut().take(left.try_into().unwrap_or(usize::MAX)) {
                        fiber.resume();
                        left -= 1;
                    }
                }
            });
        })
    })
}

fn spawn() -> Suite {
    let about =
        "an operation creates a fiber on a stack used before, runs it to its end, reclaims it";
    let mut suite = suite("fiber-spawn", about);
    suite.push(pooled::<CorosenseiPool>("corosensei"));
    suite.push(pooled::<CtxPool>("context"));
    suite.push(pooled::<GenerPool>("generator"));
    suite.push(Case::new("may, 64 at a time", Unit::Nanoseconds, may_spawn));
    suite.push(ours::spawn().beside(Peer::case("corosensei")));
    suite.push(ours::spawn_and_join().beside(Peer::case("may, 64 at a time")));
    suite
}

fn nothing() {
    black_box(());
}

fn pooled<P: RawPool>(name: &str) -> Case {
    Case::new(name, Unit::Nanoseconds, |sampler| {
        sampler.single_thread(|thread| {
            let mut pool = P::default();
            thread.measure(|n| (0..n).for_each(|_| pool.run_once(black_box(nothing))));
        })
    })
}

fn park() -> Suite {
    let about = "two fibers wake each other; an operation is one unpark, park and switch";
    let mut suite = suite("fiber-park", about);
    suite.push(wake_each_other("corosensei and a queue", Corosensei::endless));
    suite.push(wake_each_other("context and a queue", Ctx::endless));
    suite.push(wake_each_other("generator and a queue", Gener::endless));
    suite.push(Case::new("may", Unit::Nanoseconds, may_park));
    suite.push(ours::park().beside(Peer::case("corosensei and a queue")));
    suite
}

fn wake_each_other<F: RawFiber<Tick> + 'static>(name: &str, make: fn(Tick) -> F) -> Case {
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        sampler.single_thread(|thread| {
            let ready = Rc::new(RefCell::new(VecDeque::from([0usize])));
            let wake = |other: usize| {
                let ready = ready.clone();
                Box::new(move || ready.borrow_mut().push_back(other)) as Tick
            };
            let mut fibers = [make(wake(1)), make(wake(0))];
            thread.measure(|n| {
                for _ in 0..n {
                    let next = ready.borrow_mut().pop_front();
                    fibers[next.expect("each fiber wakes the other before it parks")].resume();
                }
            });
        })
    })
}

/// Runs `body` as a coroutine of `may`. Its worker inherits the core of the thread that starts it,
/// which is the measured one; `may` would pin it itself otherwise.
fn in_may(
    sampler: &Sampler,
    body: impl FnOnce(&mut SingleThread) + Send,
) -> Result<Reading, CaseError> {
    static CONFIGURED: Once = Once::new();
    CONFIGURED.call_once(|| {
        may::config().set_workers(1).set_stack_size(STACK / size_of::<usize>());
        may::config().set_worker_pin(false);
    });
    sampler.single_thread(|thread| {
        coroutine::scope(|scope| {
            // SAFETY: the coroutine uses thread-local values only within clock reads, between which
            // it may move; and there is but one worker to run on.
            unsafe { scope.spawn(|| body(thread)) };
        });
    })
}

fn spawn_may<F: FnOnce() + Send + 'static>(body: F) -> coroutine::JoinHandle<()> {
    // SAFETY: the bodies of this file use no thread-local values and little stack.
    unsafe { coroutine::spawn(body) }
}

fn may_turns(sampler: &Sampler, fibers: usize) -> Result<Reading, CaseError> {
    in_may(sampler, |thread| {
        // Coroutines that only take turns with each other; the cost of starting them is spread
        // over the whole sample.
        thread.measure(|n| {
            let each = n.div_ceil(fibers as u64);
            let turn = || spawn_may(move || (0..each).for_each(|_| coroutine::yield_now()));
            let all: Vec<_> = (0..fibers).map(|_| turn()).collect();
            all.into_iter().for_each(|one| one.join().expect("it only yields"));
        });
    })
}

fn may_spawn(sampler: &Sampler) -> Result<Reading, CaseError> {
    const AT_A_TIME: u64 = 64;
    in_may(sampler, |thread| {
        thread.measure(|n| {
            let mut left = n;
            while left > 0 {
                let some = left.min(AT_A_TIME);
                let handles: Vec<_> = (0..some).map(|_| spawn_may(nothing)).collect();
                handles.into_iter().for_each(|handle| handle.join().expect("it does nothing"));
                left -= some;
            }
        });
    })
}

fn may_park(sampler: &Sampler) -> Result<Reading, CaseError> {
    in_may(sampler, |thread| {
        let quit = Arc::new(AtomicBool::new(false));
        let (me, quits) = (coroutine::current(), quit.clone());
        let other = spawn_may(move || {
            while !quits.load(Relaxed) {
                coroutine::park();
                me.unpark();
            }
        });
        thread.measure(|n| {
            for _ in 0..n.div_ceil(2) {
                other.coroutine().unpark();
                coroutine::park();
            }
        });
        quit.store(true, Relaxed);
        other.coroutine().unpark();
        other.join().expect("it only parks");
    })
}
