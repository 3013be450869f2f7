//! Every interleaving of threads that run a jam with one that evicts it and puts other code in its
//! memory: no runner is in memory that is being written. Run by
//! `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use jam::reuse::{Reuse, Runner};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use primitive::sync::{AtomicU64, Ordering};

/// One piece of executable memory, and the table in which a jam in it is found.
struct Shared {
    reuse: Reuse<()>,
    /// 0: no jam; else its name.
    table: AtomicU64,
    memory: UnsafeCell<u64>,
}

impl Shared {
    fn new() -> Arc<Self> {
        let (table, memory) = (AtomicU64::new(1), UnsafeCell::new(1));
        Arc::new(Self { reuse: Reuse::new(), table, memory })
    }

    /// Runs what the table names; it must be what is in the memory. Loom reports a run during a write.
    fn run(&self, runner: &Runner) {
        let _inside = runner.enter();
        let name = self.table.load(Ordering::Acquire);
        if name != 0 {
            self.memory.with(|code| {
                // SAFETY: loom checks that nothing writes it meanwhile.
                assert_eq!(unsafe { *code }, name);
            });
        }
    }

    /// Takes the jam out of the table.
    fn evict(&self) {
        self.table.store(0, Ordering::Release);
        self.reuse.retire(());
    }

    /// Puts another jam into the memory, if it is free.
    fn reuse(&self) -> bool {
        let mut is_free = false;
        self.reuse.reclaim(|()| is_free = true);
        if is_free {
            self.memory.with_mut(|code| {
                // SAFETY: loom checks that nothing runs there.
                unsafe { *code = 2 }
            });
            self.table.store(2, Ordering::Release);
        }
        is_free
    }
}

#[test]
fn memory_is_written_only_when_no_runner_is_in_it() {
    loom::model(|| {
        let shared = Shared::new();
        let runner = shared.reuse.runner();
        let other = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                shared.run(&runner);
                shared.run(&runner);
            })
        };
        shared.evict();
        let _ = shared.reuse();
        other.join().unwrap();
        assert!(shared.reuse.waiting() == 0 || shared.reuse(), "it becomes free");
    });
}

#[test]
fn two_runners_are_both_waited_for() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new();
        let others = [(); 2].map(|()| {
            let (shared, runner) = (shared.clone(), shared.reuse.runner());
            loom::thread::spawn(move || shared.run(&runner))
        });
        shared.evict();
        let _ = shared.reuse();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_thread_that_begins_meanwhile_finds_nothing() {
    loom::model(|| {
        let shared = Shared::new();
        let other = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let runner = shared.reuse.runner();
                shared.run(&runner);
                shared.reuse.leave(&runner);
            })
        };
        shared.evict();
        let _ = shared.reuse();
        other.join().unwrap();
    });
}
