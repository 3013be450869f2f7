//! Tests of a whole executor, isolated as it is in use: on every machine, since its jams are in
//! assembly. `tests/hostile` of jam-tests has more of them, which a compiler builds.

use std::sync::mpsc;
use std::time::Duration;

use jam::LoadedJam;

use crate::test_jams::{
    blob, test_jam_asks, test_jam_faults, test_jam_leaves, test_jam_logs, test_jam_loops,
    test_jam_panics, test_jam_recurses, test_jam_registers, test_jam_scratch, test_jam_writes,
};
use crate::{Executor, ExecutorError};
#[cfg(target_arch = "x86_64")]
use crate::{stub::labels, test_jams::test_jam_traps};

fn jam(text: &[u8]) -> LoadedJam<(), (), (), ()> {
    LoadedJam::from_blob(&blob(text)).expect("a jam")
}

#[test]
fn an_isolated_process_runs_jams_and_survives_them() {
    let (log, lines) = mpsc::channel();
    let builder = Executor::builder().deadline(Duration::from_secs(20));
    let builder = builder.log(move |line| log.send(line.to_owned()).expect("a test"));
    let mut executor = builder.start().expect("a kernel with seccomp, memfds and /proc");
    let mut run = |text| executor.run(&jam(text), (), &[]);
    let offset = if cfg!(target_arch = "x86_64") { 6 } else { 8 };
    for _ in 0..2 {
        run(test_jam_registers()).expect("nothing is in registers");
        let code = run(test_jam_leaves()).unwrap_err();
        assert!(matches!(code, ExecutorError::Reply { .. }), "{code}");
        run(test_jam_registers()).expect("nothing is left in registers");
        run(test_jam_logs()).expect("it logs");
        match run(test_jam_panics()) {
            Err(ExecutorError::Panicked { source, .. }) => {
                assert_eq!((&*source.message, source.line), ("text", 12));
            }
            other => panic!("{other:?}"),
        }
        match run(test_jam_faults()) {
            Err(ExecutorError::Crashed { fault, .. }) => {
                let found = (fault.signal, fault.address, fault.offset);
                assert_eq!(found, (Some(libc::SIGSEGV), Some(8), Some(offset)));
            }
            other => panic!("{other:?}"),
        }
        match run(test_jam_writes()) {
            Err(ExecutorError::Crashed { fault, .. }) => {
                assert_eq!(fault.signal, Some(libc::SIGSEGV));
            }
            other => panic!("{other:?}"),
        }
        // The filter of the kernel, not this crate's interpreter of it.
        match run(test_jam_asks()) {
            Err(ExecutorError::Denied { call, fault, .. }) => {
                assert_eq!((call, fault.signal), (libc::SYS_getpid, Some(libc::SIGSYS)));
                assert!(fault.offset.is_some(), "{fault}");
            }
            other => panic!("{other:?}"),
        }
        let overflow = run(test_jam_recurses()).unwrap_err();
        assert!(matches!(overflow, ExecutorError::StackOverflow { .. }), "{overflow}");
    }
    run(test_jam_registers()).expect("it goes on");
    assert_eq!(executor.restarts(), 8, "four jams end the process, each twice");
    drop(executor);
    assert!(lines.iter().eq(["text", "te", "text", "te"]), "what jams log arrives");
    let mut short = Executor::builder().deadline(Duration::from_millis(100)).start().unwrap();
    let late = short.run(&jam(test_jam_loops()), (), &[]).unwrap_err();
    assert!(matches!(late, ExecutorError::Deadline { .. }), "{late}");
    short.run(&jam(test_jam_registers()), (), &[]).expect("it goes on");
}

/// What a jam returned that takes the first byte of the scratch as its code.
fn first_byte(executor: &mut Executor, jam: &LoadedJam<(), (), (), ()>) -> String {
    match executor.run(jam, (), &[]) {
        Ok(()) => "code 0".to_owned(),
        Err(ExecutorError::Reply { found, .. }) => found,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_written_scratch_outlasts_full_memory_for_code() {
    let builder = Executor::builder().deadline(Duration::from_secs(20)).scratch(1 << 20);
    let mut executor = builder.start().expect("an executor");
    // Two of these do not fit the memory for code.
    let large = |bytes| {
        let mut text = test_jam_scratch().to_vec();
        text.resize(bytes, 0);
        jam(&text)
    };
    let (one, other) = (large(600 << 10), large((600 << 10) + 64));
    assert_eq!(first_byte(&mut executor, &one), "code 0");
    executor.write_scratch(0, b"A").unwrap();
    executor.write_scratch((1 << 20) - 1, b"Z").unwrap();
    assert_eq!(first_byte(&mut executor, &other), "code 65", "the scratch was lost");
    assert_eq!(executor.restarts(), 1);
    let mut last = [0];
    executor.read_scratch((1 << 20) - 1, &mut last).unwrap();
    assert_eq!(&last, b"Z");
    // What a call has left is not for the next one, in another process either.
    assert_eq!(first_byte(&mut executor, &one), "code 0");
    assert_eq!(executor.restarts(), 2);
}

#[test]
fn a_deadline_beyond_the_clock_is_none() {
    for deadline in [Duration::MAX, Duration::from_secs(i64::MAX as u64 / 2)] {
        let mut executor = Executor::builder().deadline(deadline).start().expect("an executor");
        executor.run(&jam(test_jam_registers()), (), &[]).expect("it ends by itself");
        let crash = executor.run(&jam(test_jam_faults()), (), &[]).unwrap_err();
        assert!(matches!(crash, ExecutorError::Crashed { .. }), "{crash}");
        executor.run(&jam(test_jam_registers()), (), &[]).expect("it goes on");
    }
}

#[test]
fn a_call_is_repeated_if_its_process_ends_before_it_begins() {
    let builder = Executor::builder().deadline(Duration::from_secs(20)).scratch(1 << 16);
    let mut executor = builder.start().expect("an executor");
    let scratch = jam(test_jam_scratch());
    for round in 1..=2 {
        executor.write_scratch(0, b"A").unwrap();
        executor.end_process();
        assert_eq!(first_byte(&mut executor, &scratch), "code 65");
        assert_eq!(executor.restarts(), round);
    }
    assert_eq!(first_byte(&mut executor, &scratch), "code 0");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_a_jam_leaves_does_not_end_the_next_call() {
    let mut executor = Executor::builder().deadline(Duration::from_secs(20)).start().unwrap();
    let mut traps = test_jam_traps().to_vec();
    let address = traps.len() - 8;
    // The instruction has two bytes.
    traps[address..].copy_from_slice(&(labels().ended - 2).to_le_bytes());
    for round in 1..=5 {
        let ended = executor.run(&jam(&traps), (), &[]).unwrap_err();
        assert!(matches!(ended, ExecutorError::Reply { .. }), "{ended}");
        executor.run(&jam(test_jam_registers()), (), &[]).expect("it is another jam's call");
        assert_eq!(executor.restarts(), round, "the flag ends the process");
    }
}
