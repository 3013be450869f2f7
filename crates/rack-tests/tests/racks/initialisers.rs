//! Values that fibers make on first use: with the standard library's cells, whose initialisers must
//! not wait, and with ours, whose initialisers may.

use std::sync::atomic::{AtomicBool, Ordering};

use fiber::spawn_local;
use gossamer::{Rack, ThreadLocal, Trust, entrust};

use crate::common::within_deadline;

/// Runs `work` in four fibers of thread 0 of a rack of two threads, whose next property goes to
/// thread 1.
fn four_fibers(work: fn() -> u64) -> Vec<u64> {
    let run = move || {
        let other = entrust(());
        let other = if other.is_local() { other } else { entrust(()) };
        assert!(other.is_local(), "the next property goes to the other thread");
        let fibers: Vec<_> = (0..4).map(|_| spawn_local(work)).collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
    };
    Rack::new().threads(2).run(run).unwrap()
}

/// Adds one to a counter of another thread, and gives the other fibers time in between.
fn add(counter: &Trust<u64>) -> u64 {
    assert!(!counter.is_local());
    let before = counter.apply(|n| *n);
    gossamer::yield_now();
    counter.apply_with(|n, before| *n += u64::from(*n >= before), before);
    counter.apply(|n| *n)
}

#[test]
fn a_trust_is_entrusted_in_an_initialiser_of_a_thread_local() {
    thread_local! {
        static COUNTER: (String, Trust<u64>) = {
            let trust = entrust(0);
            ("a string that is on the heap".repeat(2), trust)
        };
    }
    within_deadline("a thread-local trust", || {
        let counts = four_fibers(|| {
            COUNTER.with(|(name, counter)| {
                let before = name.clone();
                let count = add(counter);
                assert_eq!(*name, before, "the value has not been replaced");
                count
            })
        });
        assert_eq!(counts.iter().max(), Some(&4), "all fibers had one counter: {counts:?}");
    });
}

#[test]
fn a_trust_is_entrusted_in_a_lazy_lock() {
    static COUNTER: std::sync::LazyLock<Trust<u64>> = std::sync::LazyLock::new(|| entrust(0));
    within_deadline("a lazy trust", || {
        let counts = four_fibers(|| add(&COUNTER));
        assert_eq!(counts.iter().max(), Some(&4), "all fibers had one counter: {counts:?}");
    });
}

#[test]
fn a_delegated_closure_entrusts() {
    within_deadline("entrusting in delegated context", || {
        let made = Rack::new().threads(2).run(|| {
            let maker = entrust(());
            let made: Vec<_> = (0..4).map(|n| maker.apply_with(|(), n| entrust(n), n)).collect();
            assert!(made.iter().any(Trust::is_local) && !made.iter().all(Trust::is_local));
            made.iter().map(|trust| trust.apply(|n| *n)).collect::<Vec<u64>>()
        });
        assert_eq!(made.unwrap(), [0, 1, 2, 3]);
    });
}

#[test]
fn our_initialisers_may_wait() {
    fn made_by_waiting() -> Trust<u64> {
        let one = entrust(1u64);
        let trust = entrust(one.apply(|n| *n - 1));
        let trust = if trust.is_local() { entrust(trust.apply(|n| *n)) } else { trust };
        gossamer::yield_now();
        trust
    }
    static OF_PROCESS: gossamer::LazyLock<Trust<u64>> = gossamer::LazyLock::new(made_by_waiting);
    static OF_THREAD: ThreadLocal<Trust<u64>> = ThreadLocal::new(made_by_waiting);
    within_deadline("initialisers that wait", || {
        for work in [|| add(&OF_PROCESS), || OF_THREAD.with(add)] {
            let counts = four_fibers(work);
            assert_eq!(counts.iter().max(), Some(&4), "all fibers had one counter: {counts:?}");
        }
    });
}

#[test]
fn a_delegated_closure_does_not_wait_for_an_initialiser() {
    static SLOW: gossamer::LazyLock<u64> = gossamer::LazyLock::new(|| {
        while !MAY_END.load(Ordering::Relaxed) {
            gossamer::yield_now();
        }
        7
    });
    static MAY_END: AtomicBool = AtomicBool::new(false);
    within_deadline("a delegated closure", || {
        let (refused, value) = Rack::new()
            .threads(2)
            .run(|| {
                let maker = spawn_local(|| *SLOW);
                gossamer::yield_now();
                let other = [entrust(()), entrust(())].into_iter().find(|trust| !trust.is_local());
                let refused = other.unwrap().try_apply(|()| *SLOW).unwrap_err().to_string();
                MAY_END.store(true, Ordering::Relaxed);
                (refused, maker.join().unwrap())
            })
            .unwrap();
        assert!(refused.contains("first use of a value at "), "{refused}");
        assert!(refused.contains("would wait inside the delegated closure"), "{refused}");
        assert_eq!(value, 7);
    });
}
