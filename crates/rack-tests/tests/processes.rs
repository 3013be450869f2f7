//! Every behaviour of a rack over real processes, with two threads each: three that share memory,
//! and four of which two each share a machine, as far as they know, and its memory, and the rest
//! is TCP and TLS. This program starts itself again for each behaviour, with a deadline. Of those
//! that share memory the first starts the others; those of two machines are tasks of a step of
//! Slurm, so to speak. It has a `main` of its own, because a started host must not run the tests.

mod common;

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use behaviours::behaviours;
use gossamer::{HostId, LossReason, Rack, RackError};
use gossamer_job::Secret;
use rustix::process::{Pid, Signal};

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

/// Cases that are about processes which share memory.
const OWN: &[Case] = &[
    ("every_host_is_a_process_of_its_own", every_host_is_a_process_of_its_own),
    ("all_hosts_are_on_this_machine", all_hosts_are_on_this_machine),
    ("a_host_that_dies_takes_the_rack_down", a_host_that_dies_takes_the_rack_down),
    ("a_host_killed_while_the_rack_starts_is_named", a_host_killed_while_the_rack_starts_is_named),
    ("main_may_panic", main_may_panic),
    ("ctrl_c_ends_the_rack_as_one_program", ctrl_c_ends_the_rack_as_one_program),
    ("a_host_0_that_is_killed_leaves_no_process", a_host_0_that_is_killed_leaves_no_process),
    ("a_leak_on_another_host_is_named", a_leak_on_another_host_is_named),
];

/// Cases that are about processes of two machines; in the last two not all processes end well.
const MIXED_OWN: &[Case] = &[
    ("every_pair_of_processes_talks", every_pair_of_processes_talks),
    ("the_hosts_are_on_the_machines_of_their_tasks", the_hosts_are_on_the_machines_of_their_tasks),
    ("a_neighbour_that_dies_takes_the_rack_down", a_neighbour_that_dies_takes_the_rack_down),
    ("a_far_host_that_dies_takes_the_rack_down", a_far_host_that_dies_takes_the_rack_down),
];

/// Processes of the racks of two machines, half of them on each.
const TASKS: u32 = 4;

/// What precedes the names of cases on two machines.
const MIXED: &str = "mixed_";

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

/// A job, the threads of its hosts, its machines with their hosts, and the transports from host 0 to each.
type Said = (Option<String>, u32, Vec<(String, Vec<u32>)>, Vec<String>);

/// What every thread of the rack says about the machines.
fn machines() -> Vec<Said> {
    let ask = || {
        let topology = gossamer::topology();
        let transport = |host| topology.transport(HostId(0), host).expect("a host");
        let transports = gossamer::hosts().map(|host| transport(host).to_string()).collect();
        let machines = topology.machines.into_iter();
        let machines = machines.map(|m| (m.name, m.hosts.into_iter().map(|host| host.0).collect()));
        (topology.job, topology.threads, machines.collect(), transports)
    };
    let fibers: Vec<_> = gossamer::threads().map(|t| gossamer::spawn_on(t, ask)).collect();
    fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
}

fn all_hosts_are_on_this_machine() {
    let said = rack().run(machines).unwrap();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let transports = vec!["shared memory".to_owned(); 3];
    assert_eq!(said, vec![(None, 2, vec![(name, vec![0, 1, 2])], transports); 6]);
}

fn the_hosts_are_on_the_machines_of_their_tasks() {
    let said = rack().run(machines).unwrap();
    let on = |name: &str, hosts: [u32; 2]| (name.to_owned(), hosts.to_vec());
    assert!(said[0].0.is_some(), "the step has a number: {said:?}");
    let machines = vec![on("machine0", [0, 1]), on("machine1", [2, 3])];
    let transports = ["shared memory", "shared memory", "TCP", "TCP"].map(str::to_owned);
    let expected = (said[0].0.clone(), 2, machines, transports.to_vec());
    assert_eq!(said, vec![expected; 8]);
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

/// Threads of host 1 or 2 while it starts: once the first is there it has met the others, once one
/// of the last two is there it has shared slots with them.
const STEPS: [&[&str]; 3] = [&[], &["gossamer-shm"], &["gossamer-1.0", "gossamer-2.0"]];

/// Kills this process when it has come as far as its number says, if it is the first host of its
/// leader to ask.
fn die_while_starting() {
    let leader = rustix::process::getppid().expect("a leader").as_raw_nonzero();
    let name = format!("gossamer-test-victim-{leader}");
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    // It is gone with this process.
    let Ok(_first) = UnixListener::bind_addr(&address) else { return };
    let is_there = |steps: &[&str]| {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let mut names =
            threads.flat_map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        steps.is_empty() || names.any(|name| steps.contains(&name.trim()))
    };
    let steps = STEPS[std::process::id() as usize % STEPS.len()];
    while !is_there(steps) {
        thread::yield_now();
    }
    let this = rustix::process::getpid();
    let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
}

fn a_host_killed_while_the_rack_starts_is_named() {
    if env::var_os("GOSSAMER_HOST_PROCESS").is_some() {
        thread::spawn(die_while_starting);
    }
    for _ in 0..10 {
        let ended = rack().run(|| gossamer::sleep(DEADLINE));
        let error = format!("{:?}", ended.expect_err("a host has been killed"));
        // Before the rack is complete, and after.
        let is_named = error.contains("(pid ") || error.contains("process ");
        assert!(is_named && error.contains("SIGKILL"), "{error}");
    }
}

fn main_may_panic() {
    let message = common::panic_in(|| rack().run(|| -> () { panic!("main has had enough") }));
    assert_eq!(message, "main has had enough");
}

/// Set in a process whose rack waits to be ended by a signal.
const WAITS: &str = "GOSSAMER_TEST_WAITS";

/// Sends a signal to a rack as `send` does it to its first process, the leader of a process group, and
/// returns how that ended and what all of them said. None of them may be left then.
fn signalled(send: fn(Pid)) -> (ExitStatus, String) {
    if env::var_os(WAITS).is_some() {
        rack()
            .run(|| {
                for trustee in gossamer::threads() {
                    println!("{}", trustee.visit(std::process::id));
                }
                gossamer::sleep(DEADLINE);
            })
            .unwrap();
        unreachable!("it is ended by a signal");
    }
    // A shell without job control starts programs in the background with SIGINT ignored, and so would
    // be this one if the tests were started so.
    let mut first = Command::new("env")
        .arg("--default-signal=INT")
        .arg(env::current_exe().expect("this program"))
        .env(WAITS, "1")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut printed = io::BufReader::new(first.stdout.take().expect("piped")).lines();
    let mut pids: Vec<i32> = (0..6)
        .map(|_| printed.next().expect("six lines").expect("a line").parse().expect("a number"))
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 3);
    send(Pid::from_child(&first));
    let status = first.wait().expect("it ends");
    let mut said = String::new();
    // Until the last process has closed its end.
    first.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    for pid in pids {
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Its new parent may not have asked for its status yet.
            stat.is_empty() || stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
        };
        let started = Instant::now();
        while !gone() {
            assert!(started.elapsed() < DEADLINE / 2, "process {pid} is left");
            thread::sleep(Duration::from_millis(2));
        }
    }
    (status, said)
}

fn ctrl_c_ends_the_rack_as_one_program() {
    let interrupt = |group| rustix::process::kill_process_group(group, Signal::INT).expect("sent");
    let (status, said) = signalled(interrupt);
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "as of any program");
    assert_eq!(said, "", "nothing is reported as lost");
}

fn a_host_0_that_is_killed_leaves_no_process() {
    let kill = |process| rustix::process::kill_process(process, Signal::KILL).expect("sent");
    let (status, said) = signalled(kill);
    assert_eq!((status.signal(), &*said), (Some(Signal::KILL.as_raw()), ""));
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

fn every_pair_of_processes_talks() {
    let ids = rack().run(|| {
        let all: Vec<_> = gossamer::threads().collect();
        let ask = |all: Vec<gossamer::Trustee>| {
            let ids = all.into_iter().map(|trustee| {
                let counter = trustee.entrust_with(|()| std::process::id(), ());
                counter.apply(|id| *id)
            });
            ids.collect::<Vec<u32>>()
        };
        let fibers: Vec<_> =
            all.iter().map(|t| gossamer::spawn_on_with(*t, ask, all.clone())).collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect::<Vec<_>>()
    });
    let mut ids = ids.unwrap();
    assert_eq!(ids.len(), 2 * TASKS as usize);
    assert!(ids.iter().all(|seen| *seen == ids[0]), "all see the same: {ids:?}");
    ids[0].dedup();
    assert_eq!(ids[0].len(), TASKS as usize, "each process is one host: {ids:?}");
}

/// Kills `host`; returns the reason of the loss that the rack reports.
fn death_of(host: usize) -> LossReason {
    let ended = rack().run(move || {
        // All are up: one that is not yet can only say that it was left alone.
        gossamer::threads().for_each(|thread| gossamer::spawn_on(thread, || ()).join().unwrap());
        let victim = gossamer::threads().nth(2 * host).expect("a thread");
        let die = || -> () { std::process::abort() };
        assert!(gossamer::spawn_on(victim, die).join().is_err());
        // Until the rack has ended.
        gossamer::sleep(DEADLINE);
    });
    match ended {
        Err(RackError::PeerLost { host: lost, reason }) if lost.0 as usize == host => reason,
        other => panic!("{other:?}"),
    }
}

fn a_neighbour_that_dies_takes_the_rack_down() {
    let reason = death_of(1);
    assert!(matches!(reason, LossReason::ProcessEnded { .. }), "seen over memory: {reason}");
}

fn a_far_host_that_dies_takes_the_rack_down() {
    let reason = death_of(3);
    assert!(matches!(reason, LossReason::Connection(_)), "seen over TCP: {reason}");
}

fn main() -> ExitCode {
    if let Ok(name) = env::var(CASE) {
        let (own, name) = match name.strip_prefix(MIXED) {
            Some(name) => (MIXED_OWN, name.to_owned()),
            None => (OWN, name),
        };
        if let Some((_, case)) = own.iter().find(|(own, _)| *own == name) {
            case();
        } else {
            let case = BEHAVIOURS.iter().find(|(listed, _)| *listed == name);
            let (_, case) = case.unwrap_or_else(|| panic!("there is no case {name}"));
            rack().run(case).unwrap();
        }
        return ExitCode::SUCCESS;
    }
    let names = |prefix: &'static str, cases: &'static [Case]| {
        cases.iter().map(move |(name, _)| format!("{prefix}{name}"))
    };
    let all = names("", OWN).chain(names("", BEHAVIOURS));
    let all = all.chain(names(MIXED, MIXED_OWN)).chain(names(MIXED, BEHAVIOURS));
    let numbered = all.enumerate().map(|(number, name)| (name, number));
    cases::run(numbered, AT_ONCE, |name, number| run(*number, name))
}

/// Runs one case in processes of its own; returns their output if it failed or hung.
fn run(number: usize, name: &str) -> Result<(), String> {
    // A file, not a pipe: hosts that outlive their rack would keep a pipe open.
    let log = env::temp_dir().join(format!("gossamer-{}-{name}", std::process::id()));
    let output = File::options().create_new(true).read(true).append(true).open(&log);
    let mut output = output.map_err(|error| format!("{}: {error}", log.display()))?;
    // Nameless from here on.
    let _ = std::fs::remove_file(&log);
    let processes = start(number, name, &output).map_err(|error| error.to_string())?;
    let verdict = judge(processes, MIXED_OWN[2..].iter().all(|(own, _)| !name.ends_with(own)));
    let Err(verdict) = verdict else { return Ok(()) };
    let mut text = Vec::new();
    let read = output.seek(SeekFrom::Start(0)).and_then(|_| output.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    Err(format!("{name} {verdict} ({read:?})\n{text}"))
}

/// Starts the process of a case, or the tasks of a step whose number is that of the case.
fn start(number: usize, name: &str, output: &File) -> io::Result<Vec<Child>> {
    let command = || {
        let mut command = Command::new(env::current_exe()?);
        command.env(CASE, name).stdin(Stdio::null());
        for (variable, _) in env::vars().filter(|(variable, _)| variable.starts_with("SLURM")) {
            command.env_remove(variable);
        }
        command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        Ok::<_, io::Error>(command)
    };
    if !name.starts_with(MIXED) {
        return Ok(vec![command()?.spawn()?]);
    }
    let task = |rank: u32| {
        let number_of = |number: u32| number.to_string();
        command()?
            .env("GOSSAMER_SECRET", secret())
            .env("SLURM_JOB_ID", number_of(std::process::id()))
            .env("SLURM_STEP_ID", number_of(number as u32))
            .env("SLURM_STEP_NUM_TASKS", number_of(TASKS))
            .env("SLURM_STEP_NODELIST", "localhost")
            .env("SLURMD_NODENAME", format!("machine{}", rank * 2 / TASKS))
            .env("SLURM_PROCID", number_of(rank))
            .spawn()
    };
    (0..TASKS).map(task).collect()
}

fn secret() -> String {
    Secret::new([8; 32]).to_hex()
}

/// Waits for the processes; what went wrong, if the first has not ended well (or `all` have not),
/// or one hangs.
fn judge(mut processes: Vec<Child>, all: bool) -> Result<(), String> {
    let started = Instant::now();
    let wait = |process: &mut Child| -> Result<ExitStatus, String> {
        loop {
            match process.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if started.elapsed() < DEADLINE => {
                    thread::sleep(Duration::from_millis(2));
                }
                Ok(None) => return Err("hung".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    let mut verdict = Ok(());
    for (rank, process) in processes.iter_mut().enumerate() {
        let ended = match wait(process) {
            Ok(status) if status.success() || (rank > 0 && !all) => Ok(()),
            Ok(status) => Err(format!("ended with {status} as process {rank}")),
            Err(wrong) => Err(format!("{wrong} as process {rank}")),
        };
        verdict = verdict.and(ended);
    }
    for process in &mut processes {
        // Of no effect on those that have ended.
        let _ = process.kill();
        let _ = process.wait();
    }
    verdict
}
