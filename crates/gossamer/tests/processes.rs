//! Every behaviour of a rack over real processes: three hosts with two threads each. This program
//! starts itself again for each behaviour, with a deadline, and that process starts the other
//! hosts. It has a `main` of its own, because a started host must not run the tests.

#[macro_use]
mod behaviours;
mod common;

use gossamer::{Rack, RackError};
use std::{
    env,
    fs::File,
    io::{Read, Seek, SeekFrom},
    process::{Command, ExitCode, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// Which case a started process is; unset in the process that runs the tests.
const CASE: &str = "GOSSAMER_TEST_CASE";

/// How long one case may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// Cases that run at the same time.
const AT_ONCE: usize = 2;

type Case = (&'static str, fn());

macro_rules! cases {
    ($($module:ident: $name:ident;)*) => {
        const BEHAVIOURS: &[Case] = &[$((stringify!($name), behaviours::$module::$name)),*];
    };
}
behaviours!(cases);

/// Cases that are about processes.
const OWN: &[Case] = &[
    ("every_host_is_a_process_of_its_own", every_host_is_a_process_of_its_own),
    ("a_host_that_dies_takes_the_rack_down", a_host_that_dies_takes_the_rack_down),
    ("main_may_panic", main_may_panic),
    ("a_leak_on_another_host_is_named", a_leak_on_another_host_is_named),
];

fn rack() -> Rack {
    Rack::new().hosts(3).threads(2).check_leaks(true)
}

fn every_host_is_a_process_of_its_own() {
    let ids = rack().run(|| {
        let id = || (std::process::id(), gossamer::local_trustee().trustee().thread().host.0);
        let fibers: Vec<_> = gossamer::threads().map(|t| gossamer::spawn_on(t, id)).collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>()
    });
    let mut ids = ids.unwrap();
    assert_eq!(ids.len(), 6);
    assert_eq!(ids[0].0, std::process::id(), "main runs in the process that was started");
    ids.dedup();
    assert_eq!(ids.iter().map(|(_, host)| *host).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(ids[0].0 != ids[1].0 && ids[1].0 != ids[2].0 && ids[0].0 != ids[2].0);
}

fn a_host_that_dies_takes_the_rack_down() {
    let ended = rack().run(|| {
        let last = gossamer::threads().last().expect("a thread");
        let die = || -> () { std::process::abort() };
        assert!(gossamer::spawn_on(last, die).join().is_err());
    });
    match ended {
        Err(RackError::PeerLost { host, .. }) => assert_eq!(host.0, 2),
        other => panic!("{other:?}"),
    }
}

fn main_may_panic() {
    let said = common::panic_in(|| rack().run(|| -> () { panic!("main has had enough") }));
    assert_eq!(said, "main has had enough");
}

fn a_leak_on_another_host_is_named() {
    let ended = rack().run(|| {
        let last = gossamer::threads().last().expect("a thread");
        std::mem::forget(last.entrust_with(|()| vec![1.5f32], ()));
    });
    match ended {
        Err(RackError::Leaked(names)) => assert!(names[0].contains("Vec<f32>"), "{names:?}"),
        other => panic!("{other:?}"),
    }
}

fn main() -> ExitCode {
    if let Ok(name) = env::var(CASE) {
        if let Some((_, case)) = OWN.iter().find(|(own, _)| *own == name) {
            case();
        } else {
            let case = BEHAVIOURS.iter().find(|(listed, _)| *listed == name);
            let (_, case) = case.unwrap_or_else(|| panic!("there is no case {name}"));
            rack().run(case).unwrap();
        }
        return ExitCode::SUCCESS;
    }
    // Arguments as of any test program: those without dashes say which cases to run.
    let wanted: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |(name, _): &&Case| {
        wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()))
    };
    let listed: Vec<Case> = OWN.iter().chain(BEHAVIOURS).filter(is_wanted).copied().collect();
    if env::args().any(|word| word == "--list") {
        listed.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let queue = Mutex::new(listed.iter());
    let failed = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some((name, _)) = queue.lock().unwrap().next() else { break };
                    let outcome = run(name);
                    println!("test {name} ... {}", outcome.as_ref().map_or("FAILED", |()| "ok"));
                    if let Err(said) = outcome {
                        println!("{said}");
                        *failed.lock().unwrap() += 1;
                    }
                }
            });
        }
    });
    let failed = *failed.lock().unwrap();
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    let passed = listed.len() - failed;
    println!("\ntest result: {outcome}. {passed} passed; {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one case in a process of its own; what it said, if it failed or hung.
fn run(name: &str) -> Result<(), String> {
    // A file, not a pipe: hosts that outlive their rack would keep a pipe open.
    let said = env::temp_dir().join(format!("gossamer-{}-{name}", std::process::id()));
    let output = File::options().create_new(true).read(true).write(true).open(&said);
    let mut output = output.map_err(|error| format!("{}: {error}", said.display()))?;
    // Nameless from here on.
    let _ = std::fs::remove_file(&said);
    let mut command = Command::new(env::current_exe().map_err(|error| error.to_string())?);
    command.env(CASE, name).stdin(Stdio::null());
    let copy = |file: &File| file.try_clone().map_err(|error| error.to_string());
    command.stdout(copy(&output)?).stderr(copy(&output)?);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let started = Instant::now();
    let verdict = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => break format!("ended with {status}"),
            Ok(None) if started.elapsed() < DEADLINE => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                break "hung".to_owned();
            }
            Err(error) => break error.to_string(),
        }
    };
    let mut text = Vec::new();
    let read = output.seek(SeekFrom::Start(0)).and_then(|_| output.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    Err(format!("{name} {verdict} ({read:?})\n{text}"))
}
