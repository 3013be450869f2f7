//! `cargo xtask netns test`: a bench on three hosts, with one process on each and with two that share
//! memory, and what becomes of it when a process is killed or stopped and when a cable is pulled.

use crate::netns::rack::Rack;
use crate::programs::check_bench;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use gossamer_deploy::interrupt::signal;
use gossamer_deploy::namespaces::Namespaces;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PREFIX: &str = "gossamer-test";
pub(super) const HOSTS: [&str; 3] = ["a", "b", "c"];
/// How long a host may be silent, as the jobs here are told: the default of `gossamer run`.
const LOSS_BOUND: Duration = Duration::from_secs(1);
/// How long after a kill every process of the job may be there.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// How long anything else may take that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// A bench that goes on until it is ended.
const ENDLESS: &str = "--records 300 --operations 1000000000000 --seconds 600";

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// So long after it was started, when the processes are finding each other.
    Starting(Duration),
    /// So long after all of them have begun to work.
    Working(Duration),
}

/// Runs the proofs.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    with_rack(workspace, prove)
}

/// Proves something in a rack of its own, which is removed afterwards.
pub(super) fn with_rack(
    workspace: &Workspace,
    prove: impl FnOnce(&Rack) -> Result<()>,
) -> Result<()> {
    let rack = Rack::new(workspace, PREFIX);
    let _claim = rack.namespaces.claim()?;
    // What an earlier run that was interrupted has left.
    rack.namespaces.down()?;
    let proved = rack.up(HOSTS.len() as u32).and_then(|()| prove(&rack));
    if proved.is_err() {
        for host in HOSTS {
            let log = fs::read_to_string(rack.file(&format!("{host}.log"))).unwrap_or_default();
            eprintln!("--- the daemon of {host}\n{log}");
        }
    }
    proved.and(rack.namespaces.down())
}

fn prove(rack: &Rack) -> Result<()> {
    let small = "--records 2000 --operations 20000";
    let rate = bench(rack, small)?;
    println!("netns: three hosts, {rate} operations per second");
    let rate = Job::start_several(rack, 2, small)?.result()?;
    println!("netns: three hosts with two processes each, {rate} operations per second");
    for (number, host) in (0..).zip(HOSTS) {
        let took = kill_one(rack, number, Moment::Working(Duration::ZERO));
        let took = took.with_context(|| format!("killing {host}"))?;
        println!("netns: a process of {host} was killed, and all were gone after {took:.1?}");
    }
    let took = pull_a_cable(rack).context("pulling a cable")?;
    println!("netns: the cable of c was pulled, and a and b had ended after {took:.1?}");
    bench(rack, small).context("when the cable is back")?;
    stop_for_a_while(rack).context("stopping a process for less than the bound")?;
    println!("netns: a process stood still for half the bound, and the job did not mind");
    Ok(())
}

/// Runs a bench to its end; its throughput.
fn bench(rack: &Rack, arguments: &str) -> Result<f64> {
    Job::start(rack, arguments)?.result()
}

/// Kills the process on a host; how long it took until all were gone, which is not longer than it
/// may be.
pub(super) fn kill_one(rack: &Rack, number: u32, moment: Moment) -> Result<Duration> {
    let host = HOSTS[number as usize];
    let mut job = Job::start(rack, ENDLESS)?;
    let process = match moment {
        Moment::Starting(after) => {
            let process = job.started(host)?;
            sleep(after);
            process
        }
        Moment::Working(after) => {
            let process = job.process(number, host)?;
            sleep(after);
            process
        }
    };
    let start = Instant::now();
    signal(process, "KILL");
    until_gone(rack, &HOSTS)?;
    let took = start.elapsed();
    let status = job.wait()?;
    let said = job.errors()?;
    let cause = format!("because of {host}: the program was killed by signal 9 (SIGKILL)");
    ensure!(said.contains(&cause), "the cause is not reported:\n{said}");
    ensure!(status.code() == Some(137), "the job has ended with {status}");
    ensure!(took <= GONE_WITHIN, "it took {took:?} until all were gone");
    Ok(took)
}

/// Pulls a cable and puts it back; how long it took until the other hosts had ended.
fn pull_a_cable(rack: &Rack) -> Result<Duration> {
    let mut job = Job::start(rack, ENDLESS)?;
    job.process(2, "c")?;
    let start = Instant::now();
    rack.namespaces.plug("c", false)?;
    until_gone(rack, &["a", "b"])?;
    let took = start.elapsed();
    let status = job.wait()?;
    let said = job.errors()?;
    ensure!(said.contains("host 2 is gone, and the rack with it"), "who noticed?\n{said}");
    ensure!(said.contains("because of c: its daemon was lost"), "the cause is missing:\n{said}");
    ensure!(status.code() == Some(125), "the job has ended with {status}");
    // And what they need to end once they know.
    ensure!(took <= LOSS_BOUND + GONE_WITHIN, "it took {took:?} until a and b had ended");
    // Its daemon finds that the controller is gone, and ends the process there.
    until_gone(rack, &["c"])?;
    rack.namespaces.plug("c", true)?;
    Ok(took)
}

fn stop_for_a_while(rack: &Rack) -> Result<()> {
    let mut job = Job::start(rack, "--operations 1000000000000 --seconds 3")?;
    let process = job.process(2, "c")?;
    signal(process, "STOP");
    sleep(LOSS_BOUND / 2);
    signal(process, "CONT");
    job.result().map(drop)
}

/// Waits until nothing but the daemon is left on these hosts.
fn until_gone(rack: &Rack, hosts: &[&str]) -> Result<()> {
    for host in hosts {
        eventually(&format!("the processes on {host} are gone"), || {
            let left = rack.namespaces.processes(host)?.len();
            ensure!(left > 0, "the daemon of {host} is gone");
            Ok((left == 1).then_some(()))
        })?;
    }
    Ok(())
}

/// The process of a job on a host: the one with a runtime thread, by the thread's name.
pub(crate) fn working(namespaces: &Namespaces, number: u32, host: &str) -> Result<Option<u32>> {
    let name = format!("gossamer-{number}.0\n");
    let works = |process: &u32| {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        let mut names =
            threads.flatten().map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.any(|found| found.is_ok_and(|found| found == name))
    };
    Ok(namespaces.processes(host)?.into_iter().find(works))
}

/// Waits until `happened` has something to give.
pub(crate) fn eventually<T>(
    what: &str,
    mut happened: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = happened()? {
            return Ok(value);
        }
        ensure!(Instant::now() < deadline, "this never happened: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// A bench under way on all hosts.
struct Job<'a> {
    rack: &'a Rack,
    /// How many processes each host runs.
    processes: usize,
    controller: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl<'a> Job<'a> {
    fn start(rack: &'a Rack, arguments: &str) -> Result<Self> {
        Self::start_several(rack, 1, arguments)
    }

    fn start_several(rack: &'a Rack, processes: usize, arguments: &str) -> Result<Self> {
        let (out, errors) = (rack.file("out"), rack.file("errors"));
        let bound = LOSS_BOUND.as_millis().to_string();
        let run = ["run", "--hosts", &HOSTS.join(","), "--loss-bound", &bound, "--threads", "1"];
        let mut command = rack.gossamer(&run);
        command.args(["--processes-per-host", &processes.to_string()]);
        command.arg("--").arg(rack.program("kv")).arg("bench").args(arguments.split(' '));
        command.stdout(File::create(&out)?).stderr(File::create(&errors)?);
        Ok(Self { rack, processes, controller: command.spawn()?, out, errors })
    }

    /// The process on a host, once it has found the others and all work.
    fn process(&mut self, number: u32, host: &str) -> Result<u32> {
        for (number, host) in (0..).zip(HOSTS) {
            self.find(number, host)?;
        }
        self.find(number, host)
    }

    /// The process on a host, as soon as there is one: the one that is no daemon.
    fn started(&mut self, host: &str) -> Result<u32> {
        let daemon = fs::canonicalize(self.rack.program("gossamerd"))?;
        // A process that has ended meanwhile is no program.
        let is_program = |process: &u32| {
            fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|program| program != daemon)
        };
        eventually(&format!("a process on {host} is there"), || {
            let ended = self.controller.try_wait()?;
            ensure!(ended.is_none(), "the job has ended:\n{}", self.errors()?);
            Ok(self.rack.namespaces.processes(host)?.into_iter().find(is_program))
        })
    }

    /// The process on a host, once it works.
    fn find(&mut self, number: u32, host: &str) -> Result<u32> {
        eventually(&format!("the process on {host} works"), || {
            let ended = self.controller.try_wait()?;
            ensure!(ended.is_none(), "the job has ended:\n{}", self.errors()?);
            working(&self.rack.namespaces, number, host)
        })
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        eventually("the job ends", || Ok(self.controller.try_wait()?))
    }

    /// Waits for a good end; the throughput.
    fn result(&mut self) -> Result<f64> {
        let status = self.wait()?;
        ensure!(status.success(), "the job has ended with {status}:\n{}", self.errors()?);
        let out = fs::read_to_string(&self.out)?;
        // All of it is host 0's, which alone reports.
        let prefix = if self.processes > 1 { "[a/0] " } else { "[a] " };
        let lines = out.lines().map(|line| line.strip_prefix(prefix));
        let lines: Option<Vec<_>> = lines.collect();
        let lines = lines.with_context(|| format!("other hosts have something to say:\n{out}"))?;
        let hosts = HOSTS.len() * self.processes;
        check_bench(&lines.join("\n"), hosts).with_context(|| format!("it said:\n{out}"))
    }

    fn errors(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.errors)?)
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        // Of no effect if it has ended; its daemons end the rest.
        let _ = self.controller.kill();
        let _ = self.controller.wait();
    }
}
