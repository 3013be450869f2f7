use std::cell::RefCell;

use fiber::{Config, Scheduler, spawn_local};

use super::*;

/// # Safety
/// `call` is one.
unsafe extern "C" fn sum(call: *mut Call) -> u32 {
    // SAFETY: `call` below makes it.
    let call = unsafe { &mut *call };
    call.reply_len = call.args_len + call.payload_len;
    0
}

fn panicked(message: &str) -> Panicked {
    Panicked { message: message.to_owned(), ..Panicked::default() }
}

/// # Safety
/// None is needed.
unsafe extern "C" fn panics(_: *mut Call) -> u32 {
    escape(panicked("first"))
}

/// Runs another that panics, then panics itself.
///
/// # Safety
/// None is needed.
unsafe extern "C" fn nested(_: *mut Call) -> u32 {
    let inner = run_it(panics).unwrap_err();
    escape(panicked(&format!("{} and second", inner.message)))
}

/// # Safety
/// `call` is one.
unsafe extern "C" fn deep(call: *mut Call) -> u32 {
    fn down(levels: usize) -> usize {
        if levels == 0 {
            escape(panicked("deep"))
        } else {
            std::hint::black_box(down(levels - 1)) + 1
        }
    }
    // SAFETY: `call` below makes it.
    down(unsafe { (*call).args_len }) as u32
}

fn call() -> Call {
    /// # Safety
    /// None is needed.
    unsafe extern "C" fn log(_: *const jam_abi::ContextData, _: *const u8, _: usize) {}
    thread_local! {
        static CONTEXT: jam_abi::ContextData = const {
            jam_abi::ContextData { sender: 0, reserved: 0, log, receiver: ptr::null_mut() }
        };
    }
    Call {
        property: ptr::null_mut(),
        args: ptr::dangling(),
        args_len: 40,
        payload: ptr::dangling(),
        payload_len: 2,
        reply: ptr::dangling_mut(),
        reply_capacity: 0,
        reply_len: 0,
        context: CONTEXT.with(ptr::from_ref),
        count: 1,
        done: 0,
        step: 0,
    }
}

fn run_it(entry: Entry) -> Result<u32, Box<Panicked>> {
    // SAFETY: functions of this file, which use of the call only its lengths, and do not wait.
    unsafe { run(entry, &mut call()) }
}

#[test]
fn a_run_returns_the_code_and_the_call() {
    let mut call = call();
    // SAFETY: as in `run_it`.
    assert_eq!(unsafe { run(sum, &mut call) }, Ok(0));
    assert_eq!(call.reply_len, 42);
}

#[test]
fn an_escape_ends_the_innermost_run_only() {
    for _ in 0..3 {
        assert_eq!(run_it(nested).unwrap_err().message, "first and second");
        assert!(INNERMOST.get().is_null());
    }
}

#[test]
fn an_escape_leaves_many_frames() {
    assert_eq!(run_it(deep).unwrap_err().message, "deep");
}

/// Calls a Local Function that leaves it, as only a function for injected code may.
///
/// # Safety
/// None is needed.
unsafe extern "C" fn leaves_a_local_function(_: *mut Call) -> u32 {
    barrier(|| -> u32 { escape(panicked("past Rust")) })
}

#[test]
fn an_escape_does_not_step_over_a_local_function() {
    if std::env::var_os("GOSSAMER_JAM_TEST_CHILD").is_some() {
        drop(run_it(leaves_a_local_function));
        return;
    }
    let ended = in_child("enter::tests::an_escape_does_not_step_over_a_local_function");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("outside of every jam: past Rust"), "{said}");
}

#[test]
fn a_local_function_runs_jams_and_may_panic() {
    assert_eq!(barrier(|| run_it(nested)).unwrap_err().message, "first and second");
    let unwound = std::panic::catch_unwind(|| barrier(|| panic!("unwinds")));
    assert!(unwound.is_err() && INNERMOST.get().is_null());
}

#[test]
fn registers_survive_an_escape() {
    // Values that live across the run: some of them in registers that `enter_jam` saves.
    let kept: Vec<u64> = (0..8).map(|i| std::hint::black_box(i * 7)).collect();
    let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|i| kept[i] ^ 1);
    let half = std::hint::black_box(0.5f64);
    assert!(run_it(deep).is_err());
    assert_eq!([a, b, c, d, e, f], [1, 6, 15, 20, 29, 34]);
    assert_eq!(half * 4.0, 2.0);
}

#[test]
fn it_works_on_the_stacks_of_fibers() {
    thread_local! {
        static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    let scheduler = Scheduler::new(Config::default()).unwrap();
    scheduler.enter(|| {
        for _ in 0..2 {
            drop(spawn_local(|| {
                let message = run_it(nested).unwrap_err().message;
                SEEN.with_borrow_mut(|seen| seen.push(message));
                fiber::yield_now();
                assert_eq!(run_it(sum), Ok(0));
            }));
        }
    });
    while scheduler.live() > 0 {
        scheduler.run(64);
    }
    assert_eq!(SEEN.take(), ["first and second", "first and second"]);
}

/// Runs the named test of this program in a child, where it takes the other branch.
fn in_child(test: &str) -> std::process::Output {
    let exe = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(exe);
    child.args([test, "--exact", "--nocapture"]).env("GOSSAMER_JAM_TEST_CHILD", "1");
    child.output().unwrap()
}

#[test]
fn an_escape_outside_every_run_ends_the_process() {
    if std::env::var_os("GOSSAMER_JAM_TEST_CHILD").is_some() {
        escape(panicked("nowhere"));
    }
    let ended = in_child("enter::tests::an_escape_outside_every_run_ends_the_process");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("outside of every jam: nowhere"), "{said}");
}
