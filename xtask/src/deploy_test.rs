//! `cargo xtask deploy-test`: deploys a rack to namespaces of this machine and runs a bench on it
//! with `rack-deploy`, and Graph500 with `gossamer deploy`; ends deployments by signals; deploys again to hosts
//! that are up to date, that lost a daemon, and that have another program; and checks that hosts
//! which fail a requirement are refused.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gossamer_deploy::deployment::{Deployment, Outcome};
use gossamer_deploy::interrupt::Interrupt;
use gossamer_deploy::local::{self, PREFIX};
use gossamer_deploy::mode::Mode;
use gossamer_deploy::namespaces::Namespaces;
use gossamer_deploy::rack_file::RackFile;

use crate::netns::check::{eventually, working};
use crate::programs::{GRAPH, check_bench, check_graph};
use crate::rack_deploy::{build, local_folder, programs};
use crate::step::{Step, itself};
use crate::workspace::Workspace;

/// The time that a deployment with a small bench may take.
const TIMEOUT: Duration = Duration::from_secs(240);
/// The arguments of a small bench.
const BENCH: &str = "bench --workload c --records 2000 --operations 20000";
/// A bench that runs until it is ended.
const ENDLESS: &str = "rack-deploy --local 2 --bin kv -- bench --records 300 --operations \
                       1000000000000 --seconds 600";

/// Runs the gate.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    // What the commands below would build, which their timeouts do not include.
    build(workspace, "kv", Mode::Run)?;
    build(workspace, "graph", Mode::Run)?;
    let rack_deploy = Step::program(&workspace.root, itself(), "rack-deploy");
    let rate = bench(rack_deploy.args("--local 3 --bin kv --").args(BENCH), 3, check_bench)?;
    println!("deploy: a bench ran on three hosts, {rate} operations per second");
    let release = workspace.target().join("release");
    let deploy = Step::program(&workspace.root, release.join("gossamer"), "deploy --local 2 --");
    let rate = bench(deploy.arg(release.join("graph")).args(GRAPH), 2, check_graph);
    let rate = rate.context("gossamer deploy")?;
    println!("deploy: gossamer deploy ran Graph500 on two hosts, valid, BFS at {rate} MTEPS");
    for (name, status) in [("INT", 130), ("TERM", 143)] {
        interrupted(workspace, name, status)
            .with_context(|| format!("interrupted by SIG{name}"))?;
    }

    let interrupt = Interrupt::new()?;
    let folder = local_folder(workspace);
    local::with(&programs(workspace), &folder, 2, Mode::Run, &interrupt, |deployment| {
        redeploy(deployment)?;
        failures(deployment)
    })?;
    println!("deploy: up-to-date hosts were left unchanged, others updated, unfit ones refused");
    Ok(())
}

/// Runs a deployment with a program on `hosts` hosts, and checks its output; returns its throughput.
fn bench(step: Step, hosts: usize, check: impl Fn(&str, usize) -> Result<f64>) -> Result<f64> {
    let printed = step.within(TIMEOUT).read()?;
    // Only the first host reports.
    let lines: Option<Vec<_>> = printed.lines().map(|line| line.strip_prefix("[a] ")).collect();
    let lines = lines.context("output of another host, expected only that of the first")?;
    check(&lines.join("\n"), hosts)
}

/// Ends a deployment's job by a signal, of the terminal or not, and checks that nothing is left.
fn interrupted(workspace: &Workspace, name: &str, status: i32) -> Result<()> {
    let namespaces = Namespaces::new(PREFIX, &local_folder(workspace));
    let mut command = Command::new(itself());
    let mut child =
        command.args(ENDLESS.split(' ')).stdin(Stdio::null()).process_group(0).spawn()?;
    let ready = eventually("the job works", || {
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "rack-deploy ended before its job started");
        let exists = namespaces.hosts()?.iter().any(|host| host == "b");
        // The namespace may disappear in between.
        Ok(if exists { working(&namespaces, 1, "b").unwrap_or_default() } else { None })
    });
    // A terminal signals the process group, which `kill` takes with a minus.
    let whom = if name == "INT" { format!("-{}", child.id()) } else { child.id().to_string() };
    Step::program(&workspace.root, "kill", &format!("-s {name} -- {whom}")).run()?;
    let ended = child.wait()?;
    ready?;
    ensure!(
        ended.code() == Some(status),
        "rack-deploy ended with {ended}, expected status {status}"
    );
    let left = namespaces.hosts()?;
    ensure!(left.is_empty(), "hosts left after the deployment: {left:?}");
    println!("deploy: ended by SIG{name}, and nothing is left");
    Ok(())
}

/// Deploys to hosts that are up to date, or partly so.
fn redeploy(deployment: &Deployment<'_>) -> Result<()> {
    use Outcome::{Unchanged, Updated};
    let outcomes = deployment.deploy()?;
    ensure!(
        outcomes == [Updated, Updated],
        "empty hosts, expected both to be updated: {outcomes:?}"
    );
    let outcomes = deployment.deploy().context("a second time")?;
    ensure!(
        outcomes == [Unchanged, Unchanged],
        "up-to-date hosts, expected no change: {outcomes:?}"
    );
    let hosts = deployment.hosts();
    let daemon = format!("cat {}/gossamerd.pid", hosts[1].folder);
    let before = deployment.on(&hosts[1], &daemon)?;
    deployment.on(&hosts[1], &format!("kill -KILL {before}"))?;
    let outcomes = deployment.deploy().context("with a daemon that was killed")?;
    ensure!(
        outcomes == [Unchanged, Updated],
        "killed daemon, expected b to be updated: {outcomes:?}"
    );
    ensure!(deployment.on(&hosts[1], &daemon)? != before, "no new daemon on b");
    // Replaced, since a file that runs cannot be written to.
    let change = "cp gossamerd other && echo >>other && mv other gossamerd";
    deployment.on(&hosts[0], &format!("cd {}/bin && {change}", hosts[0].folder))?;
    let outcomes = deployment.deploy().context("with another gossamerd in place");
    ensure!(outcomes? == [Updated, Unchanged], "replaced gossamerd, expected a to be updated");
    let outcomes = deployment.deploy().context("at last")?;
    ensure!(
        outcomes == [Unchanged, Unchanged],
        "up-to-date hosts, expected no change: {outcomes:?}"
    );
    Ok(())
}

/// Deploys to hosts that fail a requirement.
fn failures(deployment: &Deployment<'_>) -> Result<()> {
    let good = &deployment.hosts()[0];
    let small = format!("{}.small", good.folder);
    // Only this host sees it: `ip netns exec` gives each command its own mounts.
    deployment.on(good, &format!("mkdir {small} && mount -t tmpfs -o size=1m none {small}"))?;
    let host = |name: &str, ssh: &str, folder: &str| {
        let address = good.address;
        format!(
            "[[hosts]]\nname = \"{name}\"\nssh = \"{ssh}\"\naddress = \"{address}\"\n\
             port = 7500\nfolder = \"{folder}\"\nsystemd = false\n"
        )
    };
    for (host, reason) in [
        (host("d", &good.ssh, &small), "d: 1 MiB free on the disk of its folder"),
        (host("e", "nobody-here.invalid", "gossamer"), "e: ssh: Could not resolve hostname"),
    ] {
        let rack = RackFile::parse(&format!("name = \"local\"\n{host}"))?;
        let Err(error) = deployment.with_rack(&rack).deploy() else {
            bail!("unfit host accepted: {host}")
        };
        let message = format!("{error:#}");
        ensure!(message.contains("nothing was deployed") && message.contains(reason), "{message}");
        println!("deploy: refused: {message}");
    }
    Ok(())
}
