//! Locks around one object, wanted by two threads at once or by one alone.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, PoisonError};

use bench_kit::harness::{Case, Unit};
use bench_kit::measure::sampling::{CaseError, Reading, Sampler, StartBarrier};
use bench_kit::measure::watch::WaitMode;
use bench_kit::work::{Counter, Section, Think};

/// Operations between two looks at the clock's flag.
const BURST: u64 = 16;

/// A lock around a `T`.
pub(crate) trait Lock<T>: Send + Sync + 'static {
    /// Its name, without the prefix `lock/`.
    const NAME: &'static str;
    /// Whether a thread that waits for it may go to sleep.
    const WAIT_MODE: WaitMode;
    /// What each thread brings along.
    type Token: Default;

    /// Guards `object`.
    fn new(object: T) -> Self;

    /// Runs `section` with exclusive access.
    fn with<R>(&self, token: &mut Self::Token, section: impl FnOnce(&mut T) -> R) -> R;
}

impl<T: Send + 'static> Lock<T> for Mutex<T> {
    const NAME: &'static str = "std Mutex";
    const WAIT_MODE: WaitMode = WaitMode::Blocks;
    type Token = ();

    fn new(object: T) -> Self {
        Mutex::new(object)
    }

    #[inline(always)]
    fn with<R>(&self, (): &mut (), section: impl FnOnce(&mut T) -> R) -> R {
        section(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Send + 'static> Lock<T> for parking_lot::Mutex<T> {
    const NAME: &'static str = "parking_lot";
    const WAIT_MODE: WaitMode = WaitMode::Blocks;
    type Token = ();

    fn new(object: T) -> Self {
        parking_lot::Mutex::new(object)
    }

    #[inline(always)]
    fn with<R>(&self, (): &mut (), section: impl FnOnce(&mut T) -> R) -> R {
        section(&mut self.lock())
    }
}

impl<T: Send + 'static> Lock<T> for spin::mutex::SpinMutex<T> {
    const NAME: &'static str = "spin";
    const WAIT_MODE: WaitMode = WaitMode::Polls;
    type Token = ();

    fn new(object: T) -> Self {
        spin::mutex::SpinMutex::new(object)
    }

    #[inline(always)]
    fn with<R>(&self, (): &mut (), section: impl FnOnce(&mut T) -> R) -> R {
        section(&mut self.lock())
    }
}

impl<T: Send + 'static> Lock<T> for spin::mutex::TicketMutex<T> {
    const NAME: &'static str = "ticket";
    const WAIT_MODE: WaitMode = WaitMode::Polls;
    type Token = ();

    fn new(object: T) -> Self {
        spin::mutex::TicketMutex::new(object)
    }

    #[inline(always)]
    fn with<R>(&self, (): &mut (), section: impl FnOnce(&mut T) -> R) -> R {
        section(&mut self.lock())
    }
}

/// A queue lock's node, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Node(mcslock::raw::MutexNode);

impl<T: Send + 'static> Lock<T> for mcslock::raw::spins::Mutex<T> {
    const NAME: &'static str = "mcs";
    const WAIT_MODE: WaitMode = WaitMode::Polls;
    type Token = Node;

    fn new(object: T) -> Self {
        mcslock::raw::spins::Mutex::new(object)
    }

    #[inline(always)]
    fn with<R>(&self, node: &mut Node, section: impl FnOnce(&mut T) -> R) -> R {
        self.lock_with_then(&mut node.0, section)
    }
}

#[repr(align(128))]
struct Apart<T>(T);

/// One case for each lock: two threads run the section of `S`, with `think_ns` in between.
pub(crate) fn contended<S: Section>(think_ns: u32) -> Vec<Case> {
    vec![
        two_threads::<Mutex<S>, S>(think_ns),
        two_threads::<parking_lot::Mutex<S>, S>(think_ns),
        two_threads::<spin::mutex::SpinMutex<S>, S>(think_ns),
        two_threads::<spin::mutex::TicketMutex<S>, S>(think_ns),
        two_threads::<mcslock::raw::spins::Mutex<S>, S>(think_ns),
    ]
}

fn two_threads<L: Lock<S>, S: Section>(think_ns: u32) -> Case {
    Case::new(format!("lock/{}", L::NAME), Unit::Mops, move |sampler| {
        let think = Think::of_ns(think_ns);
        let lock = Apart(L::new(S::fresh()));
        both(sampler, L::WAIT_MODE, think, || {
            let (lock, mut token) = (&lock.0, L::Token::default());
            move |seed| {
                lock.with(&mut token, |object| object.run(seed));
            }
        })
    })
}

/// Two threads add to one atomic word.
pub(crate) fn fetch_add(think_ns: u32) -> Case {
    Case::new("atomic/fetch_add", Unit::Mops, move |sampler| {
        let word = Apart(AtomicU64::new(0));
        both(sampler, WaitMode::Polls, Think::of_ns(think_ns), || {
            |_| {
                black_box(word.0.fetch_add(1, SeqCst));
            }
        })
    })
}

/// Two threads only think: what is left when sharing costs nothing.
pub(crate) fn nothing_shared(think_ns: u32) -> Case {
    Case::new("none/nothing shared", Unit::Mops, move |sampler| {
        both(sampler, WaitMode::Polls, Think::of_ns(think_ns), || |_| ())
    })
}

/// Both threads think and operate in turn; `operation` makes what one thread repeats.
fn both<F: FnMut(u64)>(
    sampler: &Sampler,
    wait_mode: WaitMode,
    think: Think,
    operation: impl Fn() -> F + Sync,
) -> Result<Reading, CaseError> {
    let thread = |barrier: StartBarrier<'_>, mut seed: u64| {
        let mut operation = operation();
        let mut done = 0;
        let stop = barrier.wait();
        while !stop.is_set() {
            for _ in 0..BURST {
                operation(seed);
                seed = think.work(seed.wrapping_add(1));
            }
            done += BURST;
        }
        black_box(seed);
        done
    };
    sampler.pair(wait_mode, |barrier| thread(barrier, 1), |barrier| thread(barrier, 1 << 40))
}

/// One thread adds to a counter behind a lock that is uncontended.
pub(crate) fn uncontended<L: Lock<Counter>>() -> Case {
    Case::new(format!("lock/{}", L::NAME), Unit::Nanoseconds, |sampler| {
        sampler.single_thread(|thread| {
            let lock = L::new(Counter::fresh());
            let mut token = L::Token::default();
            thread.measure(|n| {
                for seed in 0..n {
                    black_box(black_box(&lock).with(&mut token, |counter| counter.run(seed)));
                }
            });
        })
    })
}

/// One thread adds to an atomic word that is uncontended.
///
/// # Errors
/// As [`Sampler::single_thread`].
pub(crate) fn uncontended_fetch_add(sampler: &Sampler) -> Result<Reading, CaseError> {
    sampler.single_thread(|thread| {
        let word = AtomicU64::new(0);
        thread.measure(|n| {
            for _ in 0..n {
                black_box(black_box(&word).fetch_add(1, SeqCst));
            }
        });
    })
}
