//! Values made on first use, by initialisers that wait: per thread, per process and per fiber.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use gossamer_fiber::{
    Config, LazyLock, OnceLock, Scheduler, ThreadLocal, fiber_local, park, spawn_local, yield_now,
};

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default()).unwrap()
}

/// Runs `body` in `fibers` fibers of this thread, and returns their results or panic messages.
fn in_fibers<T: 'static>(count: usize, body: fn() -> T) -> Vec<Result<T, String>> {
    let scheduler = scheduler();
    let fibers: Vec<_> =
        scheduler.enter(|| (0..count).map(|_| spawn_local(body)).collect::<Vec<_>>());
    while scheduler.live() > 0 {
        scheduler.run(64);
    }
    let join = |fiber: gossamer_fiber::LocalJoinHandle<T>| fiber.join().map_err(|e| e.to_string());
    fibers.into_iter().map(join).collect()
}

fn message(result: std::thread::Result<()>) -> String {
    *result.unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn a_thread_local_is_made_once_however_often_its_initialiser_waits() {
    thread_local! {
        static MADE: Cell<usize> = const { Cell::new(0) };
    }
    static NAME: ThreadLocal<String> = ThreadLocal::new(|| {
        for _ in 0..3 {
            yield_now();
        }
        MADE.set(MADE.get() + 1);
        "on the heap".repeat(MADE.get())
    });
    let seen = in_fibers(4, || {
        NAME.with(|name| {
            let before = name.as_ptr().addr();
            yield_now();
            assert_eq!((name.as_str(), name.as_ptr().addr()), ("on the heap", before));
            before
        })
    });
    assert!(seen.iter().all(|address| *address == seen[0] && address.is_ok()), "{seen:?}");
    assert_eq!(MADE.get(), 1);
    let elsewhere = std::thread::spawn(|| (in_fibers(2, || NAME.with(String::len)), MADE.get()));
    assert_eq!(elsewhere.join().unwrap(), (vec![Ok(11), Ok(11)], 1));
}

#[test]
fn after_a_panic_the_next_use_initialises() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    static VALUE: LazyLock<usize> = LazyLock::new(|| {
        yield_now();
        let tries = TRIES.fetch_add(1, Ordering::Relaxed);
        assert!(tries > 1, "try {tries}");
        tries
    });
    let ended = in_fibers(4, || *VALUE);
    let messages: Vec<_> = ended.iter().filter_map(|one| one.as_ref().err()).collect();
    assert_eq!(messages.len(), 2, "{ended:?}");
    assert!(messages[0].contains("panicked: try 0") && messages[1].contains("panicked: try 1"));
    assert!(ended.iter().flatten().all(|value| *value == 2));
}

#[test]
fn an_initialiser_that_uses_its_own_value_is_refused_with_both_places() {
    static OF_THREAD: ThreadLocal<u8> = ThreadLocal::new(|| OF_THREAD.with(|value| *value));
    static OF_PROCESS: LazyLock<u16> = LazyLock::new(|| *OF_PROCESS);
    fiber_local! {
        static OF_FIBER: u32 = OF_FIBER.with(|value| *value);
    }
    let uses: [(&str, fn()); 3] = [
        ("u8", || OF_THREAD.with(|_| ())),
        ("u16", || assert!(*OF_PROCESS > 0)),
        ("u32", || OF_FIBER.with(|_| ())),
    ];
    for (kind, body) in uses {
        let outside = message(catch_unwind(body));
        let inside = in_fibers(1, body).remove(0).unwrap_err();
        for said in [outside, inside] {
            assert!(said.contains(&format!("{kind}, started at ")), "{said}");
            assert_eq!(said.matches(file!()).count(), 2, "{said}");
        }
    }
}

#[test]
fn fibers_and_threads_wait_for_the_initialiser_of_another_thread() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static MAY_END: OnceLock<()> = OnceLock::new();
    static VALUE: LazyLock<usize> = LazyLock::new(|| {
        while MAY_END.get().is_none() {
            yield_now();
        }
        MADE.fetch_add(1, Ordering::Relaxed)
    });
    let begin = Arc::new(Barrier::new(4));
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let begin = begin.clone();
            std::thread::spawn(move || {
                if worker > 0 {
                    begin.wait();
                    return vec![Ok(*VALUE)];
                }
                let scheduler = scheduler();
                scheduler.enter(|| spawn_local(|| *VALUE));
                scheduler.run(1);
                begin.wait();
                drop(scheduler.enter(|| spawn_local(|| MAY_END.set(()))));
                let late = scheduler.enter(|| [(); 2].map(|()| spawn_local(|| *VALUE)));
                while scheduler.live() > 0 {
                    scheduler.run(64);
                }
                late.map(|fiber| fiber.join().map_err(|e| e.to_string())).into()
            })
        })
        .collect();
    begin.wait();
    let seen: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(seen, vec![Ok(0); 4]);
    assert_eq!(MADE.load(Ordering::Relaxed), 1);
}

#[test]
fn code_outside_fibers_does_not_block_the_thread_that_initialises() {
    static VALUE: ThreadLocal<u64> = ThreadLocal::new(|| {
        yield_now();
        7
    });
    let scheduler = scheduler();
    let fiber = scheduler.enter(|| spawn_local(|| VALUE.with(|value| *value)));
    scheduler.run(1);
    let said = message(catch_unwind(|| VALUE.with(|_| ())));
    assert!(said.contains("first use of a u64") && said.contains("block the thread"), "{said}");
    while !fiber.is_finished() {
        scheduler.run(1);
    }
    assert_eq!(VALUE.with(|value| *value), 7);
}

#[test]
fn an_initialiser_that_is_unwound_leaves_the_next_one_to_try() {
    static VALUE: LazyLock<u8> = LazyLock::new(|| {
        if gossamer_fiber::in_fiber() {
            park();
        }
        1
    });
    let scheduler = scheduler();
    drop(scheduler.enter(|| [(); 2].map(|()| spawn_local(|| *VALUE))));
    scheduler.run(2);
    assert_eq!(scheduler.abandon(), 2);
    assert_eq!(*VALUE, 1);
}

#[test]
fn the_values_of_a_thread_are_dropped_at_its_end_the_newest_first() {
    static DROPPED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    struct Note(&'static str);
    impl Drop for Note {
        fn drop(&mut self) {
            let late = catch_unwind(AssertUnwindSafe(|| OLD.with(|_| ())));
            assert!(message(late).contains("used by a destructor"));
            DROPPED.lock().unwrap().push(self.0);
        }
    }
    static OLD: ThreadLocal<Note> = ThreadLocal::new(|| Note("old"));
    static NEW: ThreadLocal<Note> = ThreadLocal::new(|| {
        yield_now();
        Note("new")
    });
    std::thread::spawn(|| {
        in_fibers(1, || {
            OLD.with(|_| ());
            NEW.with(|_| ());
        });
        assert!(DROPPED.lock().unwrap().is_empty(), "they outlive the fibers");
    })
    .join()
    .unwrap();
    assert_eq!(*DROPPED.lock().unwrap(), ["new", "old"]);
}

#[test]
fn fiber_locals_may_be_made_by_waiting() {
    fiber_local! {
        static TRAIL: RefCell<Vec<u8>> = {
            yield_now();
            RefCell::new(vec![0])
        };
    }
    let trails = in_fibers(3, || {
        for step in 1..3 {
            TRAIL.with(|trail| trail.borrow_mut().push(step));
            yield_now();
        }
        TRAIL.with(RefCell::take)
    });
    assert_eq!(trails, vec![Ok(vec![0, 1, 2]); 3]);
}
