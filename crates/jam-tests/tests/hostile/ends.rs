//! How calls of an executor end, and the executor with the process that has it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gossamer::jam::{Executor, ExecutorError, LoadedJam};
use transport_api::conformance::within;

use crate::{Plain, Sum, as_both, goes_on};

#[test]
fn honest_jams_run_in_one_process() {
    as_both(|mut executor| {
        for round in 0..100 {
            assert_eq!(executor.run(&jam!(Sum, "sum"), round, &[7; 100]).unwrap(), round * 700);
        }
        let words = vec![1; 1 << 18];
        assert_eq!(executor.run(&jam!(Sum, "sum"), 1, &words).unwrap(), 1 << 18);
        assert_eq!(executor.run(&jam!(Plain<u64>, "deep"), 100, &[]).unwrap(), 100);
        assert_eq!(executor.restarts(), 0);
        let longer = vec![1; (1 << 18) + (32 << 10)];
        match executor.run(&jam!(Sum, "sum"), 1, &longer) {
            Err(ExecutorError::Payload { bytes, .. }) => assert_eq!(bytes, longer.len() * 4),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_loop_ends_at_the_deadline() {
    // Fails the test if the deadline does not end the loop.
    within(Duration::from_secs(100), || {
        as_both(|_| {
            let short = Executor::builder().deadline(Duration::from_millis(50));
            let mut executor = short.start().unwrap();
            match executor.run(&jam!(Plain<()>, "endless"), (), &[]) {
                Err(ExecutorError::Deadline { jam, fault, .. }) => {
                    assert_eq!(jam, "endless");
                    assert!(fault.offset.is_some(), "{fault}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(executor.process_id(), None);
            assert_eq!(executor.restarts(), 0);
            let mut patient = crate::executor();
            goes_on(&mut patient);
        })
    });
}

#[test]
fn a_stack_overflow_is_named() {
    as_both(|mut executor| {
        match executor.run(&jam!(Plain<u64>, "deep"), 1 << 20, &[]) {
            Err(ExecutorError::StackOverflow { jam, stack, fault }) => {
                assert_eq!((&*jam, stack), ("deep", 256 << 10));
                assert!(fault.offset.is_some(), "{fault}");
            }
            other => panic!("{other:?}"),
        }
        // Frames that are larger than a guard of some pages, on a stack of their size: compilers touch each
        // page of them.
        let in_rust = executor.run(&jam!(Plain<u64>, "large_frames"), 3, &[]).map(|_| ());
        let in_c = jam!(LoadedJam::<(), i64, (), i64>, "large_frames_in_c");
        for result in [in_rust, executor.run(&in_c, 3, &[]).map(|_| ())] {
            match result {
                Err(ExecutorError::StackOverflow { stack, fault, .. }) => {
                    assert!(stack == 256 << 10 && fault.offset.is_some(), "{fault}");
                }
                other => panic!("{other:?}"),
            }
        }
        goes_on(&mut executor);
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn instructions_that_raise_signals_are_named() {
    as_both(|mut executor| {
        for (which, signal) in [(0, libc::SIGILL), (1, libc::SIGTRAP)] {
            match executor.run(&jam!(Plain<u64>, "instruction"), which, &[]) {
                Err(ExecutorError::Crashed { fault, .. }) => assert_eq!(fault.signal, Some(signal)),
                other => panic!("{other:?}"),
            }
        }
        // A kernel without 32-bit programs faults.
        match executor.run(&jam!(Plain<u64>, "instruction"), 2, &[]) {
            Err(ExecutorError::Denied { call: 20, .. } | ExecutorError::Crashed { .. }) => {}
            other => panic!("{other:?}"),
        }
        goes_on(&mut executor);
    });
}

#[test]
fn a_panic_comes_back_with_its_line_and_the_process_goes_on() {
    as_both(|_| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = lines.clone();
        let builder =
            Executor::builder().log(move |line| seen.lock().unwrap().push(line.to_owned()));
        let mut executor = builder.start().unwrap();
        let talks = jam!(LoadedJam::<(), u64, u8, u64>, "talks");
        match executor.run(&talks, 2, &[]) {
            Err(ExecutorError::Panicked { jam, source }) => {
                assert_eq!((&*jam, &*source.message), ("talks", "nothing to say"));
                assert!(source.file.ends_with("hostile/talks.rs") && source.line == 11, "{source}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(*lines.lock().unwrap(), ["a line", "a line"]);
        match executor.run(&talks, 2, &[5]) {
            Err(ExecutorError::Panicked { source, .. }) => assert_eq!(source.line, 13),
            other => panic!("{other:?}"),
        }
        assert_eq!(executor.run(&talks, 1, &[5, 6]).unwrap(), 6);
        lines.lock().unwrap().clear();
        assert_eq!(executor.run(&talks, 10_000, &[9; 10_001]).unwrap(), 9);
        assert_eq!(lines.lock().unwrap().len(), 307, "3 KiB of lines");
        assert_eq!(executor.restarts(), 0);
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_jam_that_pretends_to_have_ended_has_ended() {
    as_both(|_| {
        let lines = Arc::new(Mutex::new(0));
        let seen = lines.clone();
        let builder = Executor::builder().deadline(Duration::from_secs(20));
        let mut executor = builder.log(move |_| *seen.lock().unwrap() += 1).start().unwrap();
        let pretend = jam!(Plain<[u64; 8]>, "pretend");
        // Claims that it returned: it may, and the next call is not its own.
        for _ in 0..3 {
            assert_eq!(executor.run(&pretend, [1, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap(), 42);
            goes_on(&mut executor);
        }
        assert!(*lines.lock().unwrap() > 0, "a log with a false length has what is there");
        match executor.run(&pretend, [1, 3, 0, 0, 0, 0, 0, 0], &[]) {
            Err(ExecutorError::Reply { found, .. }) => assert_eq!(found, "code 3"),
            other => panic!("{other:?}"),
        }
        match executor.run(&pretend, [77, 0, 0, 0, 0, 0, 0, 0], &[]) {
            Err(ExecutorError::Reply { found, .. }) => assert_eq!(found, "no code"),
            other => panic!("{other:?}"),
        }
        // Claims a panic with texts at wild addresses.
        match executor.run(&pretend, [2, u64::MAX, u64::MAX, 8, 1 << 40, 3, 4, 0], &[]) {
            Err(ExecutorError::Panicked { source, .. }) => {
                assert_eq!((source.message.len(), source.file.len(), source.line), (0, 0, 3));
            }
            other => panic!("{other:?}"),
        }
        goes_on(&mut executor);
        assert_eq!(executor.restarts(), 0);
        // The program's system call with other arguments.
        match executor.run(&pretend, [1, 0, 0, 0, 0, 0, 0, 1], &[]) {
            Err(ExecutorError::Denied { call: 1, fault, .. }) => assert_eq!(fault.offset, None),
            other => panic!("{other:?}"),
        }
        // It waits for the next call, which cannot begin until this one ends: only the deadline ends it.
        let short = Executor::builder().deadline(Duration::from_millis(50));
        match short.start().unwrap().run(&pretend, [1, 0, 0, 0, 0, 0, 0, 2], &[]) {
            Err(ExecutorError::Deadline { .. }) => {}
            other => panic!("{other:?}"),
        }
        // It makes the setup again.
        match executor.run(&pretend, [1, 0, 0, 0, 0, 0, 0, 3], &[]) {
            Err(ExecutorError::Denied { call: libc::SYS_mmap, .. }) => {}
            other => panic!("{other:?}"),
        }
        goes_on(&mut executor);
    });
}

const OWNER: &str = "GOSSAMER_TEST_OWNER";

/// Starts an executor whose jam loops, says its number, and waits to be killed.
#[test]
fn an_executor_ends_with_the_process_that_has_it() {
    if std::env::var_os(OWNER).is_some() {
        let mut executor = Executor::builder().deadline(Duration::from_secs(600)).start().unwrap();
        println!("executor {}", executor.process_id().unwrap());
        drop(executor.run(&jam!(Plain<()>, "endless"), (), &[]));
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["ends::an_executor_ends_with_the_process_that_has_it", "--exact", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| Some(line.unwrap().split_once("executor ")?.1.to_owned()));
    let executor = line.expect("the number of the executor");
    let stat = || fs::read_to_string(format!("/proc/{executor}/stat")).unwrap_or_default();
    // It has run the jam for some time: one that waits for a call would see the end of its socket.
    let ticks = || stat().split_whitespace().nth(13).map(|ticks| ticks.parse::<u64>().unwrap());
    while ticks().expect("the executor has ended") < 3 {
        thread::sleep(Duration::from_millis(5));
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    // Gone, or dead and not yet waited for.
    let is_there = || stat().contains("jam-executor") && !stat().contains(") Z ");
    for _ in 0..6000 {
        if !is_there() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("executor {executor} outlives the process that had it");
}
