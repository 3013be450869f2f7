//! `cargo xtask netns test`: runs a bench and Graph500 on three hosts, with one process on each and with two that
//! share memory; kills and stops its processes and unplugs a cable, and checks how the job ends.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gossamer_deploy::interrupt::signal;
use gossamer_deploy::namespaces::Namespaces;

use crate::netns::rack::Rack;
use crate::programs::{GRAPH, check_bench, check_graph};
use crate::workspace::Workspace;

const PREFIX: &str = "gossamer-test";
pub(super) const HOSTS: [&str; 3] = ["a", "b", "c"];
/// The `--loss-bound` of the jobs here: the default of `gossamer run`.
const LOSS_BOUND: Duration = Duration::from_secs(1);
/// The time in which all processes of a job must end after a kill.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// The time that any other step may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// A bench that ends soon.
const SMALL: &str = "kv bench --records 2000 --operations 20000";
/// Programs that run until they are ended.
pub(super) const ENDLESS: &str = "kv bench --records 300 --operations 1000000000000 --seconds 600";
const ENDLESS_GRAPH: &str = "graph graph500 --scale 10 --roots 1000000";

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// This long after it was started, while the processes connect to each other.
    Starting(Duration),
    /// This long after all of them have begun to work.
    Working(Duration),
}

/// Runs the gate.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    with_rack(workspace, check)
}

/// Calls `check` with a rack of its own, which is removed afterwards.
pub(super) fn with_rack(
    workspace: &Workspace,
    check: impl FnOnce(&Rack) -> Result<()>,
) -> Result<()> {
    let rack = Rack::new(workspace, PREFIX);
    let _lock = rack.namespaces.claim()?;
    // Namespaces of an earlier run that was interrupted.
    rack.namespaces.down()?;
    let checked = rack.up(HOSTS.len() as u32).and_then(|()| check(&rack));
    if checked.is_err() {
        for host in HOSTS {
            let log = fs::read_to_string(rack.file(&format!("{host}.log"))).unwrap_or_default();
            eprintln!("--- the daemon of {host}\n{log}");
        }
    }
    checked.and(rack.namespaces.down())
}

fn check(rack: &Rack) -> Result<()> {
    let rate = bench(rack)?;
    println!("netns: three hosts, {rate} operations per second");
    let rate = Job::start_several(rack, 2, SMALL)?.result(check_bench)?;
    println!("netns: three hosts with two processes each, {rate} operations per second");
    let rate = Job::start(rack, &format!("graph {GRAPH}"))?.result(check_graph)?;
    println!("netns: Graph500 on three hosts, valid, BFS at {rate} MTEPS");
    let took = kill_one(rack, 1, Moment::Working(Duration::ZERO), ENDLESS_GRAPH);
    let took = took.context("killing b while it searches a graph")?;
    println!("netns: killed a process of b that searched a graph; all had ended after {took:.1?}");
    for (number, host) in (0..).zip(HOSTS) {
        let took = kill_one(rack, number, Moment::Working(Duration::ZERO), ENDLESS);
        let took = took.with_context(|| format!("killing {host}"))?;
        println!("netns: killed a process of {host}; all had ended after {took:.1?}");
    }
    let took = unplug_a_cable(rack).context("unplugging a cable")?;
    println!("netns: unplugged the cable of c; a and b had ended after {took:.1?}");
    bench(rack).context("after plugging the cable in")?;
    stop_for_a_while(rack).context("stopping a process for less than the bound")?;
    println!("netns: stopped a process for half the loss bound; the job went on");
    Ok(())
}

/// Runs a bench to its end; returns its throughput.
fn bench(rack: &Rack) -> Result<f64> {
    Job::start(rack, SMALL)?.result(check_bench)
}

/// Kills the process of `work` on a host; returns the time until all had ended, or an error if that was too
/// long.
pub(super) fn kill_one(rack: &Rack, number: u32, moment: Moment, work: &str) -> Result<Duration> {
    let host = HOSTS[number as usize];
    let mut job = Job::start(rack, work)?;
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
    let errors = job.errors()?;
    let cause = format!("because of {host}: the program was killed by signal 9 (SIGKILL)");
    ensure!(errors.contains(&cause), "cause not reported, expected {cause:?}:\n{errors}");
    ensure!(status.code() == Some(137), "the job ended with {status}");
    ensure!(
        took <= GONE_WITHIN,
        "processes ended after {took:?}, expected {GONE_WITHIN:?} at most"
    );
    Ok(took)
}

/// Unplugs a cable and plugs it in again; returns the time until the other hosts had ended.
fn unplug_a_cable(rack: &Rack) -> Result<Duration> {
    let mut job = Job::start(rack, ENDLESS)?;
    job.process(2, "c")?;
    let start = Instant::now();
    rack.namespaces.plug("c", false)?;
    until_gone(rack, &["a", "b"])?;
    let took = start.elapsed();
    let status = job.wait()?;
    let errors = job.errors()?;
    ensure!(
        errors.contains("host 2 was lost and the rack ended"),
        "no host reported the loss of host 2:\n{errors}"
    );
    ensure!(errors.contains("because of c: lost its daemon"), "cause not reported:\n{errors}");
    ensure!(status.code() == Some(125), "the job ended with {status}");
    // The loss bound, and the time to end after it.
    ensure!(
        took <= LOSS_BOUND + GONE_WITHIN,
        "a and b ended after {took:?}, expected {:?} at most",
        LOSS_BOUND + GONE_WITHIN
    );
    // Its daemon notices the loss of the controller, and ends the process there.
    until_gone(rack, &["c"])?;
    rack.namespaces.plug("c", true)?;
    Ok(took)
}

fn stop_for_a_while(rack: &Rack) -> Result<()> {
    let mut job = Job::start(rack, "kv bench --operations 1000000000000 --seconds 3")?;
    let process = job.process(2, "c")?;
    signal(process, "STOP");
    sleep(LOSS_BOUND / 2);
    signal(process, "CONT");
    job.result(check_bench).map(drop)
}

/// Waits until only the daemon is left on these hosts.
fn until_gone(rack: &Rack, hosts: &[&str]) -> Result<()> {
    for host in hosts {
        eventually(&format!("the processes on {host} are gone"), || {
            let left = rack.namespaces.processes(host)?.len();
            ensure!(left > 0, "the daemon of {host} ended");
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

/// Waits until `happened` returns something.
pub(crate) fn eventually<T>(
    what: &str,
    mut happened: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = happened()? {
            return Ok(value);
        }
        ensure!(Instant::now() < deadline, "timed out after {TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(2));
    }
}

/// A program under way on all hosts.
struct Job<'a> {
    rack: &'a Rack,
    /// The number of processes on each host.
    processes: usize,
    controller: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl<'a> Job<'a> {
    /// Starts `work`: the name of a program, and its arguments.
    fn start(rack: &'a Rack, work: &str) -> Result<Self> {
        Self::start_several(rack, 1, work)
    }

    fn start_several(rack: &'a Rack, processes: usize, work: &str) -> Result<Self> {
        let (program, arguments) = work.split_once(' ').context("work without arguments")?;
        let (out, errors) = (rack.file("out"), rack.file("errors"));
        let bound = LOSS_BOUND.as_millis().to_string();
        let run = ["run", "--hosts", &HOSTS.join(","), "--loss-bound", &bound, "--threads", "1"];
        let mut command = rack.gossamer(&run);
        command.args(["--processes-per-host", &processes.to_string()]);
        command.arg("--").arg(rack.program(program)).args(arguments.split(' '));
        command.stdout(File::create(&out)?).stderr(File::create(&errors)?);
        Ok(Self { rack, processes, controller: command.spawn()?, out, errors })
    }

    /// The process on a host, once the processes of all hosts work.
    fn process(&mut self, number: u32, host: &str) -> Result<u32> {
        for (number, host) in (0..).zip(HOSTS) {
            self.find(number, host)?;
        }
        self.find(number, host)
    }

    /// The process on a host, as soon as one other than the daemon exists.
    fn started(&mut self, host: &str) -> Result<u32> {
        let daemon = fs::canonicalize(self.rack.program("gossamerd"))?;
        // A process that has ended meanwhile has no executable.
        let is_program = |process: &u32| {
            fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|program| program != daemon)
        };
        eventually(&format!("a process on {host} is there"), || {
            let ended = self.controller.try_wait()?;
            ensure!(ended.is_none(), "the job ended too early:\n{}", self.errors()?);
            Ok(self.rack.namespaces.processes(host)?.into_iter().find(is_program))
        })
    }

    /// The process on a host, once it works.
    fn find(&mut self, number: u32, host: &str) -> Result<u32> {
        eventually(&format!("the process on {host} works"), || {
            let ended = self.controller.try_wait()?;
            ensure!(ended.is_none(), "the job ended too early:\n{}", self.errors()?);
            working(&self.rack.namespaces, number, host)
        })
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        eventually("the job ends", || Ok(self.controller.try_wait()?))
    }

    /// Waits for the end of the job, which must succeed, and checks what it printed; returns the
    /// throughput.
    fn result(&mut self, check: impl Fn(&str, usize) -> Result<f64>) -> Result<f64> {
        let status = self.wait()?;
        ensure!(status.success(), "the job ended with {status}:\n{}", self.errors()?);
        let out = fs::read_to_string(&self.out)?;
        // Only host 0 reports.
        let prefix = if self.processes > 1 { "[a/0] " } else { "[a] " };
        let lines = out.lines().map(|line| line.strip_prefix(prefix));
        let lines: Option<Vec<_>> = lines.collect();
        let lines =
            lines.with_context(|| format!("output of another host than the first:\n{out}"))?;
        let hosts = HOSTS.len() * self.processes;
        check(&lines.join("\n"), hosts).with_context(|| format!("its output:\n{out}"))
    }

    fn errors(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.errors)?)
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        // Fails if it has ended; the daemons end its processes.
        let _ = self.controller.kill();
        let _ = self.controller.wait();
    }
}
