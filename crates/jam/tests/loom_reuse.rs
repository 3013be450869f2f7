//! Every interleaving of threads that run a jam with one that evicts it and puts other code in its
//! memory: no runner is in memory that is being written. Run by `cargo xtask loom`.
//!
//! An assumption: here the light barrier is a fence (`SeqCst`), where the program has a compiler's fence and
//! the other side makes a `membarrier`. Loom does not know that system call. What the models show carries
//! over as far as `membarrier` does what its manual says: when it returns, each running thread of the process
//! has passed a point at which all of its memory accesses before are ordered with those after.
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

/// Two jams in a list, as in a bucket of the cache: 1 in front of 2.
struct List {
    reuse: Reuse<usize>,
    head: AtomicU64,
    /// What is after each of them; the place 0 is of none.
    next: [AtomicU64; 3],
    memory: [UnsafeCell<u64>; 3],
}

impl List {
    /// Looks for a jam, by what is in the memory of each.
    fn find(&self, runner: &Runner, wanted: u64) -> bool {
        let _inside = runner.enter();
        let mut at = self.head.load(Ordering::Acquire);
        while at != 0 {
            self.memory[at as usize].with(|jam| {
                // SAFETY: loom checks that nothing writes it meanwhile.
                assert_eq!(unsafe { *jam }, at, "a jam that was freed");
            });
            if at == wanted {
                return true;
            }
            at = self.next[at as usize].load(Ordering::Acquire);
        }
        false
    }

    /// Takes the first jam out; it still refers to the one after.
    fn evict(&self) {
        let first = self.head.load(Ordering::Relaxed);
        let behind = self.next[first as usize].load(Ordering::Relaxed);
        self.head.store(behind, Ordering::Release);
        self.reuse.retire(first as usize);
    }

    /// Writes to the memory of those that no runner uses.
    fn reclaim(&self) {
        self.reuse.reclaim(|free| {
            self.memory[free].with_mut(|jam| {
                // SAFETY: loom checks that nothing looks at it.
                unsafe { *jam = 0 }
            });
        });
    }
}

/// A runner that stands on a jam which was taken out goes on to one that is taken out after it.
#[test]
fn a_runner_goes_on_through_jams_that_were_taken_out() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let list = Arc::new(List {
            reuse: Reuse::new(),
            head: AtomicU64::new(1),
            next: [0, 2, 0].map(AtomicU64::new),
            memory: [0, 1, 2].map(UnsafeCell::new),
        });
        let (other, runner) = (list.clone(), list.reuse.runner());
        let other = loom::thread::spawn(move || {
            other.find(&runner, 2);
            other.find(&runner, 2);
        });
        for _ in 0..2 {
            list.evict();
            list.reclaim();
        }
        other.join().unwrap();
        list.reclaim();
        assert_eq!(list.reuse.waiting(), 0, "they become free");
    });
}
