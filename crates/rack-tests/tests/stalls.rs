//! `GOSSAMER_STALL`: a program that hangs says why. Each program here is a test that is ignored, which
//! another test runs as a process.

#[allow(unused_macros)]
mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, thread};

use common::{DEADLINE, within_deadline};
use gossamer::{Latch, Rack, RackError, Trust, Trustee, spawn_on_with};
use rustix::process::{Pid, Signal, kill_process};

/// A process that is killed when it is dropped.
struct Program {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: Vec<String>,
}

impl Program {
    fn start(test: &str, stall: &str) -> Program {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env("GOSSAMER_STALL", stall)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let (sender, lines) = mpsc::channel();
        let errors: ChildStderr = child.stderr.take().expect("a pipe");
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Program { child, lines, said: Vec::new() }
    }

    /// Waits for a line that contains all of `parts`, and returns it.
    fn says(&mut self, parts: &[&str]) -> String {
        let deadline = Instant::now() + DEADLINE / 4;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("the program has not said {parts:?}, but: {:#?}", self.said);
            };
            self.said.push(line.clone());
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Account = Trust<Latch<u64>>;

/// The lines of the launches below, as reports name them.
const OUTER: u32 = line!() + 5;
const INNER: u32 = line!() + 7;

/// Takes both latches, one after the other, when all have taken their first.
fn transfer((first, second, met): (Account, Account, gossamer::Barrier)) {
    first.launch_with(
        |from, (second, met): (Account, gossamer::Barrier)| {
            met.wait();
            *from -= second.launch(|to| {
                *to += 1;
                1
            });
        },
        (second, met),
    );
}

#[test]
#[ignore = "run by a_deadlock_of_two_latches_is_reported, as a process"]
fn deadlocks() {
    let ended = Rack::new().threads(2).run(|| {
        let threads: Vec<Trustee> = gossamer::threads().collect();
        let [one, other] = [0, 1].map(|n| threads[n].entrust_with(Latch::new, 100u64));
        eprintln!("accounts: {one:?} {other:?}");
        let met = gossamer::Barrier::new(2);
        let fibers = [(&one, &other), (&other, &one)].map(|(first, second)| {
            spawn_on_with(threads[0], transfer, (first.clone(), second.clone(), met.clone()))
        });
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    ended.unwrap();
}

#[test]
fn a_deadlock_of_two_latches_is_reported() {
    within_deadline("a deadlock", || {
        let mut program = Program::start("deadlocks", "300ms");
        let accounts = program.says(&["accounts: "]);
        let property = |account: &str| {
            let number = account.split("property: ").nth(1).unwrap();
            number.split(|c: char| !c.is_ascii_digit()).next().unwrap().to_owned()
        };
        let accounts: Vec<_> = accounts.split("Trust {").skip(1).map(property).collect();
        program.says(&["gossamer: no progress for 300 ms on host 0:"]);
        let place = |line: u32| format!("stalls.rs:{line}:");
        for (thread, account) in [(0, &accounts[0]), (1, &accounts[1])] {
            let wants =
                format!("to run the closure launched at crates/rack-tests/tests/{}", place(INNER));
            let holds =
                format!("for the closure launched at crates/rack-tests/tests/{}", place(OUTER));
            program.says(&[
                &format!("of thread {thread} of host 0 has waited at least "),
                &format!(" s for the latch of property {account} of this thread (`u64`), {wants}"),
                "; fiber ",
                &format!(" holds it, {holds}"),
            ]);
        }
    });
}

#[test]
#[ignore = "run by a_thread_that_is_kept_busy_is_reported, as a process"]
fn computes() {
    let ended = Rack::new().threads(2).run(|| {
        let other = gossamer::threads().last().unwrap();
        let fiber = gossamer::spawn_on(other, || {
            loop {
                std::hint::spin_loop();
            }
        });
        fiber.join().unwrap()
    });
    ended.unwrap()
}

#[test]
fn a_thread_that_is_kept_busy_is_reported() {
    within_deadline("a busy thread", || {
        let mut program = Program::start("computes", "400ms");
        let process = format!("thread 'gossamer-0.1' of process {} shows", program.child.id());
        program.says(&[
            "thread 1 of host 0 has been busy or blocked for ",
            &process,
            "\"Where a fiber must not wait\"",
        ]);
    });
}

#[test]
#[ignore = "run by a_signal_asks_for_everything_that_waits, as a process"]
fn waits() {
    let ended = Rack::new().threads(1).run(|| {
        let sleeps = gossamer::spawn(|| gossamer::sleep(Duration::from_secs(3600)));
        let selects = gossamer::spawn(|| {
            gossamer::select! {
                () = gossamer::after(Duration::from_secs(3600)) => (),
            }
        });
        gossamer::yield_now();
        eprintln!("waiting");
        selects.join().unwrap();
        sleeps.join().unwrap();
    });
    ended.unwrap();
}

#[test]
fn a_signal_asks_for_everything_that_waits() {
    within_deadline("a signal", || {
        let mut program = Program::start("waits", "1000m");
        program.says(&["waiting"]);
        let pid = Pid::from_raw(program.child.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::USR2).expect("a process that runs");
        program.says(&["gossamer: 3 fibers wait on host 0:"]);
        let line = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let mut expected = vec![
            line(&[
                "has waited at least ",
                "the end of a sleep, at crates/rack-tests/tests/stalls.rs:",
            ]),
            line(&["has waited at least ", "`select!`, at crates/rack-tests/tests/stalls.rs:"]),
            line(&["has waited at least ", "(join), at crates/rack-tests/tests/stalls.rs:"]),
        ];
        for _ in 0..3 {
            let said = program.says(&["has waited at least "]);
            expected.retain(|parts| !parts.iter().all(|part| said.contains(part.as_str())));
        }
        assert!(expected.is_empty(), "not said: {expected:?}; said: {:#?}", program.said);
    });
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    if env::var_os("GOSSAMER_STALL").is_some() {
        let ended = Rack::new().threads(1).run(|| ());
        assert!(matches!(&ended, Err(RackError::Settings(why)) if why.contains("GOSSAMER_STALL")));
        return;
    }
    let again = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "a_time_that_makes_no_sense_is_refused"])
        .env("GOSSAMER_STALL", "soon")
        .status();
    assert!(again.expect("a process").success());
}
