//! `cargo xtask slurm-test`: a real Slurm on this machine (munged, slurmctld, and a slurmd for each
//! of four nodes), and on it what docs/rack.md says of racks under Slurm.
//!
//! Needs root and Debian's packages `slurm-wlm` and `munge`, whose slurmd can be several on one
//! machine. It uses a configuration, ports and a folder of its own: a Slurm that runs here already
//! is left alone.

mod cluster;

use crate::programs::check_bench;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use cluster::Cluster;
use gossamer_deploy::interrupt::{Interrupt, signal};
use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// How long anything may take that has to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often to look whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A bench that ends soon.
const SMALL: [&str; 5] = ["bench", "--records", "2000", "--operations", "20000"];
/// A bench that goes on until it is ended.
const ENDLESS: [&str; 7] =
    ["bench", "--records", "300", "--operations", "1000000000000", "--seconds", "600"];

/// Runs the test.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    cluster::check()?;
    workspace.build_programs()?;
    let interrupt = Interrupt::new()?;
    let mut cluster = Cluster::start(&interrupt)?;
    let proved = prove(&cluster, workspace, &interrupt);
    if proved.is_err() {
        eprintln!("{}", cluster.logs());
    }
    cluster.stop();
    proved
}

fn prove(cluster: &Cluster, workspace: &Workspace, interrupt: &Interrupt) -> Result<()> {
    let programs = workspace.target().join("release");
    let (kv, gossamer) = (programs.join("kv"), programs.join("gossamer"));
    let secret = Command::new(&gossamer).arg("secret").output()?;
    ensure!(secret.status.success(), "`gossamer secret` has failed: {secret:?}");
    let secret = String::from_utf8(secret.stdout)?.trim().to_owned();
    let srun = |arguments: &[&str]| {
        let mut srun = cluster.command("srun");
        srun.args(arguments).arg("--overlap").arg(&kv).env_remove("GOSSAMER_SECRET");
        srun
    };

    let ran = output(srun(&["-N", "4"]).args(SMALL).env("GOSSAMER_SECRET", &secret), interrupt)?;
    let rate = result(&ran, 4).context("four nodes with one task each")?;
    println!("slurm: a rack of four nodes, {rate} operations per second");

    let two = ["-N", "2", "-n", "4"];
    let ran = output(srun(&two).args(SMALL).env("GOSSAMER_SECRET", &secret), interrupt)?;
    let rate = result(&ran, 4).context("two nodes with two tasks each")?;
    println!("slurm: a rack of two nodes with two tasks each, {rate} operations per second");

    let (script, said) = (cluster.file("batch.sh"), cluster.file("batch.out"));
    let text = format!(
        "#!/bin/sh\nexport GOSSAMER_SECRET=$({} secret)\nsrun -N 3 -n 3 {} {}\n",
        gossamer.display(),
        kv.display(),
        SMALL.join(" ")
    );
    fs::write(&script, text)?;
    let mut sbatch = cluster.command("sbatch");
    let mut ran =
        output(sbatch.args(["--wait", "-N", "3", "-o"]).arg(&said).arg(&script), interrupt)?;
    ran.stdout = fs::read(&said).unwrap_or_default();
    let rate = result(&ran, 3).context("a batch script")?;
    println!("slurm: a batch script with a rack of three nodes, {rate} operations per second");

    let ran = output(srun(&["-N", "2"]).args(SMALL), interrupt)?;
    let errors = String::from_utf8_lossy(&ran.stderr);
    ensure!(!ran.status.success(), "without a secret the tasks have become a rack: {ran:?}");
    let says = errors.contains("export GOSSAMER_SECRET=$(gossamer secret)");
    ensure!(says, "without a secret nobody says what to do: {errors}");
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
    ensure!(!status.success(), "a task was killed, and srun has ended well");
    println!("slurm: a task was killed, and all had ended after {took:.1?}");
    Ok(())
}

/// Kills one task of the rack that runs; how long it took until all were gone.
fn kill_a_task(cluster: &Cluster, interrupt: &Interrupt) -> Result<Duration> {
    // Runtime threads have names, and are there when the tasks have found each other.
    let all = || Some(cluster.tasks()).filter(|tasks| tasks.len() == 4);
    let tasks = until("all tasks work", interrupt, all)?;
    let start = Instant::now();
    let killed = Command::new("kill").args(["-KILL", &tasks[2].to_string()]).status()?;
    ensure!(killed.success(), "the task was gone already");
    until("all tasks are gone", interrupt, || cluster.tasks().is_empty().then_some(()))?;
    Ok(start.elapsed())
}

/// What a program says until it ends; it is told to if this command is.
fn output(command: &mut Command, interrupt: &Interrupt) -> Result<Output> {
    let shown = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
    let pid = child.id();
    let waiting = spawn(|| child.wait_with_output());
    let mut is_told = false;
    while !waiting.is_finished() {
        if !is_told && interrupt.check().is_err() {
            signal(pid, "TERM");
            is_told = true;
        }
        sleep(LOOK_EVERY);
    }
    interrupt.check()?;
    let output = waiting.join().expect("waiting does not panic");
    output.with_context(|| format!("cannot run {shown}"))
}

/// The throughput that a bench on so many hosts reports, which ended well.
fn result(ran: &Output, hosts: usize) -> Result<f64> {
    let (said, errors) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    ensure!(ran.status.success(), "it has ended with {}:\n{said}{errors}", ran.status);
    check_bench(&said, hosts).with_context(|| format!("it has said:\n{said}{errors}"))
}

fn until<T>(
    what: &str,
    interrupt: &Interrupt,
    mut happened: impl FnMut() -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = happened() {
            return Ok(value);
        }
        interrupt.check()?;
        ensure!(Instant::now() < deadline, "this has not happened in {PATIENCE:?}: {what}");
        sleep(LOOK_EVERY);
    }
}
