//! `cargo xtask slurm-test`: starts a real Slurm on this machine (munged, slurmctld, and a slurmd for
//! each of four nodes), and tests racks under it as docs/rack.md describes them.
//!
//! Needs root and Debian's packages `slurm-wlm` and `munge`, whose slurmd can be several on one
//! machine. It uses a configuration, ports and a folder of its own; another Slurm of this machine is
//! not touched.

mod cluster;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cluster::Cluster;
use gossamer_deploy::interrupt::{Interrupt, signal};

use crate::programs::{GRAPH, check_bench, check_graph};
use crate::workspace::Workspace;

/// The time that any step may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which conditions are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A bench that ends soon.
const SMALL: [&str; 5] = ["bench", "--records", "2000", "--operations", "20000"];
/// A bench that runs until it is ended.
const ENDLESS: [&str; 7] =
    ["bench", "--records", "300", "--operations", "1000000000000", "--seconds", "600"];

/// Runs the test.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    cluster::check()?;
    workspace.build_programs()?;
    let interrupt = Interrupt::new()?;
    let mut cluster = Cluster::start(&interrupt)?;
    let checked = check(&cluster, workspace, &interrupt);
    if checked.is_err() {
        eprintln!("{}", cluster.logs());
    }
    cluster.stop();
    checked
}

fn check(cluster: &Cluster, workspace: &Workspace, interrupt: &Interrupt) -> Result<()> {
    let programs = workspace.target().join("release");
    let [kv, graph, gossamer] = ["kv", "graph", "gossamer"].map(|name| programs.join(name));
    let secret = Command::new(&gossamer).arg("secret").output()?;
    ensure!(secret.status.success(), "`gossamer secret` failed: {secret:?}");
    let secret = String::from_utf8(secret.stdout)?.trim().to_owned();
    let srun_of = |program: &Path, arguments: &[&str]| {
        let mut srun = cluster.command("srun");
        srun.args(arguments).arg("--overlap").arg(program).env_remove("GOSSAMER_SECRET");
        srun
    };
    let srun = |arguments: &[&str]| srun_of(&kv, arguments);

    let ran = output(srun(&["-N", "4"]).args(SMALL).env("GOSSAMER_SECRET", &secret), interrupt)?;
    let rate = result(&ran, 4).context("four nodes with one task each")?;
    println!("slurm: a rack of four nodes, {rate} operations per second");

    let two = ["-N", "2", "-n", "4"];
    let ran = output(srun(&two).args(SMALL).env("GOSSAMER_SECRET", &secret), interrupt)?;
    let rate = result(&ran, 4).context("two nodes with two tasks each")?;
    println!("slurm: a rack of two nodes with two tasks each, {rate} operations per second");

    let mut job = srun_of(&graph, &["-N", "4"]);
    job.args(GRAPH.split(' ')).args(["--threads", "1"]).env("GOSSAMER_SECRET", &secret);
    let ran = output(&mut job, interrupt)?;
    let rate = checked(&ran, 4, check_graph).context("Graph500 on four nodes")?;
    println!("slurm: Graph500 on four nodes, valid, BFS at {rate} MTEPS");

    let (script, printed) = (cluster.file("batch.sh"), cluster.file("batch.out"));
    let text = format!(
        "#!/bin/sh\nexport GOSSAMER_SECRET=$({} secret)\nsrun -N 3 -n 3 {} {}\n",
        gossamer.display(),
        kv.display(),
        SMALL.join(" ")
    );
    fs::write(&script, text)?;
    let mut sbatch = cluster.command("sbatch");
    let mut ran =
        output(sbatch.args(["--wait", "-N", "3", "-o"]).arg(&printed).arg(&script), interrupt)?;
    ran.stdout = fs::read(&printed).unwrap_or_default();
    let rate = result(&ran, 3).context("a batch script")?;
    println!("slurm: a batch script with a rack of three nodes, {rate} operations per second");

    let ran = output(srun(&["-N", "2"]).args(SMALL), interrupt)?;
    let errors = String::from_utf8_lossy(&ran.stderr);
    ensure!(!ran.status.success(), "tasks without a secret started a rack: {ran:?}");
    let is_named = errors.contains("export GOSSAMER_SECRET=$(gossamer secret)");
    ensure!(is_named, "the error without a secret does not name the command: {errors}");
    println!("slurm: without a secret there is no rack, and the error names the command");

    let mut job = srun(&["-N", "4"]);
    job.args(ENDLESS).env("GOSSAMER_SECRET", &secret).stdout(Stdio::null()).stderr(Stdio::null());
    let mut job = job.spawn()?;
    let killed = kill_a_task(cluster, interrupt);
    if killed.is_err() {
        job.kill()?;
    }
    let status = job.wait()?;
    let took = killed?;
    ensure!(!status.success(), "srun succeeded after a task was killed");
    println!("slurm: killed a task; all had ended after {took:.1?}");
    Ok(())
}

/// Kills one task of the rack; returns the time until all had ended.
fn kill_a_task(cluster: &Cluster, interrupt: &Interrupt) -> Result<Duration> {
    // Tasks have runtime threads, known by their names, once they are connected.
    let all = || Some(cluster.tasks()).filter(|tasks| tasks.len() == 4);
    let tasks = until("all tasks work", interrupt, all)?;
    let start = Instant::now();
    let killed = Command::new("kill").args(["-KILL", &tasks[2].to_string()]).status()?;
    ensure!(killed.success(), "the task had ended already");
    until("all tasks have ended", interrupt, || cluster.tasks().is_empty().then_some(()))?;
    Ok(start.elapsed())
}

/// Runs a program to its end, and returns its output. It gets SIGTERM if this command does.
fn output(command: &mut Command, interrupt: &Interrupt) -> Result<Output> {
    let shown = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
    let pid = child.id();
    let waiting = spawn(|| child.wait_with_output());
    let mut was_signalled = false;
    while !waiting.is_finished() {
        if !was_signalled && interrupt.check().is_err() {
            signal(pid, "TERM");
            was_signalled = true;
        }
        sleep(POLL_INTERVAL);
    }
    interrupt.check()?;
    let output = waiting.join().expect("waiting does not panic");
    output.with_context(|| format!("cannot run {shown}"))
}

/// Checks that a bench on `hosts` hosts succeeded; returns its throughput.
fn result(ran: &Output, hosts: usize) -> Result<f64> {
    checked(ran, hosts, check_bench)
}

/// Checks that a program on `hosts` hosts succeeded, and what it printed.
fn checked(ran: &Output, hosts: usize, check: impl Fn(&str, usize) -> Result<f64>) -> Result<f64> {
    let (printed, errors) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    ensure!(ran.status.success(), "the program ended with {}:\n{printed}{errors}", ran.status);
    check(&printed, hosts).with_context(|| format!("its output:\n{printed}{errors}"))
}

fn until<T>(
    what: &str,
    interrupt: &Interrupt,
    mut happened: impl FnMut() -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = happened() {
            return Ok(value);
        }
        interrupt.check()?;
        ensure!(Instant::now() < deadline, "timed out after {TIMEOUT:?}: {what}");
        sleep(POLL_INTERVAL);
    }
}
