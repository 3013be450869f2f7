//! An array of locks around a counter each, and one of atomic words.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bench_kit::harness::{Case, Unit};
use bench_kit::measure::cores::pin;
use bench_kit::measure::sampling::{CaseError, Reading, Sampler, undisturbed};
use bench_kit::measure::watch::{WaitMode, Watch};
use bench_kit::work::{Counter, Section};

use super::draws::Plan;
use crate::suites::locks::Lock;

/// Operations between two looks at the clock.
pub(super) const BURST: usize = 256;

/// Each object has cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

/// One case for each lock, and one for atomic words.
pub(super) fn cases(plan: Plan) -> Vec<Case> {
    vec![
        of::<Mutex<Counter>>(plan),
        of::<parking_lot::Mutex<Counter>>(plan),
        of::<spin::mutex::SpinMutex<Counter>>(plan),
        of::<spin::mutex::TicketMutex<Counter>>(plan),
        of::<mcslock::raw::spins::Mutex<Counter>>(plan),
        Case::new("atomic/fetch_add", Unit::Mops, move |sampler| {
            let words: Vec<_> = (0..plan.objects).map(|_| Apart(AtomicU64::new(0))).collect();
            in_threads(sampler, plan, WaitMode::Polls, || {
                |object: u32| {
                    black_box(words[object as usize].0.fetch_add(1, Relaxed));
                }
            })
        }),
    ]
}

fn of<L: Lock<Counter>>(plan: Plan) -> Case {
    Case::new(format!("lock/{}", L::NAME), Unit::Mops, move |sampler| {
        let locks: Vec<_> = (0..plan.objects).map(|_| Apart(L::new(Counter::fresh()))).collect();
        in_threads(sampler, plan, L::WAIT_MODE, || {
            let (locks, mut token) = (&locks, L::Token::default());
            move |object: u32| {
                let lock = &locks[object as usize].0;
                black_box(lock.with(&mut token, |counter| counter.run(0)));
            }
        })
    })
}

/// Runs what `operation` makes in all threads of a plan, each on a core of its own as far as there are
/// cores.
fn in_threads<F: FnMut(u32)>(
    sampler: &Sampler,
    plan: Plan,
    wait_mode: WaitMode,
    operation: impl Fn() -> F + Sync,
) -> Result<Reading, CaseError> {
    let (cores, time) = (sampler.cores.both(), sampler.time);
    let start = Barrier::new(plan.threads as usize);
    let one = |thread: u32| -> Result<(u64, Duration), CaseError> {
        let draws = plan.draws(thread);
        let mut operation = operation();
        let pinned = if plan.threads <= 2 { pin(cores[thread as usize]) } else { Ok(()) };
        // Also if it was not: the others wait.
        start.wait();
        pinned?;
        let (watch, start) = (Watch::start(wait_mode), Instant::now());
        let (mut done, mut spent) = (0, Duration::ZERO);
        while spent < time {
            let burst = &draws[done % draws.len()..][..BURST];
            burst.iter().for_each(|object| operation(*object));
            done += BURST;
            spent = start.elapsed();
        }
        // With more threads than cores, some wait for one: that is what is measured.
        if plan.threads <= 2 {
            undisturbed(watch.stop().lost)?;
        }
        Ok((done as u64, spent))
    };
    let results: Vec<_> = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..plan.threads).map(|n| scope.spawn(move || one(n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let mut rate = 0.0;
    for result in results {
        let (done, spent) = result?;
        rate += done as f64 / spent.as_secs_f64();
    }
    Ok(Reading::of(rate / 1e6))
}
