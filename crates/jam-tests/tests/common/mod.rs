//! Runs cases on racks: of threads, of two processes, and of two tasks of a step of Slurm, which are on
//! machines of their own as far as they know. Each case is this program once more, with a deadline.
#![allow(dead_code, reason = "each test program uses a part")]

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gossamer::Rack;

pub(crate) const CASE: &str = "GOSSAMER_TEST_CASE";
/// How long a case may take; an emulated guest is slow.
const DEADLINE: Duration = Duration::from_secs(120);

/// A case and its name.
pub(crate) type Case = (&'static str, fn());

/// What a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Three threads.
    Threads,
    /// Two processes that share memory.
    Processes,
    /// Two processes that are connected over TCP and TLS.
    Tcp,
    /// Two processes, each with an RDMA device.
    Rdma,
}

/// All that need no device.
pub(crate) const EVERYWHERE: [Kind; 3] = [Kind::Threads, Kind::Processes, Kind::Tcp];

impl Kind {
    /// With which the names of its cases begin.
    fn prefix(self) -> &'static str {
        match self {
            Kind::Threads => "threads_",
            Kind::Processes => "processes_",
            Kind::Tcp => "tcp_",
            Kind::Rdma => "rdma_",
        }
    }
}

/// The rack of a case.
pub(crate) fn rack(kind: Kind) -> Rack {
    let rack = match kind {
        Kind::Threads => Rack::new().threads(3),
        Kind::Processes => Rack::new().hosts(2).threads(2),
        // Their environment sets the hosts.
        Kind::Tcp | Kind::Rdma => Rack::new().threads(2),
    };
    rack.check_leaks(true)
}

/// The `main` of a test program.
pub(crate) fn run_all(kinds: &[Kind], cases: &[Case]) -> ExitCode {
    run_all_on(kinds, cases, |kind, _| Some(rack(kind)))
}

/// As [`run_all`], of a program that has racks of its own for some cases, or none.
pub(crate) fn run_all_on(
    kinds: &[Kind],
    cases: &[Case],
    rack: fn(Kind, &str) -> Option<Rack>,
) -> ExitCode {
    let all = kinds.iter().flat_map(|kind| cases.iter().map(move |case| (*kind, case)));
    let all = all.map(|(kind, case)| (format!("{}{}", kind.prefix(), case.0), kind, case));
    if let Ok(wanted) = std::env::var(CASE) {
        let mut all = all;
        let (_, kind, (name, case)) = all.find(|(full, ..)| *full == wanted).expect("a case");
        let (rack, case) = (rack(kind, name).expect("a case on this rack"), *case);
        rack.run(move || {
            // Hosts of one machine would share memory.
            let machines = gossamer::topology().machines.len();
            assert_eq!(machines, if matches!(kind, Kind::Tcp | Kind::Rdma) { 2 } else { 1 });
            case();
        })
        .unwrap();
        return ExitCode::SUCCESS;
    }
    let all = all.filter(|(_, kind, (name, _))| rack(*kind, name).is_some());
    let numbered = all.enumerate().map(|(number, (name, kind, _))| (name, (number, kind)));
    cases::run(numbered, 1, |name, (number, kind)| run(*number, name, *kind))
}

/// Runs a case in processes of its own, whose output goes to this one's.
fn run(number: usize, name: &str, kind: Kind) -> Result<(), String> {
    let mut processes = start(number, name, kind);
    let started = Instant::now();
    let ended: Vec<_> = processes.iter_mut().map(|process| wait(process, started)).collect();
    match ended.iter().find(|is_well| **is_well != Some(true)) {
        None => Ok(()),
        Some(None) => Err(format!("{name} hung")),
        Some(Some(_)) => Err(format!("{name} failed")),
    }
}

/// Whether a process has ended well; `None` if it was killed at the deadline.
fn wait(process: &mut Child, started: Instant) -> Option<bool> {
    loop {
        if let Some(status) = process.try_wait().expect("a child") {
            return Some(status.success());
        }
        if started.elapsed() > DEADLINE {
            let _ = process.kill();
            let _ = process.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts the process of a case, or the two tasks of a step with this number.
fn start(number: usize, name: &str, kind: Kind) -> Vec<Child> {
    let command = || {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(CASE, name).stdin(Stdio::null());
        for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLURM")) {
            command.env_remove(variable);
        }
        command
    };
    let devices = match kind {
        Kind::Threads | Kind::Processes => return vec![command().spawn().expect("a process")],
        Kind::Tcp => Vec::new(),
        Kind::Rdma => devices(),
    };
    let task = |rank: usize| {
        let mut command = command();
        if kind == Kind::Rdma {
            command.env("GOSSAMER_RDMA_DEVICE", &devices[rank % devices.len()]);
            // Of panics that cases expect: looking up symbols takes long in a guest.
            command.env("RUST_BACKTRACE", "0");
        }
        // Without the name of a node, each task is on a machine of its own.
        command
            .env("GOSSAMER_SECRET", "08".repeat(32))
            .env("SLURM_JOB_ID", std::process::id().to_string())
            .env("SLURM_STEP_ID", number.to_string())
            .env("SLURM_STEP_NUM_TASKS", "2")
            .env("SLURM_STEP_NODELIST", "localhost")
            .env("SLURM_PROCID", rank.to_string());
        command.spawn().expect("a process")
    };
    (0..2).map(task).collect()
}

/// The RDMA devices of this machine.
fn devices() -> Vec<String> {
    const DEVICES: &str = "/sys/class/infiniband";
    let entries = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let mut devices: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    devices.sort();
    assert!(!devices.is_empty(), "no RDMA device in {DEVICES}: run `cargo xtask rdma-test`");
    devices
}
